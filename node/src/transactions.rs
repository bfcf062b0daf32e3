//! What passes between coordinators of transactions and the leaders of partitions, on this node or
//! another: markers one way, and the question whether a batch belongs to a transaction the other.
//! Who decides are the machines of the core; here is the way.

pub(crate) mod errand;
pub(crate) mod rounds;

use std::time::Duration;

use futures_util::future::{Either, select};
use quorate_core::group::placement::partition_of;
use quorate_core::id::{CoordinatorEpoch, NodeId, PartitionId};
use quorate_core::partition::interface::{
    EndTransaction, Input as ForPartition, Outcome as PartitionOutcome, Refusal as NoMarker,
};
use quorate_core::shard::interface::{Input as ShardInput, Outcome as ShardOutcome};
use quorate_core::transaction::interface::{
    AddPartitions, Claim, Input, Outcome, Refusal, TopicPartition, TransactionVersion,
};
use quorate_net::clock::Clock;

use self::errand::{Done, Errand, Join, Mark, Marked};
use crate::catalog::{Catalog, State, TRANSACTIONS_TOPIC};
use crate::driver::ask::{ShardClient, Stopped, Withdrawal};
use crate::driver::lane::shard_of;
use crate::node::Node;

/// How long a partition may take to commit a marker. Its coordinator sends it again.
const MARK_PATIENCE: Duration = Duration::from_secs(5);
/// How long a coordinator is asked on behalf of a producer, which asks again by itself.
const JOIN_PATIENCE: Duration = Duration::from_secs(5);

/// Does errands where the machines are.
pub(crate) struct Office<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) shards: &'a [ShardClient],
    pub(crate) clock: &'a dyn Clock,
}

impl Office<'_> {
    pub(crate) async fn run(&self, errand: Errand) -> Result<Done, Stopped> {
        Ok(match errand {
            Errand::Mark(marks) => Done::Marked(self.mark(marks).await?),
            Errand::Join(join) => Done::Joined(self.join(join).await?),
        })
    }

    /// In the order of `marks`, which may be of many partitions.
    async fn mark(&self, marks: Vec<Mark>) -> Result<Vec<Marked>, Stopped> {
        let until = self.clock.now().monotonic + MARK_PATIENCE;
        let mut waiting = Vec::with_capacity(marks.len());
        for mark in marks {
            let partition = mark.partition;
            let input = |request| ShardInput::Partition {
                partition,
                input: ForPartition::EndTransaction(EndTransaction {
                    request,
                    producer: mark.producer,
                    epoch: mark.epoch,
                    ending: mark.ending(),
                    coordinator_epoch: CoordinatorEpoch(mark.coordinator_epoch),
                    transaction_version: mark.version,
                    until,
                }),
            };
            let shard = &self.shards[shard_of(partition, self.shards.len())];
            waiting.push(shard.ask(Withdrawal::Never, input).await?);
        }
        let mut marked = Vec::with_capacity(waiting.len());
        for asked in waiting {
            marked.push(match asked.await? {
                ShardOutcome::Partition(PartitionOutcome::TransactionEnded) => Marked::Done,
                ShardOutcome::Partition(PartitionOutcome::Refused(refusal)) => {
                    tracing::debug!(?refusal, "a marker was not written");
                    match refusal {
                        NoMarker::CoordinatorFenced { .. } => Marked::CoordinatorFenced,
                        NoMarker::StaleProducerEpoch { .. } => Marked::ProducerFenced,
                        NoMarker::NotLeader => Marked::NotLeader,
                        _ => Marked::Failed,
                    }
                }
                other => unreachable!("a partition answers as one, not with {other:?}"),
            });
        }
        Ok(marked)
    }

    /// Asks the coordinator at the partition that the errand names.
    async fn join(&self, join: Join) -> Result<Result<Vec<bool>, Refusal>, Stopped> {
        let Join { coordinator: at, transactional_id, producer, epoch, .. } = join;
        if join.add && !is_known(&self.catalog.read(), &join.partitions) {
            // Where a partition is added, its absence later means that its topic was deleted. So
            // this node must have heard of it first.
            return Ok(Err(Refusal::NotAvailable));
        }
        let each = join.partitions.into_iter();
        let partitions: Vec<_> =
            each.map(|(topic, partition)| TopicPartition { topic, partition }).collect();
        let count = partitions.len();
        let claim = Claim { transactional_id, producer, epoch };
        let version = TransactionVersion(join.version);
        let input = |request| {
            if join.add {
                Input::AddPartitions(AddPartitions { request, claim, partitions, version })
            } else {
                Input::Verify { request, claim, partitions }
            }
        };
        let shard = &self.shards[shard_of(at, self.shards.len())];
        Ok(match ask(shard, at.index, input).await? {
            Outcome::Added => Ok(vec![true; count]),
            Outcome::Verified(within) => Ok(within),
            Outcome::Refused(refusal) => Err(refusal),
            other => unreachable!("partitions are added or verified, not {other:?}"),
        })
    }
}

/// Asks a coordinator of this node.
pub(crate) async fn ask(
    shard: &ShardClient,
    coordinator: i32,
    input: impl FnOnce(quorate_core::id::RequestId) -> Input,
) -> Result<Outcome, Stopped> {
    let input = |request| ShardInput::Transaction { coordinator, input: input(request) };
    match shard.ask(Withdrawal::Transaction { coordinator }, input).await?.await? {
        ShardOutcome::Transaction(outcome) => Ok(outcome),
        other => unreachable!("a coordinator answers as one, not with {other:?}"),
    }
}

fn is_known(state: &State, partitions: &[(String, i32)]) -> bool {
    partitions.iter().all(|(topic, index)| {
        let count = state.image.topic_named(topic).map_or(0, |topic| topic.partitions.len());
        usize::try_from(*index).is_ok_and(|index| index < count)
    })
}

/// The partition of `__transaction_state` in which the truth of this id stands, and who leads it.
pub(crate) fn coordinator_of(
    state: &State,
    transactional_id: &str,
) -> Option<(PartitionId, Option<NodeId>)> {
    let topic = state.image.topic_named(TRANSACTIONS_TOPIC)?;
    let count = i32::try_from(topic.partitions.len()).ok().filter(|count| *count > 0)?;
    let index = partition_of(transactional_id, count);
    let partition = PartitionId { topic: topic.id, index };
    Some((partition, state.image.partition(partition)?.leader))
}

/// What a leader wants to know of a producer's transaction.
pub(crate) struct Question {
    pub(crate) claim: Claim,
    pub(crate) partitions: Vec<(String, i32)>,
    pub(crate) version: TransactionVersion,
    /// Whether they are added, or must be in it already.
    pub(crate) add: bool,
}

impl Node {
    fn office(&self) -> Office<'_> {
        Office { catalog: &self.catalog, shards: &self.shards, clock: &*self.clock }
    }

    /// Asks the coordinator, wherever it is: which of the partitions are in the transaction.
    pub(crate) async fn join_transaction(
        &self,
        question: Question,
    ) -> Result<Result<Vec<bool>, Refusal>, Stopped> {
        let Question { claim, partitions, version, add } = question;
        let found = coordinator_of(&self.catalog.read(), &claim.transactional_id);
        let Some((coordinator, Some(leader))) = found else {
            return Ok(Err(Refusal::NotAvailable));
        };
        let join = Join {
            coordinator,
            transactional_id: claim.transactional_id,
            producer: claim.producer,
            epoch: claim.epoch,
            partitions,
            version: version.0,
            add,
        };
        let until = self.clock.now().monotonic + JOIN_PATIENCE;
        let answer = Box::pin(self.errand(leader, Errand::Join(join)));
        match select(answer, self.clock.sleep_until(until)).await {
            Either::Left((Ok(Some(Done::Joined(joined))), _)) => Ok(joined),
            Either::Left((Err(Stopped), _)) => Err(Stopped),
            Either::Left(_) | Either::Right(_) => Ok(Err(Refusal::NotAvailable)),
        }
    }

    /// Has an errand done on `node`. `None`: nobody knows what became of it.
    pub(crate) async fn errand(
        &self,
        node: NodeId,
        errand: Errand,
    ) -> Result<Option<Done>, Stopped> {
        if node == self.id {
            return self.office().run(errand).await.map(Some);
        }
        Ok(self.peers.run_errand(node, &errand).await.ok())
    }
}
