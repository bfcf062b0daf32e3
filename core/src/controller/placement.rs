//! Where new replicas go: over racks first, then over nodes, to those that have the least to do.
//! Kafka's `ReplicaPlacer`; here it depends on the image alone, so every controller places alike.

use std::collections::BTreeMap;

use crate::id::NodeId;
use crate::metadata::{Duty, Image, Node};
use crate::partition::interface::Assignment;

/// What each node keeps, counted in partitions: of the topic that is being placed, and of all.
#[derive(Clone, Debug, Default)]
pub(super) struct Loads {
    nodes: BTreeMap<NodeId, Load>,
    /// How often, in this topic, the first node is followed by the second: when the first dies, its
    /// leaderships go to many.
    successors: BTreeMap<(NodeId, NodeId), usize>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Load {
    topic: Count,
    all: Count,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    replicas: usize,
    leads: usize,
}

impl Loads {
    pub(super) fn of(image: &Image) -> Self {
        let mut loads = Self::default();
        for (_, partition) in image.partitions() {
            for node in &partition.replicas {
                loads.nodes.entry(*node).or_default().all.replicas += 1;
            }
            if let Some(first) = partition.replicas.first() {
                loads.nodes.entry(*first).or_default().all.leads += 1;
            }
        }
        loads
    }

    /// Another topic is placed from here on; `partitions` it has already.
    pub(super) fn begin_topic(&mut self, partitions: &[Assignment]) {
        self.successors.clear();
        for load in self.nodes.values_mut() {
            load.topic = Count::default();
        }
        for partition in partitions {
            self.count(&partition.replicas, |load| &mut load.topic);
            self.follow(&partition.replicas);
        }
    }

    /// A partition of the topic has these replicas.
    pub(super) fn add(&mut self, replicas: &[NodeId]) {
        self.count(replicas, |load| &mut load.topic);
        self.count(replicas, |load| &mut load.all);
        self.follow(replicas);
    }

    fn count(&mut self, replicas: &[NodeId], which: impl Fn(&mut Load) -> &mut Count) {
        for (place, node) in replicas.iter().enumerate() {
            let count = which(self.nodes.entry(*node).or_default());
            count.replicas += 1;
            count.leads += usize::from(place == 0);
        }
    }

    fn follow(&mut self, replicas: &[NodeId]) {
        if let [first, second, ..] = *replicas {
            *self.successors.entry((first, second)).or_default() += 1;
        }
    }

    fn load(&self, node: NodeId) -> Load {
        self.nodes.get(&node).copied().unwrap_or_default()
    }
}

/// Nodes that may keep new replicas, in their racks. Nodes without a rack share one.
#[derive(Clone, Debug)]
pub(super) struct Places<'a> {
    racks: BTreeMap<Option<&'a str>, Vec<NodeId>>,
}

impl<'a> Places<'a> {
    /// Nodes that are there and willing.
    pub(super) fn willing(image: &'a Image) -> Self {
        Self::of(image.nodes().filter(|node| node.is_willing()))
    }

    /// Those that are away or in maintenance as well: they get their copies when they are back, or
    /// keep them without leading. Only who leaves is not counted.
    pub(super) fn staying(image: &'a Image) -> Self {
        Self::of(image.nodes().filter(|node| node.roles.broker && node.duty != Duty::Leave))
    }

    fn of(nodes: impl Iterator<Item = &'a Node>) -> Self {
        let mut racks = BTreeMap::<_, Vec<NodeId>>::new();
        for node in nodes {
            racks.entry(node.rack.as_deref()).or_default().push(node.id);
        }
        Self { racks }
    }

    pub(super) fn count(&self) -> usize {
        self.racks.values().map(Vec::len).sum()
    }

    /// The replicas of one partition, the leader first. There are as many places.
    pub(super) fn place(&self, loads: &Loads, replication: usize) -> Vec<NodeId> {
        let mut chosen = Vec::with_capacity(replication);
        while chosen.len() < replication {
            match self.next(loads, &chosen, |_| true) {
                Some(node) => chosen.push(node),
                None => break,
            }
        }
        order(loads, chosen)
    }

    /// A node for one more copy beside `kept`; `fit` says which may be.
    pub(super) fn next(
        &self,
        loads: &Loads,
        kept: &[NodeId],
        fit: impl Fn(NodeId) -> bool,
    ) -> Option<NodeId> {
        let free = |node: &NodeId| !kept.contains(node) && fit(*node);
        let best = self.racks.values().filter_map(|nodes| {
            let node = nodes.iter().copied().filter(free).min_by_key(|node| {
                let load = loads.load(*node);
                (load.topic.replicas, load.all.replicas, *node)
            })?;
            // Of two racks with as few copies, the one that has less to do for its size.
            let copies = nodes.iter().filter(|node| kept.contains(node)).count();
            let load = loads.load(node);
            let in_topic: usize = nodes.iter().map(|node| loads.load(*node).topic.replicas).sum();
            let share = in_topic * SHARE / nodes.len();
            Some(((copies, share, load.topic.replicas, load.all.replicas, node), node))
        });
        best.min().map(|(_, node)| node)
    }
}

/// Racks' loads are compared in parts of a copy.
const SHARE: usize = 1 << 10;

/// Who leads least leads; who follows it least often is next; the others as the ids go round.
fn order(loads: &Loads, mut chosen: Vec<NodeId>) -> Vec<NodeId> {
    chosen.sort_unstable();
    let leader = (0..chosen.len()).min_by_key(|&place| {
        let load = loads.load(chosen[place]);
        (load.topic.leads, load.all.leads, chosen[place])
    });
    let Some(leader) = leader else { return chosen };
    chosen.rotate_left(leader);
    let first = chosen[0];
    let times = |node: NodeId| loads.successors.get(&(first, node)).copied().unwrap_or(0);
    let second = (1..chosen.len()).min_by_key(|&place| (times(chosen[place]), place));
    if let Some(second) = second {
        chosen[1..].rotate_left(second - 1);
    }
    chosen
}
