//! One log on the simulated disk of the world of cores: its operations in order, how many of them
//! are durable, and the state that a recovery would rebuild from them.

use std::cell::OnceCell;
use std::collections::VecDeque;

use quorate_core::batch::Batch;
use quorate_core::id::{Offset, PartitionId, WriteId};
use quorate_core::partition::Recovered;
use quorate_core::partition::interface::LogOp;
use quorate_core::segment::frame::FRAME_HEADER_BYTES;

use super::ledger::Ledger;
use crate::history::Seen;
use crate::workload::values;

/// Durable operations that are folded at once, so that a recovery stays cheap.
const FOLD_EVERY: usize = 64;

/// A log: what is folded into `base`, and the operations since.
pub(super) struct SimLog {
    partition: PartitionId,
    /// The durable state below `ops`.
    base: Recovered,
    ops: VecDeque<(WriteId, LogOp)>,
    /// How many of `ops` a process crash cannot lose any more.
    written: usize,
    /// How many of `ops` a power loss cannot lose any more.
    durable: usize,
    /// By offset; those below the log start leave.
    batches: VecDeque<Stored>,
    /// Everything below was reported as written in this life, or recovered.
    reported: Offset,
    /// Sequence numbers as `base` has them, and as they will be when all operations are done.
    folded: Ledger,
    ledger: Ledger,
    /// One of so many snapshots is compared with the fold; `None` for no one.
    compare_every: Option<i64>,
}

/// A batch, and what a reader sees in it, once somebody has looked.
struct Stored {
    batch: Batch,
    seen: OnceCell<Vec<Seen>>,
}

impl Stored {
    fn seen(&self) -> &[Seen] {
        self.seen.get_or_init(|| {
            let mut seen = Vec::new();
            values::records(&self.batch, 0, &mut seen);
            seen
        })
    }
}

impl SimLog {
    pub(super) fn new(partition: PartitionId, compare_every: Option<i64>) -> Self {
        Self {
            partition,
            base: Recovered::default(),
            ops: VecDeque::new(),
            written: 0,
            durable: 0,
            batches: VecDeque::new(),
            reported: Offset::ZERO,
            folded: Ledger::default(),
            ledger: Ledger::default(),
            compare_every,
        }
    }

    /// The machine asks for this; nothing is on the disk yet. What is wrong with it, if anything.
    pub(super) fn issue(&mut self, write: WriteId, op: LogOp) -> Option<String> {
        let mut wrong = None;
        if let LogOp::Append { batch, .. } = &op {
            wrong = self.ledger.append(batch.header());
            self.batches.push_back(Stored { batch: batch.clone(), seen: OnceCell::new() });
        }
        self.ops.push_back((write, op));
        wrong
    }

    /// Batches leave once it is sure that they are deleted.
    fn delete_batches(&mut self) {
        let start = self.base.log_start;
        let gone = |stored: &Stored| stored.batch.header().next_offset() <= start;
        while self.batches.front().is_some_and(gone) {
            self.batches.pop_front();
        }
    }

    fn upto(&self, write: WriteId) -> usize {
        self.ops.partition_point(|(other, _)| *other <= write)
    }

    pub(super) fn on_written(&mut self, write: WriteId) {
        self.written = self.written.max(self.upto(write));
    }

    /// The machine is told of it.
    pub(super) fn on_reported(&mut self, write: WriteId) {
        let upto = self.upto(write);
        let last = self.ops.range(..upto).rev().find_map(|(_, op)| match op {
            LogOp::Append { batch, .. } => Some(batch.header().next_offset()),
            _ => None,
        });
        self.reported = self.reported.max(last.unwrap_or_default());
    }

    /// Everything below was written, as far as the machine may know.
    pub(super) fn reported(&self) -> Offset {
        self.reported
    }

    pub(super) fn on_durable(&mut self, write: WriteId) {
        let upto = self.upto(write);
        self.written = self.written.max(upto);
        self.durable = self.durable.max(upto);
        if self.durable > FOLD_EVERY {
            for _ in 0..self.durable {
                let Some((_, op)) = self.ops.pop_front() else { break };
                apply(&mut self.base, &op, self.compare_every);
                self.folded.apply(&op);
            }
            self.written -= self.durable;
            self.durable = 0;
            self.delete_batches();
        }
    }

    /// Operations that a process crash may lose, and that a power loss may lose.
    pub(super) fn at_risk(&self) -> (usize, usize) {
        (self.ops.len() - self.written, self.ops.len() - self.durable)
    }

    /// The node's life ends: the last so many operations never happened, the rest is what its
    /// disk now has. Writes are counted anew in the next life.
    pub(super) fn lose(&mut self, count: usize) {
        let keep = self.ops.len() - count.min(self.ops.len());
        self.ops.truncate(keep);
        for (_, op) in std::mem::take(&mut self.ops) {
            apply(&mut self.base, &op, self.compare_every);
            self.folded.apply(&op);
        }
        self.ledger.clone_from(&self.folded);
        (self.written, self.durable) = (0, 0);
        self.delete_batches();
        let end = self.base.end;
        self.reported = end;
        let lost = |stored: &Stored| stored.batch.header().base_offset() >= end;
        while self.batches.back().is_some_and(lost) {
            self.batches.pop_back();
        }
    }

    /// What recovery rebuilds: the fold over all operations.
    pub(super) fn recover(&self) -> Recovered {
        let mut state = self.base.clone();
        for (_, op) in &self.ops {
            apply(&mut state, op, self.compare_every);
        }
        state
    }

    pub(super) fn partition(&self) -> PartitionId {
        self.partition
    }

    /// The records from `from` on, below `up_to`, of whole batches of so many bytes, one at least;
    /// and the offset behind the last batch.
    pub(super) fn read(
        &self,
        from: Offset,
        up_to: Offset,
        bytes_max: usize,
    ) -> (Vec<Seen>, Offset) {
        let next = |stored: &Stored| stored.batch.header().next_offset();
        let first = self.batches.partition_point(|stored| next(stored) <= from);
        let (mut bytes, mut end) = (0, from);
        let mut read = Vec::new();
        for stored in self.batches.range(first..) {
            if next(stored) > up_to {
                break;
            }
            bytes += stored.batch.len();
            if bytes > bytes_max && end > from {
                break;
            }
            end = next(stored);
            let seen = stored.seen();
            let passed = seen.partition_point(|seen| seen.offset < from.0);
            read.extend_from_slice(&seen[passed..]);
        }
        (read, end)
    }
}

/// One step of the fold. A snapshot that differs from the fold so far is a bug of the machine, and
/// panics.
fn apply(state: &mut Recovered, op: &LogOp, compare_every: Option<i64>) {
    match op {
        LogOp::Append { batch, .. } => {
            let bytes = FRAME_HEADER_BYTES + batch.len();
            state.apply(batch, bytes as u64).expect("batches follow one another");
        }
        LogOp::Roll { base, snapshot } => {
            state.roll(*base).expect("a segment follows the last");
            if compare_every.is_some_and(|every| base.0 % every == 0) {
                let found = Recovered::from_snapshot(snapshot).expect("a good snapshot");
                same(state, &found, "a roll");
            }
        }
        LogOp::DeleteBefore { offset } => state.delete_before(*offset),
        LogOp::Replace(_) => unreachable!("no topic is compacted here"),
        LogOp::TruncateTo { .. } | LogOp::ResetTo { .. } => {
            unreachable!("one replica has nobody to part from: {op:?}")
        }
        LogOp::Checkpoint { snapshot } => {
            let snapshot = Recovered::from_snapshot(snapshot).expect("a good snapshot");
            same(state, &snapshot, "a checkpoint");
        }
    }
}

/// Rebuilt state = live state.
pub(super) fn same(rebuilt: &Recovered, live: &Recovered, when: &str) {
    let differs = rebuilt.log_start != live.log_start
        || rebuilt.end != live.end
        || rebuilt.max_timestamp != live.max_timestamp
        || rebuilt.append_time != live.append_time
        || rebuilt.segments != live.segments
        || rebuilt.leader_epochs != live.leader_epochs
        || rebuilt.producers != live.producers;
    assert!(!differs, "at {when}, rebuilt is not live:\n{rebuilt:?}\n{live:?}");
}
