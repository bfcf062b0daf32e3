//! What a node counts: plain numbers that anybody may add to and read at any time.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that rises and falls.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// The value before.
    pub fn rise(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    pub fn fall(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// All that one node counts since its start.
#[derive(Debug, Default)]
pub struct Metrics {
    pub connections_open: Gauge,
    pub connections_accepted: Counter,
    /// Closed as they came, since there were `network.connections_max` already.
    pub connections_refused: Counter,
    /// Closed because of what the client sent, or did not send or read in time.
    pub connections_given_up: Counter,
    pub requests: Counter,
    pub bytes_received: Counter,
    pub bytes_sent: Counter,
    /// Batches that were handed to a partition.
    pub batches_produced: Counter,
    pub batch_bytes_produced: Counter,
    /// Batches that were refused before they came to a partition.
    pub batches_refused: Counter,
    pub bytes_fetched: Counter,
    /// Places in logs that were found to be rotten while nobody asked for them.
    pub rot_found: Counter,
    /// Passes of compaction that were made, and that could not be made.
    pub passes_made: Counter,
    pub passes_failed: Counter,
    /// Bytes of the segments that went into passes, and of what came out.
    pub bytes_cleaned: Counter,
    pub bytes_left_by_cleaning: Counter,
    /// Steps of the shards' machines.
    pub shard_steps: Counter,
    /// Times that a shard took its inputs; steps divided by these is the usual batch.
    pub shard_rounds: Counter,
}
