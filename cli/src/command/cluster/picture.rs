//! What is known of a cluster at one moment, put together from several requests, and what follows
//! from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quorate_core::id::NodeId;
use quorate_net::client::{
    Client, ClusterDescription, Partition, PartitionName, QuorumDescription, Reassignment,
    Resource, Topic,
};

use crate::failure::Failure;

/// What humans want of a node: `serve`, `maintenance`, `leave`.
pub(super) const DUTY: &str = "quorate.duty";
pub(super) const SERVE: &str = "serve";
pub(super) const MAINTENANCE: &str = "maintenance";
pub(super) const LEAVE: &str = "leave";

pub(crate) struct Picture {
    pub cluster: ClusterDescription,
    pub topics: BTreeMap<String, Arc<Topic>>,
    /// `None` where the broker does not speak of one.
    pub quorum: Option<QuorumDescription>,
    pub moves: Vec<Reassignment>,
    /// By node; one that is not there serves, or did not say.
    pub duties: BTreeMap<NodeId, String>,
    /// `min.insync.replicas` of topics that have too few replicas in sync.
    least: BTreeMap<String, usize>,
}

/// A partition that is not as it should be.
pub(crate) struct Ailing<'a> {
    pub name: PartitionName,
    pub partition: &'a Partition,
    /// Replicas that should be in sync and are not.
    pub missing: Vec<NodeId>,
    /// Nothing with acks=all can be written.
    pub is_below_least: bool,
}

impl Ailing<'_> {
    pub(crate) fn has_leader(&self) -> bool {
        self.partition.leader.is_some()
    }
}

/// How one node stands.
pub(crate) struct Standing {
    pub node: NodeId,
    pub address: String,
    pub rack: Option<String>,
    pub state: String,
    pub is_controller: bool,
    pub leads: usize,
    pub replicas: usize,
    pub in_sync: usize,
}

impl Picture {
    pub(crate) async fn of(client: &Client) -> Result<Self, Failure> {
        let cluster = client.describe_cluster().await?;
        let topics = client.cluster().await?.topics;
        // A broker that knows none of these still has topics and leaders.
        let quorum = client.describe_quorum().await.ok();
        let moves = client.reassignments().await.unwrap_or_default();
        let mut duties = BTreeMap::new();
        for id in cluster.nodes.keys() {
            if let Ok(Some(duty)) = client.node_config(*id, DUTY).await {
                duties.insert(*id, duty);
            }
        }
        let mut picture = Self { cluster, topics, quorum, moves, duties, least: BTreeMap::new() };
        let ailing: BTreeSet<String> = picture.ailing().map(|ailing| ailing.name.topic).collect();
        for topic in ailing {
            let configs = client.describe_configs(&Resource::Topic(topic.clone())).await;
            let configs = configs.unwrap_or_default();
            let least = configs.iter().find(|config| config.name == "min.insync.replicas");
            let least = least.and_then(|config| config.value.as_deref()?.parse().ok());
            picture.least.insert(topic, least.unwrap_or(1));
        }
        Ok(picture)
    }

    pub(super) fn duty(&self, node: NodeId) -> &str {
        self.duties.get(&node).map_or(SERVE, String::as_str)
    }

    pub(super) fn partitions(&self) -> impl Iterator<Item = (&Topic, &Partition)> {
        self.topics.values().flat_map(|topic| {
            topic.partitions.iter().map(move |partition| (topic.as_ref(), partition))
        })
    }

    /// The move of a partition that runs, if one does.
    pub(super) fn move_of(&self, topic: &str, index: i32) -> Option<&Reassignment> {
        let is_it = |found: &&Reassignment| {
            found.partition.topic == topic && found.partition.partition == index
        };
        self.moves.iter().find(is_it)
    }

    /// Partitions without a leader, or with fewer replicas in sync than they have.
    pub(crate) fn ailing(&self) -> impl Iterator<Item = Ailing<'_>> {
        self.partitions().filter_map(|(topic, partition)| {
            let running = self.move_of(&topic.name, partition.index);
            // A copy that is only being made is missed by nobody.
            let is_new =
                |node: &NodeId| running.is_some_and(|running| running.adding.contains(node));
            let missing: Vec<NodeId> = partition
                .replicas
                .iter()
                .filter(|node| !partition.in_sync.contains(node) && !is_new(node))
                .copied()
                .collect();
            if missing.is_empty() && partition.leader.is_some() {
                return None;
            }
            let least = self.least.get(&topic.name).copied().unwrap_or(1);
            let name = PartitionName { topic: topic.name.clone(), partition: partition.index };
            let is_below_least = partition.in_sync.len() < least;
            Some(Ailing { name, partition, missing, is_below_least })
        })
    }

    /// How the nodes stand, those included that only replicas speak of.
    pub(crate) fn standings(&self) -> Vec<Standing> {
        let mut nodes: BTreeSet<NodeId> = self.cluster.nodes.keys().copied().collect();
        nodes.extend(self.partitions().flat_map(|(_, partition)| partition.replicas.clone()));
        nodes.into_iter().map(|node| self.standing(node)).collect()
    }

    fn standing(&self, node: NodeId) -> Standing {
        let known = self.cluster.nodes.get(&node);
        let count = |holds: &dyn Fn(&Partition) -> bool| {
            self.partitions().filter(|(_, partition)| holds(partition)).count()
        };
        let state = match (known, self.duty(node)) {
            (None, _) => "unknown".to_owned(),
            (Some(known), LEAVE) if known.fenced => "leaving, not heard of".to_owned(),
            (Some(known), MAINTENANCE) if known.fenced => "maintenance, not heard of".to_owned(),
            (Some(known), _) if known.fenced => "not heard of".to_owned(),
            (_, LEAVE) => "leaving".to_owned(),
            (_, MAINTENANCE) => "in maintenance".to_owned(),
            _ => "serving".to_owned(),
        };
        Standing {
            node,
            address: known.map_or_else(|| "-".to_owned(), |known| known.address.clone()),
            rack: known.and_then(|known| known.rack.clone()),
            state,
            is_controller: self.controller() == Some(node),
            leads: count(&|partition| partition.leader == Some(node)),
            replicas: count(&|partition| partition.replicas.contains(&node)),
            in_sync: count(&|partition| partition.in_sync.contains(&node)),
        }
    }

    /// Who decides. Metadata name any node that takes requests.
    pub(super) fn controller(&self) -> Option<NodeId> {
        let leader = self.quorum.as_ref().and_then(|quorum| quorum.leader);
        leader.or(self.cluster.controller)
    }
}
