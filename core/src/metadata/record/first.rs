//! Records as the first build wrote them, when a cluster was one node. They are only read.

use serde::Deserialize;

use super::{Address, ConfigResource, Placement, Record, Registration};
use crate::id::{LeaderEpoch, NodeId, ProducerId, TopicId};

/// The kinds of format 1, in its order.
#[derive(Deserialize)]
pub(super) enum FirstRecord {
    ClusterNamed {
        cluster: String,
    },
    NodeRegistered {
        node: NodeId,
        incarnation: u64,
        address: Address,
        rack: Option<String>,
    },
    TopicCreated {
        topic: TopicId,
        name: String,
        partitions: Vec<FirstPlacement>,
        configs: Vec<(String, String)>,
    },
    PartitionsAdded {
        topic: TopicId,
        first: u32,
        partitions: Vec<FirstPlacement>,
    },
    TopicDeleted {
        topic: TopicId,
    },
    ConfigsSet {
        resource: ConfigResource,
        changes: Vec<(String, Option<String>)>,
    },
    ProducerIdsAllocated {
        node: NodeId,
        next: ProducerId,
    },
}

#[derive(Deserialize)]
pub(super) struct FirstPlacement {
    leader_epoch: LeaderEpoch,
    leader: Option<NodeId>,
    replicas: Vec<NodeId>,
    in_sync: Vec<NodeId>,
}

impl From<FirstPlacement> for Placement {
    fn from(first: FirstPlacement) -> Self {
        Self {
            leader_epoch: first.leader_epoch,
            leader: first.leader,
            replicas: first.replicas,
            in_sync: first.in_sync,
            ..Self::default()
        }
    }
}

impl From<FirstRecord> for Record {
    fn from(first: FirstRecord) -> Self {
        let placements =
            |all: Vec<FirstPlacement>| all.into_iter().map(Placement::from).collect::<Vec<_>>();
        match first {
            FirstRecord::ClusterNamed { cluster } => Self::ClusterNamed { cluster },
            // It has no epoch: that of its next registration is above 0.
            FirstRecord::NodeRegistered { node, incarnation, address, rack } => {
                Self::NodeRegistered(Registration {
                    node,
                    incarnation,
                    peer: address.clone(),
                    address,
                    rack,
                    ..Registration::default()
                })
            }
            FirstRecord::TopicCreated { topic, name, partitions, configs } => {
                Self::TopicCreated { topic, name, partitions: placements(partitions), configs }
            }
            FirstRecord::PartitionsAdded { topic, first, partitions } => {
                Self::PartitionsAdded { topic, first, partitions: placements(partitions) }
            }
            FirstRecord::TopicDeleted { topic } => Self::TopicDeleted { topic },
            FirstRecord::ConfigsSet { resource, changes } => Self::ConfigsSet { resource, changes },
            FirstRecord::ProducerIdsAllocated { node, next } => {
                Self::ProducerIdsAllocated { node, next }
            }
        }
    }
}
