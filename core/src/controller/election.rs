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
        let (mut in_vain, mut originals) = self.apart();
        in_vain.retain(|node| !target.contains(node));
        let added = target.iter().filter(|node| !originals.contains(node)).copied();
        let next = &mut self.next;
        next.adding = added.chain(in_vain.iter().copied()).collect();
        originals.retain(|node| !target.contains(node));
        next.removing = [originals, in_vain].concat();
        next.replicas = [target, &next.removing].concat();
        let in_sync = std::mem::take(&mut next.in_sync);
        self.set_in_sync(&in_sync);
    }

    /// As it was before the reassignment that runs.
    pub(super) fn cancel(&mut self) {
        let (in_vain, originals) = self.apart();
        let next = &mut self.next;
        next.replicas = [originals, in_vain.clone()].concat();
        next.adding.clone_from(&in_vain);
        next.removing = in_vain;
    }

    /// The replicas that the reassignment that runs has added, and those that were there before.
    fn apart(&self) -> (Vec<NodeId>, Vec<NodeId>) {
        let Assignment { replicas, adding, .. } = &self.next;
        replicas.iter().partition(|node| adding.contains(node))
    }

    /// The assignment with all that follows; `None` if nothing changed.
    pub(super) fn finish(mut self) -> Option<Assignment> {
        self.let_go();
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

    /// Copies that were added in vain, since the reassignment was taken back or given another
    /// target, go. One that has all that is committed stays until the others in sync are enough:
    /// it may have counted for a commit that the copies from before have not heard of. Kafka lets
    /// it go at once, and refuses only if nobody in sync would be left.
    fn let_go(&mut self) {
        let Assignment { replicas, in_sync, adding, removing, .. } = &self.next;
        let is_in_vain = |node: &&NodeId| adding.contains(node) && removing.contains(node);
        let without =
            |of: &[NodeId]| of.iter().filter(|node| !is_in_vain(node)).copied().collect::<Vec<_>>();
        let is_needed = !self.are_enough(&without(in_sync), &without(replicas));
        // As for who is eligible: whoever leaves now, with less than enough in sync, has all.
        let has_all = |node: &NodeId| {
            let was_member =
                |of: &Assignment| of.in_sync.contains(node) || of.eligible.contains(node);
            (was_member(self.before) || was_member(&self.next)) && self.lost != Some(*node)
        };
        let stays = |node: &&NodeId| is_needed && has_all(node);
        let goes = replicas.iter().filter(is_in_vain).filter(|node| !stays(node)).copied();
        let goes = goes.collect::<Vec<_>>();
        if is_needed && adding.iter().any(|node| removing.contains(node) && !goes.contains(node)) {
            reached!("copy-added-in-vain-is-needed");
        }
        let Assignment { replicas, in_sync, adding, removing, .. } = &mut self.next;
        for of in [replicas, in_sync, adding, removing] {
            of.retain(|node| !goes.contains(node));
        }
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
        let Assignment { replicas, in_sync, .. } = &self.next;
        if self.are_enough(in_sync, replicas) || self.unclean {
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

    /// Whether these in sync, of these replicas, may commit: neither `min.insync.replicas` nor
    /// `quorate.min.insync.racks` keeps them from it.
    fn are_enough(&self, in_sync: &[NodeId], replicas: &[NodeId]) -> bool {
        let rack = |node| self.image.node(node)?.rack.as_deref();
        in_sync.len() >= self.configs.min_insync_replicas(self.next.copies())
            && self.configs.racks(replicas, rack).commit(in_sync, replicas)
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
