//! What is written into the metadata log: one decision a record, with a version tag.

mod first;

use std::fmt;

use serde::{Deserialize, Serialize};

use self::first::FirstRecord;
use crate::codec::{self, CodecError};
use crate::id::{DirectoryId, LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch, ProducerId, TopicId};
use crate::partition::interface::Assignment;

/// One decision about the cluster. New kinds go to the end: the place is the kind's number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// The first of all: which cluster this is.
    ClusterNamed {
        cluster: String,
    },
    /// A node started, or started again.
    NodeRegistered(Registration),
    TopicCreated {
        topic: TopicId,
        name: String,
        partitions: Vec<Placement>,
        /// By name, ascending.
        configs: Vec<(String, String)>,
    },
    /// `first` is the index of the first of them: as many as the topic had.
    PartitionsAdded {
        topic: TopicId,
        first: u32,
        partitions: Vec<Placement>,
    },
    TopicDeleted {
        topic: TopicId,
    },
    /// All at once. `None` takes a configuration away: the default counts again.
    ConfigsSet {
        resource: ConfigResource,
        changes: Vec<(String, Option<String>)>,
    },
    /// `node` may hand out ids up to, not including, `next`, from where the block before ended.
    ProducerIdsAllocated {
        node: NodeId,
        next: ProducerId,
    },
    /// What these partitions are from now on, by index; each has a newer partition epoch.
    PartitionsChanged {
        topic: TopicId,
        partitions: Vec<(u32, Placement)>,
    },
    /// That life of the node leads nothing and is in sync with nothing. KIP-631's fencing.
    NodeFenced {
        node: NodeId,
        epoch: NodeEpoch,
    },
    /// It may lead and be in sync again.
    NodeUnfenced {
        node: NodeId,
        epoch: NodeEpoch,
    },
    /// What that life of the node wants to do next.
    NodeWished {
        node: NodeId,
        epoch: NodeEpoch,
        wish: Wish,
    },
    /// What humans want of the node; outlives its restarts.
    NodeDutySet {
        node: NodeId,
        duty: Duty,
    },
    /// The node is gone for good. Its id may be used again, its epochs are not.
    NodeUnregistered {
        node: NodeId,
        epoch: NodeEpoch,
    },
    /// The cluster uses this level of a feature; 0: not at all. KIP-584.
    FeatureLevelSet {
        feature: String,
        level: i16,
    },
    /// Epochs below `next` were given to nodes, perhaps to some that are gone since.
    NodeEpochsGiven {
        next: NodeEpoch,
    },
}

/// One life of a node, as it told it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    pub node: NodeId,
    pub epoch: NodeEpoch,
    /// Drawn at each start: two processes with one id are told apart.
    pub incarnation: u64,
    pub directory: DirectoryId,
    /// Where clients reach it.
    pub address: Address,
    /// Where other nodes reach it.
    pub peer: Address,
    pub rack: Option<String>,
    pub roles: Roles,
    /// The features it knows, by name.
    pub features: Vec<FeatureRange>,
    /// It leads nothing before it was heard of again.
    pub fenced: bool,
}

/// What a node does in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roles {
    /// Keeps partitions.
    pub broker: bool,
    /// May lead the metadata.
    pub controller: bool,
}

impl Default for Roles {
    fn default() -> Self {
        Self { broker: true, controller: true }
    }
}

/// The levels of a feature that a node knows. KIP-584.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureRange {
    pub name: String,
    pub min: i16,
    pub max: i16,
}

/// What a node wants to do next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Wish {
    #[default]
    Serve,
    /// Lead nothing, and go on following.
    Drain,
    /// Stop: lead nothing and be in sync with nothing, where others are.
    Stop,
}

/// What humans want of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Duty {
    #[default]
    Serve,
    /// It leads nothing, gets no new replicas, and keeps those that it has even while it is away.
    Maintenance,
    /// It leads nothing, and its replicas move to other nodes.
    Leave,
}

/// Where a node is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    pub host: String,
    pub port: u16,
}

/// `host:port`, an IPv6 host in brackets.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Whose configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ConfigResource {
    Topic(TopicId),
    /// One node, or all of them.
    Node(Option<NodeId>),
}

/// `Assignment` as written down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    pub leader: Option<NodeId>,
    pub replicas: Vec<NodeId>,
    pub in_sync: Vec<NodeId>,
    pub eligible: Vec<NodeId>,
    pub adding: Vec<NodeId>,
    pub removing: Vec<NodeId>,
}

impl From<&Placement> for Assignment {
    fn from(placement: &Placement) -> Self {
        placement.clone().into()
    }
}

impl From<Placement> for Assignment {
    fn from(placement: Placement) -> Self {
        let Placement {
            leader_epoch,
            partition_epoch,
            leader,
            replicas,
            in_sync,
            eligible,
            adding,
            removing,
        } = placement;
        Self {
            leader_epoch,
            partition_epoch,
            leader,
            replicas,
            in_sync,
            eligible,
            adding,
            removing,
        }
    }
}

impl From<Assignment> for Placement {
    fn from(assignment: Assignment) -> Self {
        let Assignment {
            leader_epoch,
            partition_epoch,
            leader,
            replicas,
            in_sync,
            eligible,
            adding,
            removing,
        } = assignment;
        Self {
            leader_epoch,
            partition_epoch,
            leader,
            replicas,
            in_sync,
            eligible,
            adding,
            removing,
        }
    }
}

/// Format 1 was that of one node alone: `record/first.rs`.
const VERSION: u8 = 2;

impl Record {
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(VERSION, self)
    }

    /// # Errors
    ///
    /// Why the bytes are not a record that this build knows. A node that meets such a record must
    /// not go on: it would miss a decision.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        match codec::version(bytes, VERSION)? {
            (1, body) => codec::decode::<FirstRecord>(body).map(Self::from),
            (_, body) => codec::decode(body),
        }
    }
}
