//! Offsets that the walk commits in transactions, and a slow twin: what the log says of offsets, by
//! the place of each record, as Kafka's `OffsetMetadataManager` keeps it.

use std::collections::BTreeMap;

use quorate_core::batch::Records;
use quorate_core::batch::control::{Ending, Marker};
use quorate_core::group::interface::{CommitTransactional, Input, TopicPartition};
use quorate_core::group::record::Entry;
use quorate_core::id::{CoordinatorEpoch, Offset, ProducerEpoch, ProducerId};
use quorate_core::time::Timestamp;
use rand::Rng as _;

use super::Walk;

/// Who writes in transactions.
const PRODUCERS: std::ops::Range<i64> = 7..10;

/// Of a group and a partition: an offset, and the place of its record in the log.
type Placed = BTreeMap<(String, TopicPartition), (Offset, usize)>;

impl Walk {
    /// The commit that the walk was about to make, in a transaction.
    pub(super) fn in_transaction(&mut self, input: Input) -> Input {
        let Input::CommitOffsets(mut commit) = input else { return input };
        self.commits.remove(&commit.request);
        if self.rng.random_ratio(1, 2) {
            // As clients before KIP-447.
            (commit.member.member, commit.member.instance) = (String::new(), None);
            commit.member.generation = -1;
        }
        let producer = ProducerId(self.rng.random_range(PRODUCERS));
        let epoch = ProducerEpoch(0);
        Input::CommitTransactional(CommitTransactional { commit, producer, epoch, guard: None })
    }

    /// A transaction ends: behind all that is on its way to the log.
    pub(super) fn end_transaction(&mut self) {
        while !self.in_flight.is_empty() {
            self.answer_log();
        }
        let producer = ProducerId(self.rng.random_range(PRODUCERS));
        let is_commit = self.rng.random_ratio(1, 2);
        let ending = if is_commit { Ending::Committed } else { Ending::Aborted };
        let marker = Marker { ending, coordinator_epoch: CoordinatorEpoch(0) };
        self.log.push(marker.batch(producer, ProducerEpoch(0), Timestamp(1)));
        self.step(Input::TransactionEnded { producer, ending });
    }

    /// What counts by the log: offsets, and partitions of which a transaction that is open has one
    /// that may still count.
    pub(super) fn twin(&self, group: &str) -> BTreeMap<TopicPartition, Offset> {
        let (mut known, mut waiting) = (Placed::new(), BTreeMap::<ProducerId, Placed>::new());
        let mut place = 0;
        for batch in &self.log {
            let header = batch.header();
            let producer = header.producer_id();
            if let Some(marker) = Marker::of(batch) {
                let ended = waiting.remove(&producer).unwrap_or_default();
                for (key, (offset, at)) in ended {
                    let is_newer = known.get(&key).is_none_or(|(_, known)| *known < at);
                    if marker.ending == Ending::Committed && is_newer {
                        known.insert(key, (offset, at));
                    }
                }
                continue;
            }
            for record in Records::new(batch.records(), header.record_count()) {
                place += 1;
                let record = record.unwrap();
                let entry = Entry::decode(record.key.unwrap(), record.value).unwrap();
                let Entry::Offset { group, partition, value } = entry else { continue };
                let key = (group, partition);
                match value.map(|stored| (stored.committed.offset, place)) {
                    Some(placed) if header.is_transactional() => {
                        waiting.entry(producer).or_default().insert(key, placed);
                    }
                    Some(placed) => {
                        known.insert(key, placed);
                    }
                    None => {
                        known.remove(&key);
                        waiting.values_mut().for_each(|waiting| waiting.retain(|it, _| *it != key));
                    }
                }
            }
        }
        let known = known.into_iter().filter(|((name, _), _)| name == group);
        known.map(|((_, partition), (offset, _))| (partition, offset)).collect()
    }
}
