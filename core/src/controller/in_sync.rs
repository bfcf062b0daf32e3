//! Which replicas are in sync, as leaders propose it. Kafka's `AlterPartition`, with the checks of
//! KIP-497, KIP-841, KIP-903 and KAFKA-14154.

use super::Controller;
use super::interface::{ChangeInSync, InSyncChange, InSyncRefusal, Outcome, Problem, ProblemKind};
use crate::id::{NodeEpoch, NodeId, PartitionEpoch};
use crate::metadata::Wish;
use crate::partition::interface::Assignment;
use crate::{mutant, reached};

impl Controller {
    pub(super) fn change_in_sync(&mut self, change: ChangeInSync) -> Outcome {
        let ChangeInSync { node, node_epoch, changes, .. } = change;
        if let Err(problem) = self.check_epoch(node, node_epoch) {
            return Outcome::Refused(problem);
        }
        let mut told = Vec::with_capacity(changes.len());
        for change in changes {
            let result = self.check_in_sync(node, &change).map(|members| {
                self.revise_one(change.partition, |revision| revision.set_in_sync(&members));
                self.decided
                    .partition(change.partition)
                    .map_or(PartitionEpoch(0), |decided| decided.partition_epoch)
            });
            told.push((change.partition, result));
        }
        Outcome::InSyncChanged(told)
    }

    /// Whether this is the node's life that counts.
    pub(super) fn check_epoch(&self, node: NodeId, epoch: NodeEpoch) -> Result<(), Problem> {
        let Some(known) = self.decided.node(node) else {
            let message = format!("there is no node {node}: it must register first");
            return Err(Problem::new(ProblemKind::UnknownNode, message));
        };
        if epoch > known.epoch {
            reached!("node-is-ahead");
            let message = format!("this controller has not heard yet that node {node} registered");
            return Err(Problem::new(ProblemKind::NotAvailable, message));
        }
        if epoch < known.epoch {
            reached!("stale-node-epoch");
            let message = format!(
                "node {node} was started again since, at {}:{}: this process is the older one and \
                 must stop",
                known.address.host, known.address.port
            );
            return Err(Problem::new(ProblemKind::StaleNodeEpoch, message));
        }
        Ok(())
    }

    /// The members that shall be in sync, or why not.
    fn check_in_sync(
        &self,
        leader: NodeId,
        change: &InSyncChange,
    ) -> Result<Vec<NodeId>, InSyncRefusal> {
        let known =
            self.decided.partition(change.partition).ok_or(InSyncRefusal::UnknownPartition)?;
        let is_ahead = change.leader_epoch > known.leader_epoch
            || change.partition_epoch > known.partition_epoch;
        if is_ahead {
            reached!("leader-is-ahead");
            // zoo A16: what differs is stale, whichever side is behind.
            if mutant!("zombie-controller-verdict-believed") {
                return Err(InSyncRefusal::StaleLeaderEpoch);
            }
            return Err(InSyncRefusal::ControllerBehind);
        }
        if change.leader_epoch < known.leader_epoch {
            return Err(InSyncRefusal::StaleLeaderEpoch);
        }
        if known.leader != Some(leader) {
            return Err(InSyncRefusal::Invalid);
        }
        if change.partition_epoch < known.partition_epoch {
            return Err(InSyncRefusal::StalePartitionEpoch);
        }
        self.check_members(leader, change, known)
    }

    fn check_members(
        &self,
        leader: NodeId,
        change: &InSyncChange,
        known: &Assignment,
    ) -> Result<Vec<NodeId>, InSyncRefusal> {
        let mut members = Vec::with_capacity(known.replicas.len());
        for (member, epoch) in &change.in_sync {
            if !known.replicas.contains(member) || members.contains(member) {
                return Err(InSyncRefusal::Invalid);
            }
            let ineligible = InSyncRefusal::Ineligible(*member);
            let node = self.decided.node(*member).ok_or(ineligible)?;
            // zoo A17: a node is its number.
            if node.epoch != *epoch && !mutant!("stale-incarnation-joins-isr") {
                reached!("other-life-in-sync");
                return Err(ineligible);
            }
            let joins = !known.in_sync.contains(member);
            let leaves_soon = joins && node.wish == Wish::Stop;
            // zoo A18: whoever has caught up is in sync, fenced or not.
            if (!node.is_live() || leaves_soon) && !mutant!("fenced-replica-joins-isr") {
                reached!("fenced-in-sync");
                return Err(ineligible);
            }
            members.push(*member);
        }
        if !members.contains(&leader) {
            return Err(InSyncRefusal::Invalid);
        }
        Ok(members)
    }
}
