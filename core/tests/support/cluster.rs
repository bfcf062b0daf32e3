//! The replicas of one partition on nodes with disks, and a network that loses, repeats, delays and
//! reorders; every step is checked against what an omniscient observer knows.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::batch::{Batch, Levels};
use quorate_core::id::{LeaderEpoch, NodeId, Offset, PartitionEpoch, ProducerId, RequestId};
use quorate_core::machine::Machine;
use quorate_core::partition::Replica;
use quorate_core::partition::interface::{
    Acks, Effect, InSyncChange, Input, Limits, Message, Outcome, PartitionConfig, ProposalProblem,
    Refusal,
};
use quorate_core::time::Now;

use super::cut_log::{CutLog, Done};
use super::toy_controller::ToyController;

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    /// `None`: down.
    pub(crate) replica: Option<Replica>,
    pub(crate) log: CutLog,
    /// The assignment of the history that it knows.
    pub(crate) place: usize,
    /// Its registration was told to it.
    pub(crate) is_registered: bool,
    pub(crate) reads: Vec<(NodeId, Offset, Offset, usize)>,
    /// Its high watermark in this life.
    high_watermark: Offset,
    pub(crate) is_closing: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) message: Message,
}

/// What a producer waits for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) node: NodeId,
    pub(crate) acks: Acks,
    /// The record's timestamp names it. `None`: a reader.
    pub(crate) name: Option<i64>,
    pub(crate) sequence: Option<i32>,
}

/// A batch as the observer remembers it: what is equal is the same batch.
pub(crate) type Seen = (Offset, LeaderEpoch, i64, u32);

pub(crate) fn seen(batch: &Batch) -> Seen {
    let header = batch.header();
    (header.base_offset(), header.leader_epoch(), header.max_timestamp().0, header.checksum())
}

#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) now: Now,
    pub(crate) config: PartitionConfig,
    pub(crate) limits: Limits,
    pub(crate) controller: ToyController,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) packets: Vec<Packet>,
    pub(crate) proposals: Vec<(NodeId, InSyncChange)>,
    pub(crate) refusals: Vec<(NodeId, PartitionEpoch, ProposalProblem)>,
    pub(crate) asked: BTreeMap<RequestId, Asked>,
    /// Answered since last looked at.
    pub(crate) answers: Vec<(RequestId, Asked, Outcome)>,
    /// What has ever been committed, in its order, and where it ends.
    committed: Vec<Seen>,
    pub(crate) committed_end: Offset,
    /// Records below may have been deleted at a client's wish.
    pub(crate) deletable: Offset,
    /// Records below were said to be deleted.
    pub(crate) deleted: Offset,
    leaders: BTreeMap<LeaderEpoch, NodeId>,
    /// Prints every step: `WALK=7 WALK_TRACE=1 cargo test --test replication_random`.
    traces: bool,
}

impl Cluster {
    pub(crate) fn new(now: Now, replicas: usize, config: PartitionConfig, limits: Limits) -> Self {
        let ids = (1..=replicas).map(|id| NodeId(i32::try_from(id).expect("few")));
        let ids = ids.collect::<Vec<_>>();
        let controller = ToyController::new(&ids, config.in_sync_min);
        let node = |&id: &NodeId| {
            let node = Node {
                id,
                replica: None,
                log: CutLog::default(),
                place: 0,
                is_registered: false,
                reads: Vec::new(),
                high_watermark: Offset::ZERO,
                is_closing: false,
            };
            (id, node)
        };
        let mut cluster = Self {
            now,
            config,
            limits,
            nodes: ids.iter().map(node).collect(),
            controller,
            packets: Vec::new(),
            proposals: Vec::new(),
            refusals: Vec::new(),
            asked: BTreeMap::new(),
            answers: Vec::new(),
            committed: Vec::new(),
            committed_end: Offset::ZERO,
            deletable: Offset::ZERO,
            deleted: Offset::ZERO,
            leaders: BTreeMap::new(),
            traces: std::env::var_os("WALK_TRACE").is_some(),
        };
        for id in ids {
            cluster.open(id);
            cluster.tell_registered(id);
        }
        cluster
    }

    /// The node starts, with the assignment that it knew before.
    pub(crate) fn open(&mut self, id: NodeId) {
        let assignment = self.controller.history[self.nodes[&id].place].clone();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let (config, limits) = (self.config.clone(), self.limits.clone());
        let recovered = node.log.recover();
        node.replica = Some(Replica::new(id, recovered, config, assignment, limits));
        node.high_watermark = Offset::ZERO;
        (node.is_registered, node.is_closing) = (false, false);
        self.step(id, Input::Tick);
    }

    /// It hears that it is registered, and all that was decided before.
    pub(crate) fn tell_registered(&mut self, id: NodeId) {
        let known = self.controller.nodes[&id];
        if self.nodes[&id].place < known.place {
            self.tell_assigned(id, known.place);
        }
        if let Some(node) = self.nodes.get_mut(&id) {
            node.is_registered = true;
        }
        self.step(id, Input::Registered { node_epoch: known.node_epoch });
    }

    pub(crate) fn tell_assigned(&mut self, id: NodeId, place: usize) {
        let assignment = self.controller.history[place].clone();
        if let Some(node) = self.nodes.get_mut(&id) {
            node.place = node.place.max(place);
        }
        self.step(id, Input::Assigned(assignment));
    }

    /// The process dies; `written` of what was under way is on its disk.
    pub(crate) fn crash(&mut self, id: NodeId, written: usize) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.replica = None;
            node.reads.clear();
            node.log.crash(written);
        }
        self.proposals.retain(|(from, _)| *from != id || from.0 % 2 == 0);
        self.refusals.retain(|(to, ..)| *to != id);
        self.asked.retain(|_, asked| asked.node != id);
    }

    pub(crate) fn step(&mut self, id: NodeId, input: Input) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(replica) = node.replica.as_mut() else { return };
        let mut effects = Vec::new();
        let told = self.traces.then(|| format!("{} n{id} ← {input:?}", now.monotonic));
        replica.step(now, input, &mut effects);
        if let Some(told) = told {
            trace(&told, &effects, replica);
        }
        replica.check();
        for effect in effects {
            self.perform(id, effect);
        }
        self.look_at(id);
    }

    fn perform(&mut self, id: NodeId, effect: Effect) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        match effect {
            Effect::Write { write, op, .. } => node.log.write(write, op),
            Effect::Send { to, message } => self.packets.push(Packet { from: id, to, message }),
            Effect::ReadLog { to, from, up_to, bytes_max } => {
                node.reads.push((to, from, up_to, bytes_max));
            }
            Effect::Propose(change) => self.proposals.push((id, change)),
            Effect::Clean(_) | Effect::Discard(_) => panic!("no topic is compacted here"),
            Effect::Reply { request, outcome } => {
                if let Some(asked) = self.asked.remove(&request) {
                    self.answers.push((request, asked, outcome));
                }
            }
            Effect::Publish(view) => {
                let high = view.high_watermark;
                // A log that is begun anew within a deleted batch falls to where that began.
                let may_fall = node.high_watermark <= self.deletable && view.log_start == high;
                let rises = high >= node.high_watermark || may_fall;
                assert!(rises, "n{id}: the high watermark falls to {high}");
                node.high_watermark = high;
            }
            Effect::TransactionEnded { .. } => {}
            Effect::Halt { reason } => panic!("n{id}: {reason:?}"),
        }
    }

    pub(crate) fn written(&mut self, id: NodeId, count: usize) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let input = match node.log.complete(count) {
            Some(Done::Written(through)) => Input::Written { through },
            Some(Done::Truncated(write, recovered)) => {
                Input::Truncated { write, recovered: Box::new(recovered) }
            }
            None => return,
        };
        self.step(id, input);
    }

    pub(crate) fn answer_read(&mut self, id: NodeId, fails: bool) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.reads.is_empty() {
            return;
        }
        let (to, from, up_to, bytes_max) = node.reads.remove(0);
        let entries: Vec<(Batch, Levels)> =
            if fails { Vec::new() } else { node.log.read(from, up_to, bytes_max) };
        self.step(id, Input::LogRead { to, from, entries });
    }

    pub(crate) fn deliver(&mut self, packet: Packet) {
        self.step(packet.to, Input::Message { from: packet.from, message: packet.message });
    }

    /// The controller takes a proposal; it may know less than who proposes.
    pub(crate) fn decide(&mut self, place: usize, knows_less: bool, again: bool) {
        let (from, change) =
            if again { self.proposals[place].clone() } else { self.proposals.remove(place) };
        let decided = if knows_less {
            Err(ProposalProblem::Behind)
        } else {
            self.controller.change(from, &change)
        };
        if let Err(problem) = decided {
            self.refusals.push((from, change.partition_epoch, problem));
        }
    }

    pub(crate) fn refuse(&mut self, place: usize) {
        let (to, partition_epoch, problem) = self.refusals.remove(place);
        self.step(to, Input::ProposalRefused { partition_epoch, problem });
    }

    /// What can be said after a step of `id`.
    fn look_at(&mut self, id: NodeId) {
        let node = &self.nodes[&id];
        let Some(replica) = &node.replica else { return };
        if replica.is_leader() {
            let before = *self.leaders.entry(replica.leader_epoch()).or_insert(id);
            assert_eq!(before, id, "two leaders in e{}", replica.leader_epoch());
        }
        if node.log.in_flight() == 0 {
            assert_eq!(node.log.recover(), *replica.log(), "n{id}: rebuilt is not live");
        }
        let batches = node.log.all_batches();
        let follow = |pair: &[&Batch]| {
            pair[0].header().next_offset() == pair[1].header().base_offset()
                && pair[0].header().leader_epoch() <= pair[1].header().leader_epoch()
        };
        assert!(node.log.is_being_cut() || batches.windows(2).all(follow), "n{id}: a hole");
        let high = node.high_watermark;
        if high > self.committed_end && !node.log.is_being_cut() {
            let new = batches.iter().filter(|batch| {
                let header = batch.header();
                header.base_offset() >= self.committed_end && header.next_offset() <= high
            });
            let new = new.map(|batch| (seen(batch), batch.header().next_offset()));
            let new = new.collect::<Vec<_>>();
            let end = new.last().map_or(self.committed_end, |&(_, end)| end);
            assert_eq!(end, high, "n{id}: commits what it does not have");
            self.committed.extend(new.iter().map(|(seen, _)| *seen));
            self.committed_end = high;
        }
        self.check_committed(&batches.into_iter().cloned().collect::<Vec<_>>(), high, id);
        self.check_electable();
    }

    /// Below its high watermark a log holds what was committed.
    fn check_committed(&self, batches: &[Batch], high: Offset, id: NodeId) {
        let below = batches.iter().filter(|batch| batch.header().next_offset() <= high);
        let below = below.map(seen).collect::<Vec<_>>();
        let Some(first) = below.first() else { return };
        let from = self.committed.partition_point(|committed| committed.0 < first.0);
        let expected = &self.committed[from.min(self.committed.len())..];
        let expected = &expected[..below.len().min(expected.len())];
        assert_eq!(below, expected, "n{id}: shows what was not committed");
    }

    /// Who may be elected has on its disk all that was ever committed, but for what was deleted.
    fn check_electable(&self) {
        for id in self.controller.electable() {
            let log = &self.nodes[&id].log;
            assert!(log.start() <= self.deletable, "n{id} deleted what nobody wished away");
            assert!(
                log.start() >= self.deleted,
                "n{id} may be elected and has what was deleted up to {}\n{self}",
                self.deleted
            );
            let from = self.committed.partition_point(|committed| committed.0 < log.start());
            // The batch that reaches across the start may be there or not.
            let held = log.batches().filter(|batch| batch.header().base_offset() >= log.start());
            let held = held.map(seen).take(self.committed.len() - from).collect::<Vec<_>>();
            if held != self.committed[from..] {
                let end = log
                    .batches()
                    .last()
                    .map_or_else(|| log.start(), |last| last.header().next_offset());
                panic!(
                    "n{id} may be elected and lacks what is committed: it has {}..{end}, {} are \
                     committed\n{self}",
                    log.start(),
                    self.committed_end
                );
            }
        }
    }

    /// Whether a record of this name is committed there.
    pub(crate) fn is_committed(&self, base: Offset, name: i64) -> bool {
        let place = self.committed.binary_search_by_key(&base, |committed| committed.0);
        place.is_ok_and(|place| self.committed[place].2 == name)
    }

    /// How often a record of this name is committed.
    pub(crate) fn commits_of(&self, name: i64) -> usize {
        self.committed.iter().filter(|committed| committed.2 == name).count()
    }

    pub(crate) fn up(&self) -> Vec<NodeId> {
        let up = self.nodes.values().filter(|node| node.replica.is_some());
        up.map(|node| node.id).collect()
    }

    pub(crate) fn leader(&self) -> Option<NodeId> {
        let leads = |node: &&Node| node.replica.as_ref().is_some_and(Replica::is_leader);
        let leaders = self.nodes.values().filter(leads);
        leaders
            .max_by_key(|node| node.replica.as_ref().map(Replica::leader_epoch))
            .map(|node| node.id)
    }

    /// What is missing until all is well; `None` if nothing is.
    pub(crate) fn unwell(&self) -> Option<String> {
        let current = self.controller.current();
        if current.leader.is_none() || current.in_sync.len() < current.replicas.len() {
            return Some(format!("in sync are {:?}", current.in_sync));
        }
        let logs = self.nodes.values().map(|node| {
            let all = node.log.batches().map(seen).filter(|seen| seen.0 >= self.deletable);
            all.collect::<Vec<_>>()
        });
        let logs = logs.collect::<BTreeSet<_>>();
        if logs.len() > 1 {
            return Some("logs differ".to_owned());
        }
        for node in self.nodes.values() {
            let Some(replica) = &node.replica else { return Some("a node is down".to_owned()) };
            let view = replica.view();
            if view.high_watermark != view.end || node.log.in_flight() > 0 {
                return Some(format!("n{} has not committed all", node.id));
            }
        }
        let starts = self.nodes.values().map(|node| node.log.start()).collect::<BTreeSet<_>>();
        if starts.len() > 1 {
            return Some("logs start differently".to_owned());
        }
        (!self.asked.is_empty()).then(|| format!("waiting: {:?}", self.asked))
    }
}

impl std::fmt::Display for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{:?}", self.controller.current())?;
        for node in self.nodes.values() {
            match &node.replica {
                Some(replica) => writeln!(f, "{replica}")?,
                None => writeln!(f, "n{} down", node.id)?,
            }
        }
        Ok(())
    }
}

#[expect(clippy::print_stderr, reason = "asked for by WALK_TRACE")]
fn trace(told: &str, effects: &[Effect], replica: &Replica) {
    eprintln!("{told}");
    effects.iter().for_each(|effect| eprintln!("    {effect:?}"));
    eprintln!("  {replica}");
}

/// What a client may be told without anything being wrong.
pub(crate) fn is_lawful(refusal: &Refusal, is_in_order: bool) -> bool {
    match refusal {
        Refusal::OutOfOrderSequence { producer, .. } => {
            !(is_in_order && *producer == ProducerId(7))
        }
        Refusal::StaleProducerEpoch { .. } | Refusal::Storage => false,
        _ => true,
    }
}
