//! How a cluster begins from nothing but configuration files: the founder, the first of the
//! nodes they name, writes down who they are once *all* of them have said that they know of no
//! cluster. A majority would not do: it could consist of the wiped and the late.

use std::collections::{BTreeMap, BTreeSet};

use super::Quorum;
use super::configuration::Configuration;
use super::interface::{
    Body, ClusterId, DirectoryId, Effect, Entry, Founding, HardState, Index, Member, Payload,
    Position, Term,
};
use crate::id::NodeId;
use crate::reached;
use crate::time::Now;

/// What the others said of themselves to this very disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    by_node: BTreeMap<NodeId, Said>,
    /// Somebody holds something of a cluster already: none is founded here.
    cluster_exists: bool,
    /// What is founded once all are of it, where some were of another that came to nothing.
    drawn: Option<ClusterId>,
}

#[derive(Clone, Debug)]
struct Said {
    directory: DirectoryId,
    voters: BTreeSet<NodeId>,
    /// It holds nothing of it.
    cluster: Option<ClusterId>,
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
            return;
        }
        self.on_bare(now, cluster, from, voters, effects);
    }

    /// `from` holds nothing, though perhaps it was asked for a vote in `cluster`.
    pub(super) fn on_bare(
        &mut self,
        now: Now,
        cluster: Option<ClusterId>,
        from: Member,
        voters: BTreeSet<NodeId>,
        effects: &mut Vec<Effect>,
    ) {
        if self.setup.founders.contains(&from.node) {
            let said = Said { directory: from.directory, voters, cluster };
            self.answers.by_node.insert(from.node, said);
        }
        self.found_if_all_are_known(now, effects);
    }

    /// Whether nothing of any cluster's log ever came here: whosever member this is by its votes,
    /// another founder may still take it. Afterwards it stays what it is.
    pub fn is_bare(&self) -> bool {
        self.log.last() == Position::ZERO
    }

    /// The founder's disk is a new one, and nobody holds anything of the cluster that the old one
    /// founded. Whoever leaves that cluster never comes back to it, so no majority of it will ever
    /// hold anything.
    pub(super) fn on_take(
        &mut self,
        from: Member,
        instead_of: Option<ClusterId>,
        cluster: ClusterId,
        effects: &mut Vec<Effect>,
    ) {
        let is_led = self.following.leader.is_some();
        if Some(from.node) != self.founder() || !self.is_bare() || is_led {
            return;
        }
        if self.hard.cluster != Some(cluster) {
            if self.hard.cluster != instead_of {
                reached!("taken-by-somebody-else-meanwhile");
                return;
            }
            reached!("taken-from-a-founder-that-is-gone");
            // No vote of that cluster is given any more.
            self.held.clear();
            let term = self.hard.term.next();
            self.persist_hard_state(
                HardState { cluster: Some(cluster), term, vote: None },
                effects,
            );
        }
        self.send(from, Body::Bare { voters: self.setup.founders.clone() }, effects);
    }

    /// Whether all are of the cluster that is to be founded; who is not is asked to be.
    fn are_all_taken(&mut self, effects: &mut Vec<Effect>) -> bool {
        if self.answers.by_node.values().all(|said| said.cluster.is_none()) {
            return true;
        }
        let cluster = self.answers.drawn.unwrap_or_else(|| self.draw_cluster());
        self.answers.drawn = Some(cluster);
        let others: Vec<_> = self.untaken().collect();
        for &(other, instead_of) in &others {
            self.send(other, Body::Take { instead_of, cluster }, effects);
        }
        others.is_empty()
    }

    /// Who is not of the cluster that was drawn, and of which it is.
    fn untaken(&self) -> impl Iterator<Item = (Member, Option<ClusterId>)> + '_ {
        let drawn = self.answers.drawn;
        let others = self.answers.by_node.iter().filter(move |(_, said)| said.cluster != drawn);
        others.map(|(&node, said)| (Member { node, directory: said.directory }, said.cluster))
    }

    fn draw_cluster(&mut self) -> ClusterId {
        let mut cluster = ClusterId(self.rng.bytes());
        // Two founders with one seed are still two founders.
        cluster.0.iter_mut().zip(self.setup.me.directory.0).for_each(|(byte, own)| *byte ^= own);
        cluster
    }

    fn missing(&self) -> BTreeSet<NodeId> {
        let mut missing = self.setup.founders.clone();
        missing.retain(|node| !self.answers.by_node.contains_key(node));
        missing.remove(&self.setup.me.node);
        missing
    }

    fn disagreement(&self) -> Option<(NodeId, &BTreeSet<NodeId>)> {
        let mut answers = self.answers.by_node.iter();
        let other = answers.find(|(_, said)| said.voters != self.setup.founders)?;
        Some((*other.0, &other.1.voters))
    }

    pub(super) fn found_if_all_are_known(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if !self.may_found() || !self.missing().is_empty() || self.disagreement().is_some() {
            return;
        }
        if !self.are_all_taken(effects) {
            return;
        }
        reached!("cluster-founded");
        let members = self.answers.by_node.iter();
        let members = members.map(|(&node, said)| Member { node, directory: said.directory });
        let voters = members.chain([self.setup.me]).collect();
        let cluster = self.answers.drawn.unwrap_or_else(|| self.draw_cluster());
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
            None => {
                let missing = self.missing();
                let untaken = || self.untaken().map(|(other, _)| other.node).collect();
                Founding::WaitingFor(if missing.is_empty() { untaken() } else { missing })
            }
        })
    }
}
