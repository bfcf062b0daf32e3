//! Bounds and times of a voter, all in one place, checked before it starts.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A follower that hears no leader for so long, and up to twice as long (drawn anew each
    /// time), stands for election; a leader that hears no majority for so long resigns. One
    /// time for all nodes, and several round trips.
    /// Kafka's `controller.quorum.election.timeout.ms`.
    pub election_timeout: Duration,
    /// How often a leader sends to a follower that has nothing to receive.
    pub heartbeat_interval: Duration,
    /// A node that does not vote and sends nothing for so long is not sent to any more.
    pub observer_timeout: Duration,
    /// Nodes that follow the log without a vote.
    pub observers_max: usize,
    /// Messages with entries that one follower may have yet to answer, at least 1.
    pub inflight_max: usize,
    /// Bytes of entries that one follower may have yet to answer; one message may exceed it.
    pub inflight_bytes_max: u64,
    /// Bytes of entries in one message; one entry may exceed it.
    pub append_bytes_max: u64,
    /// A larger proposal is refused.
    pub entry_bytes_max: u64,
    /// Proposals are refused while so much of a leader's log is not committed.
    pub uncommitted_bytes_max: u64,
    /// Proposals, reads and changes that wait for an answer.
    pub requests_max: usize,
    /// A snapshot is asked for when the entries behind the last one have so many bytes.
    pub snapshot_after_bytes: u64,
    /// Entries in front of a new snapshot that are kept for followers who are a little behind.
    pub entries_kept: u64,
    /// A larger snapshot is not taken, and not received.
    pub snapshot_bytes_max: u64,
    /// Bytes of a snapshot in one message.
    pub chunk_bytes: u64,
    /// A node may become a voter when it lacks no more than so many entries.
    pub catch_up_entries: u64,
    /// Whether a node that lost its disk gets its vote back by itself (`quorum::votes`).
    pub restores_votes: bool,
}

impl Limits {
    /// # Errors
    ///
    /// A sentence about the first value that a voter could not keep to.
    pub fn check(&self) -> Result<(), String> {
        let sizes = [
            ("inflight_max", self.inflight_max as u64),
            ("inflight_bytes_max", self.inflight_bytes_max),
            ("append_bytes_max", self.append_bytes_max),
            ("entry_bytes_max", self.entry_bytes_max),
            ("requests_max", self.requests_max as u64),
            ("snapshot_after_bytes", self.snapshot_after_bytes),
            ("chunk_bytes", self.chunk_bytes),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(format!("{name} must be at least 1"));
        }
        if self.heartbeat_interval.is_zero() {
            return Err("heartbeat_interval must not be zero".to_owned());
        }
        if self.election_timeout < self.heartbeat_interval * 2 {
            return Err("election_timeout must be at least two heartbeat_intervals".to_owned());
        }
        if self.observer_timeout < self.election_timeout {
            return Err("observer_timeout must be at least the election_timeout".to_owned());
        }
        if self.uncommitted_bytes_max < self.entry_bytes_max {
            return Err("uncommitted_bytes_max must have room for one entry_bytes_max".to_owned());
        }
        Ok(())
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            election_timeout: Duration::from_millis(500),
            heartbeat_interval: Duration::from_millis(100),
            observer_timeout: Duration::from_secs(10),
            observers_max: 1000,
            inflight_max: 64,
            inflight_bytes_max: 4 << 20,
            append_bytes_max: 256 << 10,
            entry_bytes_max: 1 << 20,
            uncommitted_bytes_max: 16 << 20,
            requests_max: 10_000,
            snapshot_after_bytes: 16 << 20,
            entries_kept: 1000,
            snapshot_bytes_max: 1 << 30,
            chunk_bytes: 256 << 10,
            catch_up_entries: 100,
            restores_votes: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_kept_is_refused_by_name() {
        assert_eq!(Limits::default().check(), Ok(()));
        let refused = |change: fn(&mut Limits)| {
            let mut limits = Limits::default();
            change(&mut limits);
            limits.check().expect_err("the limits cannot be kept")
        };
        assert!(refused(|limits| limits.inflight_max = 0).contains("inflight_max"));
        assert!(refused(|limits| limits.chunk_bytes = 0).contains("chunk_bytes"));
        assert!(refused(|limits| limits.heartbeat_interval = Duration::ZERO).contains("heartbeat"));
        assert!(
            refused(|limits| limits.election_timeout = Duration::from_millis(150))
                .contains("election_timeout")
        );
        assert!(refused(|limits| limits.uncommitted_bytes_max = 1).contains("uncommitted"));
        assert!(refused(|limits| limits.observer_timeout = Duration::ZERO).contains("observer"));
    }
}
