//! Records of an answer, read a second time: the client was slow, and others needed the memory.

use std::sync::Arc;

use quorate_core::batch::Batch;
use quorate_core::id::Offset;

use crate::catalog::log::LogHandle;
use crate::listener::output::{Again, Part, Reading};
use crate::node::Node;

/// A batch is noted whenever so many bytes have passed since the one before: what is read and not
/// wanted, when an answer goes on in its midst, is not more.
const STEP_BYTES: usize = 64 * 1024;
/// Read at once of what a slow client has still to take.
const PART_BYTES_MAX: usize = 1 << 20;

/// Where some of the batches of one partition's records begin.
#[derive(Default)]
pub(super) struct Steps {
    steps: Vec<(usize, Offset)>,
    bytes: usize,
}

impl Steps {
    pub(super) fn pass(&mut self, batch: &Batch) {
        if self.steps.last().is_none_or(|(start, _)| self.bytes - start >= STEP_BYTES) {
            self.steps.push((self.bytes, batch.header().base_offset()));
        }
        self.bytes += batch.len();
    }
}

impl From<Steps> for Vec<(usize, Offset)> {
    fn from(steps: Steps) -> Self {
        steps.steps
    }
}

pub(super) struct LogAgain {
    node: Arc<Node>,
    log: Arc<LogHandle>,
    /// The largest batch that its topic takes.
    batch_bytes_max: usize,
}

impl LogAgain {
    pub(super) fn new(node: &Arc<Node>, log: &Arc<LogHandle>, batch_bytes_max: usize) -> Self {
        Self { node: Arc::clone(node), log: Arc::clone(log), batch_bytes_max }
    }
}

impl Again for LogAgain {
    fn read(&self, from: Offset, bytes: usize) -> Reading {
        let (node, log) = (Arc::clone(&self.node), Arc::clone(&self.log));
        let batch_bytes_max = self.batch_bytes_max;
        Box::pin(async move {
            let gone = |why: &dyn std::fmt::Display| {
                format!("the records of an answer cannot be read again: {why}")
            };
            let view = log.view();
            let up_to = view.high_watermark;
            // A batch that reaches across the log's start is asked for by a record that is left.
            let asked = from.max(view.log_start);
            let mut loan = node.answers.take(bytes.min(PART_BYTES_MAX)).await;
            let mut room = loan.bytes().min(bytes);
            let mut found = log.reader.read(asked, up_to, room, false).await;
            if found.as_ref().is_ok_and(Vec::is_empty) {
                drop(loan);
                loan = node.answers.take_whole(batch_bytes_max).await;
                room = room.min(loan.bytes());
                found = log.reader.read(asked, up_to, room, true).await;
            }
            let batches = found.map_err(|error| gone(&error))?;
            match (batches.first(), batches.last()) {
                (Some(first), Some(last)) if first.header().base_offset() == from => {
                    let next = last.header().next_offset();
                    loan.shrink(batches.iter().map(Batch::len).sum());
                    let chunks = batches.iter().flat_map(Batch::chunks).collect();
                    Ok(Part { chunks, next, loan })
                }
                _ => Err(gone(&"the log does not hold them any more")),
            }
        })
    }
}
