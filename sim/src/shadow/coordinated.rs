//! What coordinators of transactions hold true, watched from outside: of each transactional id what
//! the log of their node says below its high watermark, no less, and no more. Whatever a producer
//! is told, and a partition by a marker, rests on that, and cannot be taken back.

use std::collections::BTreeMap;
use std::ops::Bound;

use quorate_core::batch::{Batch, Records};
use quorate_core::id::{LeaderEpoch, NodeId, Offset, PartitionId};
use quorate_core::transaction::Transactions;
use quorate_core::transaction::record::{read_key, read_value};
use quorate_core::transaction::state::State;

use super::Blamed;
use super::replicated::Batches;

/// The topic in which coordinators keep their truth.
pub(super) const TOPIC: &str = "__transaction_state";
/// A batch is decompressed to so much at most; coordinators compress none.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// What a batch says of transactional ids, record by record; `None` forgets one.
pub(super) type Said = Vec<(String, Option<State>)>;

#[derive(Debug, Default)]
pub(super) struct Coordinated {
    /// By offset and leader epoch, which name one batch, whoever holds it.
    pub(super) said: BTreeMap<(PartitionId, Offset, LeaderEpoch), Said>,
    folds: BTreeMap<(PartitionId, NodeId), Fold>,
}

/// What a node's log says up to an offset.
#[derive(Debug, Default)]
struct Fold {
    through: Offset,
    states: BTreeMap<String, State>,
    /// Some of it was never seen.
    has_gaps: bool,
}

impl Fold {
    fn apply(&mut self, said: &Said) {
        for (id, state) in said {
            match state {
                Some(state) => drop(self.states.insert(id.clone(), state.clone())),
                None => drop(self.states.remove(id)),
            }
        }
    }
}

impl Coordinated {
    /// A node writes this into a log of `TOPIC`.
    pub(super) fn wants(&mut self, partition: PartitionId, batch: &Batch) {
        let header = batch.header();
        let place = (partition, header.base_offset(), header.leader_epoch());
        // Compaction may have left less of it elsewhere.
        self.said.entry(place).or_insert_with(|| read(batch));
    }

    /// The node's log is another one, or may be.
    pub(super) fn forget(&mut self, node: NodeId, partition: PartitionId) {
        self.folds.remove(&(partition, node));
    }

    pub(super) fn forget_all(&mut self, node: NodeId) {
        self.folds.retain(|(_, holder), _| *holder != node);
    }

    /// The node's coordinator is as it is, and its log has these batches, committed up to there as
    /// far as the node knows.
    pub(super) fn stepped(
        &mut self,
        (node, partition): (NodeId, PartitionId),
        coordinator: &Transactions,
        (batches, high_watermark): (&Batches, Offset),
        blamed: &mut Blamed,
    ) {
        let Some(held) = coordinator.held() else { return };
        let fold = self.folds.entry((partition, node)).or_default();
        if high_watermark < fold.through {
            *fold = Fold::default();
        }
        let new = (Bound::Included(fold.through), Bound::Excluded(high_watermark));
        for (base, (end, epoch)) in batches.range(new) {
            match self.said.get(&(partition, *base, *epoch)) {
                Some(said) => fold.apply(said),
                None => fold.has_gaps = true,
            }
            fold.through = *end;
        }
        if fold.has_gaps {
            return;
        }
        let held: BTreeMap<&str, &State> = held.collect();
        let logged: BTreeMap<&str, &State> =
            fold.states.iter().map(|(id, state)| (id.as_str(), state)).collect();
        let ids = held.keys().chain(logged.keys());
        let other = ids.copied().find(|id| held.get(id) != logged.get(id));
        if let Some(id) = other {
            let words = |state: Option<&&State>| {
                state.map_or_else(|| "nothing".to_owned(), |state| in_words(state))
            };
            let sentence = format!(
                "n{node} acts for {id} by {}; what it knows to be committed, below \
                 {high_watermark}, says {}",
                words(held.get(id)),
                words(logged.get(id))
            );
            blamed.blame("coordinator-and-log", partition.to_string(), sentence);
        }
    }
}

fn in_words(state: &State) -> String {
    let partitions = state.partitions.iter().map(|it| format!("{}-{}", it.topic, it.partition));
    let partitions: Vec<String> = partitions.collect();
    format!(
        "{} of {}@{} with [{}]",
        state.phase.name(),
        state.producer,
        state.epoch,
        partitions.join(", ")
    )
}

/// Nothing of what cannot be read: a coordinator passes over it too.
fn read(batch: &Batch) -> Said {
    if batch.header().is_control() {
        return Said::new();
    }
    let Ok(bytes) = batch.uncompressed(BATCH_BYTES_MAX) else { return Said::new() };
    let records = Records::new(&bytes, batch.header().record_count()).flatten();
    let said = records.filter_map(|record| {
        let id = read_key(record.key?).ok()?;
        let state = record.value.map(read_value).transpose().ok()?;
        Some((id, state))
    });
    said.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quorate_core::batch::{BatchBuilder, Codec};
    use quorate_core::id::{ProducerEpoch, ProducerId};
    use quorate_core::machine::Machine as _;
    use quorate_core::own_log;
    use quorate_core::time::{Instant, Now, Timestamp};
    use quorate_core::transaction::interface::{Input, TransactionLimits};
    use quorate_core::transaction::record::{key, value};
    use quorate_core::transaction::state::{Phase, TransactionVersion};

    use super::*;

    const PARTITION: PartitionId = PartitionId::METADATA;
    const NODE: NodeId = NodeId(1);
    const EPOCH: LeaderEpoch = LeaderEpoch(3);

    fn state(epoch: i16) -> State {
        State {
            producer: ProducerId(7),
            epoch: ProducerEpoch(epoch),
            previous_producer: ProducerId::NONE,
            next_producer: ProducerId::NONE,
            last_epoch: None,
            timeout: Duration::from_secs(1),
            phase: Phase::Empty,
            partitions: Default::default(),
            updated: Timestamp(1),
            started: Timestamp::NONE,
            version: TransactionVersion::V2,
        }
    }

    fn record(at: i64, id: &str, state: Option<&State>) -> Batch {
        let mut builder = BatchBuilder::new(Codec::None);
        let value = state.map(value);
        builder.append(Timestamp(1), Some(&key(id)), value.as_deref(), []);
        let mut batch = builder.build();
        batch.stamp(Offset(at), EPOCH);
        batch
    }

    /// A coordinator that has read these records, and what is said of it when its node knows
    /// those below `high_watermark` to be committed.
    fn judge(read: &[Batch], written: &[Batch], high_watermark: i64) -> Option<String> {
        let now = Now { monotonic: Instant::ZERO, wall: Timestamp(1) };
        let mut coordinator = Transactions::new(TransactionLimits::default());
        let mut step = |input| coordinator.step(now, Input::Log(input), &mut Vec::new());
        step(own_log::Input::Elected { leader_epoch: EPOCH });
        for batch in read {
            step(own_log::Input::Replayed { batch: batch.clone() });
        }
        step(own_log::Input::ReplayEnded);
        let (mut shadow, mut blamed) = (Coordinated::default(), Blamed::default());
        let mut batches = Batches::new();
        for batch in written {
            shadow.wants(PARTITION, batch);
            let header = batch.header();
            batches.insert(header.base_offset(), (header.next_offset(), EPOCH));
        }
        let seen = (&batches, Offset(high_watermark));
        shadow.stepped((NODE, PARTITION), &coordinator, seen, &mut blamed);
        blamed.0.pop().map(|violation| violation.sentence)
    }

    #[test]
    fn a_coordinator_acts_by_what_is_committed_and_by_nothing_else() {
        let log = [record(0, "a", Some(&state(0))), record(1, "a", Some(&state(1)))];
        assert_eq!(judge(&log, &log, 2), None);
        let sentence = judge(&log, &log, 1).expect("it is ahead");
        assert!(sentence.contains("acts for a by Empty of 7@1"), "{sentence}");
        assert!(sentence.contains("below 1, says Empty of 7@0"), "{sentence}");
        let sentence = judge(&log[..1], &log, 2).expect("it is behind");
        assert!(sentence.contains("by Empty of 7@0"), "{sentence}");
        let forgotten = [log[0].clone(), record(1, "a", None)];
        assert_eq!(judge(&forgotten, &forgotten, 2), None);
        let sentence = judge(&forgotten, &forgotten, 1).expect("it forgets too early");
        assert!(sentence.contains("by nothing"), "{sentence}");
    }

    #[test]
    fn what_was_never_seen_is_not_judged() {
        let log = [record(0, "a", Some(&state(0))), record(1, "a", Some(&state(1)))];
        let mut shadow = Coordinated::default();
        let mut blamed = Blamed::default();
        let now = Now { monotonic: Instant::ZERO, wall: Timestamp(1) };
        let mut coordinator = Transactions::new(TransactionLimits::default());
        for input in [own_log::Input::Elected { leader_epoch: EPOCH }, own_log::Input::ReplayEnded]
        {
            coordinator.step(now, Input::Log(input), &mut Vec::new());
        }
        shadow.wants(PARTITION, &log[0]);
        let batches =
            Batches::from([(Offset(0), (Offset(1), EPOCH)), (Offset(1), (Offset(2), EPOCH))]);
        let seen = (&batches, Offset(2));
        shadow.stepped((NODE, PARTITION), &coordinator, seen, &mut blamed);
        assert!(blamed.0.is_empty());
        shadow.wants(PARTITION, &log[1]);
        shadow.forget(NODE, PARTITION);
        shadow.stepped((NODE, PARTITION), &coordinator, seen, &mut blamed);
        assert_eq!(blamed.0.len(), 1);
    }
}
