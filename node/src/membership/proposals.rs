//! What this node's leaders wish of the replicas in sync: gathered, brought before the controller
//! together, and what is refused told to those who wished.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::controller::interface::{
    ChangeInSync, InSyncChange, InSyncRefusal, Input, Outcome, ProblemKind,
};
use quorate_core::id::{NodeId, PartitionEpoch, PartitionId};
use quorate_core::partition::interface::{
    InSyncChange as Wished, Input as ForReplica, ProposalProblem,
};
use quorate_core::shard::interface::Input as ShardInput;
use tokio::sync::mpsc;

use super::Membership;
use crate::driver::Command;
use crate::driver::ask::Stopped;
use crate::driver::lane::shard_of;

/// Rounds of shards that may wait. Beyond, wishes are lost: leaders wish again.
const WAITING_MAX: usize = 1024;
/// Wishes brought before the controller at once.
const TOGETHER_MAX: usize = 10_000;
/// How long the controller is asked on behalf of leaders, who ask again by themselves.
const PATIENCE: Duration = Duration::from_secs(1);

/// A leader's wish.
pub(crate) type Wish = (PartitionId, Wished);

/// Where shards leave what their leaders wish. Never waits.
#[derive(Clone, Debug)]
pub(crate) struct Proposals(mpsc::Sender<Vec<Wish>>);

pub(crate) fn channel() -> (Proposals, mpsc::Receiver<Vec<Wish>>) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    (Proposals(sender), receiver)
}

impl Proposals {
    pub(crate) fn leave(&self, wishes: Vec<Wish>) {
        // What is lost is wished again.
        let _ = self.0.try_send(wishes);
    }
}

impl Membership {
    /// Until the node stops.
    pub(crate) async fn propose(&self, mut wishes: mpsc::Receiver<Vec<Wish>>) {
        while let Some(mut together) = wishes.recv().await {
            while together.len() < TOGETHER_MAX
                && let Ok(more) = wishes.try_recv()
            {
                together.extend(more);
            }
            if self.propose_all(together).await.is_err() {
                return;
            }
        }
    }

    async fn propose_all(&self, wishes: Vec<Wish>) -> Result<(), Stopped> {
        let Some(node_epoch) = self.epoch() else { return Ok(()) };
        let node = self.node();
        let changes: Vec<InSyncChange> = wishes.iter().map(change).collect();
        let input = |request| {
            let changes = changes.clone();
            Input::ChangeInSync(ChangeInSync { request, node, node_epoch, changes })
        };
        let until = self.clock.now().monotonic + PATIENCE;
        let refused: Vec<(PartitionId, ProposalProblem)> =
            match self.controller.ask(until, input).await? {
                Outcome::InSyncChanged(told) => told
                    .into_iter()
                    .filter_map(|(partition, done)| Some((partition, problem(node, done.err()?))))
                    .collect(),
                Outcome::Refused(why) => {
                    tracing::debug!(why.message, "no change of who is in sync");
                    let problem = match why.kind {
                        ProblemKind::StaleNodeEpoch | ProblemKind::UnknownNode => {
                            ProposalProblem::Fenced
                        }
                        _ => ProposalProblem::Behind,
                    };
                    wishes.iter().map(|(partition, _)| (*partition, problem)).collect()
                }
                other => unreachable!("the replicas in sync are changed, not {other:?}"),
            };
        let epochs: BTreeMap<PartitionId, PartitionEpoch> =
            wishes.iter().map(|(partition, wished)| (*partition, wished.partition_epoch)).collect();
        for (partition, problem) in refused {
            if let Some(epoch) = epochs.get(&partition) {
                self.tell_refused(partition, *epoch, problem).await?;
            }
        }
        Ok(())
    }

    async fn tell_refused(
        &self,
        partition: PartitionId,
        partition_epoch: PartitionEpoch,
        problem: ProposalProblem,
    ) -> Result<(), Stopped> {
        let input = ForReplica::ProposalRefused { partition_epoch, problem };
        let shard = &self.shards[shard_of(partition, self.shards.len())];
        shard.tell(Command::Tell(ShardInput::Partition { partition, input })).await
    }
}

fn change((partition, wished): &Wish) -> InSyncChange {
    InSyncChange {
        partition: *partition,
        leader_epoch: wished.leader_epoch,
        partition_epoch: wished.partition_epoch,
        in_sync: wished.in_sync.clone(),
    }
}

const fn problem(node: NodeId, refusal: InSyncRefusal) -> ProposalProblem {
    match refusal {
        InSyncRefusal::ControllerBehind => ProposalProblem::Behind,
        InSyncRefusal::Ineligible(member) if member.0 == node.0 => ProposalProblem::Fenced,
        InSyncRefusal::Ineligible(member) => ProposalProblem::Ineligible(member),
        InSyncRefusal::UnknownPartition
        | InSyncRefusal::StaleLeaderEpoch
        | InSyncRefusal::StalePartitionEpoch
        | InSyncRefusal::Invalid => ProposalProblem::Stale,
    }
}
