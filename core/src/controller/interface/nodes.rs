//! What nodes tell the controller of themselves, what humans ask about them, and the answers.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{DirectoryId, NodeEpoch, NodeId, PartitionId, RequestId};
use crate::metadata::{Address, Duty, FeatureRange, Roles, Wish};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterNode {
    pub request: RequestId,
    pub node: NodeId,
    /// Drawn at each start of the node.
    pub incarnation: u64,
    /// What the data directory says; names the cluster if it has no name yet.
    pub cluster: String,
    /// The data directory's own name; `DirectoryId::NONE` if it has none.
    pub directory: DirectoryId,
    pub address: Address,
    pub peer: Address,
    pub rack: Option<String>,
    pub roles: Roles,
    pub features: Vec<FeatureRange>,
    /// The life before ended with all it had acknowledged on its disk.
    pub clean_stop: bool,
    /// Partitions of which recovery found that committed records are damaged.
    pub rotten: Vec<PartitionId>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    pub request: RequestId,
    pub node: NodeId,
    /// What its registration was answered with.
    pub node_epoch: NodeEpoch,
    /// `Image::next_node_epoch` of what the node has applied of the metadata log.
    pub applied: NodeEpoch,
    pub wish: Wish,
}

/// How a node stands, as its heartbeat is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// It leads nothing and is in sync with nothing yet.
    pub fenced: bool,
    /// It wished to stop, and nothing is left that others could take over.
    pub may_stop: bool,
    /// Partitions that it leads; with `may_stop`, those that have no other copy in sync.
    pub leads: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetDuty {
    pub request: RequestId,
    pub node: NodeId,
    pub duty: Duty,
}

/// A node, and what is left to do on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    pub node: NodeId,
    pub epoch: NodeEpoch,
    pub fenced: bool,
    pub wish: Wish,
    pub duty: Duty,
    /// Partitions that it leads.
    pub leads: usize,
    /// Partitions of which it keeps a copy, those included that are on their way there or away.
    pub replicas: usize,
    /// Of those, how many are not in sync.
    pub lagging: usize,
    /// Of those, how many are on their way to other nodes.
    pub leaving: usize,
    /// Whether its replicas move away, and why.
    pub retreat: Option<Retreat>,
    /// Partitions that wait for a place elsewhere and find none.
    pub stuck: usize,
}

/// Why a node's replicas move to other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Retreat {
    /// Humans want it to leave.
    Decommissioned,
    /// It was not heard of for `replace_after`.
    Replaced,
}

impl fmt::Display for Retreat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Decommissioned => "decommissioned",
            Self::Replaced => "replaced",
        })
    }
}

/// One change of a feature's level. KIP-584.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureUpdate {
    pub feature: String,
    /// 0: do not use it.
    pub level: i16,
    /// A lower level than now is meant.
    pub downgrade: bool,
}
