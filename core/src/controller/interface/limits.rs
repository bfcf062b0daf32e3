//! Bounds, defaults and times of the controller.

use std::time::Duration;

/// See `Limits::check`. `Limits::default()` is for one node, which is never fenced;
/// `Limits::cluster()` is for many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub topics_max: usize,
    /// Partitions of all topics together.
    pub partitions_max: usize,
    /// Partitions of one topic; its creation is one record in one batch.
    pub topic_partitions_max: usize,
    /// Nodes that are registered.
    pub nodes_max: usize,
    /// Replicas of one partition.
    pub replicas_max: usize,
    /// Bytes of one configuration's value.
    pub config_bytes_max: usize,
    /// Bytes of a host, a rack, a feature or whatever else a node names.
    pub name_bytes_max: usize,
    /// Features that a node knows, and that a cluster uses.
    pub features_max: usize,
    /// Requests that wait for the log.
    pub waiting_max: usize,
    /// Bytes of records that go into one append. What must be seen together goes together all the
    /// same.
    pub append_bytes_max: usize,
    /// Bytes of records that are seen together: more is refused, since no entry of the log has
    /// room for it.
    pub decision_bytes_max: usize,
    /// `num.partitions`: where a request leaves the number to the cluster.
    pub partitions_default: i32,
    /// `default.replication.factor`: replicas where a request leaves the number to the cluster.
    /// `None`: as many as there are nodes, at most 3.
    pub replication_default: Option<i16>,
    /// Producer ids handed to a node at a time.
    pub producer_ids_block: i64,
    /// `broker.session.timeout.ms`: a node not heard of for so long is fenced. `None`: nodes serve
    /// as soon as they are registered, need no heartbeats, and are never fenced.
    pub session_timeout: Option<Duration>,
    /// `quorate.replace.after`: the replicas of a node that was fenced for so long are made anew on
    /// others. `None`: never.
    pub replace_after: Option<Duration>,
    /// `leader.imbalance.check.interval.seconds`: how often leaderships go back to where they
    /// belong. `None`: only when asked for.
    pub balance_interval: Option<Duration>,
    /// The time between two batches of such moves.
    pub balance_pace: Duration,
    /// Leaderships that move in one batch, when a node is drained or leaders go back.
    pub leader_moves_max: usize,
    /// Partitions whose replicas the controller moves at a time by its own decision.
    pub replica_moves_max: usize,
}

impl Limits {
    /// Those of a cluster of many nodes.
    pub fn cluster() -> Self {
        Self {
            session_timeout: Some(Duration::from_millis(1500)),
            replace_after: Some(Duration::from_secs(600)),
            balance_interval: Some(Duration::from_secs(60)),
            ..Self::default()
        }
    }

    /// Panics unless a controller can keep to these. Times must not be zero, or a tick would be
    /// wanted again at once.
    pub fn check(&self) {
        assert!(self.producer_ids_block > 0 && self.partitions_default > 0, "{self:?}");
        assert!(self.replication_default.is_none_or(|replicas| replicas > 0), "{self:?}");
        assert!(self.waiting_max > 0 && self.topic_partitions_max > 0, "{self:?}");
        assert!(self.nodes_max > 0 && self.replicas_max > 0, "{self:?}");
        assert!(self.leader_moves_max > 0 && self.replica_moves_max > 0, "{self:?}");
        let times = [self.session_timeout, self.replace_after, self.balance_interval];
        assert!(times.into_iter().flatten().all(|time| !time.is_zero()), "{self:?}");
        assert!(!self.balance_pace.is_zero(), "{self:?}");
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            topics_max: 100_000,
            partitions_max: 200_000,
            topic_partitions_max: 10_000,
            nodes_max: 1000,
            replicas_max: 15,
            config_bytes_max: 16 << 10,
            name_bytes_max: 1 << 10,
            features_max: 100,
            waiting_max: 10_000,
            append_bytes_max: 1 << 20,
            decision_bytes_max: 32 << 20,
            partitions_default: 1,
            replication_default: None,
            producer_ids_block: 1000,
            session_timeout: None,
            replace_after: None,
            balance_interval: None,
            balance_pace: Duration::from_secs(1),
            leader_moves_max: 100,
            replica_moves_max: 100,
        }
    }
}
