//! Which aborted transactions reach into what was read: asked of the partition's machine, after the
//! records were read (docs/decisions/0127).

use quorate_core::id::Offset;
use quorate_core::partition::interface::{Input, Outcome, ReadView};
use quorate_core::shard::interface::{Input as ShardInput, Outcome as ShardOutcome};
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::fetch::AbortedTransaction;

use crate::catalog::log::LogHandle;
use crate::driver::ask::Withdrawal;

/// Those that overlap `from` to below `next`, where records were read that `view` promised,
/// ascending by first record. `None`: records were taken out of the log meanwhile, and the answer
/// does not speak of those that were read.
///
/// # Errors
///
/// Why the partition does not say.
pub(super) async fn aborted(
    log: &LogHandle,
    view: &ReadView,
    (from, next): (Offset, Offset),
) -> Result<Option<Vec<AbortedTransaction>>, Code> {
    if from >= view.aborted_end {
        return Ok(Some(Vec::new()));
    }
    let partition = log.partition;
    let input = |request| {
        let input = Input::Aborted { request, from, to: next };
        ShardInput::Partition { partition, input }
    };
    let stopped = |_| Code::NotLeaderOrFollower;
    let asked = log.shard.ask(Withdrawal::Never, input).await.map_err(stopped)?;
    let ShardOutcome::Partition(outcome) = asked.await.map_err(stopped)? else {
        unreachable!("a partition answers as one");
    };
    match outcome {
        Outcome::Aborted { view: now, transactions } => {
            let speaks_of_it = now.removals == view.removals && now.log_start <= from;
            let told = transactions.iter().map(|aborted| AbortedTransaction {
                producer_id: aborted.producer.0,
                first_offset: aborted.first.0,
            });
            Ok(speaks_of_it.then(|| told.collect()))
        }
        Outcome::Refused(refusal) => Err(Code::from(&refusal)),
        other => unreachable!("aborted transactions are told, not {other:?}"),
    }
}
