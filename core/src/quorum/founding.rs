//! How a cluster begins from nothing but configuration files: the founder, the first of the
//! nodes they name, writes down who they are once *all* of them have said that they know of no
//! cluster. A majority would not do: it could consist of the wiped and the late.

use std::collections::{BTreeMap, BTreeSet};

use super::Quorum;
use super::configuration::Configuration;
use super::interface::{
    ClusterId, DirectoryId, Effect, Entry, Founding, HardState, Index, Member, Payload, Term,
};
use crate::id::NodeId;
use crate::reached;
use crate::time::Now;

/// What the others said of themselves to this very disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    by_node: BTreeMap<NodeId, (DirectoryId, BTreeSet<NodeId>)>,
    /// Somebody is in a cluster already: none is founded here.
    cluster_exists: bool,
}

impl Quorum {
    fn founder(&self) -> Option<NodeId> {
        self.setup.founders.first().copied()
    }

    fn may_found(&self) -> bool {
        self.hard.cluster.is_none()
            && self.founder() == Some(self.setup.me.node)
            && !self.answers.cluster_exists
    }

    pub(super) fn on_answer(
        &mut self,
        now: Now,
        cluster: Option<ClusterId>,
        from: Member,
        voters: BTreeSet<NodeId>,
        effects: &mut Vec<Effect>,
    ) {
        if cluster.is_some() {
            reached!("a-cluster-exists");
            self.answers.cluster_exists = true;
        } else if self.setup.founders.contains(&from.node) {
            self.answers.by_node.insert(from.node, (from.directory, voters));
        }
        self.found_if_all_are_known(now, effects);
    }

    fn missing(&self) -> BTreeSet<NodeId> {
        let mut missing = self.setup.founders.clone();
        missing.retain(|node| !self.answers.by_node.contains_key(node));
        missing.remove(&self.setup.me.node);
        missing
    }

    fn disagreement(&self) -> Option<(NodeId, &BTreeSet<NodeId>)> {
        let mut answers = self.answers.by_node.iter();
        let other = answers.find(|(_, (_, voters))| *voters != self.setup.founders)?;
        Some((*other.0, &other.1.1))
    }

    pub(super) fn found_if_all_are_known(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if !self.may_found() || !self.missing().is_empty() || self.disagreement().is_some() {
            return;
        }
        reached!("cluster-founded");
        let members = self.answers.by_node.iter();
        let members = members.map(|(node, answer)| Member { node: *node, directory: answer.0 });
        let voters = members.chain([self.setup.me]).collect();
        let mut cluster = ClusterId(self.rng.bytes());
        // Two founders with one seed are still two founders.
        cluster.0.iter_mut().zip(self.setup.me.directory.0).for_each(|(byte, own)| *byte ^= own);
        // Before all elections, and the same for all: whoever wins the first one has it. It is
        // written first, since a cluster of which nobody knows the voters could never begin.
        let payload =
            Payload::Configuration(Configuration { cluster, voters, ..Configuration::default() });
        self.append(vec![Entry { index: Index(1), term: Term::ZERO, payload }], effects);
        self.persist_hard_state(HardState { cluster: Some(cluster), ..self.hard }, effects);
        self.on_election_timeout(now, effects);
    }

    /// Why there is no cluster yet, as far as this node knows.
    pub(super) fn founding(&self) -> Option<Founding> {
        if self.hard.cluster.is_some() {
            return None;
        }
        if !self.may_found() {
            let founder = self.founder().filter(|node| *node != self.setup.me.node);
            return Some(Founding::WaitingToBeTaken { founder });
        }
        Some(match self.disagreement() {
            Some((node, voters)) => Founding::Disagrees { node, voters: voters.clone() },
            None => Founding::WaitingFor(self.missing()),
        })
    }
}
