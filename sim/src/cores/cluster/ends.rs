//! How a run of several nodes ends: after the healing all must be well again; then power is lost
//! once more, all becomes well again, everything is read, and the copies are compared.

use std::collections::BTreeSet;
use std::time::Duration;

use quorate_core::id::{NodeId, Offset, PartitionId};

use super::log::Known;
use super::node::place_of;
use super::{Cluster, NAMES};
use crate::chance::Chance;
use crate::fault::power_loss::Unsynced;
use crate::fault::{Fault, Kind};
use crate::history::{Call, End, Partition, Value};
use crate::plan::Acks;
use crate::shadow::compacted;
use crate::shadow::replicated::in_words;

impl Cluster {
    /// Whether every writer has shown that all works, and every copy is in sync.
    pub(super) fn is_well(&self) -> bool {
        self.is_whole()
            && self.unproven().next().is_none()
            && self.uncommitted().is_none()
            && self.unsettled().is_none()
    }

    fn unproven(&self) -> impl Iterator<Item = (u32, Partition)> {
        let clients = &self.clients;
        clients
            .writers
            .iter()
            .filter_map(|(&client, actor)| Some((client, actor.unproven(&clients.partitions)?)))
    }

    /// What is missing until all is well.
    pub(super) fn unwell(&self) -> Vec<String> {
        let mut missing = self.missing();
        missing.extend(self.unproven().map(|(client, partition)| {
            let asks = self.clients.writers[&client].asks(partition);
            format!("c{client} got no answer on {partition}{asks}")
        }));
        missing.extend(self.uncommitted());
        missing.extend(self.unsettled());
        missing
    }

    fn is_whole(&self) -> bool {
        self.missing().is_empty()
    }

    /// Nodes that do not serve, partitions without a leader or with copies that are not in sync.
    fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        let image = &self.shadow.truth;
        for node in &self.nodes {
            let known = image.node(node.id);
            if known.is_none_or(|known| known.fenced) || !node.serves() {
                missing.push(format!("{} does not serve", node.name));
            }
        }
        missing.extend(self.operators.unanswered());
        for &partition in &self.clients.partitions {
            if image.topic_named(&format!("t{}", partition.topic)).is_none() {
                missing.push(format!("{partition} does not exist"));
            }
        }
        let least = self.plan.cluster.in_sync_min as usize;
        for topic in image.topics() {
            for (index, found) in topic.partitions.iter().enumerate() {
                let partition = format!("{}-{index}", topic.name);
                let (replicas, in_sync) = (&found.replicas, &found.in_sync);
                let what = if found.leader.is_none() {
                    "has no leader"
                } else if in_sync.len() < replicas.len() || replicas.len() < least {
                    "has copies that are not in sync"
                } else if found.is_reassigning() {
                    "is on its way"
                } else if replicas.iter().any(|node| self.operators.left.contains(node)) {
                    "has not left a node"
                } else {
                    continue;
                };
                missing.push(format!("{partition} {what} [{}]", in_words(found)));
            }
        }
        missing
    }

    /// The node that leads the partition, if it knows.
    pub(super) fn leader_of(&self, partition: Partition) -> Option<(usize, PartitionId)> {
        let topic = self.shadow.truth.topic_named(&format!("t{}", partition.topic))?;
        let found = topic.partitions.get(partition.index as usize)?;
        let id = PartitionId { topic: topic.id, index: partition.index as i32 };
        let n = place_of(found.leader?);
        let view = self.nodes[n].views.get(&id)?;
        (view.is_leader && !view.is_settling).then_some((n, id))
    }

    /// Loses power once more while clients work, and reads what must have survived it.
    pub(super) fn finish(&mut self, patience: Duration) {
        let mut chance = Chance::new(self.plan.seed, "end");
        let unsynced = *chance.pick(Unsynced::ALL);
        if !chance.one_in(4) {
            for n in 0..self.nodes.len() {
                self.lose_power(n, unsynced);
            }
            for n in 0..self.nodes.len() {
                self.start(n);
            }
        }
        self.clients.are_done = true;
        self.conversations.end();
        let end = self.agenda.now + patience;
        self.go_on(end, |cluster| cluster.is_whole() && cluster.is_quiet());
        if self.plan.transactions.is_some() || !self.plan.groups.is_empty() {
            self.read_transactions(patience);
            self.read_offsets(patience);
            // Leaderships may have gone back meanwhile.
            let end = self.agenda.now + patience;
            self.go_on(end, |cluster| cluster.is_whole() && cluster.is_quiet());
        }
        let hangs = std::mem::take(&mut self.observed.stuck);
        self.observed.stuck = self.missing();
        self.observed.stuck.extend(hangs);
        if self.observed.stuck.is_empty() && !self.is_quiet() {
            self.observed.stuck.push(self.unquiet());
        }
        if !self.observed.stuck.is_empty() {
            return;
        }
        for n in 0..self.nodes.len() {
            self.compare(n);
        }
        self.history.begin_last_phase();
        self.read_everything();
        self.compare_copies();
        self.compare_transactional();
    }

    /// Whether every copy has all of its log, committed and written, and every node all of the
    /// metadata.
    fn is_quiet(&self) -> bool {
        if self.hanging().is_some() {
            return false;
        }
        let applied = self.nodes.iter().map(|node| node.applied).collect::<BTreeSet<_>>();
        let partitions = &self.clients.partitions;
        applied.len() == 1 && partitions.iter().all(|partition| self.ends(*partition).is_some())
    }

    fn unquiet(&self) -> String {
        let partitions = &self.clients.partitions;
        let partition = partitions.iter().find(|partition| self.ends(**partition).is_none());
        match partition {
            Some(partition) => format!("the copies of {partition} do not come together"),
            None => self
                .hanging()
                .unwrap_or_else(|| "the metadata does not come to all nodes".to_owned()),
        }
    }

    /// Where all copies of a partition end, if that is one place and all below is committed.
    fn ends(&self, partition: Partition) -> Option<Offset> {
        let (leader, id) = self.leader_of(partition)?;
        let end = self.nodes[leader].views.get(&id)?.end;
        for node in self.replicas(id) {
            let view = self.nodes[place_of(node)].views.get(&id)?;
            if view.end != end || view.high_watermark != end {
                return None;
            }
        }
        Some(end)
    }

    fn replicas(&self, id: PartitionId) -> Vec<NodeId> {
        let found = self.shadow.truth.partition(id);
        found.map(|found| found.replicas.clone()).unwrap_or_default()
    }

    /// Replicas of one log are one log, batch by batch.
    fn compare_copies(&mut self) {
        for partition in self.clients.partitions.clone() {
            let Some((leader, id)) = self.leader_of(partition) else { continue };
            for node in self.replicas(id) {
                let n = place_of(node);
                if let Some(wrong) = self.copies_differ(leader, n, id) {
                    self.shadow.blame("copies-differ", &partition.to_string(), wrong);
                }
            }
        }
    }

    pub(super) fn copies_differ(&self, leader: usize, n: usize, id: PartitionId) -> Option<String> {
        let (one, other) = (self.nodes[leader].disk.log(id)?, self.nodes[n].disk.log(id)?);
        let start = one.state().log_start.max(other.state().log_start);
        if one.is_compacted || other.is_compacted {
            // Each has compacted its own.
            let [one, other] = [one, other].map(super::log::Log::survivors);
            // Nodes of cores believe their clocks at each start: the shipping node's memory of the
            // time is not theirs.
            let is_jump = |fault: &Fault| matches!(fault.kind, Kind::ClockJump(_));
            let jumps = self.plan.faults.iter().any(is_jump);
            let (offset, why) = compacted::difference(&one, &other, start, jumps)?;
            return Some(format!("{} and {} differ at {offset}: {why}", NAMES[leader], NAMES[n]));
        }
        let known = |stored: &super::log::Stored| stored.known;
        let above = |known: &Known| known.base >= start;
        let one: Vec<Known> = one.batches(start).map(known).filter(above).collect();
        let other: Vec<Known> = other.batches(start).map(known).filter(above).collect();
        let differ = one.iter().zip(&other).find(|(one, other)| one != other);
        match differ {
            Some((one, other)) => {
                Some(format!("{} has {one}, {} has {other}", NAMES[leader], NAMES[n]))
            }
            None if one.len() != other.len() => {
                let (leader, n) = (NAMES[leader], NAMES[n]);
                Some(format!("{leader} has {} batches, {n} has {}", one.len(), other.len()))
            }
            None => None,
        }
    }

    /// What a leader alone had acknowledged and its successor lacked was set aside, not lost.
    pub(super) fn check_history(&mut self) {
        let workload = &self.plan.workload;
        let is_deleted = workload.delete_records.hits > 0
            || self
                .plan
                .topics
                .iter()
                .any(|topic| topic.retention_bytes.is_some() || topic.retention_time.is_some())
            || self.plan.topics.iter().any(|topic| topic.compact);
        // An unclean leader's followers begin anew, and what leaves a node is not set aside.
        let wiped = self.shadow.wiped || self.shadow.is_dropped || self.shadow.is_unclean;
        let finished = self.history.last_phase.is_some() && self.observed.stuck.is_empty();
        if workload.acks != Acks::Leader || is_deleted || wiped || !finished {
            return;
        }
        let from = self.history.last_phase.unwrap_or_default();
        let mut there: BTreeSet<Value> = BTreeSet::new();
        for operation in &self.history.operations[from..] {
            if let End::Read { records, .. } = &operation.end {
                there.extend(records.iter().filter_map(|seen| seen.value));
            }
        }
        there.extend(self.nodes.iter().flat_map(|node| &node.disk.orphans));
        let mut lost = Vec::new();
        for operation in &self.history.operations[..from] {
            if let (Call::Append { partition, values, .. }, End::Appended { .. }) =
                (&operation.call, &operation.end)
            {
                let missing = values.iter().find(|value| !there.contains(value));
                lost.extend(missing.map(|value| (*partition, *value)));
            }
        }
        if let Some((partition, value)) = lost.first() {
            let sentence = format!(
                "{} appends were acknowledged and are neither in the log nor set aside, such as \
                 that of {value:x}",
                lost.len()
            );
            self.shadow.blame("orphans", &partition.to_string(), sentence);
        }
    }
}
