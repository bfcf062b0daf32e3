//! Replicas move to other nodes: add, catch up, remove. KIP-455.

use std::collections::BTreeSet;

use super::Controller;
use super::interface::{Outcome, PartitionName, Problem, ProblemKind, Reassign, Reassignment};
use super::topics::problem;
use crate::id::{NodeId, PartitionId};
use crate::metadata::Duty;
use crate::partition::interface::Assignment;
use crate::reached;

impl Controller {
    pub(super) fn reassign(
        &mut self,
        replication_changes: bool,
        partitions: Vec<Reassign>,
    ) -> Outcome {
        let done = partitions.into_iter().map(|reassign| {
            let Reassign { partition, target } = reassign;
            let result = self.find(&partition).and_then(|id| match target {
                Some(target) => self.reassign_one(id, &target, replication_changes),
                None => self.cancel_one(id),
            });
            (partition, result)
        });
        Outcome::Reassigned(done.collect())
    }

    fn reassign_one(
        &mut self,
        id: PartitionId,
        target: &[NodeId],
        replication_changes: bool,
    ) -> Result<(), Problem> {
        let before = self.decided.partition(id).expect("it was found");
        let copies = before.copies();
        self.check_target(target)?;
        if target.len() != copies && !replication_changes {
            let message = format!(
                "the partition has {copies} replicas and would have {}, which was not allowed",
                target.len()
            );
            return problem(ProblemKind::InvalidReplication, message);
        }
        self.retarget(id, target);
        Ok(())
    }

    fn check_target(&self, target: &[NodeId]) -> Result<(), Problem> {
        let distinct = target.iter().collect::<BTreeSet<_>>().len();
        if target.is_empty() || distinct != target.len() {
            let message = "a partition's replicas are at least one, each on another node";
            return problem(ProblemKind::InvalidAssignment, message);
        }
        if target.len() > self.limits.replicas_max {
            let message =
                format!("a partition has at most {} replicas here", self.limits.replicas_max);
            return problem(ProblemKind::InvalidAssignment, message);
        }
        for id in target {
            let Some(node) = self.decided.node(*id).filter(|node| node.roles.broker) else {
                return problem(ProblemKind::InvalidAssignment, format!("there is no node {id}"));
            };
            if node.duty == Duty::Leave {
                let message = format!("node {id} is being decommissioned");
                return problem(ProblemKind::InvalidAssignment, message);
            }
        }
        Ok(())
    }

    /// `target` shall keep the copies of the partition.
    pub(super) fn retarget(&mut self, id: PartitionId, target: &[NodeId]) {
        self.revise_one(id, |revision| revision.retarget(target));
    }

    fn cancel_one(&mut self, id: PartitionId) -> Result<(), Problem> {
        if !self.decided.partition(id).is_some_and(Assignment::is_reassigning) {
            return problem(ProblemKind::NoReassignment, "no reassignment of it runs");
        }
        reached!("reassignment-cancelled");
        self.revise_one(id, |revision| revision.cancel());
        // A copy that stays now may be on a node that is to be left.
        self.moves.wait(id);
        Ok(())
    }

    pub(super) fn list_reassignments(&self, asked: Option<&[PartitionName]>) -> Outcome {
        let asked = asked.map(|names| names.iter().collect::<BTreeSet<_>>());
        let mut found = Vec::new();
        for id in self.moves.running() {
            let Some(topic) = self.decided.topic(id.topic) else { continue };
            let Some(known) = self.decided.partition(*id) else { continue };
            let partition = PartitionName { topic: topic.name.clone(), index: id.index };
            if asked.as_ref().is_none_or(|asked| asked.contains(&partition)) {
                found.push(Reassignment {
                    partition,
                    replicas: known.replicas.clone(),
                    adding: known.adding.clone(),
                    removing: known.removing.clone(),
                });
            }
        }
        found.sort_by(|one, other| one.partition.cmp(&other.partition));
        Outcome::Reassignments(found)
    }

    /// The partition of this name.
    pub(super) fn find(&self, name: &PartitionName) -> Result<PartitionId, Problem> {
        let topic = self.named(&name.topic)?;
        let id = PartitionId { topic: topic.id, index: name.index };
        if self.decided.partition(id).is_none() {
            let message = format!("topic '{}' has no partition {}", name.topic, name.index);
            return problem(ProblemKind::UnknownTopic, message);
        }
        Ok(id)
    }
}
