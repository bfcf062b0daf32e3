//! A log as storage would keep it, without files, that can also be cut back: what is done, what is
//! under way, and what a recovery would make of it.

use std::collections::VecDeque;

use quorate_core::batch::{Batch, Levels};
use quorate_core::id::{Offset, WriteId};
use quorate_core::partition::Recovered;
use quorate_core::partition::interface::LogOp;
use quorate_core::segment::frame::FRAME_HEADER_BYTES;

/// What stands in the log, in order.
#[derive(Clone, Debug)]
enum Part {
    Batch(Batch, Levels),
    Roll(Offset),
}

/// One replica's log on its disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct CutLog {
    /// Where it began when it was begun anew.
    base: Offset,
    start: Offset,
    parts: Vec<Part>,
    in_flight: VecDeque<(WriteId, LogOp)>,
    /// Batches that were cut off, ever.
    pub(crate) orphans: Vec<Batch>,
}

/// What completes.
#[derive(Clone, Debug)]
pub(crate) enum Done {
    Written(WriteId),
    Truncated(WriteId, Recovered),
}

impl CutLog {
    pub(crate) fn write(&mut self, write: WriteId, op: LogOp) {
        self.in_flight.push_back((write, op));
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Of the next `count` operations, those before a cut are done; or the cut, if it comes first.
    pub(crate) fn complete(&mut self, count: usize) -> Option<Done> {
        let (write, cuts) = self.in_flight.front().map(|(write, op)| (*write, is_cut(op)))?;
        if cuts {
            let (_, op) = self.in_flight.pop_front()?;
            self.apply(op);
            return Some(Done::Truncated(write, self.recover()));
        }
        let before_cut = self.in_flight.iter().take_while(|(_, op)| !is_cut(op)).count();
        let mut through = None;
        for (write, op) in self.in_flight.drain(..before_cut.min(count)).collect::<Vec<_>>() {
            self.apply(op);
            through = Some(Done::Written(write));
        }
        through
    }

    /// The process dies when `count` of what is under way is on the disk.
    pub(crate) fn crash(&mut self, count: usize) {
        for (_, op) in self.in_flight.drain(..count).collect::<Vec<_>>() {
            self.apply(op);
        }
        self.in_flight.clear();
    }

    fn apply(&mut self, op: LogOp) {
        match op {
            LogOp::Append { batch, levels } => self.parts.push(Part::Batch(batch, levels)),
            LogOp::Roll { base, .. } => self.parts.push(Part::Roll(base)),
            LogOp::DeleteBefore { offset } => self.start = self.start.max(offset),
            LogOp::Checkpoint { .. } => {}
            LogOp::Replace(_) => panic!("no topic is compacted here"),
            LogOp::TruncateTo { offset, .. } => {
                let stays = |part: &Part| match part {
                    Part::Batch(batch, _) => batch.header().next_offset() <= offset,
                    Part::Roll(base) => *base <= offset,
                };
                let place = self.parts.iter().position(|part| !stays(part));
                for part in self.parts.split_off(place.unwrap_or(self.parts.len())) {
                    if let Part::Batch(batch, _) = part {
                        self.orphans.push(batch);
                    }
                }
                if self.start > offset {
                    (self.base, self.start) = (offset, offset);
                    self.parts.clear();
                }
            }
            LogOp::ResetTo { offset } => {
                (self.base, self.start) = (offset, offset);
                self.parts.clear();
            }
        }
    }

    pub(crate) fn start(&self) -> Offset {
        self.start
    }

    /// What is on the disk, oldest first.
    pub(crate) fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.parts.iter().filter_map(|part| match part {
            Part::Batch(batch, _) => Some(batch),
            Part::Roll(_) => None,
        })
    }

    /// What is on the disk or on its way there, unless a cut is under way.
    pub(crate) fn all_batches(&self) -> Vec<&Batch> {
        let coming = self.in_flight.iter().filter_map(|(_, op)| match op {
            LogOp::Append { batch, .. } => Some(batch),
            _ => None,
        });
        self.batches().chain(coming).collect()
    }

    pub(crate) fn is_being_cut(&self) -> bool {
        self.in_flight.iter().any(|(_, op)| is_cut(op))
    }

    /// Batches that reach beyond `from`, up to `up_to`, `bytes_max` of them but one at least.
    pub(crate) fn read(
        &self,
        from: Offset,
        up_to: Offset,
        bytes_max: usize,
    ) -> Vec<(Batch, Levels)> {
        let mut bytes = 0;
        let mut read = Vec::new();
        for part in &self.parts {
            let Part::Batch(batch, levels) = part else { continue };
            let end = batch.header().next_offset();
            if end <= from || end <= self.start {
                continue;
            }
            bytes += batch.len();
            if end > up_to || (bytes > bytes_max && !read.is_empty()) {
                break;
            }
            read.push((batch.clone(), *levels));
        }
        read
    }

    /// The state by a fold over all that is there.
    pub(crate) fn recover(&self) -> Recovered {
        let mut state = Recovered { log_start: self.base, end: self.base, ..Recovered::default() };
        for part in &self.parts {
            match part {
                Part::Batch(batch, _) => {
                    let frame_bytes = (FRAME_HEADER_BYTES + batch.len()) as u64;
                    state.apply(batch, frame_bytes).expect("batches follow one another");
                }
                Part::Roll(base) => state.roll(*base).expect("segments follow one another"),
            }
        }
        state.delete_before(self.start);
        state
    }
}

const fn is_cut(op: &LogOp) -> bool {
    matches!(op, LogOp::TruncateTo { .. } | LogOp::ResetTo { .. })
}
