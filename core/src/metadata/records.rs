//! An image as records: the shortest history that ends in it. What a snapshot of the metadata
//! holds, and what a new controller reads.

use super::{ConfigResource, Duty, Image, Node, Record, Registration, Wish};
use crate::id::{NodeEpoch, NodeId, ProducerId};

impl Image {
    /// Records that, applied in this order to an empty image, give one that is equal to this one.
    pub fn to_records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        if let Some(cluster) = &self.cluster {
            records.push(Record::ClusterNamed { cluster: cluster.clone() });
        }
        for (feature, &level) in &self.features {
            records.push(Record::FeatureLevelSet { feature: feature.clone(), level });
        }
        self.nodes.values().for_each(|node| push_node(node, &mut records));
        // Nodes that are gone leave their epochs behind: none is ever given again.
        let next = self.next_node_epoch;
        let of_nodes = self.nodes.values().map(|node| NodeEpoch(node.epoch.0 + 1));
        if of_nodes.chain([Self::default().next_node_epoch]).all(|known| known < next) {
            records.push(Record::NodeEpochsGiven { next });
        }
        for topic in self.topics.values() {
            records.push(Record::TopicCreated {
                topic: topic.id,
                name: topic.name.clone(),
                partitions: topic.partitions.iter().cloned().map(Into::into).collect(),
                configs: topic.configs.clone().into_iter().collect(),
            });
        }
        for (&node, configs) in &self.node_configs {
            let changes = configs.iter().map(|(name, value)| (name.clone(), Some(value.clone())));
            let resource = ConfigResource::Node(node);
            records.push(Record::ConfigsSet { resource, changes: changes.collect() });
        }
        if self.next_producer_id > ProducerId(0) {
            // Who had the last block of them is nobody's concern any more.
            let (node, next) = (NodeId(0), self.next_producer_id);
            records.push(Record::ProducerIdsAllocated { node, next });
        }
        records
    }
}

fn push_node(node: &Node, records: &mut Vec<Record>) {
    let Node {
        id,
        epoch,
        incarnation,
        directory,
        address,
        peer,
        rack,
        roles,
        features,
        fenced,
        wish,
        duty,
    } = node.clone();
    records.push(Record::NodeRegistered(Registration {
        node: id,
        epoch,
        incarnation,
        directory,
        address,
        peer,
        rack,
        roles,
        features,
        fenced,
    }));
    if wish != Wish::Serve {
        records.push(Record::NodeWished { node: id, epoch, wish });
    }
    if duty != Duty::Serve {
        records.push(Record::NodeDutySet { node: id, duty });
    }
}
