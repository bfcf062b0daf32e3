//! Leaders move by decision, not by failure: back to where they belong, away from nodes that are
//! drained, or to where a human wants them.

use super::Controller;
use super::interface::{ElectLeaders, Election, Outcome, PartitionName, Problem, ProblemKind};
use super::sessions::Due;
use super::topics::problem;
use crate::metadata::{Node, Wish};
use crate::partition::interface::Assignment;
use crate::reached;
use crate::time::Instant;

impl Controller {
    /// A batch of leaderships goes back to the preferred replicas, the next one follows.
    pub(super) fn balance(&mut self, now: Instant) {
        let Some(interval) = self.limits.balance_interval else { return };
        let max = self.limits.leader_moves_max;
        let moved = self.revise(max, is_led_by_another, |revision, _| revision.prefer());
        if moved > 0 {
            reached!("leaders-go-back");
        }
        let after = if moved == max { self.limits.balance_pace } else { interval };
        self.sessions.plan(Due::Balance, now + after);
    }

    /// A batch of leaderships leaves nodes that are drained; the next follows once this one is
    /// committed.
    pub(super) fn continue_drains(&mut self) {
        if !std::mem::take(&mut self.drains_pending) {
            return;
        }
        let drained = self.decided.nodes().filter(|node| node.is_live() && node.is_draining());
        let drained = drained.map(|node| (node.id, node.wish == Wish::Stop)).collect::<Vec<_>>();
        let mut left = self.limits.leader_moves_max;
        for (node, stops) in drained {
            let holds = |partition: &Assignment| {
                partition.leader == Some(node)
                    || (stops && partition.in_sync.len() > 1 && partition.in_sync.contains(&node))
            };
            left -= self.revise(left, holds, |revision, _| {
                revision.give_away(node);
                if stops {
                    revision.leave_to_others(node);
                }
            });
        }
        if left < self.limits.leader_moves_max {
            reached!("leaders-drained");
            self.drains_pending = true;
        }
    }

    pub(super) fn elect_leaders(&mut self, elect: ElectLeaders) -> Outcome {
        let ElectLeaders { election, partitions, .. } = elect;
        let names = partitions.unwrap_or_else(|| self.all_that_need(election));
        let elected = names.into_iter().map(|name| {
            let result = self.elect_one(election, &name);
            (name, result)
        });
        Outcome::LeadersElected(elected.collect())
    }

    fn all_that_need(&self, election: Election) -> Vec<PartitionName> {
        let mut names = Vec::new();
        for topic in self.decided.topics() {
            for (index, partition) in (0..).zip(&topic.partitions) {
                let needs = match election {
                    Election::Preferred => is_led_by_another(partition),
                    Election::Unclean => partition.leader.is_none(),
                };
                if needs {
                    names.push(PartitionName { topic: topic.name.clone(), index });
                }
            }
        }
        names
    }

    fn elect_one(&mut self, election: Election, name: &PartitionName) -> Result<(), Problem> {
        let id = self.find(name)?;
        let partition = self.decided.partition(id).expect("it was found");
        let first = partition.replicas.first().copied();
        match election {
            Election::Preferred if partition.leader == first => {
                problem(ProblemKind::ElectionNotNeeded, "the preferred replica leads already")
            }
            Election::Preferred => {
                let elected = self.revise_one(id, |revision| revision.prefer());
                if elected {
                    return Ok(());
                }
                let message = "the preferred replica is not in sync, or is to lead nothing now";
                problem(ProblemKind::PreferredLeaderNotAvailable, message)
            }
            Election::Unclean if partition.leader.is_some() => {
                problem(ProblemKind::ElectionNotNeeded, "there is a leader")
            }
            Election::Unclean => {
                let replicas = partition.replicas.iter();
                let mut nodes = replicas.filter_map(|node| self.decided.node(*node));
                if !nodes.any(Node::is_live) {
                    let message = "none of its replicas is there";
                    return problem(ProblemKind::EligibleLeadersNotAvailable, message);
                }
                self.revise_one(id, |revision| revision.elect_unclean());
                Ok(())
            }
        }
    }
}

fn is_led_by_another(partition: &Assignment) -> bool {
    let first = partition.replicas.first();
    partition.leader.is_some()
        && partition.leader.as_ref() != first
        && first.is_some_and(|first| partition.in_sync.contains(first))
}
