//! What a replica keeps to: the bounds of its tables, and its habits.

use std::time::Duration;

use crate::partition::retention::WallClock;

/// Bounds and habits of a replica; see `Limits::check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Idempotent producers remembered; each takes some 150 bytes.
    pub producers_max: usize,
    /// `producer.id.expiration.ms`: a producer silent for so long is forgotten. At least
    /// `producer_expiration_short`.
    pub producer_expiration: Duration,
    /// The same once `producers_max` are known; longer than any client retries one batch
    /// (`delivery.timeout.ms`, two minutes by default).
    pub producer_expiration_short: Duration,
    /// Aborted transactions that one log remembers, some 24 bytes each: with more, no transaction
    /// begins there before retention or compaction has taken some.
    pub aborted_max: usize,
    /// Producers whose coordinator is being asked.
    pub verifying_max: usize,
    /// How often to look for producers to forget.
    pub producer_check_interval: Duration,
    /// `log.retention.check.interval.ms`: how often at most to look for old segments.
    pub retention_check_interval: Duration,
    /// `log.cleaner.backoff.ms`: how often at most to look whether compaction is due.
    pub compaction_check_interval: Duration,
    /// Readers and producers that wait for an answer.
    pub waiting_max: usize,
    /// Bytes of frames after which the state is written down again (`LogOp::Checkpoint`), or eight
    /// times the state's own bytes, if that is more: a start reads so much of a log at most below
    /// what was synced.
    pub snapshot_bytes_min: u64,
    /// A wall clock that moves so much more or less than the monotonic one has jumped.
    pub clock_jump_min: Duration,
    /// What is known of the wall clock at the start of the node's life.
    pub wall_clock: WallClock,
    pub replication: ReplicationLimits,
}

/// Bounds and habits between the replicas of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationLimits {
    /// How long a follower waits for its leader's answer before it asks again; up to 16 times as
    /// long while none comes.
    pub follow_retry: Duration,
    /// `replica.lag.time.max.ms`: who has not had all of the leader's log for so long leaves the
    /// in-sync set.
    pub lag_time_max: Duration,
    /// Bytes on their way to one follower, not yet written there; one message at least.
    pub window_bytes: usize,
    /// Bytes of batches in one message; one batch at least.
    pub message_bytes_max: usize,
    /// Bytes of written batches that are kept in memory for followers that are a little behind.
    pub tail_bytes_max: usize,
    /// How long a leader waits for word of a follower that owes it some before it asks; up to 16
    /// times as long while none comes.
    pub ask_after: Duration,
    /// How long a leader waits for a batch to carry the new high watermark before it sends it
    /// alone.
    pub watermark_delay: Duration,
    /// How long a leader waits before it proposes a change of the in-sync set again; up to 16
    /// times as long while it is refused.
    pub proposal_retry: Duration,
    /// Leader epochs told in one `Lead`.
    pub epochs_max: usize,
}

impl Default for ReplicationLimits {
    fn default() -> Self {
        Self {
            follow_retry: Duration::from_millis(250),
            lag_time_max: Duration::from_secs(10),
            window_bytes: 4 << 20,
            message_bytes_max: 1 << 20,
            tail_bytes_max: 1 << 20,
            ask_after: Duration::from_millis(500),
            watermark_delay: Duration::from_millis(3),
            proposal_retry: Duration::from_millis(250),
            epochs_max: 1000,
        }
    }
}

impl Limits {
    /// Panics unless a replica can keep to these: intervals must not be zero, or a tick would be
    /// wanted again at once.
    pub fn check(&self) {
        assert!(!self.retention_check_interval.is_zero(), "{self:?}");
        assert!(!self.producer_check_interval.is_zero(), "{self:?}");
        assert!(!self.compaction_check_interval.is_zero(), "{self:?}");
        assert!(self.producer_expiration_short <= self.producer_expiration, "{self:?}");
        assert!(self.producers_max > 0 && self.waiting_max > 0, "{self:?}");
        assert!(self.aborted_max > 0 && self.verifying_max > 0, "{self:?}");
        let replication = &self.replication;
        let waits = [replication.follow_retry, replication.ask_after, replication.proposal_retry];
        assert!(waits.iter().all(|wait| !wait.is_zero()), "{self:?}");
        assert!(!replication.watermark_delay.is_zero() && replication.epochs_max > 0, "{self:?}");
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            producers_max: 100_000,
            producer_expiration: Duration::from_secs(24 * 3600),
            producer_expiration_short: Duration::from_secs(15 * 60),
            aborted_max: 1_000_000,
            verifying_max: 10_000,
            producer_check_interval: Duration::from_secs(600),
            retention_check_interval: Duration::from_secs(300),
            compaction_check_interval: Duration::from_secs(15),
            waiting_max: 100_000,
            snapshot_bytes_min: 1 << 20,
            clock_jump_min: Duration::from_secs(60),
            replication: ReplicationLimits::default(),
            wall_clock: WallClock::default(),
        }
    }
}
