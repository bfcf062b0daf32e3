//! What the observer knows of each partition: what was ever committed, by whom it must be held, and
//! who led when.

use std::collections::BTreeMap;
use std::rc::Rc;

use quorate_core::id::{LeaderEpoch, NodeId, Offset, PartitionId};
use quorate_core::metadata::Image;
use quorate_core::partition::interface::{Assignment, ReadView};

use super::super::NAMES;
use super::super::log::{Known, first_beyond};
use super::super::node::{Node, place_of};
use super::Shadow;
use crate::plan::Acks;
use crate::shadow::replicated::{in_words, lagging_target};
use crate::trace::{self, Aside};

/// What was ever committed in a partition.
#[derive(Default)]
pub(super) struct Committed {
    /// In its order, without a gap.
    batches: Vec<Known>,
    end: Offset,
    leaders: BTreeMap<LeaderEpoch, usize>,
    /// Records below were deleted somewhere, at a client's wish or by retention.
    deletable: Offset,
}

impl Committed {
    /// Those that reach beyond `from`.
    fn from(&self, from: Offset) -> &[Known] {
        let next = |place: usize| self.batches[place].next;
        &self.batches[first_beyond(self.batches.len(), from, next)..]
    }
}

/// Those that may be elected: each must have all that is committed.
fn members(assignment: &Assignment) -> impl Iterator<Item = NodeId> + '_ {
    assignment.in_sync.iter().chain(&assignment.eligible).copied()
}

impl Shadow {
    /// What readers of a replica may see has changed.
    pub(in super::super) fn on_publish(
        &mut self,
        nodes: &[Node],
        n: usize,
        id: PartitionId,
        before: Option<ReadView>,
        view: ReadView,
    ) {
        trace::aside(NAMES[n], || Aside::Copy {
            partition: self.name(id),
            leads: view.is_leader,
            leader_epoch: view.leader_epoch.0,
            log_start: view.log_start.0,
            high_watermark: view.high_watermark.0,
        });
        let committed = self.partitions.entry(id).or_default();
        committed.deletable = committed.deletable.max(view.log_start);
        let deletable = committed.deletable;
        let epoch = view.leader_epoch;
        if view.is_leader {
            let first = *committed.leaders.entry(epoch).or_insert(n);
            if first != n {
                let sentence = format!("{} and {} lead in epoch {epoch}", NAMES[first], NAMES[n]);
                self.blame("one-leader", &self.name(id), sentence);
            }
        }
        if self.is_unclean {
            return;
        }
        let was = before.map_or(view.log_start, |before| before.high_watermark);
        let high = view.high_watermark;
        // A log that is begun anew within a deleted batch falls to where that began.
        if high < was && !(was <= deletable && view.log_start == high) {
            let sentence = format!("{}'s high watermark falls from {was} to {high}", NAMES[n]);
            self.blame("watermark-falls", &self.name(id), sentence);
        }
        if high > self.partitions[&id].end {
            self.extend(nodes, n, id, high);
        }
        if high > was {
            self.agrees(nodes, n, id, was, high);
        }
    }

    /// `n` says that more is committed: it has it, and so has everybody who may be elected.
    fn extend(&mut self, nodes: &[Node], n: usize, id: PartitionId, high: Offset) {
        let Some(log) = nodes[n].disk.log(id) else { return };
        let committed = self.partitions.get_mut(&id).expect("just looked");
        let from = committed.end;
        let new: Vec<Known> = log
            .batches(from)
            .map(|stored| stored.known)
            .take_while(|known| known.next <= high)
            .collect();
        let end = new.last().map_or(from, |last| last.next);
        committed.batches.extend(&new);
        committed.end = committed.end.max(high);
        if end != high {
            let sentence = format!("{} commits up to {high} and has written {end}", NAMES[n]);
            self.blame("watermark-ahead", &self.name(id), sentence);
            return;
        }
        let truth = Rc::clone(&self.truth);
        let Some(assignment) = truth.partition(id) else { return };
        for member in members(assignment) {
            self.holds_all(nodes, id, member, from, "what is committed");
        }
    }

    /// Between two offsets, the log of `n` holds what was committed.
    fn agrees(&mut self, nodes: &[Node], n: usize, id: PartitionId, from: Offset, high: Offset) {
        let Some(log) = nodes[n].disk.log(id) else { return };
        let committed = &self.partitions[&id];
        let start = from.max(log.state().log_start);
        let all = committed.from(start).iter().filter(|known| known.base >= start);
        let below = all.take_while(|known| known.next <= high);
        if let Some(known) = log.lacks(below).copied() {
            let there = log.batches(known.base).next().map(|stored| stored.known.to_string());
            let there = there.unwrap_or_else(|| "nothing".to_owned());
            let sentence = format!("{} shows {there}; committed are {known}", NAMES[n]);
            self.blame("copies-differ", &self.name(id), sentence);
        }
    }

    /// A node that may be elected has on its disk all that was ever committed beyond `from`. One
    /// whose disk was lost is not who was elected, and says so when it registers.
    fn holds_all(
        &mut self,
        nodes: &[Node],
        id: PartitionId,
        member: NodeId,
        from: Offset,
        what: &str,
    ) {
        let node = &nodes[place_of(member)];
        let registered = self.truth.node(member).map(|known| known.directory.0);
        if registered != Some(node.directory()) || self.is_unclean {
            return;
        }
        let Some(committed) = self.partitions.get(&id) else { return };
        let missing = match node.disk.log(id) {
            Some(log) => log.lacks(committed.from(from)),
            None => committed.from(committed.deletable.max(from)).first(),
        };
        let Some(known) = missing.copied() else { return };
        let assignment = self.truth.partition(id);
        let has = node.disk.log(id).map_or_else(
            || "no log".to_owned(),
            |log| format!("offsets {} to {}", log.state().log_start, log.state().end),
        );
        let assignment = assignment.map_or_else(|| "nobody leads".to_owned(), in_words);
        let sentence = format!(
            "{} may be elected, has {has}, and lacks {what}, such as {known}; {assignment}",
            node.name
        );
        self.blame("shadow-watermark", &self.name(id), sentence);
    }

    /// The metadata has changed: who is in sync may be, and has what is committed.
    pub(super) fn on_truth(&mut self, nodes: &[Node], before: &Image) {
        let truth = Rc::clone(&self.truth);
        if truth.topics_count() != before.topics_count() {
            truth.topics().for_each(|topic| trace::name_topic(&topic.id, &topic.name));
        }
        for (id, assignment) in truth.partitions() {
            let known = before.partition(id);
            let is_member = |node: &&NodeId| {
                assignment.replicas.contains(node)
                    && truth.node(**node).is_some_and(|node| !node.fenced)
            };
            if let Some(node) = assignment.in_sync.iter().find(|node| !is_member(node)) {
                let sentence = format!("n{node} is in sync and fenced, or no replica");
                self.blame("fenced-in-sync", &self.name(id), sentence);
            }
            if assignment.leader.is_some_and(|leader| !assignment.in_sync.contains(&leader)) {
                let sentence = format!("the leader is not in sync: {}", in_words(assignment));
                self.blame("leader-in-sync", &self.name(id), sentence);
            }
            if known == Some(assignment) {
                continue;
            }
            let epochs = |of: &Assignment| (of.leader_epoch, of.partition_epoch);
            if known.is_some_and(|known| epochs(known) >= epochs(assignment)) {
                let sentence = format!(
                    "{} follows {}",
                    in_words(assignment),
                    known.map_or_else(String::new, in_words)
                );
                self.blame("epochs-rise", &self.name(id), sentence);
            }
            if let Some(node) = known.and_then(|known| lagging_target(known, assignment)) {
                let known = known.map_or_else(String::new, in_words);
                let sentence = format!("n{node} is not in sync, and the move is done: {known}");
                self.blame("move-done-early", &self.name(id), sentence);
            }
            for member in members(assignment) {
                let is_new = known.is_none_or(|known| {
                    members(known).all(|other| other != member) || known.leader != assignment.leader
                });
                if is_new {
                    self.holds_all(nodes, id, member, Offset::ZERO, "what was committed");
                }
            }
        }
    }

    /// A log was cut: whoever may be elected must still have all.
    pub(in super::super) fn on_cut(&mut self, nodes: &[Node], n: usize, id: PartitionId) {
        let assignment = self.truth.partition(id);
        let is_member = assignment
            .is_some_and(|assignment| members(assignment).any(|member| member == nodes[n].id));
        if is_member {
            self.holds_all(nodes, id, nodes[n].id, Offset::ZERO, "what it has cut off");
        }
    }

    /// A producer is told that its batch stands at `base`.
    pub(in super::super) fn on_acknowledged(
        &mut self,
        nodes: &[Node],
        n: usize,
        id: PartitionId,
        base: Offset,
        acks: Acks,
    ) {
        let written = nodes[n].disk.log(id).map_or(Offset::ZERO, |log| log.state().end);
        let committed = self.partitions.get(&id).map_or(Offset::ZERO, |known| known.end);
        let there = match acks {
            Acks::All => committed,
            Acks::Leader | Acks::None => written,
        };
        if base >= there && !self.is_unclean {
            let sentence = format!(
                "{} acknowledges {base}; {written} is written there, {committed} committed",
                NAMES[n]
            );
            self.blame("early-answer", &self.name(id), sentence);
        }
    }
}
