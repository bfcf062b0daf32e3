//! Humans send nodes into maintenance or away, and see how far that is.

use super::Controller;
use super::interface::{NodeStatus, Outcome, Problem, ProblemKind, SetDuty};
use crate::id::NodeId;
use crate::metadata::{Duty, Record};
use crate::reached;
use crate::time::Instant;

impl Controller {
    pub(super) fn set_duty(&mut self, now: Instant, set: &SetDuty) -> Outcome {
        let SetDuty { node, duty, .. } = *set;
        let Some(known) = self.decided.node(node) else {
            let message = format!("there is no node {node}");
            return Outcome::Refused(Problem::new(ProblemKind::UnknownNode, message));
        };
        if known.duty == duty {
            return Outcome::DutySet;
        }
        if duty == Duty::Leave
            && let Some(message) = self.needs_it(node)
        {
            reached!("node-is-needed");
            return Outcome::Refused(Problem::new(ProblemKind::Policy, message));
        }
        self.push(Record::NodeDutySet { node, duty });
        if duty == Duty::Leave {
            self.leave_node(node);
        }
        if self.decided.node(node).is_some_and(|node| node.fenced) {
            self.wait_for_return(now, node);
        }
        Outcome::DutySet
    }

    /// Why the cluster cannot do without the node.
    fn needs_it(&self, node: NodeId) -> Option<String> {
        let others = self
            .decided
            .nodes()
            .filter(|other| other.id != node && other.roles.broker && other.duty != Duty::Leave);
        let others = others.count();
        // It may have no copy and be the only place for one of another node that leaves.
        let (id, copies) = self
            .decided
            .partitions()
            .map(|(id, partition)| (id, partition.targets().count()))
            .find(|(_, copies)| *copies > others)?;
        let name = self.decided.topic(id.topic).map_or("", |topic| topic.name.as_str());
        Some(format!(
            "partition {} of '{name}' has {copies} replicas, and without node {node} there are \
             {others} nodes",
            id.index
        ))
    }

    pub(super) fn describe_nodes(&self) -> Outcome {
        let nodes = self.decided.nodes().map(|node| NodeStatus {
            node: node.id,
            epoch: node.epoch,
            fenced: node.fenced,
            wish: node.wish,
            duty: node.duty,
            leads: 0,
            replicas: 0,
            lagging: 0,
            leaving: 0,
            retreat: self.retreat(node.id),
            stuck: self.stuck(node.id),
        });
        let mut nodes = nodes.collect::<Vec<_>>();
        for (_, partition) in self.decided.partitions() {
            for replica in &partition.replicas {
                let Ok(place) = nodes.binary_search_by_key(replica, |status| status.node) else {
                    continue;
                };
                let status = &mut nodes[place];
                status.replicas += 1;
                status.leads += usize::from(partition.leader == Some(*replica));
                status.lagging += usize::from(!partition.in_sync.contains(replica));
                status.leaving += usize::from(partition.removing.contains(replica));
            }
        }
        Outcome::Nodes(nodes)
    }
}
