//! Compacts logs, one after the other, at the pace that is configured. When, and whether the result
//! counts, the logs' machines say (`partition::cleaning`); how, `storage::clean`.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use quorate_core::compaction::pass::Counts;
use quorate_core::id::PartitionId;
use quorate_core::partition;
use quorate_core::partition::interface::{Clean, CleanProblem};
use quorate_core::segment::cleaned::Cleaned;
use quorate_core::shard::interface::Input;
use quorate_core::time::Instant;
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
/// So many bytes are read or written before others on the same thread have their turn.
const STRIDE_BYTES: u64 = 64 << 10;
/// A pause that is shorter is left to a later one: the clock's steps are of a millisecond.
const PAUSE_MIN: Duration = Duration::from_millis(4);
/// What a pass may make up for, where the disk or the clock has held it up.
const CATCH_UP_MAX: Duration = Duration::from_millis(100);

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
    meter: Mutex<Meter>,
}

/// When what was read and written may have been, at a rate. The time that the work takes counts,
/// and so does a pause that became longer.
struct Meter {
    bytes_per_second: u64,
    spent: u64,
    due: Instant,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Mine,
    Others,
    Until(Instant),
}

impl Meter {
    fn new(bytes_per_second: u64, now: Instant) -> Self {
        Self { bytes_per_second, spent: 0, due: now }
    }

    fn spend(&mut self, bytes: u64, now: Instant) -> Turn {
        self.spent += bytes;
        if self.spent < STRIDE_BYTES {
            return Turn::Mine;
        }
        let takes = std::mem::take(&mut self.spent) as f64 / self.bytes_per_second as f64;
        self.due = self.due.max(now - CATCH_UP_MAX) + Duration::from_secs(1).mul_f64(takes);
        if self.due >= now + PAUSE_MIN { Turn::Until(self.due) } else { Turn::Others }
    }
}

impl Pace for Pacing {
    /// A node that has stopped may be started again at once, on the same directory.
    fn is_over(&self) -> bool {
        self.node.strong_count() == 0
    }

    fn spent(&self, bytes: u64) -> Pause<'_> {
        let now = self.clock.now().monotonic;
        let mut meter = self.meter.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = meter.spend(bytes, now);
        Box::pin(async move {
            match turn {
                Turn::Mine => {}
                Turn::Others => tokio::task::yield_now().await,
                Turn::Until(due) => self.clock.sleep_until(due).await,
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
            meter: Mutex::new(Meter::new(settings.clean_bytes_per_second, began)),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads and writes so much in pieces, each of which takes `work`, with a clock that wakes
    /// `late`. Says how long that took, and the longest row of bytes without a turn for others.
    fn play(rate: u64, bytes: u64, piece: u64, work: Duration, late: Duration) -> (Duration, u64) {
        let mut now = Instant::since_start(Duration::from_secs(7));
        let (began, mut meter) = (now, Meter::new(rate, now));
        let (mut row, mut longest) = (0, 0);
        for _ in 0..bytes / piece {
            now = now + work;
            row += piece;
            longest = longest.max(row);
            match meter.spend(piece, now) {
                Turn::Mine => continue,
                Turn::Others => {}
                Turn::Until(due) => {
                    assert!(due >= now + PAUSE_MIN);
                    now = due + late;
                }
            }
            row = 0;
        }
        (now.saturating_since(began), longest)
    }

    #[test]
    fn the_rate_holds_however_long_work_and_pauses_take() {
        let (rate, bytes) = (64 << 20, 640 << 20);
        for piece in [1 << 10, 16 << 10, 1 << 20] {
            for work_share in [0, 1, 5, 9] {
                for late in [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(5)] {
                    let piece_time = Duration::from_secs(10).mul_f64(piece as f64 / bytes as f64);
                    let work = piece_time * work_share / 10;
                    let (took, _) = play(rate, bytes, piece, work, late);
                    let off = took.abs_diff(Duration::from_secs(10));
                    assert!(off < Duration::from_millis(30), "{piece} {work_share}: {took:?}");
                }
            }
        }
    }

    #[test]
    fn without_a_limit_others_have_their_turn_and_nothing_is_waited_for() {
        let (took, longest) = play(1 << 40, 64 << 20, 4 << 10, Duration::ZERO, Duration::ZERO);
        assert!(took < Duration::from_millis(10), "{took:?}");
        assert_eq!(longest, STRIDE_BYTES);
    }

    #[test]
    fn what_was_missed_is_made_up_for_within_bounds() {
        let start = Instant::since_start(Duration::from_secs(7));
        let mut meter = Meter::new(1 << 20, start);
        let late = start + Duration::from_secs(60);
        // A tenth of a second's worth at once, then at the rate again.
        assert_eq!(meter.spend(64 << 10, late), Turn::Others);
        let due = late - CATCH_UP_MAX + Duration::from_millis(125);
        assert_eq!(meter.spend(64 << 10, late), Turn::Until(due));
    }
}
