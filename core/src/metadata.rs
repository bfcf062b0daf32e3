//! The cluster as a value: what the records of the metadata log add up to.

pub mod config;
pub mod record;
pub mod topic;

use std::collections::BTreeMap;

pub use self::record::{Address, ConfigResource, Placement, Record};
pub use self::topic::Topic;
use crate::id::{NodeId, ProducerId, TopicId};
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
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub id: NodeId,
    /// Drawn at each start: two processes with one id are told apart.
    pub incarnation: u64,
    /// Where clients reach it.
    pub address: Address,
    pub rack: Option<String>,
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

    pub fn topics_count(&self) -> usize {
        self.topics.len()
    }

    pub fn partitions_count(&self) -> usize {
        self.topics.values().map(|topic| topic.partitions.len()).sum()
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

    /// One more record of the log. Records that say nothing new change nothing; a record that
    /// speaks of a topic that is gone is passed over.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::ClusterNamed { cluster } => {
                self.cluster.get_or_insert_with(|| cluster.clone());
            }
            Record::NodeRegistered { node, incarnation, address, rack } => {
                let (id, incarnation) = (*node, *incarnation);
                let (address, rack) = (address.clone(), rack.clone());
                self.nodes.insert(id, Node { id, incarnation, address, rack });
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
