//! Reads every log to its end, slowly, again and again: rot in records that nobody asks for is
//! found while there may still be another copy (docs/decisions/0063).

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use quorate_core::id::{Offset, PartitionId};
use quorate_core::reached;
use quorate_net::clock::Clock;

use crate::catalog::Log;
use crate::catalog::log::LogHandle;
use crate::node::Node;
use crate::storage::{ReadError, Rot};

/// Bytes of one read; one batch at least.
const PIECE_BYTES: usize = 256 << 10;

pub(crate) struct Scrubber {
    node: Weak<Node>,
    clock: Arc<dyn Clock>,
    /// Told once in a life.
    found: BTreeSet<(PartitionId, PathBuf, u64)>,
}

impl Scrubber {
    pub(crate) fn new(node: &Arc<Node>) -> Self {
        let (clock, node) = (Arc::clone(&node.clock), Arc::downgrade(node));
        Self { node, clock, found: BTreeSet::new() }
    }

    /// As long as the node lives, unless it is switched off.
    pub(crate) async fn run(mut self) {
        loop {
            let Some(node) = self.node.upgrade() else { return };
            let settings = node.config.storage.clone();
            if settings.scrub_bytes_per_second == 0 {
                return;
            }
            drop(node);
            self.clock.sleep(settings.scrub_pause).await;
            for log in self.logs() {
                self.scrub(&log, settings.scrub_bytes_per_second).await;
            }
            reached!("logs-scrubbed");
        }
    }

    /// Those that are open. The metadata log is read at every start.
    fn logs(&self) -> Vec<Weak<LogHandle>> {
        let Some(node) = self.node.upgrade() else { return Vec::new() };
        let state = node.catalog.read();
        let partitions = state.topics().flat_map(|topic| &topic.partitions);
        let logs = partitions.filter_map(|partition| match &partition.log {
            Log::Open(log) => Some(Arc::downgrade(log)),
            Log::Offline | Log::Elsewhere => None,
        });
        logs.collect()
    }

    /// Reads one log from its start to what is committed. Behind rot it goes on with the next
    /// segment: only there does it surely find the beginning of a batch.
    async fn scrub(&mut self, log: &Weak<LogHandle>, bytes_per_second: u64) {
        let mut next = Offset::ZERO;
        while let Some(log) = log.upgrade() {
            let view = log.view();
            let from = next.max(view.log_start);
            if from >= view.high_watermark {
                return;
            }
            let read = log.reader.read(from, view.high_watermark, PIECE_BYTES, true).await;
            let batches = match read {
                Ok(batches) => batches,
                Err(ReadError::Rot(rot)) => {
                    self.tell(&rot);
                    let Some(behind) = log.reader.segment_behind(from.max(rot.offset)) else {
                        return;
                    };
                    next = behind;
                    continue;
                }
                // Its start was raised, or it was cut or removed: the next time it is looked at.
                Err(ReadError::OutOfRange { .. } | ReadError::Removed) => return,
                Err(ReadError::Cut | ReadError::Replaced) => return,
                Err(error) => return tracing::warn!(%error, "a log cannot be read through"),
            };
            let Some(last) = batches.last() else { return };
            next = last.header().next_offset();
            let bytes: usize = batches.iter().map(quorate_core::batch::Batch::len).sum();
            drop((log, batches));
            let pace = Duration::from_secs(1).mul_f64(bytes as f64 / bytes_per_second as f64);
            self.clock.sleep(pace).await;
        }
    }

    fn tell(&mut self, rot: &Rot) {
        if !self.found.insert((rot.partition, rot.path.clone(), rot.position)) {
            return;
        }
        tracing::error!("{rot}");
        if let Some(node) = self.node.upgrade() {
            node.metrics.rot_found.add(1);
        }
    }
}
