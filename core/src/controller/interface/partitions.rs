//! What leaders and humans ask the controller to change about partitions, and the answers.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch, PartitionId, RequestId};

/// The proposals of one leader, for any number of partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeInSync {
    pub request: RequestId,
    /// The leader.
    pub node: NodeId,
    pub node_epoch: NodeEpoch,
    pub changes: Vec<InSyncChange>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InSyncChange {
    pub partition: PartitionId,
    pub leader_epoch: LeaderEpoch,
    /// Of the assignment that this is to follow.
    pub partition_epoch: PartitionEpoch,
    /// All that shall be in sync, each with the life whose progress the leader has seen. KIP-903.
    pub in_sync: Vec<(NodeId, NodeEpoch)>,
}

/// Why the replicas in sync stay as they are. Kafka's AlterPartition errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InSyncRefusal {
    /// `NOT_CONTROLLER`: the leader has seen newer decisions than this controller, so that its word
    /// is worth nothing. Ask the next one. KAFKA-14154.
    ControllerBehind,
    /// `UNKNOWN_TOPIC_ID`: it was deleted.
    UnknownPartition,
    /// `FENCED_LEADER_EPOCH`: there was another election.
    StaleLeaderEpoch,
    /// `INVALID_UPDATE_VERSION`: the assignment has changed since.
    StalePartitionEpoch,
    /// `INVALID_REQUEST`: it does not lead, or names no replica, or one twice, or not itself.
    Invalid,
    /// `INELIGIBLE_REPLICA`: that node is fenced, stopping, or in another life. KIP-841, KIP-903.
    Ineligible(NodeId),
}

impl fmt::Display for InSyncRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ControllerBehind => f.write_str("the controller is behind the leader"),
            Self::UnknownPartition => f.write_str("there is no such partition"),
            Self::StaleLeaderEpoch => f.write_str("there was another election"),
            Self::StalePartitionEpoch => f.write_str("the assignment has changed"),
            Self::Invalid => f.write_str("the proposal contradicts itself or the assignment"),
            Self::Ineligible(node) => write!(f, "node {node} may not be in sync now"),
        }
    }
}

/// A partition as clients name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PartitionName {
    pub topic: String,
    pub index: i32,
}

impl fmt::Display for PartitionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.index)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reassign {
    pub partition: PartitionName,
    /// Who shall keep a copy, the preferred leader first. `None` takes a running reassignment back.
    pub target: Option<Vec<NodeId>>,
}

/// A reassignment that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reassignment {
    pub partition: PartitionName,
    pub replicas: Vec<NodeId>,
    pub adding: Vec<NodeId>,
    pub removing: Vec<NodeId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElectLeaders {
    pub request: RequestId,
    pub election: Election,
    /// `None`: all where it is needed.
    pub partitions: Option<Vec<PartitionName>>,
}

/// KIP-460.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Election {
    /// The first of the replicas, if it is in sync.
    Preferred,
    /// Any replica that is there, where there is no leader: committed records may be lost. Only a
    /// human may want this.
    Unclean,
}
