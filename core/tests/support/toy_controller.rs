//! A controller that sees everything and decides at once, with the rules of the in-sync set that a
//! real one has: who is fenced is not in it, who left it while it was too small stays eligible.

use std::collections::BTreeMap;

use quorate_core::id::{LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch};
use quorate_core::partition::interface::{Assignment, InSyncChange, ProposalProblem};

#[derive(Debug)]
pub(crate) struct ToyController {
    /// All assignments ever, oldest first. Nodes hear of them later, and not of each.
    pub(crate) history: Vec<Assignment>,
    pub(crate) nodes: BTreeMap<NodeId, Registered>,
    in_sync_min: usize,
    next_node_epoch: i64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered {
    pub(crate) node_epoch: NodeEpoch,
    pub(crate) is_fenced: bool,
    /// The history is so long when it is registered.
    pub(crate) place: usize,
}

impl ToyController {
    pub(crate) fn new(replicas: &[NodeId], in_sync_min: u16) -> Self {
        let first = Assignment {
            leader: Some(replicas[0]),
            replicas: replicas.to_vec(),
            in_sync: replicas.to_vec(),
            ..Assignment::default()
        };
        let mut controller = Self {
            history: vec![first],
            nodes: BTreeMap::new(),
            in_sync_min: usize::from(in_sync_min).min(replicas.len()),
            next_node_epoch: 0,
        };
        for &node in replicas {
            controller.register(node);
            controller.unfence(node);
        }
        controller
    }

    pub(crate) fn current(&self) -> &Assignment {
        self.history.last().expect("there is one from the start")
    }

    /// All that surely have every committed record.
    pub(crate) fn electable(&self) -> Vec<NodeId> {
        let current = self.current();
        current.in_sync.iter().chain(&current.eligible).copied().collect()
    }

    fn decide(&mut self, mut next: Assignment) {
        let before = self.current();
        if next.in_sync.len() >= self.in_sync_min {
            next.eligible.clear();
        } else {
            let left = before.in_sync.iter().chain(&before.eligible);
            let left = left.copied().filter(|node| !next.in_sync.contains(node));
            // Those that `next` has struck out on purpose are gone.
            let left = left.filter(|node| next.replicas.contains(node));
            let kept = left.filter(|node| !next.removing.contains(node)).collect();
            next.eligible = kept;
            next.eligible.dedup();
        }
        next.removing.clear();
        next.partition_epoch = PartitionEpoch(before.partition_epoch.0 + 1);
        if next.leader != before.leader {
            next.leader_epoch = LeaderEpoch(before.leader_epoch.0 + 1);
        }
        self.history.push(next);
    }

    fn is_up(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|known| !known.is_fenced)
    }

    /// The node is not heard of: others lead, and nobody waits for it.
    pub(crate) fn fence(&mut self, node: NodeId, is_wiped: bool) {
        if let Some(known) = self.nodes.get_mut(&node) {
            known.is_fenced = true;
        }
        let mut next = self.current().clone();
        if is_wiped {
            // Struck out of both lists.
            next.removing = vec![node];
            next.eligible.retain(|eligible| *eligible != node);
        }
        let others = next.in_sync.iter().filter(|member| **member != node).count();
        if others > 0 {
            next.in_sync.retain(|member| *member != node);
        } else if is_wiped && next.in_sync.contains(&node) {
            // Only eligible ones are left: one of them is to be in sync in its place.
            next.in_sync = vec![next.eligible[0]];
        }
        if next.leader == Some(node) {
            next.leader = None;
        }
        if next != *self.current() {
            self.decide(next);
        }
        self.elect_if_needed();
    }

    /// Returns the node's new epoch.
    pub(crate) fn register(&mut self, node: NodeId) -> NodeEpoch {
        if self.is_up(node) {
            self.fence(node, false);
        }
        self.next_node_epoch += 1;
        let node_epoch = NodeEpoch(self.next_node_epoch);
        let place = self.history.len() - 1;
        self.nodes.insert(node, Registered { node_epoch, is_fenced: true, place });
        node_epoch
    }

    pub(crate) fn unfence(&mut self, node: NodeId) {
        if let Some(known) = self.nodes.get_mut(&node) {
            known.is_fenced = false;
        }
        self.elect_if_needed();
    }

    fn elect_if_needed(&mut self) {
        if self.current().leader.is_some() {
            return;
        }
        let candidate = self.electable().into_iter().find(|node| self.is_up(*node));
        if let Some(node) = candidate {
            self.elect(node);
        }
    }

    /// Another leader, of those that may.
    pub(crate) fn elect(&mut self, node: NodeId) {
        let mut next = self.current().clone();
        if !next.in_sync.contains(&node) {
            next.in_sync = vec![node];
        }
        next.in_sync.retain(|member| *member == node || self.is_up(*member));
        if next.leader == Some(node) {
            // Another leadership of the same node.
            next.leader = None;
            self.decide(next.clone());
        }
        next.leader = Some(node);
        self.decide(next);
    }

    /// Who may lead now.
    pub(crate) fn candidates(&self) -> Vec<NodeId> {
        let members = self.current().in_sync.iter().copied();
        members.filter(|node| self.is_up(*node)).collect()
    }

    pub(crate) fn change(
        &mut self,
        from: NodeId,
        change: &InSyncChange,
    ) -> Result<(), ProposalProblem> {
        let current = self.current();
        let is_current = current.leader == Some(from)
            && current.leader_epoch == change.leader_epoch
            && current.partition_epoch == change.partition_epoch;
        if !is_current {
            return Err(ProposalProblem::Stale);
        }
        for &(node, node_epoch) in &change.in_sync {
            let known = self.nodes[&node];
            if known.is_fenced || known.node_epoch != node_epoch {
                return Err(ProposalProblem::Ineligible(node));
            }
        }
        let mut next = current.clone();
        next.in_sync = change.in_sync.iter().map(|&(node, _)| node).collect();
        self.decide(next);
        Ok(())
    }
}
