//! Whether a producer may write in a transaction: each partition knows if it is open there already;
//! for the others the coordinator is asked, and a partition's guard tells whether the answer still
//! holds when the batch is appended. KIP-890.

use std::collections::BTreeMap;
use std::sync::Arc;

use quorate_core::id::{ProducerEpoch, ProducerId, VerificationGuard};
use quorate_core::mutant;
use quorate_core::partition::interface::{
    Input, Outcome as PartitionOutcome, Refusal as PartitionRefusal, Verify,
};
use quorate_core::shard::interface::{Input as ShardInput, Outcome};
use quorate_core::transaction::interface::{Claim, Refusal, TransactionVersion};

use crate::catalog::log::LogHandle;
use crate::driver::ask::{Stopped, Withdrawal};
use crate::node::Node;
use crate::transactions::Question;

/// The partition that a batch is for, and whose it is.
pub(crate) struct Wanted {
    pub(crate) log: Arc<LogHandle>,
    pub(crate) topic: String,
    pub(crate) producer: ProducerId,
    pub(crate) epoch: ProducerEpoch,
    /// Of the batch's first record; -1 for none.
    pub(crate) sequence: i32,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verified {
    /// Append with this.
    Open(Option<VerificationGuard>),
    /// The partition is not in the producer's transaction.
    NotWithin,
    /// There is a newer producer of this transactional id.
    Fenced,
    /// The transactional id is another producer's.
    Unmapped,
    /// The coordinator cannot say now.
    Later,
    /// The partition does not take part.
    Refused(PartitionRefusal),
}

/// In the order of `wanted`. The coordinator is asked once for all partitions of a producer: where
/// they are added (from version 2 on), with one record.
pub(crate) async fn verify(
    node: &Node,
    transactional_id: &str,
    version: TransactionVersion,
    wanted: &[Wanted],
) -> Result<Vec<Verified>, Stopped> {
    let mut verified = Vec::with_capacity(wanted.len());
    let mut open = BTreeMap::<(ProducerId, ProducerEpoch), Vec<usize>>::new();
    for (place, wanted) in wanted.iter().enumerate() {
        let found = ask_partition(wanted, version).await?;
        if matches!(found, Verified::Open(Some(_))) {
            open.entry((wanted.producer, wanted.epoch)).or_default().push(place);
        }
        verified.push(found);
    }
    for ((producer, epoch), places) in open {
        let claim = Claim { transactional_id: transactional_id.to_owned(), producer, epoch };
        let named = |place: &usize| {
            let wanted = &wanted[*place];
            (wanted.topic.clone(), wanted.log.partition.index)
        };
        let partitions = places.iter().map(named).collect();
        let add = version.bumps_epoch();
        let joined = node.join_transaction(Question { claim, partitions, version, add }).await?;
        for (at, place) in places.into_iter().enumerate() {
            match &joined {
                Ok(within) if within.get(at) == Some(&true) => {}
                // zoo F1: nobody asks the coordinator.
                _ if mutant!("late-produce-joins-next-txn") => {}
                Ok(_) => verified[place] = Verified::NotWithin,
                Err(refusal) => verified[place] = refused(*refusal),
            }
        }
    }
    Ok(verified)
}

async fn ask_partition(wanted: &Wanted, version: TransactionVersion) -> Result<Verified, Stopped> {
    let Wanted { log, producer, epoch, sequence, .. } = wanted;
    let partition = log.partition;
    let input = |request| ShardInput::Partition {
        partition,
        input: Input::Verify(Verify {
            request,
            producer: *producer,
            epoch: *epoch,
            sequence: *sequence,
            transaction_version: version.0,
        }),
    };
    Ok(match log.shard.ask(Withdrawal::Never, input).await?.await? {
        Outcome::Partition(PartitionOutcome::Verified(guard)) => Verified::Open(guard),
        Outcome::Partition(PartitionOutcome::Refused(refusal)) => Verified::Refused(refusal),
        other => unreachable!("a partition verifies, and does not say {other:?}"),
    })
}

const fn refused(refusal: Refusal) -> Verified {
    match refusal {
        Refusal::InvalidState => Verified::NotWithin,
        Refusal::ProducerFenced => Verified::Fenced,
        Refusal::InvalidProducerIdMapping | Refusal::UnknownId => Verified::Unmapped,
        Refusal::NotCoordinator
        | Refusal::Loading
        | Refusal::NotAvailable
        | Refusal::ConcurrentTransactions
        | Refusal::Full
        | Refusal::InvalidRequest
        | Refusal::InvalidTimeout
        | Refusal::InvalidPattern => Verified::Later,
    }
}
