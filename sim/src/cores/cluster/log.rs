//! One log on the disk of a node among several: what is done, what is under way, what a recovery
//! would make of it; and it can be cut back.

use std::cell::OnceCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Debug};

use quorate_core::batch::{Batch, Levels};
use quorate_core::id::{LeaderEpoch, Offset, PartitionId, WriteId};
use quorate_core::partition::Recovered;
use quorate_core::partition::interface::LogOp;
use quorate_core::quorum_log::Fold;
use quorate_core::segment::frame::FRAME_HEADER_BYTES;

use crate::history::Seen;
use crate::workload::values;

mod cleaning;

/// A batch by what tells it from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) base: Offset,
    pub(super) next: Offset,
    pub(super) epoch: LeaderEpoch,
    pub(super) checksum: u32,
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { base, next, epoch, checksum } = self;
        write!(f, "offsets {base} to {next} of leader epoch {epoch} (checksum {checksum:08x})")
    }
}

impl Known {
    pub(super) fn of(batch: &Batch) -> Self {
        let header = batch.header();
        Self {
            base: header.base_offset(),
            next: header.next_offset(),
            epoch: header.leader_epoch(),
            checksum: header.checksum(),
        }
    }
}

/// A batch, and what a reader sees in it, once somebody has looked.
pub(super) struct Stored {
    pub(super) known: Known,
    batch: Batch,
    levels: Levels,
    seen: OnceCell<Vec<Seen>>,
}

impl Stored {
    pub(super) fn seen(&self) -> &[Seen] {
        self.seen.get_or_init(|| {
            let mut seen = Vec::new();
            values::records(&self.batch, 0, &mut seen);
            seen
        })
    }
}

/// What storage tells a machine.
pub(super) enum Done {
    Written(WriteId),
    Truncated(WriteId, Box<Recovered>),
}

pub(super) struct Log {
    partition: PartitionId,
    /// Told from a log of the same name that was there before.
    pub(super) born: u64,
    /// The state in front of the first batch that is kept, or, where some are compacted, at the end
    /// of those: a start has a snapshot from there.
    floor: Recovered,
    batches: VecDeque<Stored>,
    /// Where segments begin that are kept.
    rolls: VecDeque<Offset>,
    /// What all that is done adds up to.
    state: Recovered,
    /// What is under way, in order.
    pending: VecDeque<(WriteId, LogOp)>,
    /// How many of `pending` a process crash cannot lose any more.
    written: usize,
    /// What the quorum remembers by its batches, if this is its log.
    memory: Fold,
    /// Batches that were cut off since somebody took them.
    pub(super) cut: Vec<Batch>,
    /// What is wrong with what was written, if anything.
    pub(super) wrong: Option<String>,
    /// Its topic is compacted: what stands at an offset may be what a pass has left of it.
    pub(super) is_compacted: bool,
    /// What passes have made and nobody has put in its place yet, by generation.
    made: BTreeMap<u32, Vec<(Batch, Levels)>>,
    generations: u32,
    /// How often something was cut off.
    pub(super) cuts: u64,
}

impl Log {
    pub(super) fn new(partition: PartitionId, born: u64) -> Self {
        Self {
            partition,
            born,
            floor: Recovered::default(),
            batches: VecDeque::new(),
            rolls: VecDeque::new(),
            state: Recovered::default(),
            pending: VecDeque::new(),
            written: 0,
            memory: Fold::default(),
            cut: Vec::new(),
            wrong: None,
            is_compacted: false,
            made: BTreeMap::new(),
            generations: 0,
            cuts: 0,
        }
    }

    pub(super) fn issue(&mut self, write: WriteId, op: LogOp) {
        self.pending.push_back((write, op));
    }

    /// Everything up to `through` is in the page cache.
    pub(super) fn on_written(&mut self, through: WriteId) {
        let upto = self.pending.partition_point(|(write, _)| *write <= through);
        self.written = self.written.max(upto);
    }

    /// Everything up to `through` is durable: the machine is to be told.
    pub(super) fn complete(&mut self, through: WriteId, mut tell: impl FnMut(Done)) {
        let mut written = None;
        while let Some((write, op)) = self.pending.pop_front_if(|(write, _)| *write <= through) {
            self.written = self.written.saturating_sub(1);
            let cuts = matches!(op, LogOp::TruncateTo { .. } | LogOp::ResetTo { .. });
            self.apply(op);
            if cuts {
                written.take().map(Done::Written).into_iter().for_each(&mut tell);
                tell(Done::Truncated(write, Box::new(self.state.clone())));
            } else {
                written = Some(write);
            }
        }
        written.map(Done::Written).into_iter().for_each(tell);
    }

    /// Operations that a process crash may lose, and that a power loss may lose.
    pub(super) fn at_risk(&self) -> (usize, usize) {
        (self.pending.len() - self.written, self.pending.len())
    }

    /// A life ends: the last so many operations never happened, the rest did.
    pub(super) fn lose(&mut self, count: usize) {
        let keep = self.pending.len() - count.min(self.pending.len());
        self.pending.truncate(keep);
        for (_, op) in std::mem::take(&mut self.pending) {
            self.apply(op);
        }
        self.written = 0;
        self.made.clear();
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.pending.is_empty()
    }

    /// What is done.
    pub(super) fn state(&self) -> &Recovered {
        &self.state
    }

    /// What recovery rebuilds from what is kept.
    pub(super) fn recover(&self) -> Recovered {
        let mut state = self.floor.clone();
        let mut rolls = self.rolls.iter().copied().peekable();
        for stored in self.batches(self.floor.end) {
            while let Some(base) = rolls.next_if(|base| *base <= stored.known.base) {
                let _ = state.roll(base);
            }
            let _ = state.apply(&stored.batch, frame_bytes(&stored.batch));
        }
        for base in rolls {
            let _ = state.roll(base);
        }
        state.delete_before(self.state.log_start);
        state
    }

    /// What the quorum remembers by what is done.
    pub(super) fn memory(&self) -> &quorate_core::quorum::interface::Recovered {
        self.memory.sum()
    }

    /// What the quorum remembers, added up anew. An error is a batch that cannot be read.
    pub(super) fn remember(&self) -> Result<quorate_core::quorum::interface::Recovered, String> {
        let mut fold = Fold::default();
        for stored in &self.batches {
            fold.push(&stored.batch).map_err(|error| error.to_string())?;
        }
        Ok(fold.finish())
    }

    fn apply(&mut self, op: LogOp) {
        match op {
            LogOp::Append { batch, levels } => self.append(batch, levels),
            LogOp::Roll { base, snapshot } => {
                if self.state.roll(base).is_err() {
                    self.blame(format!("a segment at {base} does not follow"));
                }
                self.rolls.push_back(base);
                self.compare(&snapshot, "a roll");
            }
            LogOp::Checkpoint { snapshot } => self.compare(&snapshot, "a checkpoint"),
            LogOp::DeleteBefore { offset } => {
                self.state.delete_before(offset);
                self.forget();
            }
            LogOp::TruncateTo { offset, .. } if offset < self.state.log_start => {
                self.begin_anew(offset);
            }
            LogOp::TruncateTo { offset, .. } => {
                self.cuts += 1;
                self.lower_floor(offset);
                while let Some(gone) = self.batches.pop_back_if(|stored| stored.known.next > offset)
                {
                    self.cut.push(gone.batch);
                }
                let end = self.batches.back().map_or(self.floor.end, |last| last.known.next);
                while self.rolls.pop_back_if(|base| *base > end).is_some() {}
                self.state = self.recover();
            }
            LogOp::Replace(cleaned) => self.replace(&cleaned),
            LogOp::ResetTo { offset } => self.begin_anew(offset),
        }
    }

    fn append(&mut self, batch: Batch, levels: Levels) {
        let known = Known::of(&batch);
        if let Err(error) = self.state.apply(&batch, frame_bytes(&batch)) {
            self.blame(format!("a batch does not follow: {error}"));
        }
        if self.partition == PartitionId::METADATA
            && let Err(error) = self.memory.push(&batch)
        {
            self.blame(error.to_string());
        }
        self.batches.push_back(Stored { known, batch, levels, seen: OnceCell::new() });
    }

    fn begin_anew(&mut self, offset: Offset) {
        self.cuts += 1;
        self.floor = Recovered { log_start: offset, end: offset, ..Recovered::default() };
        self.state = self.floor.clone();
        self.batches.clear();
        self.rolls.clear();
    }

    /// Segments below the start leave.
    fn forget(&mut self) {
        let start = self.state.log_start;
        while let Some(base) = self.rolls.pop_front_if(|base| *base <= start) {
            while let Some(stored) = self.batches.pop_front_if(|stored| stored.known.base < base) {
                if stored.known.base < self.floor.end {
                    continue;
                }
                let _ = self.floor.apply(&stored.batch, frame_bytes(&stored.batch));
            }
            let _ = self.floor.roll(base);
            self.floor.delete_before(base);
        }
    }

    fn compare(&mut self, snapshot: &bytes::Bytes, when: &str) {
        let wrong = match Recovered::from_snapshot(snapshot) {
            Ok(told) => difference(&self.state, &told),
            Err(error) => Some(error.to_string()),
        };
        if let Some(wrong) = wrong {
            self.blame(format!("the snapshot of {when} is not what the batches say: {wrong}"));
        }
    }

    fn blame(&mut self, sentence: String) {
        self.wrong.get_or_insert(sentence);
    }

    /// The batches that reach beyond `from`.
    pub(super) fn batches(&self, from: Offset) -> impl DoubleEndedIterator<Item = &Stored> {
        let next = |place: usize| self.batches[place].known.next;
        self.batches.range(first_beyond(self.batches.len(), from, next)..)
    }

    /// The first of these, which ascend, that neither stands in the log nor is deleted, nor was
    /// passed by compaction.
    pub(super) fn lacks<'a>(
        &self,
        wanted: impl IntoIterator<Item = &'a Known>,
    ) -> Option<&'a Known> {
        let start = self.state.log_start;
        let mut wanted = wanted.into_iter().skip_while(|known| known.base < start).peekable();
        let mut there = self.batches(wanted.peek()?.base).peekable();
        wanted.find(|known| {
            while there.next_if(|stored| stored.known.next <= known.base).is_some() {}
            let stands = there.peek().is_some_and(|stored| stored.known == **known);
            !(stands || self.is_compacted && self.covers(known))
        })
    }

    /// For a follower: as `Effect::ReadLog` says.
    pub(super) fn read_for(
        &self,
        from: Offset,
        up_to: Offset,
        bytes_max: usize,
    ) -> Vec<(Batch, Levels)> {
        let mut bytes = 0;
        let mut read = Vec::new();
        for stored in self.batches(from.max(self.state.log_start)) {
            bytes += stored.batch.len();
            if stored.known.next > up_to || (bytes > bytes_max && !read.is_empty()) {
                break;
            }
            read.push((stored.batch.clone(), stored.levels));
        }
        read
    }

    /// The records from `from` on, below `up_to`, of whole batches of so many bytes, one at least;
    /// and the offset behind the last batch.
    pub(super) fn read(
        &self,
        from: Offset,
        up_to: Offset,
        bytes_max: usize,
    ) -> (Vec<Seen>, Offset) {
        let (mut bytes, mut end) = (0, from);
        let mut read = Vec::new();
        for stored in self.batches(from) {
            if stored.known.next > up_to {
                break;
            }
            bytes += stored.batch.len();
            if bytes > bytes_max && end > from {
                break;
            }
            end = stored.known.next;
            let seen = stored.seen();
            let passed = seen.partition_point(|seen| seen.offset < from.0);
            read.extend_from_slice(&seen[passed..]);
        }
        (read, end)
    }
}

/// Of so many batches, of which `next` tells the end, the first that reaches beyond `from`. What is
/// asked for lies mostly near the end: it is looked for from there.
pub(super) fn first_beyond(count: usize, from: Offset, next: impl Fn(usize) -> Offset) -> usize {
    let (mut high, mut step) = (count, 1);
    while high > 0 && next(high.saturating_sub(step)) > from {
        high = high.saturating_sub(step);
        step *= 2;
    }
    let mut low = high.saturating_sub(step);
    while low < high {
        let middle = low.midpoint(high);
        if next(middle) > from {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

fn frame_bytes(batch: &Batch) -> u64 {
    (FRAME_HEADER_BYTES + batch.len()) as u64
}

/// The first part in which what is rebuilt and what lives differ.
pub(super) fn difference(rebuilt: &Recovered, live: &Recovered) -> Option<String> {
    let differ = |what: &str, rebuilt: &dyn Debug, live: &dyn Debug| {
        Some(format!("{what} {rebuilt:?}, not {live:?}"))
    };
    if rebuilt.end != live.end {
        differ("the end is", &rebuilt.end, &live.end)
    } else if rebuilt.log_start != live.log_start {
        differ("the start is", &rebuilt.log_start, &live.log_start)
    } else if rebuilt.segments != live.segments {
        differ("the segments are", &rebuilt.segments, &live.segments)
    } else if rebuilt.leader_epochs != live.leader_epochs {
        differ("the leader epochs are", &rebuilt.leader_epochs, &live.leader_epochs)
    } else if rebuilt.producers != live.producers {
        differ("the producers are", &rebuilt.producers, &live.producers)
    } else if rebuilt.open != live.open {
        differ("the open transactions are", &rebuilt.open, &live.open)
    } else if rebuilt.aborted != live.aborted {
        differ("the aborted transactions are", &rebuilt.aborted, &live.aborted)
    } else if rebuilt.max_timestamp != live.max_timestamp || rebuilt.append_time != live.append_time
    {
        let times = |state: &Recovered| (state.max_timestamp, state.append_time);
        differ("the largest timestamps are", &times(rebuilt), &times(live))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_for_from_the_end_is_found() {
        for count in 0..40 {
            let ends: Vec<Offset> = (1..=count).map(|end| Offset(3 * end)).collect();
            for from in -1..3 * count + 2 {
                let slow = ends.partition_point(|end| *end <= Offset(from));
                let found = first_beyond(ends.len(), Offset(from), |place| ends[place]);
                assert_eq!(found, slow, "{count} batches, beyond {from}");
            }
        }
    }
}
