//! The quorum's disk as one more log of the storage engine: each operation is a batch. So votes,
//! entries of the metadata log and records of users share one journal, one sync and one recovery.
//!
//! What the quorum remembers is the fold over these batches. When it takes a snapshot, the sum of
//! all operations is written as one batch, whole or not at all, at the start of a new segment; once
//! that is durable, everything before it is deleted.

use std::collections::VecDeque;
use std::fmt;

use crate::batch::{Batch, BatchBuilder, Codec, Levels, Records};
use crate::id::{LeaderEpoch, Offset, WriteId};
use crate::partition::Recovered as LogState;
use crate::partition::interface::LogOp;
use crate::quorum::interface::Recovered;
use crate::quorum::recovered::LogOp as Operation;
use crate::segment::frame::FRAME_HEADER_BYTES;
use crate::time::Timestamp;
use crate::{mutant, reached};

/// No batch of ours is larger when decompressed: they are not compressed.
const BATCH_BYTES_MAX: usize = 1 << 30;

/// A write for the storage engine, always durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogWrite {
    pub write: WriteId,
    pub op: LogOp,
}

/// Between the quorum's operations and the log they are kept in.
#[derive(Clone, Debug)]
pub struct QuorumLog {
    /// The log, with all writes in flight.
    log: LogState,
    /// What its operations add up to.
    sum: Recovered,
    next_write: WriteId,
    in_flight: VecDeque<(WriteId, Completes)>,
    segment_bytes_max: u64,
}

/// What is true once a write is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Completes {
    Nothing,
    Operation(WriteId),
    /// As `Operation`, and the sum of all stands at this offset.
    Sum(WriteId, Offset),
}

impl QuorumLog {
    /// `log` is what storage recovered, `sum` the fold over its batches.
    pub fn new(log: LogState, sum: Recovered, segment_bytes_max: u64) -> Self {
        Self { log, sum, next_write: WriteId(1), in_flight: VecDeque::new(), segment_bytes_max }
    }

    /// The log as storage knows it, with all writes in flight.
    pub fn log(&self) -> &LogState {
        &self.log
    }

    /// What all operations add up to, those in flight too.
    pub fn sum(&self) -> &Recovered {
        &self.sum
    }

    /// Puts the quorum's write `write` into the log. `now` is for humans who look at it.
    pub fn persist(
        &mut self,
        now: Timestamp,
        write: WriteId,
        op: &Operation,
        writes: &mut Vec<LogWrite>,
    ) {
        self.sum.apply(op);
        match op {
            Operation::Snapshot { .. } | Operation::Install { .. } => {
                reached!("quorum-log-summed");
                self.roll(writes);
                let offset = self.log.end;
                let ops = self.sum.to_ops();
                self.append(now, &ops, Completes::Sum(write, offset), writes);
            }
            Operation::HardState(_) | Operation::Append { .. } | Operation::Truncate { .. } => {
                let op = std::slice::from_ref(op);
                self.append(now, op, Completes::Operation(write), writes);
            }
        }
    }

    /// Writes up to `through` are durable. The last of the quorum's own writes among them.
    pub fn on_written(&mut self, through: WriteId, writes: &mut Vec<LogWrite>) -> Option<WriteId> {
        let mut persisted = None;
        let mut sum_at = None;
        while let Some((_, completes)) = self.in_flight.pop_front_if(|(write, _)| *write <= through)
        {
            match completes {
                Completes::Nothing => {}
                Completes::Operation(write) => persisted = Some(write),
                Completes::Sum(write, offset) => {
                    persisted = Some(write);
                    sum_at = Some(offset);
                }
            }
        }
        // Not before: a start in between would find neither the operations nor their sum.
        if let Some(offset) = sum_at {
            self.log.delete_before(offset);
            self.write(LogOp::DeleteBefore { offset }, Completes::Nothing, writes);
        }
        persisted
    }

    /// A clean stop: what makes the next start fast. The write that completes it.
    pub fn checkpoint(&mut self, writes: &mut Vec<LogWrite>) -> WriteId {
        let snapshot = self.log.to_snapshot();
        self.write(LogOp::Checkpoint { snapshot }, Completes::Nothing, writes)
    }

    /// Writes that storage has not reported.
    pub fn writes_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn append(
        &mut self,
        now: Timestamp,
        ops: &[Operation],
        completes: Completes,
        writes: &mut Vec<LogWrite>,
    ) {
        let mut builder = BatchBuilder::new(Codec::None);
        for op in ops {
            builder.append(now, None, Some(&op.to_bytes()), []);
        }
        let mut batch = builder.build();
        batch.stamp(self.log.end, LeaderEpoch(0));
        let frame_bytes = (FRAME_HEADER_BYTES + batch.len()) as u64;
        let active = self.log.segments.last().map_or(0, |active| active.bytes);
        if active > 0 && active + frame_bytes > self.segment_bytes_max {
            self.roll(writes);
        }
        self.log.apply(&batch, frame_bytes).expect("it stands at the end");
        let op = LogOp::Append { batch, levels: Levels::DEFAULT };
        self.write(op, completes, writes);
    }

    /// What follows stands in a segment of its own, unless it would anyway.
    fn roll(&mut self, writes: &mut Vec<LogWrite>) {
        if self.log.segments.last().is_none_or(|active| active.bytes == 0) {
            return;
        }
        let base = self.log.end;
        self.log.roll(base).expect("the active segment holds something");
        let snapshot = self.log.to_snapshot();
        self.write(LogOp::Roll { base, snapshot }, Completes::Nothing, writes);
    }

    fn write(&mut self, op: LogOp, completes: Completes, writes: &mut Vec<LogWrite>) -> WriteId {
        let write = self.next_write;
        self.next_write = write.next();
        self.in_flight.push_back((write, completes));
        writes.push(LogWrite { write, op });
        write
    }

    /// Panics if the state is impossible.
    pub fn check(&self) {
        self.log.check();
        self.sum.check();
        let writes = self.in_flight.iter().zip(self.in_flight.iter().skip(1));
        assert!(writes.into_iter().all(|((a, _), (b, _))| a < b), "writes out of order");
    }
}

/// Adds up the batches of a log, from its start, in order.
#[derive(Clone, Debug, Default)]
pub struct Fold {
    sum: Recovered,
}

impl Fold {
    /// # Errors
    ///
    /// Why this build cannot read the batch. A node that meets such a batch must not start: it
    /// would forget a vote or an entry.
    pub fn push(&mut self, batch: &Batch) -> Result<(), Unreadable> {
        let at = batch.header().base_offset();
        let unreadable = |reason: String| Unreadable { at, reason };
        let bytes = batch.uncompressed(BATCH_BYTES_MAX);
        let bytes = bytes.map_err(|error| unreadable(error.to_string()))?;
        let mut ops = Vec::new();
        for record in Records::new(&bytes, batch.header().record_count()) {
            let record = record.map_err(|error| unreadable(error.to_string()))?;
            let op = Operation::from_bytes(record.value.unwrap_or_default());
            ops.push(op.map_err(|error| unreadable(error.to_string()))?);
        }
        for op in &ops {
            // zoo B3: a leadership that was promised is forgotten by a restart.
            if mutant!("same-epoch-leader-after-restart") && matches!(op, Operation::HardState(_)) {
                continue;
            }
            self.sum.apply(op);
        }
        Ok(())
    }

    /// What the quorum remembers by what was pushed so far.
    pub fn sum(&self) -> &Recovered {
        &self.sum
    }

    /// What the quorum remembers.
    pub fn finish(self) -> Recovered {
        self.sum
    }
}

/// A batch of the quorum's log that this build cannot read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    at: Offset,
    reason: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the operation at {} cannot be read: {}", self.at, self.reason)
    }
}

impl std::error::Error for Unreadable {}
