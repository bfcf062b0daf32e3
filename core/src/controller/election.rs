//! One change of one partition's assignment: who is in sync, who is eligible (KIP-966), who leads,
//! and whether a reassignment is done follow from one another, so they are decided in one place.

use crate::id::{LeaderEpoch, NodeId, PartitionEpoch, PartitionId};
use crate::metadata::config::TopicConfigs;
use crate::metadata::{Image, Node};
use crate::partition::interface::{Assignment, Flush};
use crate::{mutant, reached};

/// An assignment as it changes. `finish` draws the conclusions.
pub(super) struct Revision<'a> {
    image: &'a Image,
    configs: &'a TopicConfigs,
    pub(super) partition: PartitionId,
    before: &'a Assignment,
    next: Assignment,
    /// A replica that lacks committed records, perhaps.
    lost: Option<NodeId>,
    /// A human took the loss of committed records upon himself.
    unclean: bool,
    /// A leader's wish was granted: it must hear of it, whatever it changes.
    granted: bool,
}

impl<'a> Revision<'a> {
    pub(super) fn new(
        image: &'a Image,
        configs: &'a TopicConfigs,
        partition: PartitionId,
        before: &'a Assignment,
    ) -> Self {
        Self {
            image,
            configs,
            partition,
            before,
            next: before.clone(),
            lost: None,
            unclean: false,
            granted: false,
        }
    }

    pub(super) fn flush(&self) -> Flush {
        self.configs.flush()
    }

    /// `node` is in sync no more.
    pub(super) fn leave(&mut self, node: NodeId) {
        self.next.in_sync.retain(|member| *member != node);
    }

    /// `node` leaves, unless it is the last in sync.
    pub(super) fn leave_to_others(&mut self, node: NodeId) {
        if self.next.in_sync.len() > 1 {
            self.leave(node);
        }
    }

    /// `node` may lack committed records: it leaves, and is not eligible either.
    pub(super) fn lose(&mut self, node: NodeId) {
        self.leave(node);
        // zoo A19: who came back with less is as good as it was.
        if !mutant!("last-replica-standing") {
            self.lost = Some(node);
        }
    }

    /// Exactly these are in sync.
    pub(super) fn set_in_sync(&mut self, members: &[NodeId]) {
        let replicas = self.next.replicas.iter().copied();
        self.next.in_sync = replicas.filter(|node| members.contains(node)).collect();
        self.granted = true;
    }

    /// Another replica leads, if one in sync is willing.
    pub(super) fn give_away(&mut self, node: NodeId) {
        if self.next.leader == Some(node) {
            let willing = |other: &NodeId| *other != node && self.is(*other, Node::is_willing);
            if let Some(other) = self.first(&self.next.in_sync, willing) {
                self.next.leader = Some(other);
            }
        }
    }

    /// The preferred leader leads, if it is in sync and willing.
    pub(super) fn prefer(&mut self) {
        if let Some(&first) = self.next.replicas.first()
            && self.next.in_sync.contains(&first)
            && self.is(first, Node::is_willing)
        {
            self.next.leader = Some(first);
        }
    }

    /// Any replica that is there leads: committed records may be lost.
    pub(super) fn elect_unclean(&mut self) {
        let live = |node: &NodeId| self.is(*node, Node::is_live);
        if self.next.leader.is_none()
            && let Some(node) = self.first(&self.next.replicas, live)
        {
            reached!("unclean-election");
            self.next.in_sync = vec![node];
            self.unclean = true;
        }
    }

    /// `target` shall keep the copies, in this order.
    pub(super) fn retarget(&mut self, target: &[NodeId]) {
        let next = &mut self.next;
        let adding = std::mem::take(&mut next.adding);
        let mut originals = std::mem::take(&mut next.replicas);
        originals.retain(|node| !adding.contains(node));
        let added = target.iter().filter(|node| !originals.contains(node));
        next.adding = added.copied().collect();
        originals.retain(|node| !target.contains(node));
        next.replicas = [target, &originals].concat();
        next.removing = originals;
        let in_sync = std::mem::take(&mut next.in_sync);
        self.set_in_sync(&in_sync);
    }

    /// As it was before the reassignment that runs.
    pub(super) fn cancel(&mut self) {
        let next = &mut self.next;
        let adding = std::mem::take(&mut next.adding);
        next.removing.clear();
        next.replicas.retain(|node| !adding.contains(node));
        next.in_sync.retain(|node| !adding.contains(node));
    }

    /// Whether nobody in sync would be left where somebody was.
    pub(super) fn is_emptied(&self) -> bool {
        self.next.in_sync.is_empty() && !self.before.in_sync.is_empty()
    }

    /// The assignment with all that follows; `None` if nothing changed.
    pub(super) fn finish(mut self) -> Option<Assignment> {
        self.complete();
        self.qualify();
        self.elect();
        // A leader that withdraws what it wished for wishes for the set as it is: until a newer
        // partition epoch shows that, its commits wait for whoever might have been let in.
        if self.next == *self.before && !self.granted {
            return None;
        }
        let is_left = self.is_left();
        let next = &mut self.next;
        if next.leader != self.before.leader || is_left {
            next.leader_epoch = LeaderEpoch(self.before.leader_epoch.0 + 1);
        }
        next.partition_epoch = PartitionEpoch(self.before.partition_epoch.0 + 1);
        Some(self.next)
    }

    /// Whether a node that had a copy goes. It may be given one again before it hears of that, and
    /// what it says of the copy that it is to throw away must not count for the next one: a new
    /// leader epoch tells the two apart. Kafka's `PartitionChangeBuilder` does so, too.
    fn is_left(&self) -> bool {
        let stays = |node: &NodeId| self.next.replicas.contains(node);
        self.next.leader.is_some() && !self.before.replicas.iter().all(stays)
    }

    /// A reassignment is done when all who shall keep a copy are in sync, not before: KAFKA-15665.
    fn complete(&mut self) {
        let next = &mut self.next;
        if !next.is_reassigning() {
            return;
        }
        let targets = next.targets().collect::<Vec<_>>();
        let mut in_sync = targets.iter().map(|node| next.in_sync.contains(node));
        // zoo C9: done when some of them are.
        let early = mutant!("reassignment-completes-early");
        if if early { in_sync.any(|is| is) } else { in_sync.all(|is| is) } {
            reached!("reassignment-completed");
            next.in_sync.retain(|node| targets.contains(node));
            next.replicas = targets;
            next.adding.clear();
            next.removing.clear();
        }
    }

    /// Who left while fewer than `min.insync.replicas` stayed has all that is committed, since
    /// nothing is committed until as many are in sync again. KIP-966.
    fn qualify(&mut self) {
        let min = self.configs.min_insync_replicas(self.next.copies());
        if (self.next.in_sync.len() >= min && self.stands_in_enough_racks()) || self.unclean {
            self.next.eligible.clear();
            return;
        }
        let before = self.before;
        let eligible = self.next.replicas.iter().copied().filter(|node| {
            (before.in_sync.contains(node) || before.eligible.contains(node))
                && !self.next.in_sync.contains(node)
                && self.lost != Some(*node)
        });
        self.next.eligible = eligible.collect();
    }

    /// As `min.insync.replicas` does, `quorate.min.insync.racks` keeps all from being committed.
    fn stands_in_enough_racks(&self) -> bool {
        let Assignment { replicas, in_sync, .. } = &self.next;
        let rack = |node| self.image.node(node)?.rack.as_deref();
        self.configs.racks(replicas, rack).commit(in_sync, replicas)
    }

    fn elect(&mut self) {
        let stays = self.next.leader.is_some_and(|leader| self.next.in_sync.contains(&leader));
        if stays {
            return;
        }
        self.next.leader = self.best(&self.next.in_sync);
        if self.next.leader.is_some() {
            return;
        }
        if let Some(leader) = self.best(&self.next.eligible) {
            reached!("eligible-leader-elected");
            self.next.leader = Some(leader);
            self.next.in_sync = vec![leader];
            self.qualify();
        } else {
            reached!("no-leader");
        }
    }

    /// The first of `nodes` that is willing to lead, or at least there.
    fn best(&self, nodes: &[NodeId]) -> Option<NodeId> {
        let willing = self.first(nodes, |node| self.is(*node, Node::is_willing));
        willing.or_else(|| self.first(nodes, |node| self.is(*node, Node::is_live)))
    }

    /// The first of `nodes` that is fit, in the order in which leaders are preferred.
    fn first(&self, nodes: &[NodeId], fit: impl Fn(&NodeId) -> bool) -> Option<NodeId> {
        let preferred = self.next.replicas.iter().copied();
        preferred.into_iter().find(|node| nodes.contains(node) && fit(node))
    }

    fn is(&self, node: NodeId, what: impl Fn(&Node) -> bool) -> bool {
        self.image.node(node).is_some_and(what)
    }
}
