//! Compacts logs, one after the other, at the pace that is configured. When, and whether the result
//! counts, the logs' machines say (`partition::cleaning`); how, `storage::clean`.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use quorate_core::compaction::pass::Counts;
use quorate_core::id::PartitionId;
use quorate_core::partition;
use quorate_core::partition::interface::{Clean, CleanProblem};
use quorate_core::segment::cleaned::Cleaned;
use quorate_core::shard::interface::Input;
use quorate_net::clock::Clock;
use tokio::sync::mpsc;

use crate::catalog::log::LogHandle;
use crate::driver::Command;
use crate::halt::Halt;
use crate::metrics::Metrics;
use crate::node::Node;
use crate::storage::clean::{CleanError, Pace, Pause, Tools};

/// Logs that wait, beyond which a pass counts as failed, and is asked for again.
const WAITING_MAX: usize = 16 << 10;
/// So many bytes are read or written between two pauses.
const STRIDE_BYTES: u64 = 256 << 10;

/// Something to be done to a log.
pub(crate) struct Job {
    pub(crate) log: Arc<LogHandle>,
    pub(crate) task: Task,
}

pub(crate) enum Task {
    Clean(Clean),
    Discard(Box<Cleaned>),
}

impl Task {
    /// The pass that somebody waits for.
    pub(crate) fn pass(&self) -> Option<u64> {
        match self {
            Self::Clean(clean) => Some(clean.pass),
            Self::Discard(_) => None,
        }
    }
}

pub(crate) fn channel() -> (mpsc::Sender<Job>, mpsc::Receiver<Job>) {
    mpsc::channel(WAITING_MAX)
}

/// What a log's machine is told of a pass that was not made.
pub(crate) fn failed(partition: PartitionId, pass: u64) -> Input {
    told(partition, pass, Err(CleanProblem::Failed))
}

fn told(partition: PartitionId, pass: u64, result: Result<Box<Cleaned>, CleanProblem>) -> Input {
    let input = partition::interface::Input::Cleaned { pass, result };
    Input::Partition { partition, input }
}

/// See the file's comment.
pub(crate) struct Cleaner {
    node: Weak<Node>,
    clock: Arc<dyn Clock>,
    halt: Arc<Halt>,
    hash_key: [u8; 16],
}

/// Pauses so that no more than so many bytes a second come together.
struct Pacing {
    node: Weak<Node>,
    clock: Arc<dyn Clock>,
    bytes_per_second: u64,
    spent: AtomicU64,
}

impl Pace for Pacing {
    /// A node that has stopped may be started again at once, on the same directory.
    fn is_over(&self) -> bool {
        self.node.strong_count() == 0
    }

    fn spent(&self, bytes: u64) -> Pause<'_> {
        let spent = self.spent.fetch_add(bytes, Relaxed) + bytes;
        Box::pin(async move {
            if spent >= STRIDE_BYTES {
                self.spent.store(0, Relaxed);
                let pace = spent as f64 / self.bytes_per_second as f64;
                self.clock.sleep(Duration::from_secs(1).mul_f64(pace)).await;
            }
        })
    }
}

impl Cleaner {
    /// `hash_key` is secret, so that nobody can make keys that are taken for one another.
    pub(crate) fn new(node: &Arc<Node>, halt: Arc<Halt>, hash_key: [u8; 16]) -> Self {
        let (clock, node) = (Arc::clone(&node.clock), Arc::downgrade(node));
        Self { node, clock, halt, hash_key }
    }

    /// As long as somebody may ask.
    pub(crate) async fn run(self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(Job { log, task }) = jobs.recv().await {
            match task {
                Task::Discard(cleaned) => log.reader.discard(&cleaned).await,
                Task::Clean(clean) => {
                    let result = self.clean(&log, &clean).await;
                    let input = told(log.partition, clean.pass, result);
                    if log.shard.tell(Command::Tell(input)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    async fn clean(&self, log: &LogHandle, clean: &Clean) -> Result<Box<Cleaned>, CleanProblem> {
        let began = self.clock.now().monotonic;
        // Whoever stops the node does not wait for this: it is held no longer than needed.
        let Some(node) = self.node.upgrade() else { return Err(CleanProblem::Failed) };
        let (storage, metrics) = (Arc::clone(&node.storage), Arc::clone(&node.metrics));
        let (settings, unpacking) = (node.config.storage.clone(), node.unpacking.clone());
        drop(node);
        // All that is to be replaced is durable, and the marks say so. One checkpoint may have been
        // under way already, and know nothing of the last roll.
        for _ in 0..2 {
            if storage.checkpoint().await.is_err() {
                return Err(CleanProblem::Failed);
            }
        }
        drop(storage);
        let pace = Pacing {
            node: Weak::clone(&self.node),
            clock: Arc::clone(&self.clock),
            bytes_per_second: settings.clean_bytes_per_second,
            spent: AtomicU64::new(0),
        };
        let tools = Tools {
            unpack: &unpacking,
            pace: &pace,
            key_bytes_max: settings.clean_key_bytes_max,
            hash_key: self.hash_key,
        };
        let made = log.reader.clean(clean, &tools).await;
        let took = self.clock.now().monotonic.saturating_since(began);
        tell(&metrics, log.partition, clean, &made, took);
        if let Err(error) = &made
            && error.is_failed_write()
        {
            self.halt.halt(&error.to_string());
        }
        made.map(|(cleaned, _)| Box::new(cleaned)).map_err(|_| CleanProblem::Failed)
    }
}

/// What a pass did, for whoever watches the node.
fn tell(
    metrics: &Metrics,
    partition: PartitionId,
    clean: &Clean,
    made: &Result<(Cleaned, Counts), CleanError>,
    took: Duration,
) {
    match made {
        Ok((cleaned, counts)) => {
            metrics.passes_made.add(1);
            metrics.bytes_cleaned.add(counts.bytes_before);
            metrics.bytes_left_by_cleaning.add(counts.bytes_after);
            tracing::info!(
                %partition,
                from = %clean.dirty,
                to = %cleaned.to,
                records = counts.records_before,
                records_left = counts.records_after,
                bytes = counts.bytes_before,
                bytes_left = counts.bytes_after,
                segments = counts.segments_before,
                segments_left = counts.segments_after,
                ?took,
                "a log was compacted"
            );
        }
        Err(error) => {
            metrics.passes_failed.add(1);
            match error {
                CleanError::Changed => tracing::info!(%partition, "not compacted: {error}"),
                _ => tracing::warn!(%partition, "a log cannot be compacted: {error}"),
            }
        }
    }
}
