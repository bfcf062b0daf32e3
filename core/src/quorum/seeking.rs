//! How a node that hears no leader finds one: it asks whomever it has been told of, and who is
//! asked and does not lead names the one that does. Who answers to found a cluster is `founding`'s.

use std::collections::BTreeSet;

use super::interface::{Body, Effect, Member, Message};
use super::{Quorum, State};
use crate::id::NodeId;
use crate::reached;
use crate::time::Now;

/// Of the nodes that the application knows, so many are asked at a time.
const OTHERS_MAX: usize = 3;

/// Whom a node without a leader may ask, and has asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Seeking {
    /// Nodes of the cluster that the application knows of: all voters may be others by now.
    known: BTreeSet<NodeId>,
    /// Since the last time that it asked everybody: two nodes that each take the other for the
    /// leader send nobody to and fro.
    asked: BTreeSet<NodeId>,
}

impl Quorum {
    /// The application knows of these nodes of the cluster, beside the voters. They are asked for
    /// the leader, a few at a time.
    pub fn know(&mut self, nodes: BTreeSet<NodeId>) {
        self.seeking.known = nodes;
    }

    /// Asks everybody it has ever been told of for a cluster and its leader.
    pub(super) fn ask(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let voters = self.configuration().into_iter().flat_map(|voters| &voters.voters);
        let mut nodes: BTreeSet<NodeId> = voters.map(|voter| voter.node).collect();
        nodes.extend(&self.setup.founders);
        let mut others: Vec<NodeId> = self.seeking.known.difference(&nodes).copied().collect();
        for _ in 0..OTHERS_MAX.min(others.len()) {
            let place = self.rng.below(others.len() as u64);
            nodes.insert(others.swap_remove(usize::try_from(place).expect("a place in it")));
        }
        nodes.remove(&self.setup.me.node);
        self.seeking.asked.clear();
        for node in nodes {
            self.ask_of(node, effects);
        }
        self.found_if_all_are_known(now, effects);
    }

    fn ask_of(&mut self, node: NodeId, effects: &mut Vec<Effect>) {
        self.seeking.asked.insert(node);
        let message = Message {
            cluster: self.hard.cluster,
            from: self.setup.me,
            to: None,
            term: self.hard.term,
            body: Body::Ask { voters: self.setup.founders.clone() },
        };
        self.post(node, message, effects);
    }

    pub(super) fn on_ask(&mut self, now: Now, message: &Message, effects: &mut Vec<Effect>) {
        let asker = message.from;
        let is_ours = message.cluster.is_none() || message.cluster == self.hard.cluster;
        if is_ours && matches!(self.state, State::Leader(_)) {
            self.observe(now, asker, effects);
        }
        let voters = self.setup.founders.clone();
        let is_bare = self.hard.cluster.is_some() && self.is_bare();
        let answer = if is_bare { Body::Bare { voters } } else { Body::Answer { voters } };
        self.send(asker, answer, effects);
        if let Some(leader) = self.following.leader.filter(|leader| is_ours && *leader != asker) {
            // The seat knows where that is.
            self.send(asker, Body::Leads { leader, address: String::new() }, effects);
        }
    }

    /// Somebody of this cluster, or of the first one heard of, follows `leader`.
    pub(super) fn on_leads(
        &mut self,
        message: &Message,
        leader: Member,
        effects: &mut Vec<Effect>,
    ) {
        let mine = self.hard.cluster;
        let is_ours = message.cluster.is_some() && mine.is_none_or(|_| mine == message.cluster);
        let is_led = self.leader().is_some() || leader.node == self.setup.me.node;
        if is_ours && !is_led && !self.seeking.asked.contains(&leader.node) {
            reached!("leader-found-by-hearsay");
            self.ask_of(leader.node, effects);
        }
    }
}
