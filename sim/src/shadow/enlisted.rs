//! Batches of transactions, watched from outside: each that is committed was appended while its
//! partition was in its producer's transaction, as far as the coordinator's log goes. KIP-890: a
//! batch that comes late would begin a transaction that nobody ends, or join the next one.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::batch::Batch;
use quorate_core::id::{LeaderEpoch, Offset, PartitionId, ProducerEpoch, ProducerId};
use quorate_core::transaction::state::{Phase, State};

use super::Blamed;
use super::coordinated::Said;
use super::replicated::Batches;

type Place = (PartitionId, Offset, LeaderEpoch);

#[derive(Debug, Default)]
pub(super) struct Enlisted {
    /// Up to where each log of coordinators is known to be committed.
    through: BTreeMap<PartitionId, Offset>,
    /// What was committed of each producer, in this order.
    told: BTreeMap<ProducerId, Vec<State>>,
    has_gaps: bool,
    /// Batches that some node, which leads then, was the first to append.
    seen: BTreeSet<Place>,
    /// Those whose partition was in no transaction of their producer, as far as was known then.
    doubtful: BTreeMap<Place, Doubt>,
}

#[derive(Clone, Debug)]
struct Doubt {
    topic: String,
    producer: ProducerId,
    epoch: ProducerEpoch,
    /// So much had been told of the producer.
    told: usize,
}

fn holds(state: &State, topic: &str, partition: PartitionId) -> bool {
    let mut partitions = state.partitions.iter();
    partitions.any(|it| it.topic == topic && it.partition == partition.index)
}

impl Enlisted {
    /// More of a coordinator's log is committed.
    pub(super) fn committed(
        &mut self,
        partition: PartitionId,
        (batches, through): (&Batches, Offset),
        said: &BTreeMap<Place, Said>,
    ) {
        let known = self.through.entry(partition).or_default();
        for (base, (_, epoch)) in batches.range(*known..through) {
            match said.get(&(partition, *base, *epoch)) {
                Some(said) => {
                    for state in said.iter().filter_map(|(_, state)| state.clone()) {
                        self.told.entry(state.producer).or_default().push(state);
                    }
                }
                None => self.has_gaps = true,
            }
        }
        *known = through.max(*known);
    }

    /// A node appends this to a log of the topic. Whoever does so first leads there.
    pub(super) fn wants(&mut self, topic: &str, partition: PartitionId, batch: &Batch) {
        let header = batch.header();
        let place = (partition, header.base_offset(), header.leader_epoch());
        let is_judged = header.is_transactional() && !header.is_control();
        if !is_judged || !self.seen.insert(place) {
            return;
        }
        let producer = header.producer_id();
        let told = self.told.get(&producer).map_or(&[][..], Vec::as_slice);
        if told.last().is_some_and(|state| holds(state, topic, partition)) {
            return;
        }
        let (topic, epoch) = (topic.to_owned(), header.producer_epoch());
        self.doubtful.insert(place, Doubt { topic, producer, epoch, told: told.len() });
    }

    /// Looks back at batches whose transaction was not known when they were appended: what a
    /// coordinator has told may be seen a moment after somebody has acted on it.
    pub(super) fn judge<'a>(
        &self,
        copies: impl Fn(PartitionId) -> Option<(&'a Batches, Offset)>,
        blamed: &mut Blamed,
    ) {
        if self.has_gaps {
            return;
        }
        let is_committed = |(partition, base, epoch): &Place| {
            let batches = copies(*partition).map(|(batches, _)| batches);
            batches.is_some_and(|it| it.get(base).is_some_and(|batch| batch.1 == *epoch))
        };
        for (place, doubt) in self.doubtful.iter().filter(|(place, _)| is_committed(place)) {
            let Doubt { topic, producer, epoch, told } = doubt;
            let (partition, base, _) = *place;
            let since = self.told.get(producer).map_or(&[][..], |all| &all[*told..]);
            let begins = |state: &State| {
                let ongoing = state.phase == Phase::Ongoing && state.epoch == *epoch;
                ongoing && holds(state, topic, partition)
            };
            if !since.iter().any(begins) {
                let sentence = format!(
                    "the batch of {producer}@{epoch} at {base} was appended when the partition was \
                     in no transaction of its producer"
                );
                blamed.blame("outside-of-transaction", partition.to_string(), sentence);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quorate_core::batch::control::{Ending, Marker};
    use quorate_core::batch::{BatchBuilder, Codec};
    use quorate_core::id::CoordinatorEpoch;
    use quorate_core::time::Timestamp;
    use quorate_core::transaction::state::{TopicPartition, TransactionVersion};

    use super::*;

    const BOOKS: PartitionId = PartitionId::METADATA;
    const DATA: PartitionId = PartitionId { topic: BOOKS.topic, index: 5 };
    const EPOCH: LeaderEpoch = LeaderEpoch(3);

    fn state(phase: Phase, partitions: &[i32]) -> State {
        let named = |&partition: &i32| TopicPartition { topic: "x0".to_owned(), partition };
        State {
            producer: ProducerId(7),
            epoch: ProducerEpoch(1),
            previous_producer: ProducerId::NONE,
            next_producer: ProducerId::NONE,
            last_epoch: None,
            timeout: Duration::from_secs(1),
            phase,
            partitions: partitions.iter().map(named).collect(),
            updated: Timestamp(1),
            started: Timestamp::NONE,
            version: TransactionVersion::V0,
        }
    }

    #[derive(Default)]
    struct Story {
        enlisted: Enlisted,
        said: BTreeMap<Place, Said>,
        books: Batches,
        data: Batches,
    }

    impl Story {
        fn coordinator(&mut self, phase: Phase, partitions: &[i32]) {
            let base = Offset(self.books.len() as i64);
            self.books.insert(base, (base.plus(1), EPOCH));
            let said = vec![("x-0".to_owned(), Some(state(phase, partitions)))];
            self.said.insert((BOOKS, base, EPOCH), said);
            self.enlisted.committed(BOOKS, (&self.books, base.plus(1)), &self.said);
        }

        fn append(&mut self, mut batch: Batch) {
            let base = Offset(self.data.len() as i64);
            batch.stamp(base, EPOCH);
            self.enlisted.wants("x0", DATA, &batch);
            self.data.insert(base, (base.plus(1), EPOCH));
        }

        fn records(&mut self) {
            let builder = BatchBuilder::new(Codec::None);
            let mut builder = builder.producer(ProducerId(7), ProducerEpoch(1), 0).transactional();
            builder.append(Timestamp(1), None, Some(b"v"), []);
            self.append(builder.build());
        }

        fn marker(&mut self) {
            let marker = Marker { ending: Ending::Aborted, coordinator_epoch: CoordinatorEpoch(1) };
            self.append(marker.batch(ProducerId(7), ProducerEpoch(1), Timestamp(1)));
        }

        fn is_blamed(&self) -> bool {
            let mut blamed = Blamed::default();
            let copies = |partition| {
                (partition == DATA).then_some((&self.data, Offset(self.data.len() as i64)))
            };
            self.enlisted.judge(copies, &mut blamed);
            !blamed.0.is_empty()
        }
    }

    #[test]
    fn a_batch_is_appended_in_its_transaction() {
        let mut story = Story::default();
        story.coordinator(Phase::Ongoing, &[5]);
        story.records();
        story.coordinator(Phase::PrepareAbort, &[5]);
        // Its end is decided, and the partition has not heard of it.
        story.records();
        story.marker();
        story.coordinator(Phase::CompleteAbort, &[]);
        assert!(!story.is_blamed());
        story.records();
        assert!(story.is_blamed());
    }

    #[test]
    fn what_was_told_may_be_seen_a_moment_later() {
        let mut story = Story::default();
        story.coordinator(Phase::Empty, &[]);
        story.records();
        story.coordinator(Phase::Ongoing, &[4]);
        assert!(story.is_blamed());
        story.coordinator(Phase::Ongoing, &[4, 5]);
        assert!(!story.is_blamed());
        // What is of no transaction is nobody's to judge.
        story.coordinator(Phase::CompleteAbort, &[]);
        let mut builder = BatchBuilder::new(Codec::None);
        builder.append(Timestamp(1), None, Some(b"v"), []);
        story.append(builder.build());
        assert!(!story.is_blamed());
    }
}
