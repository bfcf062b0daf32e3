//! Watches the node's logs, and compares each state that recovery rebuilds with the life before:
//! it must be what was done last, or one that a crash may have left of what was under way.
//!
//! What nodes append under one leader epoch at one offset must be one batch, on whichever node;
//! what is cut off must stand in the orphan files; and the snapshots that machines write down on
//! the way must be what the log's batches say.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use quorate_core::batch::Batch;
use quorate_core::batch::checksum::checksum;
use quorate_core::id::{LeaderEpoch, NodeId, Offset, PartitionId, WriteId};
use quorate_core::partition::interface::{Flush, LogOp};
use quorate_core::partition::{Recovered, SegmentInfo};
use quorate_core::segment::frame::FrameHeader;
use quorate_core::shard::Shard;
use quorate_core::shard::seat::Seat;
use quorate_node::witness::Witness;

use crate::check::Violation;
use crate::shadow::Shadow;
use crate::shadow::compacted::{self, Survivors};

/// See the file's comment. It outlives the node's lives.
#[derive(Debug)]
pub struct Onlooker {
    name: &'static str,
    node: NodeId,
    ledger: Arc<Ledger>,
    seen: Mutex<Seen>,
}

/// A batch's place: leader epoch and offset name one batch, of one leader.
type Place = (PartitionId, Offset, LeaderEpoch);

/// What all nodes of a cluster have appended; and, if there are several, what they hold and say.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: Mutex<Entries>,
    shadow: Option<Shadow>,
    /// Some topic is compacted, by each node for itself.
    compacts: bool,
}

#[derive(Debug, Default)]
struct Entries {
    /// Contents, node by node. A node that has lost its own unsynced end writes another.
    batches: BTreeMap<Place, BTreeMap<&'static str, Content>>,
    violations: Vec<Violation>,
}

/// What is in a batch.
#[derive(Debug)]
struct Content {
    checksum: u32,
    /// Record by record where logs are compacted: a leader sends what is left of it.
    survivors: Option<Survivors>,
}

impl Content {
    fn of(batch: &Batch, is_compacted: bool) -> Self {
        let survivors = is_compacted.then(|| {
            let mut survivors = Survivors::new();
            compacted::gather(batch, &mut survivors);
            survivors
        });
        Self { checksum: checksum(batch.records()), survivors }
    }

    fn may_be(&self, other: &Self) -> bool {
        self.checksum == other.checksum
            || match (&self.survivors, &other.survivors) {
                (Some(one), Some(other)) => compacted::may_be_one(one, other),
                _ => false,
            }
    }
}

impl Ledger {
    pub fn new(nodes: u32, compacts: bool) -> Self {
        let shadow = (nodes > 1).then(Shadow::default);
        Self { entries: Mutex::default(), shadow, compacts }
    }

    fn append(&self, name: &'static str, place: Place, batch: &Batch) {
        let mut entries = self.entries.lock().expect("one thread");
        let content = Content::of(batch, self.compacts);
        let known = entries.batches.entry(place).or_default();
        known.remove(name);
        let other = known.iter().find(|(_, there)| !there.may_be(&content)).map(|(who, _)| *who);
        known.insert(name, content);
        if let Some(who) = other {
            let (partition, offset, epoch) = place;
            let sentence = format!(
                "{who} and {name} have appended different batches at {offset} under leader epoch \
                 {epoch}"
            );
            let place = partition.to_string();
            entries.violations.push(Violation { property: "one-leader", place, sentence });
        }
    }

    /// Whether anything was wrong so far.
    pub fn is_blamed(&self) -> bool {
        self.shadow.as_ref().is_some_and(Shadow::is_blamed)
            || !self.entries.lock().expect("one thread").violations.is_empty()
    }

    /// What was wrong.
    pub fn take(&self) -> Vec<Violation> {
        let mut violations = self.shadow.as_ref().map(Shadow::take).unwrap_or_default();
        violations.append(&mut self.entries.lock().expect("one thread").violations);
        if let Some(shadow) = &self.shadow {
            shadow.rename(&mut violations);
        }
        violations
    }
}

#[derive(Debug, Default)]
struct Seen {
    logs: BTreeMap<PartitionId, Lived>,
    violations: Vec<Violation>,
    compared: u64,
    /// Batches that were cut off, whether their log is still there or not: their frames' bytes.
    cut: BTreeMap<Place, u64>,
    /// Durable bytes of this disk were changed.
    has_rotted: bool,
    /// Some copy, of this disk or of one before, began anew where its leader's starts.
    began_anew: bool,
}

/// A log as it was lived.
#[derive(Debug)]
struct Lived {
    /// What was done.
    state: Recovered,
    /// What is under way.
    wanted: VecDeque<(WriteId, LogOp)>,
    flush: Flush,
    /// What was done may be lost, within the promise: the next recovery says what is there.
    unsure: bool,
    /// What stands in it, as far as it was appended before our eyes: where each batch ends, and how
    /// many bytes its frame has.
    batches: BTreeMap<Offset, (Offset, LeaderEpoch, u64)>,
}

impl Onlooker {
    pub fn new(name: &'static str, node: NodeId, ledger: Arc<Ledger>) -> Self {
        Self { name, node, ledger, seen: Mutex::default() }
    }

    /// Tells whoever looks at all nodes together.
    fn tell(&self, tell: impl FnOnce(&Shadow, NodeId)) {
        if let Some(shadow) = &self.ledger.shadow {
            tell(shadow, self.node);
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("one thread")
    }

    /// The disk is another one from here on.
    pub fn wiped(&self) {
        let mut seen = self.seen();
        seen.logs.clear();
        seen.cut.clear();
        seen.has_rotted = false;
        self.tell(Shadow::wiped);
    }

    /// Batches that must stand in orphan files, and how many bytes the frame of each had.
    pub fn cut(&self) -> BTreeMap<(PartitionId, Offset, LeaderEpoch), u64> {
        self.seen().cut.clone()
    }

    /// Whether bytes that are set aside may be damaged.
    pub fn has_rotted(&self) -> bool {
        self.seen().has_rotted
    }

    /// Whether a copy here was to begin anew where its leader's starts.
    pub fn began_anew(&self) -> bool {
        self.seen().began_anew
    }

    /// Where the node's copy begins, as far as it was seen.
    pub fn log_start(&self, partition: PartitionId) -> Offset {
        self.seen().logs.get(&partition).map_or(Offset::ZERO, |lived| lived.state.log_start)
    }

    /// Unsynced bytes were lost: what only was in memory may be gone.
    pub fn power_was_lost(&self) {
        for lived in self.seen().logs.values_mut() {
            lived.unsure |= lived.flush == Flush::Replicated;
        }
    }

    /// Durable bytes were changed.
    pub fn rot(&self) {
        let mut seen = self.seen();
        seen.has_rotted = true;
        seen.logs.values_mut().for_each(|lived| lived.unsure = true);
        drop(seen);
        self.tell(Shadow::doubt);
    }

    /// What was wrong, and how many states were compared.
    pub fn take(&self) -> (Vec<Violation>, u64) {
        let mut seen = self.seen();
        (std::mem::take(&mut seen.violations), std::mem::take(&mut seen.compared))
    }
}

impl Seen {
    fn blame(&mut self, partition: PartitionId, sentence: String) {
        let (property, place) = ("rebuilt-state", partition.to_string());
        self.violations.push(Violation { property, place, sentence });
    }
}

impl Witness for Onlooker {
    fn opened(&self, partition: PartitionId, recovered: &Recovered) {
        self.tell(|shadow, node| shadow.opened(node, partition, recovered));
        let mut seen = self.seen();
        let before = seen.logs.remove(&partition);
        let wrong = match &before {
            None if difference(recovered, &Recovered::default()).is_none() => None,
            None => Some(format!("a new log is not empty: {}", brief(recovered))),
            Some(lived) if lived.unsure => None,
            Some(lived) => {
                seen.compared += 1;
                compare(partition, lived, recovered)
            }
        };
        if let Some(wrong) = wrong {
            seen.blame(partition, wrong);
        }
        let (flush, mut batches) =
            before.map_or_else(Default::default, |lived| (lived.flush, lived.batches));
        batches.retain(|_, (end, ..)| *end <= recovered.end);
        let (state, wanted) = (recovered.clone(), VecDeque::new());
        let lived = Lived { state, wanted, flush, unsure: false, batches };
        seen.logs.insert(partition, lived);
    }

    fn wants(&self, partition: PartitionId, write: WriteId, op: &LogOp, flush: Flush) {
        self.tell(|shadow, node| shadow.wants(node, partition, write, op));
        // Each node's metadata log is its own.
        if let LogOp::Append { batch, .. } = op
            && partition != PartitionId::METADATA
        {
            let header = batch.header();
            let place = (partition, header.base_offset(), header.leader_epoch());
            self.ledger.append(self.name, place, batch);
        }
        let mut seen = self.seen();
        // Told or not: a crash may come between.
        seen.began_anew |= matches!(op, LogOp::ResetTo { .. });
        if let Some(lived) = seen.logs.get_mut(&partition) {
            lived.flush = flush;
            // Storage decides where another leader's log parts from this one.
            lived.unsure |= matches!(op, LogOp::TruncateTo { .. } | LogOp::ResetTo { .. });
            lived.wanted.push_back((write, op.clone()));
        }
    }

    fn written(&self, partition: PartitionId, through: WriteId) {
        self.tell(|shadow, node| shadow.written(node, partition, through));
        let mut seen = self.seen();
        let mut wrong = None;
        if let Some(lived) = seen.logs.get_mut(&partition) {
            while lived.wanted.front().is_some_and(|(write, _)| *write <= through) {
                let Some((_, op)) = lived.wanted.pop_front() else { break };
                apply(&mut lived.state, partition, &op);
                if let LogOp::Append { batch, levels } = &op {
                    let header = batch.header();
                    let bytes = FrameHeader::of(partition, batch, *levels).frame_bytes();
                    let told = (header.next_offset(), header.leader_epoch(), bytes);
                    lived.batches.insert(header.base_offset(), told);
                }
                if !lived.unsure {
                    wrong = wrong.or_else(|| told_wrongly(&lived.state, &op));
                }
            }
        }
        if let Some(wrong) = wrong {
            seen.blame(partition, wrong);
        }
    }

    fn truncated(&self, partition: PartitionId, write: WriteId, recovered: &Recovered) {
        self.tell(|shadow, node| shadow.truncated(node, partition, write, recovered));
        let mut seen = self.seen();
        let Seen { logs, cut, .. } = &mut *seen;
        let Some(lived) = logs.get_mut(&partition) else { return };
        let resets = lived
            .wanted
            .iter()
            .any(|(wanted, op)| *wanted == write && matches!(op, LogOp::ResetTo { .. }));
        let end = if resets { Offset::ZERO } else { recovered.end };
        let start = lived.state.log_start;
        let gone = lived.batches.extract_if(.., |_, (next, ..)| *next > end);
        // What is deleted, or deleted at the leader, is not set aside.
        let gone = gone.filter(|(_, (next, ..))| !resets && *next > start);
        cut.extend(gone.map(|(base, (_, epoch, bytes))| ((partition, base, epoch), bytes)));
        lived.wanted.retain(|(wanted, _)| *wanted > write);
        lived.state = recovered.clone();
        lived.unsure = false;
    }

    fn decided(&self, seat: &Seat) {
        self.tell(|shadow, _| shadow.decided(seat));
    }

    fn stepped(&self, shard: &Shard) {
        self.tell(|shadow, node| shadow.stepped(node, shard));
    }

    fn dropped(&self, partition: PartitionId) {
        self.tell(|shadow, node| shadow.dropped(node, partition));
        let mut seen = self.seen();
        // Among several nodes a log goes where the metadata says.
        if self.ledger.shadow.is_none() {
            let sentence = "the node deletes a log, and nobody has deleted a topic".to_owned();
            let (property, place) = ("deleted", partition.to_string());
            seen.violations.push(Violation { property, place, sentence });
        }
        // What was cut off it stays set aside.
        seen.logs.remove(&partition);
    }
}

/// One step of the fold.
fn apply(state: &mut Recovered, partition: PartitionId, op: &LogOp) {
    match op {
        LogOp::Append { batch, levels } => {
            let bytes = FrameHeader::of(partition, batch, *levels).frame_bytes();
            // A batch that does not follow shows in the comparison.
            let _ = state.apply(batch, bytes);
        }
        LogOp::Roll { base, .. } => {
            let _ = state.roll(*base);
        }
        LogOp::DeleteBefore { offset } => state.delete_before(*offset),
        LogOp::Replace(cleaned) => {
            // What does not fit shows in the comparison.
            let _ = state.replace(cleaned);
        }
        LogOp::TruncateTo { .. } | LogOp::ResetTo { .. } | LogOp::Checkpoint { .. } => {}
    }
}

/// Whether the machine's own snapshot differs from the fold.
fn told_wrongly(state: &Recovered, op: &LogOp) -> Option<String> {
    let (LogOp::Roll { snapshot, .. } | LogOp::Checkpoint { snapshot }) = op else { return None };
    match Recovered::from_snapshot(snapshot) {
        Err(error) => Some(format!("a snapshot cannot be read: {error}")),
        Ok(told) => difference(&told, state)
            .map(|difference| format!("a snapshot is not what the batches say: {difference}")),
    }
}

/// Of what was under way, batches and new segments may be there up to any of them. Deletions may be
/// too, or not, by themselves: they stand in the journal only. So may the results of compaction,
/// which have a file of their own.
fn compare(partition: PartitionId, lived: &Lived, rebuilt: &Recovered) -> Option<String> {
    let lane = |op: &LogOp| match op {
        LogOp::DeleteBefore { .. } => 1,
        LogOp::Replace(_) => 2,
        _ => 0,
    };
    let mut counts = [0; 3];
    lived.wanted.iter().for_each(|(_, op)| counts[lane(op)] += 1);
    let mut nearest = None;
    for other in 0..=counts[0] {
        for deletion in 0..=counts[1] {
            for replacement in 0..=counts[2] {
                let mut state = lived.state.clone();
                let mut left = [other, deletion, replacement];
                for (_, op) in &lived.wanted {
                    let left = &mut left[lane(op)];
                    if *left > 0 {
                        *left -= 1;
                        apply(&mut state, partition, op);
                    }
                }
                let difference = difference(rebuilt, &state)?;
                if nearest.is_none() || state.end == rebuilt.end {
                    nearest = Some(difference);
                }
            }
        }
    }
    nearest.map(|difference| format!("what was rebuilt is not what was lived: {difference}"))
}

/// The first part in which the states differ.
fn difference(rebuilt: &Recovered, lived: &Recovered) -> Option<String> {
    let differ = |what: &str, rebuilt: &dyn std::fmt::Debug, lived: &dyn std::fmt::Debug| {
        Some(format!("{what} {rebuilt:?}, not {lived:?}"))
    };
    if rebuilt.end != lived.end {
        differ("the end is", &rebuilt.end, &lived.end)
    } else if rebuilt.log_start != lived.log_start {
        differ("the start is", &rebuilt.log_start, &lived.log_start)
    } else if segments(rebuilt) != segments(lived) {
        differ("the segments are", &rebuilt.segments, &lived.segments)
    } else if rebuilt.leader_epochs != lived.leader_epochs {
        differ("the leader epochs are", &rebuilt.leader_epochs, &lived.leader_epochs)
    } else if rebuilt.producers != lived.producers {
        differ("the producers are", &rebuilt.producers, &lived.producers)
    } else if rebuilt.max_timestamp != lived.max_timestamp
        || rebuilt.append_time != lived.append_time
    {
        let times = |state: &Recovered| (state.max_timestamp, state.append_time);
        differ("the largest timestamps are", &times(rebuilt), &times(lived))
    } else {
        None
    }
}

/// Whether the file of a log's very first segment is there before anything is in it is all one.
fn segments(state: &Recovered) -> &[SegmentInfo] {
    match &state.segments[..] {
        [only] if *only == SegmentInfo::new(state.end) => &[],
        segments => segments,
    }
}

fn brief(state: &Recovered) -> String {
    format!("{}..{} in {} segments", state.log_start, state.end, state.segments.len())
}
