//! Nodes come, are heard of, fall silent and leave. Kafka's `ClusterControlManager` and the
//! heartbeats of KIP-631.

use std::collections::BTreeSet;

use super::interface::{Heartbeat, Outcome, Problem, ProblemKind, RegisterNode, Standing};
use super::sessions::Due;
use super::{Controller, Role};
use crate::id::{DirectoryId, NodeEpoch, NodeId, PartitionId};
use crate::metadata::{Duty, Node, Record, Registration, Wish};
use crate::partition::interface::{Assignment, Flush};
use crate::reached;
use crate::time::Instant;

impl Controller {
    pub(super) fn register(&mut self, now: Instant, register: RegisterNode) -> Outcome {
        if let Err(problem) = self.check_registration(&register) {
            return Outcome::Refused(problem);
        }
        let known = self.decided.node(register.node);
        if let Some(known) = known {
            if is_told_again(known, &register) {
                let node_epoch = known.epoch;
                self.hear(now, register.node);
                return Outcome::NodeRegistered { node_epoch };
            }
            if let Some(problem) = self.duplicate(now, known, &register) {
                reached!("duplicate-node");
                return Outcome::Refused(problem);
            }
        } else if self.decided.nodes().len() >= self.limits.nodes_max {
            reached!("nodes-full");
            let message = format!("this cluster has room for {} nodes", self.limits.nodes_max);
            return Outcome::Refused(Problem::new(ProblemKind::Policy, message));
        }
        let node_epoch = self.decided.next_node_epoch();
        self.begin_together();
        if self.decided.cluster().is_none() {
            self.push(Record::ClusterNamed { cluster: register.cluster.clone() });
        }
        self.begin_life(now, register);
        self.end_together();
        Outcome::NodeRegistered { node_epoch }
    }

    /// The life before is over: what it led and was in sync with is settled anew.
    fn begin_life(&mut self, now: Instant, register: RegisterNode) {
        let RegisterNode { node, directory, clean_stop, rotten, .. } = register;
        let is_other_data = self.decided.node(node).is_some_and(|known| {
            known.directory != DirectoryId::NONE && known.directory != directory
        });
        let registration = Registration {
            node,
            epoch: self.decided.next_node_epoch(),
            incarnation: register.incarnation,
            directory,
            address: register.address,
            peer: register.peer,
            rack: register.rack,
            roles: register.roles,
            features: register.features,
            fenced: self.limits.session_timeout.is_some(),
        };
        self.push(Record::NodeRegistered(registration));
        self.sessions.hear(now, node);
        if self.limits.session_timeout.is_none() {
            return;
        }
        if is_other_data {
            reached!("node-lost-its-data");
        }
        let rotten = rotten.into_iter().collect::<BTreeSet<PartitionId>>();
        let keeps = |partition: &Assignment| partition.replicas.contains(&node);
        self.revise(usize::MAX, keeps, |revision, partition| {
            // Where acknowledgements did not wait for the disk, an unclean stop lost some, perhaps;
            // an only copy is still the best there is.
            let unsynced =
                !clean_stop && revision.flush() == Flush::Replicated && partition.copies() > 1;
            if is_other_data || unsynced || rotten.contains(&revision.partition) {
                revision.lose(node);
            } else {
                revision.leave(node);
            }
        });
        self.wait_for_return(now, node);
    }

    fn check_registration(&self, register: &RegisterNode) -> Result<(), Problem> {
        let node = register.node;
        if let Some(known) = self.decided.cluster()
            && known != register.cluster
        {
            reached!("node-of-another-cluster");
            let message = format!(
                "node {node} has the data of cluster {}; this is cluster {known}",
                register.cluster
            );
            return Err(Problem::new(ProblemKind::OtherCluster, message));
        }
        let max = self.limits.name_bytes_max;
        let names = [
            register.cluster.as_str(),
            &register.address.host,
            &register.peer.host,
            register.rack.as_deref().unwrap_or_default(),
        ];
        let features = register.features.iter().map(|feature| feature.name.as_str());
        let is_long = names.into_iter().chain(features).any(|name| name.len() > max);
        if node.0 < 0
            || is_long
            || register.features.len() > self.limits.features_max
            || register.rotten.len() > self.limits.partitions_max
        {
            reached!("registration-out-of-bounds");
            let message = format!(
                "the registration of node {node} is out of bounds: ids count from 0, names have \
                 at most {max} bytes"
            );
            return Err(Problem::new(ProblemKind::InvalidRequest, message));
        }
        self.check_features(register)
    }

    /// Why a node with a taken id is refused.
    fn duplicate(&self, now: Instant, known: &Node, register: &RegisterNode) -> Option<Problem> {
        let timeout = self.limits.session_timeout?;
        // Only one process can have a data directory: the one before is dead.
        if known.directory == register.directory && known.directory != DirectoryId::NONE {
            return None;
        }
        let silent = now.saturating_since(self.sessions.heard(known.id)?);
        let left = timeout.checked_sub(silent).filter(|left| !left.is_zero())?;
        let message = format!(
            "node id {} is taken: a node with another data directory ({}) serves at {}:{} and was \
             heard of {} ms ago. Give one of them another id; if that node is gone for good, this \
             one is let in after another {} ms",
            known.id,
            known.directory,
            known.address.host,
            known.address.port,
            silent.as_millis(),
            left.as_millis(),
        );
        Some(Problem::new(ProblemKind::DuplicateNode, message))
    }

    pub(super) fn heartbeat(&mut self, now: Instant, heartbeat: &Heartbeat) -> Outcome {
        let Heartbeat { node, node_epoch, applied, wish, .. } = *heartbeat;
        if let Err(problem) = self.check_epoch(node, node_epoch) {
            return Outcome::Refused(problem);
        }
        self.hear(now, node);
        let known = self.decided.node(node).expect("just checked");
        // Who stops does not serve again in this life.
        if known.wish != wish && known.wish != Wish::Stop {
            self.push(Record::NodeWished { node, epoch: node_epoch, wish });
        }
        let known = self.decided.node(node).expect("just checked");
        // It knows where it stands only when it has applied its own registration.
        if known.fenced && known.wish != Wish::Stop && applied > node_epoch {
            self.unfence(now, node);
        }
        Outcome::Heartbeat(self.standing(node))
    }

    fn hear(&mut self, now: Instant, node: NodeId) {
        self.sessions.hear(now, node);
        if let Some(timeout) = self.limits.session_timeout
            && self.decided.node(node).is_some_and(|known| !known.fenced)
        {
            self.sessions.plan(Due::Session(node), now + timeout);
        }
    }

    fn unfence(&mut self, now: Instant, node: NodeId) {
        let Some(known) = self.decided.node(node) else { return };
        let epoch = known.epoch;
        self.begin_together();
        self.push(Record::NodeUnfenced { node, epoch });
        let waits = |partition: &Assignment| {
            partition.leader.is_none() && partition.eligible.contains(&node)
        };
        self.revise(usize::MAX, waits, |_, _| {});
        self.end_together();
        self.sessions.cancel(Due::Gone(node));
        self.moves.node_returned(node);
        self.hear(now, node);
    }

    /// That life of the node has ended as a process does. A later life has nothing to do with it.
    pub(super) fn on_gone(&mut self, now: Instant, node: NodeId, node_epoch: NodeEpoch) {
        let is_that_life = self.decided.node(node).is_some_and(|known| known.epoch == node_epoch);
        if self.role == Role::Leading && self.limits.session_timeout.is_some() && is_that_life {
            reached!("node-gone");
            self.fence(now, node);
        }
    }

    /// The node's session is over: in one append it is fenced, leads nothing and is in sync with
    /// nothing, so that nobody sees the half of it.
    pub(super) fn fence(&mut self, now: Instant, node: NodeId) {
        let Some(known) = self.decided.node(node).filter(|known| !known.fenced) else { return };
        let epoch = known.epoch;
        reached!("node-fenced");
        self.begin_together();
        self.push(Record::NodeFenced { node, epoch });
        self.revise(
            usize::MAX,
            |partition| partition.in_sync.contains(&node),
            |revision, _| revision.leave(node),
        );
        self.end_together();
        self.wait_for_return(now, node);
    }

    /// From now on the node is missed, until it is heard of again.
    pub(super) fn wait_for_return(&mut self, now: Instant, node: NodeId) {
        self.sessions.cancel(Due::Session(node));
        if let Some(after) = self.limits.replace_after
            && self.decided.node(node).is_some_and(|known| {
                known.fenced && known.roles.broker && known.duty != Duty::Maintenance
            })
        {
            self.sessions.plan(Due::Gone(node), now + after);
        }
    }

    fn standing(&self, node: NodeId) -> Standing {
        let known = self.decided.node(node).expect("a node that is known");
        if !known.is_draining() {
            return Standing { fenced: known.fenced, may_stop: false, leads: 0 };
        }
        let stops = known.wish == Wish::Stop;
        let (mut leads, mut holds) = (0, false);
        for (_, partition) in self.decided.partitions() {
            leads += usize::from(partition.leader == Some(node));
            holds |= partition.in_sync.len() > 1 && partition.in_sync.contains(&node);
        }
        Standing { fenced: known.fenced, may_stop: stops && !holds, leads }
    }

    pub(super) fn unregister(&mut self, node: NodeId) -> Outcome {
        let Some(known) = self.decided.node(node) else {
            let message = format!("there is no node {node}");
            return Outcome::Refused(Problem::new(ProblemKind::UnknownNode, message));
        };
        let epoch = known.epoch;
        let refuse = |message| Outcome::Refused(Problem::new(ProblemKind::Policy, message));
        if !known.fenced {
            return refuse(format!("node {node} is there: stop it first"));
        }
        let keeps = |partition: &Assignment| partition.replicas.contains(&node);
        let replicas = self.decided.partitions().filter(|(_, partition)| keeps(partition)).count();
        if replicas > 0 {
            return refuse(format!(
                "node {node} still counts as keeping {replicas} partitions: decommission it first"
            ));
        }
        self.push(Record::NodeUnregistered { node, epoch });
        self.sessions.forget(node);
        self.moves.node_returned(node);
        Outcome::NodeUnregistered
    }
}

/// The same life says the same once more: its answer was lost, or it restarted with nothing new.
/// Rot that it has found since is news.
fn is_told_again(known: &Node, register: &RegisterNode) -> bool {
    register.rotten.is_empty()
        && known.incarnation == register.incarnation
        && known.directory == register.directory
        && known.address == register.address
        && known.peer == register.peer
        && known.rack == register.rack
        && known.roles == register.roles
        && known.features == register.features
}
