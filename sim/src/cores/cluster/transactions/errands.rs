//! What nodes ask of one another for the sake of transactions: leaders ask coordinators whether a
//! batch belongs to one, coordinators have their markers written; and what becomes of that when no
//! answer comes. A thin version of the shipping node's.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::id::{CoordinatorEpoch, PartitionId, VerificationGuard};
use quorate_core::metadata::topic::TRANSACTIONS_TOPIC;
use quorate_core::partition::interface as partition;
use quorate_core::shard::interface::{Input, Outcome};
use quorate_core::transaction::interface::{
    self as transaction, AddPartitions, Claim, Marker, MarkerResult, TopicPartition,
    TransactionVersion,
};

use super::super::node::place_of;
use super::super::{Cluster, Event, Payload};
use super::office::{Asked, Duty, not_joined, not_within};

/// How long a partition may take to commit a marker. Its coordinator sends it again.
const MARK_PATIENCE: Duration = Duration::from_secs(5);
/// An errand to another node of which nothing is heard for so long is given up.
const ERRAND_PATIENCE: Duration = Duration::from_secs(2);

/// What one node asks of another for the sake of a transaction.
#[derive(Clone)]
pub(in super::super) enum Errand {
    /// Write this marker: the partition's leader is believed to be there.
    Mark(PartitionId, Marker),
    /// Is the partition in the transaction? Asked of a coordinator that is believed to be there.
    Join { coordinator: i32, claim: Claim, partition: TopicPartition, version: TransactionVersion },
}

#[derive(Clone, Copy)]
pub(in super::super) enum Done {
    Marked(MarkerResult),
    Joined(Result<bool, transaction::Refusal>),
}

impl Errand {
    /// Whether it does no harm, however late it comes, and how often.
    pub(in super::super) const fn is_one_of_its_kind(&self) -> bool {
        match self {
            // In the older protocol the producer's next transaction has the same epoch.
            Self::Mark(_, marker) => marker.version.bumps_epoch(),
            Self::Join { .. } => true,
        }
    }
}

/// Who waits for an errand.
pub(super) enum Waits {
    /// The coordinator of this index.
    Marker(i32, Marker),
    /// A batch, with what its partition gave for it.
    Batch(Box<Asked>, VerificationGuard),
}

/// Errands under way, by their numbers.
#[derive(Default)]
pub(in super::super) struct Errands(BTreeMap<u64, Waits>);

impl Errands {
    /// Whether somebody waits until it is done.
    pub(in super::super) fn await_done(&self, errand: u64) -> bool {
        self.0.contains_key(&errand)
    }
}

impl Cluster {
    pub(super) fn send_errand(&mut self, n: usize, to: usize, errand: Errand, waits: Waits) {
        self.next_ask += 1;
        let number = self.next_ask;
        self.nodes[n].errands.0.insert(number, waits);
        let life = self.nodes[n].life;
        if to == n {
            self.do_errand(n, n, life, number, errand);
        } else {
            self.send(n, to, Payload::Errand { errand: number, what: errand });
            self.agenda.after(ERRAND_PATIENCE, Event::ErrandDue { n, life, errand: number });
        }
    }

    /// Nobody knows what became of an errand.
    pub(in super::super) fn on_errand_due(&mut self, n: usize, errand: u64) {
        let done = match self.nodes[n].errands.0.get(&errand) {
            None => return,
            Some(Waits::Marker(..)) => Done::Marked(MarkerResult::Failed),
            Some(Waits::Batch(..)) => Done::Joined(Err(transaction::Refusal::NotAvailable)),
        };
        self.on_errand_done(n, errand, done);
    }

    /// `peer`, or this node itself, has something done here.
    pub(in super::super) fn do_errand(
        &mut self,
        n: usize,
        peer: usize,
        life: u32,
        errand: u64,
        what: Errand,
    ) {
        let until = self.nodes[n].now(self.agenda.now).monotonic + MARK_PATIENCE;
        let duty = Duty::Errand { peer, life, errand };
        match what {
            Errand::Mark(partition, marker) => {
                let request = self.await_duty(n, duty);
                let input = partition::Input::EndTransaction(partition::EndTransaction {
                    request,
                    producer: marker.producer,
                    epoch: marker.epoch,
                    ending: marker.ending,
                    coordinator_epoch: CoordinatorEpoch(marker.coordinator_epoch.0),
                    transaction_version: marker.version.0,
                    until,
                });
                self.tell(n, Input::Partition { partition, input });
            }
            Errand::Join { coordinator, claim, partition, version } => {
                let adds = version.bumps_epoch();
                let known = self.nodes[n].keeper.image.topic_named(&partition.topic);
                let count = known.map_or(0, |topic| topic.partitions.len() as i32);
                if adds && partition.partition >= count {
                    // Where a partition is added, its absence later means that its topic was
                    // deleted. So this node must have heard of it first.
                    let refusal = transaction::Refusal::NotAvailable;
                    let refused = transaction::Outcome::Refused(refusal);
                    return self.on_duty(n, duty, Outcome::Transaction(refused));
                }
                let request = self.await_duty(n, duty);
                let partitions = vec![partition];
                let input = if adds {
                    let add = AddPartitions { request, claim, partitions, version };
                    transaction::Input::AddPartitions(add)
                } else {
                    transaction::Input::Verify { request, claim, partitions }
                };
                self.tell(n, Input::Transaction { coordinator, input });
            }
        }
    }

    pub(in super::super) fn on_errand_done(&mut self, n: usize, errand: u64, done: Done) {
        let Some(waits) = self.nodes[n].errands.0.remove(&errand) else { return };
        match (waits, done) {
            (Waits::Marker(coordinator, marker), Done::Marked(result)) => {
                self.tell_of_marker(n, coordinator, marker, result);
            }
            (Waits::Batch(asked, guard), Done::Joined(Ok(true))) => {
                self.append(n, asked, Some(guard));
            }
            (Waits::Batch(asked, _), Done::Joined(Ok(false))) => {
                self.refuse(n, &asked, not_within(&asked.ask));
            }
            (Waits::Batch(asked, _), Done::Joined(Err(refusal))) => {
                self.refuse(n, &asked, not_joined(&asked.ask, refusal));
            }
            _ => unreachable!("an errand is done as it was asked for"),
        }
    }

    fn tell_of_marker(&mut self, n: usize, coordinator: i32, marker: Marker, result: MarkerResult) {
        let input = transaction::Input::MarkerAnswered { marker, result };
        self.tell(n, Input::Transaction { coordinator, input });
    }

    /// A coordinator here has a marker for the leader of a partition.
    pub(in super::super) fn carry(&mut self, n: usize, coordinator: i32, marker: Marker) {
        let image = &self.nodes[n].keeper.image;
        let topic = image.topic_named(&marker.partition.topic).map(|topic| topic.id);
        let index = marker.partition.partition;
        let id = topic.map(|topic| PartitionId { topic, index });
        let assignment = id.and_then(|id| Some((id, image.partition(id)?)));
        match assignment {
            Some((id, assignment)) => match assignment.leader.map(place_of) {
                Some(leader) => {
                    let errand = Errand::Mark(id, marker.clone());
                    self.send_errand(n, leader, errand, Waits::Marker(coordinator, marker));
                }
                None => self.tell_of_marker(n, coordinator, marker, MarkerResult::Failed),
            },
            None if self.is_behind(n, coordinator, &marker) => {
                self.tell_of_marker(n, coordinator, marker, MarkerResult::Failed);
            }
            None => self.tell_of_marker(n, coordinator, marker, MarkerResult::Gone),
        }
    }

    /// Whether the node has not heard of the election of this coordinator. Once it has, it knows
    /// every topic of which an earlier coordinator has taken a partition.
    fn is_behind(&self, n: usize, coordinator: i32, marker: &Marker) -> bool {
        let image = &self.nodes[n].keeper.image;
        let topic = image.topic_named(TRANSACTIONS_TOPIC);
        let id = topic.map(|topic| PartitionId { topic: topic.id, index: coordinator });
        let assignment = id.and_then(|id| image.partition(id));
        assignment.is_none_or(|it| it.leader_epoch < marker.coordinator_epoch)
    }
}

pub(super) fn done_by(outcome: Outcome) -> Done {
    match outcome {
        Outcome::Partition(partition::Outcome::TransactionEnded) => {
            Done::Marked(MarkerResult::Done)
        }
        Outcome::Partition(partition::Outcome::Refused(refusal)) => Done::Marked(match refusal {
            partition::Refusal::CoordinatorFenced { .. } => MarkerResult::CoordinatorFenced,
            _ => MarkerResult::Failed,
        }),
        Outcome::Transaction(transaction::Outcome::Added) => Done::Joined(Ok(true)),
        Outcome::Transaction(transaction::Outcome::Verified(within)) => {
            Done::Joined(Ok(within == [true]))
        }
        Outcome::Transaction(transaction::Outcome::Refused(refusal)) => Done::Joined(Err(refusal)),
        other => unreachable!("an errand is done, or refused, and not {other:?}"),
    }
}
