//! Replicas leave nodes that are gone or shall leave: each such partition is reassigned to a node
//! that is there, a bounded number at a time.

use std::collections::BTreeSet;

use super::Controller;
use super::interface::Retreat;
use super::placement::{Loads, Places};
use crate::id::{NodeId, PartitionId};
use crate::metadata::{Duty, Record};
use crate::partition::interface::Assignment;
use crate::reached;

/// What is being moved and what waits to be. Soft: a new controller finds it in the image again.
#[derive(Clone, Debug, Default)]
pub(super) struct Moves {
    /// Nodes that were fenced for `replace_after`.
    gone: BTreeSet<NodeId>,
    /// Partitions with a copy on a node that is to be left.
    waiting: BTreeSet<PartitionId>,
    /// Of these, those that are moving already, perhaps to the very node that is gone.
    urgent: BTreeSet<PartitionId>,
    /// Those that found no place; looked at again when a node comes.
    stuck: BTreeSet<PartitionId>,
    /// Partitions whose reassignment runs, whoever wanted it.
    running: BTreeSet<PartitionId>,
    /// Of these, those without a leader: they may wait for a human, and must not hold up others.
    leaderless: BTreeSet<PartitionId>,
}

impl Moves {
    pub(super) fn running(&self) -> impl Iterator<Item = &PartitionId> {
        self.running.iter()
    }

    pub(super) fn node_returned(&mut self, node: NodeId) {
        self.gone.remove(&node);
        self.try_again();
    }

    fn set_running(&mut self, id: PartitionId, runs: bool, is_led: bool) {
        let put = |set: &mut BTreeSet<PartitionId>, within| match within {
            true => set.insert(id),
            false => set.remove(&id),
        };
        put(&mut self.running, runs);
        put(&mut self.leaderless, runs && !is_led);
    }

    /// There may be a place now.
    fn try_again(&mut self) {
        std::mem::take(&mut self.stuck).into_iter().for_each(|id| self.wait(id));
    }

    /// It is looked at whether a copy of the partition is to go elsewhere.
    pub(super) fn wait(&mut self, id: PartitionId) {
        let waiting = if self.running.contains(&id) { &mut self.urgent } else { &mut self.waiting };
        waiting.insert(id);
    }

    fn next(&mut self, running_max: usize) -> Option<PartitionId> {
        let urgent = self.urgent.pop_first();
        let may_begin = self.running.len() - self.leaderless.len() < running_max;
        urgent.or_else(|| if may_begin { self.waiting.pop_first() } else { None })
    }

    /// `record` was decided.
    pub(super) fn follow(&mut self, record: &Record) {
        match record {
            Record::PartitionsChanged { topic, partitions } => {
                for (index, placement) in partitions {
                    let Ok(index) = i32::try_from(*index) else { continue };
                    let id = PartitionId { topic: *topic, index };
                    let runs = !placement.adding.is_empty() || !placement.removing.is_empty();
                    self.set_running(id, runs, placement.leader.is_some());
                }
            }
            Record::TopicDeleted { topic } => {
                for set in [&mut self.waiting, &mut self.urgent, &mut self.stuck, &mut self.running]
                {
                    set.retain(|id| id.topic != *topic);
                }
            }
            Record::NodeUnfenced { .. } | Record::NodeDutySet { .. } => self.try_again(),
            _ => {}
        }
    }
}

impl Controller {
    /// Why the copies on `node` go elsewhere, if they do.
    pub(super) fn retreat(&self, node: NodeId) -> Option<Retreat> {
        let known = self.decided.node(node)?;
        match known.duty {
            Duty::Leave => Some(Retreat::Decommissioned),
            Duty::Serve if self.moves.gone.contains(&node) => Some(Retreat::Replaced),
            Duty::Serve | Duty::Maintenance => None,
        }
    }

    /// The node was missed for too long.
    pub(super) fn replace_node(&mut self, node: NodeId) {
        reached!("node-replaced");
        self.moves.gone.insert(node);
        self.leave_node(node);
    }

    /// All that `node` keeps waits for another place.
    pub(super) fn leave_node(&mut self, node: NodeId) {
        let kept = self.decided.partitions();
        let kept = kept.filter(|(_, partition)| partition.targets().any(|id| id == node));
        let kept = kept.map(|(id, _)| id).collect::<Vec<_>>();
        kept.into_iter().for_each(|id| self.moves.wait(id));
    }

    /// What a controller must find in the image: all is forgotten but the image.
    pub(super) fn find_moves(&mut self) {
        let gone = std::mem::take(&mut self.moves.gone);
        self.moves = Moves::default();
        for (id, partition) in self.decided.partitions() {
            self.moves.set_running(id, partition.is_reassigning(), partition.leader.is_some());
        }
        let nodes = self.decided.nodes();
        self.moves.gone =
            nodes.filter(|n| n.fenced && gone.contains(&n.id)).map(|n| n.id).collect();
        let left = self.decided.nodes().map(|node| node.id);
        let left = left.filter(|node| self.retreat(*node).is_some()).collect::<Vec<_>>();
        left.into_iter().for_each(|node| self.leave_node(node));
    }

    /// Begins as many moves as may run at a time.
    pub(super) fn continue_moves(&mut self) {
        let mut loads = None;
        while let Some(id) = self.moves.next(self.limits.replica_moves_max) {
            let Some(partition) = self.decided.partition(id) else { continue };
            let loads = loads.get_or_insert_with(|| Loads::of(&self.decided));
            let (target, found_all) = self.another_target(loads, id, partition);
            if let Some(target) = target {
                self.retarget(id, &target);
            }
            if !found_all {
                self.moves.stuck.insert(id);
            }
        }
    }

    /// Who shall keep the partition instead of nodes that are left, if anything is better than now;
    /// and whether there is a place for every copy.
    fn another_target(
        &self,
        loads: &mut Loads,
        id: PartitionId,
        partition: &Assignment,
    ) -> (Option<Vec<NodeId>>, bool) {
        let before = partition.targets().collect::<Vec<_>>();
        let left = before.iter().map(|node| self.retreat(*node).is_some()).collect::<Vec<_>>();
        if !left.contains(&true) {
            return (None, true);
        }
        let siblings = self.decided.topic(id.topic).map(|topic| topic.partitions.as_slice());
        loads.begin_topic(siblings.unwrap_or_default());
        let places = Places::willing(&self.decided);
        let mut target = before.clone();
        let mut found_all = true;
        for place in (0..before.len()).filter(|&place| left[place]) {
            let kept = (0..before.len()).filter(|&other| other != place);
            let kept = kept.map(|other| target[other]).collect::<Vec<_>>();
            match places.next(loads, &kept, |node| !before.contains(&node)) {
                Some(node) => target[place] = node,
                None => found_all = false,
            }
        }
        if target == before {
            reached!("no-place-for-a-copy");
            return (None, false);
        }
        loads.add(&target);
        (Some(target), found_all)
    }

    /// How many partitions of `node` wait for a place and find none.
    pub(super) fn stuck(&self, node: NodeId) -> usize {
        let stuck = self.moves.stuck.iter().filter_map(|id| self.decided.partition(*id));
        stuck.filter(|partition| partition.targets().any(|id| id == node)).count()
    }
}
