//! Holds replicas to the specification of a partition: what a step of a replica writes, says and
//! shows, and each word of the controller, becomes a line of specification variables, and the line
//! becomes steps of the specification.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::id::{NodeId, PartitionId};
use quorate_core::metadata::Image;
use quorate_core::partition::interface::{Assignment, InSyncChange, LogOp, Message};
use quorate_core::partition::{Recovered, Replica};
use quorate_core::quorum::interface::Index;
use serde::{Deserialize, Serialize};

use super::{Action, Epoch, Fact, Kept, Life, Node, Offset, Standing, State, Version, Word, words};
use crate::spec::quorum::Broken;
use crate::spec::{Seen, Wanted, rejected};

pub(crate) const PROPERTY: &str = "refines-partition";

/// The end of a log on a disk: start, end, and who wrote the last record that is not deleted.
pub(super) type End = (Offset, Offset, Option<Epoch>);

/// One line of a trace: what a replica did in one step, or what the controller decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Line {
    pub at_us: u64,
    /// 0 is the controller.
    pub node: Node,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<Word>,
    /// With `decided`: the word was heard of behind a newer one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_late: bool,
    /// What the controller knows of the nodes, where that has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub restarts: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub vanishes: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<End>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heard: Option<(Epoch, Epoch)>,
    /// It begins to lead.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub leads: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wrote: Vec<Write>,
    /// Where each epoch begins, if that is not what was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<Vec<(Epoch, Offset)>>,
    /// The high watermark, and `min.insync.replicas`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<(Offset, usize)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<Fact>,
}

/// One change of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Write {
    /// `after_gap`: compaction left nothing in between.
    Append {
        base: Offset,
        next: Offset,
        epoch: Epoch,
        after_gap: bool,
    },
    Cut {
        to: Offset,
    },
    Reset {
        to: Offset,
    },
    Delete {
        to: Offset,
    },
}

/// What a step has done so far.
#[derive(Clone, Debug, Default)]
struct Step {
    wrote: Vec<Write>,
    said: Vec<Fact>,
}

#[derive(Default)]
pub(crate) struct Watch {
    wanted: Wanted,
    states: BTreeMap<PartitionId, State>,
    standing: Standing,
    applied: Index,
    applied_by: BTreeMap<Node, Index>,
    steps: BTreeMap<PartitionId, Step>,
    /// As it was last seen.
    highs: BTreeMap<(PartitionId, Node), Offset>,
    /// As the specification was last told.
    told: BTreeMap<PartitionId, Standing>,
    seen: Seen,
}

impl Watch {
    pub(crate) fn new(wanted: Wanted) -> Self {
        Self { wanted, ..Self::default() }
    }

    pub(crate) fn end(self) -> Seen {
        self.seen
    }

    /// Something of this replica is to be looked at when the step is over.
    pub(crate) fn touches(&mut self, partition: PartitionId) {
        self.steps.entry(partition).or_default();
    }

    pub(crate) fn writes(&mut self, partition: PartitionId, op: &LogOp) {
        let write = match op {
            LogOp::Append { batch, .. } => {
                let header = batch.header();
                let (base, next) = (header.base_offset().0 as u64, header.next_offset().0 as u64);
                let epoch = header.leader_epoch().0 as u64;
                Write::Append { base, next, epoch, after_gap: false }
            }
            LogOp::TruncateTo { offset, .. } => Write::Cut { to: offset.0 as u64 },
            LogOp::ResetTo { offset } => Write::Reset { to: offset.0 as u64 },
            LogOp::DeleteBefore { offset } => Write::Delete { to: offset.0 as u64 },
            LogOp::Roll { .. } | LogOp::Checkpoint { .. } | LogOp::Replace(_) => return,
        };
        self.steps.entry(partition).or_default().wrote.push(write);
    }

    pub(crate) fn says(&mut self, partition: PartitionId, to: NodeId, message: &Message) {
        let fact = match message {
            Message::Lead(_) => Fact::Compares { to: to.0 as Node },
            Message::Replicated(said) => {
                Fact::Holds { life: said.node_epoch.0 as Life, through: said.end.0 as u64 }
            }
            _ => return,
        };
        self.steps.entry(partition).or_default().said.push(fact);
    }

    pub(crate) fn proposes(&mut self, partition: PartitionId, change: &InSyncChange) {
        let lives = change.in_sync.iter().map(|(node, life)| (node.0 as Node, life.0 as Life));
        let fact = Fact::Proposes { members: lives.collect() };
        self.steps.entry(partition).or_default().said.push(fact);
    }

    pub(crate) fn answers(&mut self, partition: PartitionId, base: i64, committed: bool) {
        let fact = Fact::Answers { base: base as u64, committed };
        self.steps.entry(partition).or_default().said.push(fact);
    }

    /// A node's metadata, after its step.
    pub(crate) fn knows(
        &mut self,
        at_us: u64,
        node: NodeId,
        (image, applied): (&Image, Index),
        has_disk: impl Fn(NodeId, [u8; 16]) -> bool,
    ) {
        let before = self.applied_by.insert(node.0 as Node, applied);
        if before == Some(applied) || !self.seen.violations.is_empty() {
            return;
        }
        let is_newest = applied > self.applied;
        if is_newest {
            self.applied = applied;
            let live = image.nodes().filter(|node| node.is_live());
            self.standing.live =
                live.map(|node| (node.id.0 as Node, node.epoch.0 as Life)).collect();
            let known = image.nodes().filter(|node| has_disk(node.id, node.directory.0));
            self.standing.known_disks = known.map(|node| node.id.0 as Node).collect();
        }
        for (partition, assignment) in image.partitions() {
            let state = self.states.get(&partition);
            if state.is_some_and(|state| state.words.contains_key(&version(assignment))) {
                continue;
            }
            let word = word(assignment);
            let line = Line { at_us, decided: Some(word), is_late: !is_newest, ..Line::default() };
            self.take(partition, line);
        }
    }

    /// A replica begins a life: with what its disk has, or without a log.
    pub(crate) fn opens(&mut self, at_us: u64, node: NodeId, id: PartitionId, log: &Recovered) {
        let node = node.0 as Node;
        self.highs.remove(&(id, node));
        self.steps.remove(&id);
        let state = self.states.get(&id);
        if state.is_none_or(|state| !state.copies.contains_key(&node)) {
            return;
        }
        let line = Line { at_us, node, restarts: true, disk: Some(end(log)), ..Line::default() };
        self.take(id, line);
    }

    /// Its log is gone.
    pub(crate) fn vanishes(&mut self, at_us: u64, node: NodeId, only: Option<PartitionId>) {
        let node = node.0 as Node;
        if only.is_none() {
            // What comes back is not who was let in.
            self.standing.known_disks.remove(&node);
        }
        let with = |(id, state): (&PartitionId, &State)| {
            (state.copies.contains_key(&node) && only.is_none_or(|only| only == *id)).then_some(*id)
        };
        for id in self.states.iter().filter_map(with).collect::<Vec<_>>() {
            self.highs.remove(&(id, node));
            self.take(id, Line { at_us, node, vanishes: true, ..Line::default() });
        }
    }

    /// A node's step is over: what it has done to its replicas.
    pub(crate) fn looks<'a>(
        &mut self,
        at_us: u64,
        node: NodeId,
        replica: impl Fn(PartitionId) -> Option<(&'a Replica, &'a Recovered)>,
    ) {
        for (id, step) in std::mem::take(&mut self.steps) {
            if let Some((replica, disk)) = replica(id).filter(|_| id != PartitionId::METADATA) {
                self.look(at_us, node.0 as Node, id, step, replica, disk);
            }
        }
    }

    fn look(
        &mut self,
        at_us: u64,
        node: Node,
        id: PartitionId,
        step: Step,
        replica: &Replica,
        disk: &Recovered,
    ) {
        let Some(state) = self.states.get(&id).filter(|state| !state.unclean) else { return };
        let nothing = super::Copy::default();
        let copy = state.copies.get(&node).unwrap_or(&nothing);
        let version = version(replica.assignment());
        let (view, disk) = (replica.view(), end(disk));
        let high = view.high_watermark.0 as u64;
        let min = usize::from(replica.config().in_sync_min);
        let is_new = self.highs.insert((id, node), high) != Some(high);
        let mut line = Line {
            at_us,
            node,
            disk: (!is_at(&copy.disk, disk)).then_some(disk),
            heard: (copy.heard != Some(version)).then_some(version),
            leads: replica.is_leader()
                && (!copy.leads || copy.heard.is_none_or(|at| at.0 < version.0)),
            wrote: step.wrote,
            high: is_new.then_some((high, min)),
            said: step.said,
            ..Line::default()
        };
        for write in &mut line.wrote {
            if let Write::Append { after_gap, .. } = write {
                *after_gap = replica.config().compact;
            }
        }
        line.said.retain(|fact| !is_known(state, node, version.0, fact));
        let empty = Line { at_us, node, ..Line::default() };
        if line != empty {
            line.epochs = epochs(&copy.mind, &line, replica.log());
            self.take(id, line);
        }
    }

    fn take(&mut self, id: PartitionId, mut line: Line) {
        if !self.seen.violations.is_empty() {
            return;
        }
        if self.told.get(&id) != Some(&self.standing) {
            self.told.insert(id, self.standing.clone());
            line.standing = Some(self.standing.clone());
        }
        if self.wanted.export {
            let text = serde_json::to_string(&line).expect("it is plain data");
            self.seen.lines.push((format!("partition-{}-{}", id.topic, id.index), text));
        }
        self.seen.steps += 1;
        let state = self.states.entry(id).or_default();
        if let Err((step, broken)) = refine(state, &line, &self.standing) {
            let who = if line.node == 0 {
                "the controller".to_owned()
            } else {
                format!("n{}", line.node)
            };
            let (step, whose) = (format!("{who} {step}"), (line.node, line.at_us));
            let violation = rejected(PROPERTY, &id.to_string(), whose, &step, broken);
            self.seen.violations.push(violation);
        } else if self.wanted.shapes {
            self.seen.shapes.extend(super::explore::shape(state));
        }
    }
}

/// What was said before says nothing new.
fn is_known(state: &State, me: Node, epoch: Epoch, fact: &Fact) -> bool {
    match fact {
        Fact::Compares { to } => state.compared.contains(&(epoch, *to)),
        Fact::Holds { life, through } => {
            state.held.get(&(epoch, me, *life)).is_some_and(|held| held >= through)
        }
        Fact::Proposes { .. } | Fact::Answers { .. } => false,
    }
}

const fn version(assignment: &Assignment) -> Version {
    (assignment.leader_epoch.0 as u64, assignment.partition_epoch.0 as u64)
}

fn word(assignment: &Assignment) -> Word {
    let nodes = |of: &[NodeId]| of.iter().map(|node| node.0 as Node).collect::<BTreeSet<_>>();
    let (leader_epoch, partition_epoch) = version(assignment);
    Word {
        leader_epoch,
        partition_epoch,
        leader: assignment.leader.map(|node| node.0 as Node),
        replicas: nodes(&assignment.replicas),
        in_sync: nodes(&assignment.in_sync),
        eligible: nodes(&assignment.eligible),
    }
}

fn end(log: &Recovered) -> End {
    let last = log.leader_epochs.latest().filter(|_| log.log_start < log.end);
    (log.log_start.0 as u64, log.end.0 as u64, last.map(|epoch| epoch.0 as u64))
}

fn is_at(kept: &Kept, (start, end, last): End) -> bool {
    let is_last = last.is_none_or(|last| kept.log.writer(end) == Some(last));
    (kept.start, kept.log.len()) == (start, end) && is_last
}

/// Whether a disk has the beginning of what was written last.
fn ends_within(last: Option<&Kept>, (start, end, writer): End) -> bool {
    last.is_some_and(|kept| {
        kept.start == start && end < kept.log.len() && kept.log.writer(end) == writer
    })
}

/// The epochs of a log that says of itself something else than what was written into it. A log
/// that is being cut is looked at when that is done.
fn epochs(before: &Kept, line: &Line, log: &Recovered) -> Option<Vec<(Epoch, Offset)>> {
    if !line.wrote.is_empty() || (before.start, before.log.len()) != (end(log).0, end(log).1) {
        return None;
    }
    let mut from = 0;
    let mut expected = Vec::new();
    for (writer, count) in before.log.iter() {
        if from + count > before.start {
            expected.push((writer, from.max(before.start)));
        }
        from += count;
    }
    let starts = log.leader_epochs.starts().iter();
    let told = starts.map(|&(epoch, start)| (epoch.0 as u64, start.0 as u64));
    let told: Vec<_> = told.filter(|(_, start)| *start < before.log.len()).collect();
    let beyond = log.leader_epochs.starts().last().is_some_and(|(_, start)| *start > log.end);
    (told != expected || beyond).then_some(told)
}

/// Takes the steps that the line tells of, or says which one is not allowed.
///
/// # Errors
///
/// The step, and the rule that it breaks.
pub fn refine(state: &mut State, line: &Line, standing: &Standing) -> Result<(), (String, Broken)> {
    if state.unclean {
        return Ok(());
    }
    if let Some(word) = &line.decided {
        if line.is_late {
            state.words.insert(word.version(), word.clone());
            return Ok(());
        }
        let told = |broken| (format!("decides [{word}]"), broken);
        return state.decide(word, standing).map_err(told);
    }
    let mut steps = Steps { state, me: line.node, standing };
    steps.on_life(line)?;
    if let Some(version) = line.heard {
        steps.act(&Action::Hear { version })?;
    }
    if line.leads {
        steps.act(&Action::Lead)?;
    }
    // What is committed does not depend on what is only being written; what is deleted does.
    if let Some((to, min)) = line.high {
        steps.on_high(to, min)?;
    }
    for write in &line.wrote {
        steps.on_write(*write)?;
    }
    if let Some(epochs) = &line.epochs {
        return Err((words::of_epochs(epochs), "a log has the epochs of its batches"));
    }
    for fact in &line.said {
        steps.act(&Action::Say(fact.clone()))?;
    }
    Ok(())
}

struct Steps<'a> {
    state: &'a mut State,
    me: Node,
    standing: &'a Standing,
}

impl Steps<'_> {
    fn act(&mut self, action: &Action) -> Result<(), (String, Broken)> {
        let done = self.state.act(self.me, action, self.standing);
        done.map_err(|broken| (action.to_string(), broken))
    }

    fn on_life(&mut self, line: &Line) -> Result<(), (String, Broken)> {
        if line.vanishes {
            return self.act(&Action::Vanish);
        }
        if let Some(disk) = line.disk {
            let nothing = super::Copy::default();
            let copy = self.state.copies.get(&self.me).unwrap_or(&nothing);
            let place = copy.writing.iter().position(|kept| is_at(kept, disk));
            let writes = copy.writing.len();
            match place {
                Some(place) => self.act(&Action::Persist { writes: place + 1 })?,
                None if is_at(&copy.disk, disk) => {}
                None if ends_within(copy.writing.back(), disk) => {
                    self.act(&Action::PersistCut { writes, end: disk.1 })?;
                }
                None => {
                    return Err((words::of_disk(disk), "a disk has what was written, in order"));
                }
            }
        }
        if line.restarts { self.act(&Action::Restart) } else { Ok(()) }
    }

    fn on_write(&mut self, write: Write) -> Result<(), (String, Broken)> {
        let copy = self.state.copies.get(&self.me);
        let (leads, end) = copy.map_or((false, 0), |copy| (copy.leads, copy.mind.log.len()));
        self.act(&match write {
            Write::Append { base, next, .. } if leads => Action::Append { base, next },
            Write::Append { next, epoch, after_gap: true, .. } => {
                Action::Take { base: end, next, epoch }
            }
            Write::Append { base, next, epoch, .. } => Action::Take { base, next, epoch },
            Write::Cut { to } => Action::Cut { to },
            Write::Reset { to } => Action::Reset { to },
            Write::Delete { to } => Action::Delete { to },
        })
    }

    fn on_high(&mut self, to: Offset, min: usize) -> Result<(), (String, Broken)> {
        let copy = self.state.copies.get(&self.me);
        let (heard, high, leads) =
            copy.map_or((None, 0, false), |copy| (copy.heard, copy.high, copy.leads));
        let word = heard.and_then(|version| self.state.words.get(&version));
        let is_alone = word.is_some_and(|word| word.replicas.iter().eq([&self.me]));
        if to == high {
            Ok(())
        } else if leads || is_alone {
            self.act(&Action::Commit { to, min })
        } else {
            self.act(&Action::Learn { to })
        }
    }
}
