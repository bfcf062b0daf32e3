//! What the replicas of one partition say to one another, and what a leader asks of the controller.
//! Each message may be lost, repeated, delayed and overtaken; none is believed in another leader
//! epoch than its own.

use serde::{Deserialize, Serialize};

use crate::batch::{Batch, Levels};
use crate::id::{LeaderEpoch, NodeEpoch, NodeId, Offset, PartitionEpoch};

/// From one replica of a partition to another. New kinds go to the end.
///
/// In the words of Viewstamped Replication: `Follow` and `Lead` are the exchange that starts a
/// view, `Replicate` is Prepare and Commit, `Replicated` is PrepareOk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    Follow(Follow),
    Lead(Lead),
    Replicate(Replicate),
    Replicated(Replicated),
    Confirm(Confirm),
    Confirmed(Confirmed),
}

impl Message {
    pub const fn leader_epoch(&self) -> LeaderEpoch {
        match self {
            Self::Follow(message) => message.leader_epoch,
            Self::Lead(message) => message.leader_epoch,
            Self::Replicate(message) => message.leader_epoch,
            Self::Replicated(message) => message.leader_epoch,
            Self::Confirm(message) => message.leader_epoch,
            Self::Confirmed(message) => message.leader_epoch,
        }
    }
}

/// A follower asks where its log parts from the leader's. Repeated until a `Lead` answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follow {
    pub leader_epoch: LeaderEpoch,
    /// Which life of the follower's node asks.
    pub node_epoch: NodeEpoch,
    /// Which of this life's questions; rises. An answer to an older one is not believed.
    pub attempt: u64,
    /// The end of the follower's log.
    pub end: Offset,
    /// The newest epoch in the follower's log that may be common; `None` if it holds no record.
    pub last_epoch: Option<LeaderEpoch>,
}

/// The leader's answer: which epochs its log has, and where each began. KIP-101, KIP-279.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lead {
    pub leader_epoch: LeaderEpoch,
    /// As asked.
    pub node_epoch: NodeEpoch,
    /// As asked.
    pub attempt: u64,
    /// The newest of the leader's epochs that are not above `last_epoch`, ascending, each with its
    /// first offset; at most `ReplicationLimits::epochs_max`.
    pub epochs: Vec<(LeaderEpoch, Offset)>,
    /// Where the last of `epochs` ended.
    pub epochs_end: Offset,
    /// There are older epochs than those told.
    pub is_cut: bool,
    pub log_start: Offset,
    pub end: Offset,
    pub high_watermark: Offset,
}

/// The next batches of the leader's log, and what of it is committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicate {
    pub leader_epoch: LeaderEpoch,
    /// The end of the leader's log before `entries`. The first batch may begin later, where
    /// compaction left nothing between.
    pub base: Offset,
    /// Travel beside this structure, not in it: their bytes are shared, not encoded.
    #[serde(skip)]
    pub entries: Vec<(Batch, Levels)>,
    pub high_watermark: Offset,
    pub log_start: Offset,
    /// Say where you are, even if there is nothing new in this.
    pub ask: bool,
}

/// How far a follower has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicated {
    pub leader_epoch: LeaderEpoch,
    pub node_epoch: NodeEpoch,
    /// Everything below is the leader's log, and written as the topic's flush promises.
    pub end: Offset,
    /// The follower's own.
    pub high_watermark: Offset,
    /// The follower's own.
    pub log_start: Offset,
    /// Go on from here: where the follower's log ends, written or not.
    pub resume: Option<Offset>,
}

/// A leader asks whether it still leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirm {
    pub leader_epoch: LeaderEpoch,
    /// Rises with each question of this leadership.
    pub round: u64,
}

/// It does, as far as this follower knows: it has not led in a newer epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmed {
    pub leader_epoch: LeaderEpoch,
    /// As asked.
    pub round: u64,
}

/// A leader's wish to change the in-sync set. KIP-497; the node epochs are KIP-903's.
///
/// Even a wish for the set as it is must raise the partition epoch when it is granted: the leader
/// withdraws so what it wished before, of which a copy may still be under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InSyncChange {
    pub leader_epoch: LeaderEpoch,
    /// That of the assignment which is to be changed.
    pub partition_epoch: PartitionEpoch,
    /// The whole new set, ascending, each in the life that the leader has heard of.
    pub in_sync: Vec<(NodeId, NodeEpoch)>,
}

/// Why a change of the in-sync set did not come about. None is final: the leader tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProposalProblem {
    /// The controller knows newer epochs of the partition; their assignment is on its way.
    Stale,
    /// The controller knows less than the leader, or cannot be reached, or is none. It is the one
    /// that is behind, and its word does not count (KAFKA-14154).
    Behind,
    /// The leader itself is fenced.
    Fenced,
    /// This member is fenced, about to stop, or lives another life by now. KIP-841, KIP-903.
    Ineligible(NodeId),
}
