//! The copies of each partition, watched from outside: what a leader says is committed is on the
//! disk of every replica that may lead (in sync, or eligible), stays there, and is one history.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use quorate_core::id::{DirectoryId, LeaderEpoch, NodeId, Offset, PartitionId, WriteId};
use quorate_core::metadata::Image;
use quorate_core::partition::interface::{Assignment, LogOp};
use quorate_core::partition::{Recovered, Replica};
use quorate_core::quorum::interface::Index;

use super::Blamed;

/// Batches by offset: where each ends, and its leader epoch.
pub(super) type Batches = BTreeMap<Offset, (Offset, LeaderEpoch)>;

/// Stretches of offsets at which compaction has left nothing: where each ends.
type Fillers = BTreeMap<Offset, Offset>;

#[derive(Debug, Default)]
pub(super) struct Replicated {
    copies: BTreeMap<(PartitionId, NodeId), Held>,
    committed: BTreeMap<PartitionId, Committed>,
    /// The controller's last word on each partition, and up to which entry that is.
    assignments: BTreeMap<PartitionId, Assignment>,
    applied: Index,
    /// The disks that a node has lost: forgiven until the controller knows of another. Lives are
    /// not counted: one that began on a lost disk may be committed after the loss, when the leader
    /// that wrote of it, and was gone, leads again (seed 343 of three nodes).
    wiped: BTreeMap<NodeId, BTreeSet<DirectoryId>>,
    /// A human has taken the loss of committed records upon himself.
    unclean: BTreeSet<PartitionId>,
    doubted: BTreeSet<NodeId>,
}

/// One copy, as far as it is on the disk for certain.
#[derive(Debug, Default)]
struct Held {
    start: Offset,
    batches: Batches,
    /// What stands for batches that the leader had compacted away before it sent them. What they
    /// were is seen when the copies are compared by key.
    fillers: Fillers,
    in_flight: VecDeque<(WriteId, Change)>,
    high_watermark: Offset,
    /// It led when it was last looked at.
    led: bool,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Append(Offset, (Offset, LeaderEpoch)),
    Fill(Offset, Offset),
    DeleteBefore(Offset),
}

#[derive(Debug, Default)]
struct Committed {
    /// What a leader has deleted is below it, and was committed.
    start: Offset,
    through: Offset,
    batches: Batches,
}

impl Held {
    fn carry_out(&mut self, change: Change) {
        match change {
            Change::Append(base, batch) => {
                self.batches.insert(base, batch);
            }
            Change::Fill(base, end) => drop(self.fillers.insert(base, end)),
            Change::DeleteBefore(offset) => self.start = self.start.max(offset),
        }
    }

    /// The first of these batches that is not here, and was not deleted either.
    fn lacks<'a>(
        &self,
        batches: impl Iterator<Item = (&'a Offset, &'a (Offset, LeaderEpoch))>,
    ) -> Option<Offset> {
        let is_filled = |base: &Offset, end: Offset| {
            let before = self.fillers.range(..=*base).next_back();
            before.is_some_and(|(_, filled)| end <= *filled)
        };
        let mut wanted = batches
            .filter(|(_, (end, _))| *end > self.start)
            .filter(|(base, (end, _))| !is_filled(base, *end));
        wanted.find(|(base, batch)| self.batches.get(base) != Some(batch)).map(|(base, _)| *base)
    }
}

/// Those that may lead.
fn members(assignment: &Assignment) -> impl Iterator<Item = NodeId> + '_ {
    assignment.in_sync.iter().chain(&assignment.eligible).copied()
}

/// An assignment for people.
pub(crate) fn in_words(it: &Assignment) -> String {
    let nodes = |nodes: &[NodeId]| {
        let names: Vec<String> = nodes.iter().map(|node| format!("n{node}")).collect();
        if names.is_empty() { "nobody".to_owned() } else { names.join(", ") }
    };
    format!(
        "{} leads in epoch {} (partition epoch {}), in sync {}, eligible {}, copies on {}",
        nodes(it.leader.as_slice()),
        it.leader_epoch,
        it.partition_epoch,
        nodes(&it.in_sync),
        nodes(&it.eligible),
        nodes(&it.replicas)
    )
}

impl Replicated {
    pub(super) fn opened(&mut self, node: NodeId, partition: PartitionId, found: &Recovered) {
        let held = self.copies.entry((partition, node)).or_default();
        for (_, change) in std::mem::take(&mut held.in_flight) {
            held.carry_out(change);
        }
        held.start = found.log_start;
        held.batches.retain(|_, (end, _)| *end <= found.end);
        held.fillers.retain(|_, end| *end <= found.end);
        held.high_watermark = Offset::ZERO;
        held.led = false;
    }

    pub(super) fn wants(
        &mut self,
        node: NodeId,
        partition: PartitionId,
        write: WriteId,
        op: &LogOp,
    ) {
        let Some(held) = self.copies.get_mut(&(partition, node)) else { return };
        let change = match op {
            LogOp::Append { batch, .. } => {
                let header = batch.header();
                let (base, end) = (header.base_offset(), header.next_offset());
                if batch.is_filler() {
                    Change::Fill(base, end)
                } else {
                    Change::Append(base, (end, header.leader_epoch()))
                }
            }
            LogOp::DeleteBefore { offset } => Change::DeleteBefore(*offset),
            _ => return,
        };
        held.in_flight.push_back((write, change));
    }

    pub(super) fn written(&mut self, node: NodeId, partition: PartitionId, through: WriteId) {
        let Some(held) = self.copies.get_mut(&(partition, node)) else { return };
        while held.in_flight.front().is_some_and(|(write, _)| *write <= through) {
            let Some((_, change)) = held.in_flight.pop_front() else { break };
            held.carry_out(change);
        }
    }

    pub(super) fn truncated(
        &mut self,
        node: NodeId,
        partition: PartitionId,
        write: WriteId,
        found: &Recovered,
        blamed: &mut Blamed,
    ) {
        self.written(node, partition, write);
        let must = self.must_have(node, partition);
        let Some(held) = self.copies.get_mut(&(partition, node)) else { return };
        held.start = found.log_start;
        let cut: Batches = held.batches.extract_if(.., |_, (end, _)| *end > found.end).collect();
        held.fillers.retain(|_, end| *end <= found.end);
        held.in_flight.clear();
        held.high_watermark = held.high_watermark.min(found.end);
        let committed = self.committed.get(&partition);
        let lost = committed.and_then(|committed| {
            let is_committed = |(base, batch)| committed.batches.get(base) == Some(batch);
            cut.iter().find(|batch| batch.1.0 > held.start && is_committed(*batch))
        });
        if let Some((base, (_, epoch))) = lost.filter(|_| must) {
            let sentence = format!(
                "n{node}, which may lead, cuts the batch at {base} of leader epoch {epoch}, which \
                 is committed"
            );
            blamed.blame("cuts-committed", partition.to_string(), sentence);
        }
    }

    pub(super) fn dropped(&mut self, node: NodeId, partition: PartitionId) {
        self.copies.remove(&(partition, node));
    }

    pub(super) fn wiped(&mut self, node: NodeId, lost: Option<DirectoryId>) {
        self.copies.retain(|(_, holder), _| *holder != node);
        self.wiped.entry(node).or_default().extend(lost);
    }

    pub(super) fn doubt(&mut self, node: NodeId) {
        self.doubted.insert(node);
    }

    /// Whether the node may lead the partition, and has no excuse.
    fn must_have(&self, node: NodeId, partition: PartitionId) -> bool {
        let assignment = self.assignments.get(&partition);
        assignment.is_some_and(|assignment| members(assignment).any(|member| member == node))
            && !self.wiped.contains_key(&node)
            && !self.unclean.contains(&partition)
            && !self.doubted.contains(&node)
    }

    /// What a node knows of the controller's decisions: who may lead now has all that is committed.
    pub(super) fn assigned(&mut self, (image, applied): (&Image, Index), blamed: &mut Blamed) {
        if applied <= self.applied {
            return;
        }
        self.applied = applied;
        let mut back = Vec::new();
        for (partition, assignment) in image.partitions() {
            let before = self.assignments.get(&partition);
            if before.is_none_or(|known| known.partition_epoch < assignment.partition_epoch) {
                self.reassigned(partition, assignment, image, blamed);
            }
        }
        self.wiped.retain(|node, lost| {
            let is_back = image.node(*node).is_some_and(|known| !lost.contains(&known.directory));
            back.extend(is_back.then_some(*node));
            !is_back
        });
        for node in back {
            for partition in self.assignments.keys().copied().collect::<Vec<_>>() {
                self.has_all(node, partition, Offset::ZERO, "has come back empty", blamed);
            }
        }
    }

    fn reassigned(
        &mut self,
        partition: PartitionId,
        assignment: &Assignment,
        image: &Image,
        blamed: &mut Blamed,
    ) {
        let Some(before) = self.assignments.insert(partition, assignment.clone()) else { return };
        if let Some(node) = lagging_target(&before, assignment) {
            let sentence =
                format!("n{node} is not in sync, and the move is done: {}", in_words(&before));
            blamed.blame("move-done-early", partition.to_string(), sentence);
        }
        let had: Vec<NodeId> = members(&before).collect();
        let leads = |node: &NodeId| assignment.leader == Some(*node);
        if before.leader.is_none() && assignment.in_sync.iter().all(leads) {
            // Nobody who may lead was there: somebody else was told to.
            let is_unclean = assignment.leader.is_some_and(|leader| !had.contains(&leader));
            self.unclean.extend(is_unclean.then_some(partition));
        }
        for node in members(assignment).filter(|node| !had.contains(node)) {
            // The last one stays, whatever becomes of it.
            let is_last = assignment.in_sync.len() == 1;
            if !is_last && !image.node(node).is_some_and(quorate_core::metadata::Node::is_live) {
                let sentence = format!("n{node} is let in, and it is not there");
                blamed.blame("fenced-let-in", partition.to_string(), sentence);
            }
            self.has_all(node, partition, Offset::ZERO, "is let in", blamed);
        }
    }

    /// Blames `node` if it may lead and lacks something committed at `from` or behind.
    fn has_all(
        &self,
        node: NodeId,
        partition: PartitionId,
        from: Offset,
        why: &str,
        blamed: &mut Blamed,
    ) {
        let Some(committed) = self.committed.get(&partition) else { return };
        if !self.must_have(node, partition) || !self.doubted.is_empty() {
            return;
        }
        let nothing = Held::default();
        let held = self.copies.get(&(partition, node)).unwrap_or(&nothing);
        if let Some(base) = held.lacks(committed.batches.range(from..)) {
            let sentence = format!(
                "n{node} {why}, and its disk lacks the batch at {base}; everything below {} is \
                 committed",
                committed.through
            );
            blamed.blame("member-lacks-committed", partition.to_string(), sentence);
        }
    }

    /// What the node has of the partition, and up to where that is committed as far as it knows;
    /// `None` where that is not judged.
    pub(super) fn copy(&self, node: NodeId, partition: PartitionId) -> Option<(&Batches, Offset)> {
        let is_judged = self.doubted.is_empty() && !self.unclean.contains(&partition);
        let held = self.copies.get(&(partition, node)).filter(|_| is_judged)?;
        Some((&held.batches, held.high_watermark))
    }

    /// What is committed of the partition, and up to where; `None` where that is not judged.
    pub(super) fn committed(&self, partition: PartitionId) -> Option<(&Batches, Offset)> {
        let is_judged = self.doubted.is_empty() && !self.unclean.contains(&partition);
        let committed = self.committed.get(&partition).filter(|_| is_judged)?;
        Some((&committed.batches, committed.through))
    }

    pub(super) fn stepped(
        &mut self,
        node: NodeId,
        partition: PartitionId,
        replica: &Replica,
        blamed: &mut Blamed,
    ) {
        let view = replica.view();
        let Some(held) = self.copies.get_mut(&(partition, node)) else { return };
        let before = std::mem::replace(&mut held.high_watermark, view.high_watermark);
        // Not `view.is_leader`: a leader that is closing takes nothing new, but what it took before
        // is committed once its followers have it. It leads until the controller names another.
        let is_leader = replica.assignment().leader == Some(node);
        // Nodes are seen between rounds of many inputs: the last copy may have come in the one in
        // which another leader was named.
        let led = std::mem::replace(&mut held.led, is_leader);
        if view.high_watermark <= before {
            return;
        }
        // What a node of unknown bytes says is committed may be so, and is told to others.
        let is_judged = self.doubted.is_empty() && !self.unclean.contains(&partition);
        let committed = self.committed.entry(partition).or_default();
        let known = committed.through;
        let leads = led || is_leader || replica.assignment().replicas.len() <= 1;
        if leads {
            committed.through = known.max(view.high_watermark);
            committed.start = committed.start.max(view.log_start);
        }
        let start = committed.start.max(view.log_start);
        let shown = held.batches.range(before..view.high_watermark);
        for (base, batch) in shown.filter(|(_, (end, _))| *end > start) {
            if leads && *base >= known {
                committed.batches.insert(*base, *batch);
            } else if is_judged && committed.batches.get(base) != Some(batch) {
                let sentence = format!(
                    "n{node} shows the batch at {base} of leader epoch {}; committed there is {}",
                    batch.1,
                    committed.batches.get(base).map_or_else(
                        || "nothing".to_owned(),
                        |(end, epoch)| format!("what ends at {end}, of leader epoch {epoch}")
                    )
                );
                blamed.blame("shown-uncommitted", partition.to_string(), sentence);
            }
        }
        if committed.through > known {
            for member in self.assignments.get(&partition).map(members).into_iter().flatten() {
                self.has_all(member, partition, known, "may lead", blamed);
            }
        }
    }
}

/// Whether a move has just been called done though some node that is to keep a copy is not in sync
/// (KAFKA-15665); one that was taken back has other replicas. `before` and `now` follow on one
/// another.
pub(crate) fn lagging_target(before: &Assignment, now: &Assignment) -> Option<NodeId> {
    let follows = now.partition_epoch.0 == before.partition_epoch.0 + 1;
    if !follows || !before.is_reassigning() || now.is_reassigning() {
        return None;
    }
    // Copies that were added in vain may go when others suffice: nobody moves there any more
    // (docs/decisions/0089).
    let is_in_vain = |node: &NodeId| before.adding.contains(node) && before.removing.contains(node);
    if before.adding.iter().chain(&before.removing).all(is_in_vain) {
        return None;
    }
    let targets: BTreeSet<NodeId> = before.targets().collect();
    let is_done = targets.iter().eq(now.replicas.iter().collect::<BTreeSet<_>>());
    let mut lagging = targets.iter().filter(|node| !now.in_sync.contains(node));
    lagging.next().copied().filter(|_| is_done)
}
