//! What a member does with what it has: it reads its partitions from the group's offsets on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::id::Offset;
use quorate_net::client::{Consumer, ConsumerConfig, FetchOptions, OnReset, Position};

use super::super::library::library;
use super::super::topic_name;
use super::protocol::Partitions;
use super::{AGAIN, Member};
use crate::history::Partition;
use crate::history::groups::{Claim, Delivery};

/// How long one round of reading is.
const ROUND: Duration = Duration::from_millis(80);
/// A member has time to spare.
const WAIT_MIN: Duration = Duration::from_millis(10);

/// Where a member stands in a partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// The next offset to read.
    pub next: i64,
    /// Of the last batch that was read, -1 for none.
    pub leader_epoch: i32,
}

/// The partitions that a member has, and its reading of them.
pub(super) struct Work {
    consumer: Consumer,
    /// What the clients' patience was when the consumer was made.
    patient: bool,
    owned: BTreeMap<Partition, Standing>,
}

fn consumer(member: &mut Member) -> Consumer {
    let client = library(&member.scene, &mut member.chance);
    let fetch = FetchOptions {
        wait_max: member.scene.plan.workload.wait.clamp(WAIT_MIN, ROUND),
        partition_bytes_max: member.scene.plan.workload.read_bytes as i32,
        ..FetchOptions::default()
    };
    let ready_max = *member.chance.pick(&[1, 4]);
    Consumer::new(client, ConsumerConfig { fetch, on_reset: OnReset::Beginning, ready_max })
}

impl Work {
    pub(super) fn new(member: &mut Member) -> Self {
        let patient = member.scene.stage.is_healed();
        Self { consumer: consumer(member), patient, owned: BTreeMap::new() }
    }

    pub(super) fn owned(&self) -> Partitions {
        self.owned.keys().copied().collect()
    }

    /// Where it stands in those of these that it has.
    pub(super) fn positions(&self, partitions: &Partitions) -> Vec<(Partition, Standing)> {
        let owned = self.owned.iter().filter(|(partition, _)| partitions.contains(partition));
        owned.map(|(partition, at)| (*partition, *at)).collect()
    }

    fn assign(&mut self, partition: Partition, next: i64) {
        let topic = Arc::from(topic_name(partition).as_str());
        self.consumer.assign(&topic, partition.index as i32, Position::Offset(Offset(next)));
    }

    /// Takes partitions over where the group stands; whether that is known.
    pub(super) async fn take(
        &mut self,
        member: &mut Member,
        who: &Claim,
        partitions: &Partitions,
    ) -> bool {
        let wanted: Vec<Partition> = partitions
            .iter()
            .filter(|partition| !self.owned.contains_key(partition))
            .copied()
            .collect();
        if !wanted.is_empty() {
            let found = member.coordinator.fetch(&member.scene, who, &wanted).await;
            let Ok(offsets) = found else {
                member.note(format!("gets no offsets: {found:?}"));
                member.pause(AGAIN).await;
                return false;
            };
            for (partition, at) in wanted.into_iter().zip(offsets) {
                let (next, leader_epoch) = at.map_or((0, -1), |at| (at.offset, at.leader_epoch));
                self.owned.insert(partition, Standing { next, leader_epoch });
                self.assign(partition, next);
            }
        }
        member.roster.owns(member.client, self.owned());
        true
    }

    pub(super) fn give_up(&mut self, member: &Member, partitions: &Partitions) {
        for partition in partitions {
            if self.owned.remove(partition).is_some() {
                let topic = Arc::from(topic_name(*partition).as_str());
                self.consumer.unassign(&topic, partition.index as i32);
            }
        }
        member.roster.owns(member.client, self.owned());
    }

    /// Reads for a while.
    pub(super) async fn round(&mut self, member: &mut Member) {
        if member.scene.stage.is_healed() != self.patient {
            self.renew(member);
        }
        let until = member.scene.now().monotonic + ROUND;
        while member.scene.now().monotonic < until && !member.is_over() {
            let left = until.saturating_since(member.scene.now().monotonic);
            match self.consumer.poll(left).await {
                Ok(None) => {}
                Ok(Some(read)) => {
                    let topic = read.topic.trim_start_matches('t').parse().expect("our topic");
                    let partition = Partition { topic, index: read.partition as u32 };
                    let Some(place) = self.owned.get_mut(&partition) else { continue };
                    let was_reset = read.log_start.0 > place.next || read.from.0 < place.next;
                    let from = if was_reset { read.from.0 } else { place.next };
                    let Some(last) = read.batches.last() else { continue };
                    let next = last.header().next_offset().0;
                    *place = Standing { next, leader_epoch: last.header().leader_epoch().0 };
                    let (group, client) = (member.group, member.client);
                    let delivery = Delivery { group, client, partition, from, next };
                    let now = member.scene.now().monotonic;
                    member.scene.history().deliver(now, delivery);
                }
                Err(error) => {
                    member.note(format!("cannot poll: {error}"));
                    self.renew(member);
                    member.pause(AGAIN).await;
                }
            }
        }
    }

    /// A new consumer goes on where the old one was.
    fn renew(&mut self, member: &mut Member) {
        self.consumer = consumer(member);
        self.patient = member.scene.stage.is_healed();
        let places: Vec<_> = self.owned.iter().map(|(at, place)| (*at, place.next)).collect();
        for (partition, next) in places {
            self.assign(partition, next);
        }
    }
}
