//! One log on the simulated disk of the world of cores: its operations in order, how many of them
//! are durable, and the state that a recovery would rebuild from them.

use std::collections::VecDeque;

use quorate_core::batch::Batch;
use quorate_core::id::{Offset, PartitionId, WriteId};
use quorate_core::partition::Recovered;
use quorate_core::partition::interface::LogOp;
use quorate_core::segment::frame::FrameHeader;

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
    batches: VecDeque<Batch>,
}

impl SimLog {
    pub(super) fn new(partition: PartitionId) -> Self {
        Self {
            partition,
            base: Recovered::default(),
            ops: VecDeque::new(),
            written: 0,
            durable: 0,
            batches: VecDeque::new(),
        }
    }

    /// The machine asks for this; nothing is on the disk yet.
    pub(super) fn issue(&mut self, write: WriteId, op: LogOp) {
        if let LogOp::Append { batch, .. } = &op {
            self.batches.push_back(batch.clone());
        }
        self.ops.push_back((write, op));
    }

    /// Batches leave once it is sure that they are deleted.
    fn delete_batches(&mut self) {
        let start = self.base.log_start;
        while self.batches.front().is_some_and(|batch| batch.header().next_offset() <= start) {
            self.batches.pop_front();
        }
    }

    fn upto(&self, write: WriteId) -> usize {
        self.ops.partition_point(|(other, _)| *other <= write)
    }

    pub(super) fn on_written(&mut self, write: WriteId) {
        self.written = self.written.max(self.upto(write));
    }

    pub(super) fn on_durable(&mut self, write: WriteId) {
        let upto = self.upto(write);
        self.written = self.written.max(upto);
        self.durable = self.durable.max(upto);
        // Fold what cannot be lost, so that a recovery stays cheap.
        if self.durable > 64 {
            for _ in 0..self.durable {
                let Some((_, op)) = self.ops.pop_front() else { break };
                apply(&mut self.base, self.partition, &op);
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
        self.base = self.recover();
        self.ops.clear();
        (self.written, self.durable) = (0, 0);
        self.delete_batches();
        let end = self.base.end;
        while self.batches.back().is_some_and(|batch| batch.header().base_offset() >= end) {
            self.batches.pop_back();
        }
    }

    /// What recovery rebuilds: the fold over all operations.
    pub(super) fn recover(&self) -> Recovered {
        let mut state = self.base.clone();
        for (_, op) in &self.ops {
            apply(&mut state, self.partition, op);
        }
        state
    }

    /// Batches from the one that holds `from` on, below `up_to`, of so many bytes; one at least.
    pub(super) fn read(&self, from: Offset, up_to: Offset, bytes_max: usize) -> Vec<Batch> {
        let first = self.batches.partition_point(|batch| batch.header().next_offset() <= from);
        let mut bytes = 0;
        let mut read = Vec::new();
        for batch in self.batches.range(first..) {
            if batch.header().next_offset() > up_to {
                break;
            }
            bytes += batch.len();
            if bytes > bytes_max && !read.is_empty() {
                break;
            }
            read.push(batch.clone());
        }
        read
    }
}

/// One step of the fold. A snapshot that differs from the fold so far is a bug of the machine, and
/// panics.
fn apply(state: &mut Recovered, partition: PartitionId, op: &LogOp) {
    match op {
        LogOp::Append { batch, levels } => {
            let bytes = FrameHeader::of(partition, batch, *levels).frame_bytes();
            state.apply(batch.header(), bytes).expect("batches follow one another");
        }
        LogOp::Roll { base, snapshot } => {
            state.roll(*base).expect("a segment follows the last");
            same(state, &Recovered::from_snapshot(snapshot).expect("a good snapshot"), "a roll");
        }
        LogOp::DeleteBefore { offset } => state.delete_before(*offset),
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
