//! What is written into the metadata log: one decision a record, with a version tag.

use serde::{Deserialize, Serialize};

use crate::codec::{self, CodecError};
use crate::id::{LeaderEpoch, NodeId, ProducerId, TopicId};
use crate::partition::interface::Assignment;

/// One decision about the cluster. New kinds go to the end: the place is the kind's number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// The first of all: which cluster this is.
    ClusterNamed {
        cluster: String,
    },
    /// A node started, or started again.
    NodeRegistered {
        node: NodeId,
        incarnation: u64,
        address: Address,
        rack: Option<String>,
    },
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
}

/// Where clients reach a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    pub host: String,
    pub port: u16,
}

/// Whose configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ConfigResource {
    Topic(TopicId),
    /// One node, or all of them.
    Node(Option<NodeId>),
}

/// Where a partition's replicas are, as written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    pub leader_epoch: LeaderEpoch,
    pub leader: Option<NodeId>,
    pub replicas: Vec<NodeId>,
    pub in_sync: Vec<NodeId>,
}

impl From<&Placement> for Assignment {
    fn from(placement: &Placement) -> Self {
        Self {
            leader_epoch: placement.leader_epoch,
            leader: placement.leader,
            replicas: placement.replicas.clone(),
            in_sync: placement.in_sync.clone(),
            ..Self::default()
        }
    }
}

const VERSION: u8 = 1;

impl Record {
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(VERSION, self)
    }

    /// # Errors
    ///
    /// Why the bytes are not a record that this build knows. A node that meets such a record must
    /// not go on: it would miss a decision.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let (_, body) = codec::version(bytes, VERSION)?;
        codec::decode(body)
    }
}
