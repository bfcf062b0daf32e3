//! The cluster as a value: what the records of the metadata log add up to.

mod assignment;
pub mod config;
mod node;
pub mod payload;
pub mod record;
mod records;
pub mod topic;

use std::collections::BTreeMap;

pub use self::node::Node;
pub use self::record::{
    Address, ConfigResource, Duty, FeatureRange, Placement, Record, Registration, Roles, Wish,
};
pub use self::topic::Topic;
use crate::id::{NodeEpoch, NodeId, PartitionId, ProducerId, TopicId};
use crate::partition::interface::Assignment;

/// What is known of the cluster. Two images to which the same records were applied are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    cluster: Option<String>,
    topics: BTreeMap<TopicId, Topic>,
    names: BTreeMap<String, TopicId>,
    /// By `topic::folded` names.
    folded: BTreeMap<String, TopicId>,
    nodes: BTreeMap<NodeId, Node>,
    /// Dynamic configurations of nodes; `None` is for all of them.
    node_configs: BTreeMap<Option<NodeId>, BTreeMap<String, String>>,
    next_producer_id: ProducerId,
    /// Larger than the epoch of any registration there ever was.
    next_node_epoch: NodeEpoch,
    /// Levels in use, by name; absent is 0.
    features: BTreeMap<String, i16>,
}

impl Default for Image {
    fn default() -> Self {
        Self {
            cluster: None,
            topics: BTreeMap::new(),
            names: BTreeMap::new(),
            folded: BTreeMap::new(),
            nodes: BTreeMap::new(),
            node_configs: BTreeMap::new(),
            next_producer_id: ProducerId(0),
            next_node_epoch: NodeEpoch(1),
            features: BTreeMap::new(),
        }
    }
}

impl Image {
    /// Kafka's cluster id; `None` before the first node registered.
    pub fn cluster(&self) -> Option<&str> {
        self.cluster.as_deref()
    }

    pub fn topic(&self, id: TopicId) -> Option<&Topic> {
        self.topics.get(&id)
    }

    pub fn topic_named(&self, name: &str) -> Option<&Topic> {
        self.topic(*self.names.get(name)?)
    }

    /// The topic whose metrics would be those of a topic called `name`.
    pub fn topic_like(&self, name: &str) -> Option<&Topic> {
        self.topic(*self.folded.get(&topic::folded(name))?)
    }

    /// By name, ascending.
    pub fn topics(&self) -> impl Iterator<Item = &Topic> {
        self.names.values().filter_map(|id| self.topics.get(id))
    }

    /// By id, ascending.
    pub fn topics_by_id(&self) -> impl Iterator<Item = &Topic> {
        self.topics.values()
    }

    pub fn topics_count(&self) -> usize {
        self.topics.len()
    }

    pub fn partitions_count(&self) -> usize {
        self.topics.values().map(|topic| topic.partitions.len()).sum()
    }

    pub fn partition(&self, id: PartitionId) -> Option<&Assignment> {
        self.topics.get(&id.topic)?.partitions.get(usize::try_from(id.index).ok()?)
    }

    /// By topic id and index, ascending.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionId, &Assignment)> {
        self.topics.values().flat_map(|topic| {
            let ids = (0..).map(|index| PartitionId { topic: topic.id, index });
            ids.zip(&topic.partitions)
        })
    }

    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// By id, ascending.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &Node> {
        self.nodes.values()
    }

    /// What was configured at run time for one node, or for all with `None`.
    pub fn node_configs(&self, node: Option<NodeId>) -> Option<&BTreeMap<String, String>> {
        self.node_configs.get(&node)
    }

    /// All producer ids below were handed out, perhaps.
    pub fn next_producer_id(&self) -> ProducerId {
        self.next_producer_id
    }

    /// What the next registration's epoch will be. A node whose image says more than the epoch of
    /// its own registration has applied that registration.
    pub fn next_node_epoch(&self) -> NodeEpoch {
        self.next_node_epoch
    }

    /// Levels of features in use, by name.
    pub fn features(&self) -> &BTreeMap<String, i16> {
        &self.features
    }

    /// One more record of the log. Records that say nothing new change nothing; a record that
    /// speaks of a topic that is gone is passed over.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::ClusterNamed { cluster } => {
                self.cluster.get_or_insert_with(|| cluster.clone());
            }
            Record::TopicCreated { topic, name, partitions, configs } => {
                let created = Topic {
                    id: *topic,
                    name: name.clone(),
                    partitions: partitions.iter().map(Assignment::from).collect(),
                    configs: configs.iter().cloned().collect(),
                };
                self.topics.insert(*topic, created);
                self.names.insert(name.clone(), *topic);
                self.folded.insert(topic::folded(name), *topic);
            }
            Record::PartitionsAdded { topic, first, partitions } => {
                if let Some(topic) = self.topics.get_mut(topic)
                    && topic.partitions.len() == *first as usize
                {
                    topic.partitions.extend(partitions.iter().map(Assignment::from));
                }
            }
            Record::TopicDeleted { topic } => {
                if let Some(topic) = self.topics.remove(topic) {
                    self.names.remove(&topic.name);
                    self.folded.remove(&topic::folded(&topic.name));
                }
            }
            Record::ConfigsSet { resource, changes } => self.configure(resource, changes),
            Record::ProducerIdsAllocated { node: _, next } => {
                self.next_producer_id = self.next_producer_id.max(*next);
            }
            Record::PartitionsChanged { topic, partitions } => {
                self.change_partitions(*topic, partitions);
            }
            Record::FeatureLevelSet { feature, level: 0 } => {
                self.features.remove(feature);
            }
            Record::FeatureLevelSet { feature, level } => {
                self.features.insert(feature.clone(), *level);
            }
            Record::NodeEpochsGiven { next } => {
                self.next_node_epoch = self.next_node_epoch.max(*next);
            }
            Record::NodeRegistered(_)
            | Record::NodeFenced { .. }
            | Record::NodeUnfenced { .. }
            | Record::NodeWished { .. }
            | Record::NodeDutySet { .. }
            | Record::NodeUnregistered { .. } => self.apply_node(record),
        }
    }

    /// A record about a life that is over is passed over.
    fn apply_node(&mut self, record: &Record) {
        match record {
            Record::NodeFenced { node, epoch } => {
                if let Some(node) = self.alive(*node, *epoch) {
                    node.fenced = true;
                }
            }
            Record::NodeUnfenced { node, epoch } => {
                if let Some(node) = self.alive(*node, *epoch) {
                    node.fenced = false;
                }
            }
            Record::NodeWished { node, epoch, wish } => {
                if let Some(node) = self.alive(*node, *epoch) {
                    node.wish = *wish;
                }
            }
            Record::NodeUnregistered { node, epoch } => {
                if self.alive(*node, *epoch).is_some() {
                    self.nodes.remove(node);
                }
            }
            Record::NodeDutySet { node, duty } => {
                if let Some(node) = self.nodes.get_mut(node) {
                    node.duty = *duty;
                }
            }
            Record::NodeRegistered(registration) => self.register(registration),
            other => unreachable!("not about a node: {other:?}"),
        }
    }

    fn alive(&mut self, node: NodeId, epoch: NodeEpoch) -> Option<&mut Node> {
        self.nodes.get_mut(&node).filter(|node| node.epoch == epoch)
    }

    fn register(&mut self, registration: &Registration) {
        let known = self.nodes.get(&registration.node);
        // The first build's registrations all have epoch 0.
        if known.is_none_or(|known| {
            known.epoch < registration.epoch || registration.epoch == NodeEpoch(0)
        }) {
            let duty = known.map_or(Duty::Serve, |known| known.duty);
            self.nodes.insert(registration.node, Node::new(registration, duty));
            let next = NodeEpoch(registration.epoch.0 + 1);
            self.next_node_epoch = self.next_node_epoch.max(next);
        }
    }

    fn change_partitions(&mut self, topic: TopicId, changes: &[(u32, Placement)]) {
        let Some(topic) = self.topics.get_mut(&topic) else { return };
        for (index, placement) in changes {
            if let Some(partition) = topic.partitions.get_mut(*index as usize)
                && partition.partition_epoch < placement.partition_epoch
            {
                *partition = placement.into();
            }
        }
    }

    fn configure(&mut self, resource: &ConfigResource, changes: &[(String, Option<String>)]) {
        let configs = match resource {
            ConfigResource::Topic(topic) => {
                let Some(topic) = self.topics.get_mut(topic) else { return };
                &mut topic.configs
            }
            ConfigResource::Node(node) => self.node_configs.entry(*node).or_default(),
        };
        for (name, value) in changes {
            match value {
                Some(value) => configs.insert(name.clone(), value.clone()),
                None => configs.remove(name),
            };
        }
    }
}
