//! Members of a quorum with their disks and clocks; every step is watched by the shadow. Whatever
//! happens to them is decided elsewhere.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use quorate_core::id::{NodeId, RequestId};
use quorate_core::machine::Machine;
use quorate_core::mutant;
use quorate_core::quorum::interface::{
    Body, Change, Configuration, DirectoryId, Effect, Index, Input, Limits, LogOp, Member, Message,
    Outcome, Payload, Position, Recovered, Refusal, Setup, Term,
};
use quorate_core::quorum::log::Log;
use quorate_core::quorum::{Quorum, votes};
use quorate_core::time::{Instant, Now, Timestamp};

use super::disk::Disk;
use super::links::Links;
use super::shadow::{App, Shadow};
use super::usurper::Holding;
use crate::chance::{Chance, Ratio};
use crate::spec;
use crate::spec::quorum::witness::{self, Look, name_of};
use crate::trace::{self, Mark};

const NAMES: [&str; 10] = ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"];

pub(super) struct Node {
    pub(super) member: Member,
    /// `None` while it is down.
    pub(super) quorum: Option<Quorum>,
    pub(super) disk: Disk,
    pub(super) app: App,
    /// The application was asked for one.
    pub(super) wants_snapshot: bool,
    /// When it started, in the world's time; its own clock began at zero then.
    started: u64,
    /// Its clock's speed, in thousandths of the world's.
    speed: u64,
    committed: Index,
    /// The last term that it led in.
    led: Option<Term>,
    /// Its life begins.
    is_new: bool,
}

/// Something that has just happened and that a failure right behind it would make worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Elected,
    /// A leader has written down other voters.
    Configured,
    /// A leader has committed something, and nobody else knows.
    Committed,
    /// A follower cuts its log, or puts a snapshot in its place.
    Cut,
}

pub(super) struct Members {
    pub(super) chance: Chance,
    /// Microseconds.
    pub(super) time: u64,
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) links: Links,
    pub(super) lag: Ratio,
    pub(super) slices: Ratio,
    pub(super) shadow: Shadow,
    pub(super) limits: Limits,
    founders: BTreeSet<NodeId>,
    pub(super) wiped: BTreeSet<Member>,
    /// Processes that do nothing for a while, and do not know it.
    pub(super) asleep: BTreeSet<NodeId>,
    /// What the last step was good for.
    pub(super) moment: Option<(NodeId, Moment)>,
    pub(super) steps: u64,
    pub(super) checks: bool,
    next_request: u64,
    next_directory: u64,
    effects: Vec<Effect>,
    /// What was said in this step, as far as the specification hears it.
    said: Vec<(NodeId, Message)>,
}

impl Node {
    pub(super) fn now(&self, world: u64) -> Now {
        let micros = (world - self.started) * self.speed / 1000;
        Now { monotonic: Instant::from_micros(micros), wall: Timestamp::NONE }
    }

    /// When its deadline comes, in the world's time.
    pub(super) fn deadline(&self) -> Option<u64> {
        let deadline = self.quorum.as_ref()?.deadline()?.as_duration().as_micros() as u64;
        Some(self.started + (deadline * 1000).div_ceil(self.speed))
    }

    /// Its last entry and its voters: with what it has asked for if it is up, else what is durable.
    pub(super) const fn state(&self) -> &Recovered {
        self.disk.issued()
    }
}

impl Members {
    pub(super) fn new(mut chance: Chance, voters: u32, others: u32, limits: Limits) -> Self {
        let all = voters + others;
        let speeds: Vec<u64> = (0..all).map(|_| 950 + chance.below(100)).collect();
        let mut members = Self {
            chance,
            time: 1_000_000,
            nodes: BTreeMap::new(),
            links: Links::default(),
            lag: Ratio::NEVER,
            slices: Ratio::NEVER,
            shadow: Shadow::default(),
            limits,
            founders: (1..=voters as i32).map(NodeId).collect(),
            wiped: BTreeSet::new(),
            asleep: BTreeSet::new(),
            moment: None,
            steps: 0,
            checks: true,
            next_request: 0,
            next_directory: 0,
            effects: Vec::new(),
            said: Vec::new(),
        };
        for (id, speed) in (1..).map(NodeId).zip(speeds) {
            let node = Node {
                member: Member { node: id, directory: members.directory() },
                quorum: None,
                disk: Disk::default(),
                app: App::default(),
                wants_snapshot: false,
                started: 0,
                speed,
                committed: Index::ZERO,
                led: None,
                is_new: true,
            };
            members.nodes.insert(id, node);
        }
        members.all().into_iter().for_each(|id| members.start(id));
        members
    }

    fn directory(&mut self) -> DirectoryId {
        self.next_directory += 1;
        DirectoryId(u128::from(self.next_directory).to_be_bytes())
    }

    pub(super) fn request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    pub(super) fn all(&self) -> Vec<NodeId> {
        // No decision of the product: what `--twice` must notice.
        if mutant!("hash-order") {
            return self.nodes.keys().copied().collect::<HashSet<_>>().into_iter().collect();
        }
        self.nodes.keys().copied().collect()
    }

    pub(super) fn any(&mut self) -> NodeId {
        NodeId(1 + self.chance.below(self.nodes.len() as u64) as i32)
    }

    /// All nodes in any order.
    pub(super) fn shuffled(&mut self) -> Vec<NodeId> {
        let mut all = self.all();
        for place in (1..all.len()).rev() {
            all.swap(place, self.chance.below(place as u64 + 1) as usize);
        }
        all
    }

    pub(super) fn node(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).expect("a node")
    }

    pub(super) fn quorum(&self, id: NodeId) -> Option<&Quorum> {
        self.nodes[&id].quorum.as_ref()
    }

    pub(super) fn is_up(&self, id: NodeId) -> bool {
        self.nodes[&id].quorum.is_some()
    }

    /// Those who take themselves for leaders.
    pub(super) fn leaders(&self) -> Vec<NodeId> {
        let leads = |id: &NodeId| self.quorum(*id).is_some_and(Quorum::is_leader);
        self.nodes.keys().copied().filter(leads).collect()
    }

    /// The leader of the newest term.
    pub(super) fn leader(&self) -> Option<(NodeId, Term)> {
        let terms = self.leaders().into_iter().filter_map(|id| Some((self.quorum(id)?.term(), id)));
        terms.max().map(|(term, id)| (id, term))
    }

    pub(super) fn note(&self, id: NodeId, text: &str) {
        let at = Duration::from_micros(self.time);
        trace::event(at, Mark::Fault, name(id), [text.len() as u64, 0, 0], || text.to_owned());
    }

    pub(super) fn start(&mut self, id: NodeId) {
        let seed = self.chance.number();
        // Who writes configuration files knows who votes now: a lone founder of long ago would
        // otherwise found a second cluster when its disk is lost.
        let voters = self.shadow.configuration().into_iter().flat_map(|all| &all.voters);
        let founders =
            voters.map(|voter| voter.node).chain(self.founders.iter().copied()).collect();
        let (time, limits) = (self.time, self.limits.clone());
        let node = self.node(id);
        let recovered = node.disk.recover();
        let setup = Setup { me: node.member, founders };
        node.quorum = Some(Quorum::new(setup, recovered, limits, seed));
        node.app = App::default();
        node.wants_snapshot = false;
        node.started = time;
        node.committed = Index::ZERO;
        node.led = None;
        node.is_new = true;
        self.note(id, "starts");
        self.step(id, Input::Tick);
    }

    /// The power fails; some writes may have landed.
    pub(super) fn crash(&mut self, id: NodeId) {
        let in_flight = self.nodes[&id].disk.in_flight() as u64;
        let landed = match self.chance.below(3) {
            0 => 0,
            1 => in_flight.saturating_sub(1),
            _ => self.chance.below(in_flight + 1),
        };
        self.asleep.remove(&id);
        let node = self.node(id);
        node.quorum = None;
        node.disk.crash(landed as usize);
        self.note(id, "loses power");
    }

    /// The disk is lost: from here on it is somebody else.
    pub(super) fn wipe(&mut self, id: NodeId) {
        let directory = self.directory();
        self.asleep.remove(&id);
        let node = self.node(id);
        let gone = std::mem::replace(&mut node.member, Member { node: id, directory });
        node.disk = Disk::default();
        node.quorum = None;
        self.wiped.insert(gone);
        self.note(id, "loses its disk");
    }

    /// Whether every configuration that somebody might act on keeps its majority without the
    /// wiped voters and without `also`.
    pub(super) fn survives(&self, also: &BTreeSet<Member>) -> bool {
        let logs = self.nodes.values().flat_map(|node| {
            [node.disk.durable().log.configuration(), node.disk.issued().log.configuration()]
        });
        let mut all = logs.chain([self.shadow.configuration()]).flatten();
        let there = |voter: Member| !also.contains(&voter) && !self.wiped.contains(&voter);
        all.all(|configuration| configuration.has_majority(there))
    }

    pub(super) fn deliver(&mut self, (to, message): (NodeId, Message)) {
        if self.asleep.contains(&to) {
            self.links.hold((to, message), &mut self.chance);
        } else if self.is_up(to) && self.links.passes(message.from.node, to) {
            self.step(to, Input::Received(message));
        }
    }

    pub(super) fn complete(&mut self, id: NodeId, count: usize) {
        if self.asleep.contains(&id) {
            return;
        }
        let node = self.node(id);
        if node.quorum.is_some()
            && let Some(through) = node.disk.complete(count)
        {
            self.step(id, Input::Persisted { through });
        }
    }

    /// Time passes; whose deadline comes is told, in the order of deadlines.
    pub(super) fn pass(&mut self, micros: u64) {
        let end = self.time + micros;
        loop {
            let awake = self.nodes.iter().filter(|(id, _)| !self.asleep.contains(id));
            let due = awake.filter_map(|(id, node)| Some((node.deadline()?, *id)));
            let Some((at, id)) = due.min().filter(|(at, _)| *at <= end) else { break };
            self.time = self.time.max(at);
            self.tick(id);
        }
        self.time = end;
    }

    /// Until this node's deadline, which is the only one that is told of it: timers of the others
    /// are late.
    pub(super) fn hurry(&mut self, id: NodeId) {
        if let Some(deadline) = self.nodes[&id].deadline() {
            self.time = self.time.max(deadline);
            self.tick(id);
        }
    }

    fn tick(&mut self, id: NodeId) {
        self.step(id, Input::Tick);
        if self.nodes[&id].deadline().is_some_and(|after| after <= self.time) {
            panic!("the driver of {id} would spin");
        }
    }

    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.nodes.values().filter_map(Node::deadline).min()
    }

    pub(super) fn step(&mut self, id: NodeId, input: Input) {
        let time = self.time;
        let node = self.node(id);
        let Some(mut quorum) = node.quorum.take() else { return };
        let (now, at) = (node.now(time), Duration::from_micros(time));
        let numbers = [kind(&input), quorum.term().0, quorum.committed().0];
        trace::event(at, Mark::Step, name(id), numbers, || format!("{quorum} ← {input:?}"));
        self.steps += 1;
        let before = quorum.deadline();
        let was_leader = quorum.is_leader();
        let is_pre_vote =
            matches!(&input, Input::Received(Message { body: Body::PreVote { .. }, .. }));
        let is_resignation = input == Input::Resign;
        let told = name_of(&input);
        let mut effects = std::mem::take(&mut self.effects);
        quorum.step(now, input, &mut effects);
        if self.checks {
            quorum.check();
        }
        let writes = effects.iter().any(|effect| matches!(effect, Effect::Persist { .. }));
        if is_pre_vote && (writes || quorum.deadline() != before) {
            self.shadow
                .blame("pre-vote-leaves-a-trace", format!("a pre-vote has changed {quorum}"));
        }
        if is_resignation && quorum.leader() == Some(id) {
            self.shadow.blame("resigned-and-leads", format!("{quorum} has resigned"));
        }
        if quorum.is_leader() && !was_leader {
            self.moment = Some((id, Moment::Elected));
        }
        for effect in effects.drain(..) {
            self.perform(id, &quorum, effect);
        }
        self.effects = effects;
        self.watch(id, &quorum);
        self.refine(id, told, &quorum);
        self.node(id).quorum = Some(quorum);
    }

    /// Holds the step against the specification.
    fn refine(&mut self, id: NodeId, step: &'static str, quorum: &Quorum) {
        let node = self.nodes.get_mut(&id).expect("a node");
        spec::on_member(&Look {
            at_us: self.time,
            step,
            member: node.member,
            quorum,
            issued: node.disk.issued(),
            durable: node.disk.durable(),
            applied: node.app.applied,
            said: &self.said,
            restarts: std::mem::take(&mut node.is_new),
        });
        self.said.clear();
    }

    fn perform(&mut self, id: NodeId, quorum: &Quorum, effect: Effect) {
        let node = self.nodes.get_mut(&id).expect("a node");
        match effect {
            Effect::Persist { write, op } => {
                if let Some(moment) = moment(&op, quorum) {
                    self.moment = Some((id, moment));
                }
                node.disk.write(write, op);
            }
            Effect::Send { to, message } => self.send(id, to, message, quorum),
            Effect::Committed { entries } => {
                self.shadow.on_committed(&mut node.app, quorum.term(), &entries);
                let (last, durable) = (node.app.applied, node.disk.durable());
                self.shadow.on_acknowledged(last, quorum, durable);
            }
            Effect::Restore { snapshot } => self.shadow.on_restore(&mut node.app, &snapshot),
            Effect::TakeSnapshot => node.wants_snapshot = true,
            Effect::Reply { request, outcome } => match outcome {
                Outcome::Committed { position } => self.shadow.on_answered(request, position),
                Outcome::Readable { through } => {
                    self.shadow.on_readable(request, through, &node.app);
                }
                Outcome::Transferred | Outcome::Described(_) | Outcome::Refused(_) => {
                    assert_ne!(outcome, Outcome::Refused(Refusal::Storage));
                }
            },
            Effect::RoleChanged(_) => {}
            Effect::Halt { reason } => panic!("{reason:?}"),
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: Message, quorum: &Quorum) {
        if spec::is_on() {
            self.said.push((to, witness::heard(&message)));
        }
        let meant = message.to.map(|directory| Member { node: to, directory });
        let disk = self.nodes[&from].disk.durable();
        self.shadow.on_sent(&message, meant, disk);
        if let Body::Appended { through, .. } | Body::HeartbeatReply { through, .. } = message.body
        {
            self.shadow.on_acknowledged(through, quorum, disk);
        }
        let mut message = message;
        if self.chance.hit(self.slices) {
            slice(&mut message, quorum.log(), &mut self.chance);
        }
        self.links.send(to, message, self.lag, &mut self.chance);
    }

    /// What can be said of a node after each step.
    fn watch(&mut self, id: NodeId, quorum: &Quorum) {
        let node = &self.nodes[&id];
        let (issued, log) = (node.disk.issued(), quorum.log());
        let is_told = log.last() == issued.log.last()
            && log.base() == issued.log.base()
            && quorum.term() == issued.hard.term
            && quorum.configuration() == issued.log.configuration();
        if !is_told {
            let sentence = format!("{quorum} has not told its disk everything");
            self.shadow.blame("disk-has-another", sentence);
        }
        let (member, committed, before) = (node.member, quorum.committed(), node.committed);
        if quorum.is_leader() {
            let is_new = node.led != Some(quorum.term());
            let commits = committed > before && committed > log.base().index;
            if is_new || commits {
                let disks = self.nodes.values().map(|node| (node.member, node.disk.durable()));
                let disks: BTreeMap<Member, &Recovered> = disks.collect();
                if is_new {
                    self.shadow.on_leader(member, quorum, &disks);
                }
                if commits {
                    self.shadow.on_leader_committed(quorum, &disks);
                    self.moment.get_or_insert((id, Moment::Committed));
                    self.check_usurpers();
                }
            }
        }
        let node = self.node(id);
        node.committed = committed;
        node.led = quorum.is_leader().then(|| quorum.term()).or(node.led);
    }

    pub(super) fn check_usurpers(&mut self) {
        let holdings = self.nodes.values().map(|node| Holding {
            member: node.member,
            states: [node.disk.durable(), node.disk.issued()],
        });
        self.shadow.check_usurpers(&holdings.collect::<Vec<_>>());
    }

    pub(super) fn check_logs(&mut self) {
        let quorums = self.nodes.values().filter_map(|node| node.quorum.as_ref());
        self.shadow.check_logs(&quorums.collect::<Vec<_>>());
        self.check_usurpers();
    }

    /// Everybody's status line.
    pub(super) fn status(&self) -> String {
        let quorums = self.nodes.values().filter_map(|node| node.quorum.as_ref());
        let voters = |quorum: &Quorum| {
            let voters = quorum.configuration().into_iter().flat_map(|all| &all.voters);
            voters.map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        quorums.map(|quorum| format!("; {quorum} voters={}", voters(quorum))).collect()
    }

    pub(super) fn take_snapshot(&mut self, id: NodeId) {
        let node = self.node(id);
        node.wants_snapshot = false;
        let (through, data) = (node.app.applied, node.app.snapshot());
        self.step(id, Input::SnapshotTaken { through, data });
    }

    /// One voter more or less, asked of `id`; never so that the wiped ones could block the rest.
    pub(super) fn change(&mut self, id: NodeId) {
        let Some(configuration) = self.quorum(id).and_then(Quorum::configuration).cloned() else {
            return;
        };
        // Votes are more easily taken than given, and one voter alone is no quorum to look at.
        let mut other = self.any();
        if configuration.voters.len() <= 3 && !self.chance.one_in(4) {
            let any_order = self.shuffled();
            let has_none = |id: &NodeId| !configuration.is_voter(self.nodes[id].member);
            other = any_order.into_iter().find(has_none).unwrap_or(other);
        }
        let now = self.nodes[&other].member;
        let (voters, change) = self.drawn(&configuration, now);
        let gone = voters.iter().filter(|voter| self.wiped.contains(voter)).count();
        if gone * 2 < voters.len() && voters.len() <= 6 {
            let request = self.request();
            self.step(id, Input::Change { request, change });
        }
    }

    fn drawn(&mut self, configuration: &Configuration, now: Member) -> (BTreeSet<Member>, Change) {
        let mut voters = configuration.voters.clone();
        let voter = configuration.on_node(now.node).next();
        match voter {
            Some(voter) if voter == now || self.chance.one_in(2) => {
                voters.remove(&voter);
                (voters, Change::RemoveVoter(voter))
            }
            _ => {
                voters.insert(now);
                (voters, Change::AddVoter(now))
            }
        }
    }

    /// The rule of `votes`, as the node `id` sees it; whether there was something to do.
    pub(super) fn restore_votes(&mut self, id: NodeId) -> bool {
        let node = &self.nodes[&id];
        let Some(quorum) = &node.quorum else { return false };
        let current = |node| self.nodes.get(&node).map(|node| node.member);
        let status = quorum.status(node.now(self.time));
        let Some(change) = votes::next_change(&status, current, self.limits.catch_up_entries)
        else {
            return false;
        };
        let request = self.request();
        self.step(id, Input::Change { request, change });
        true
    }

    /// A vote that is kept, or of a lost disk whose node has another one without a vote.
    pub(super) fn missing_vote(&self) -> Option<NodeId> {
        let voters = self.shadow.configuration()?;
        let lost = voters.voters.iter().filter(|voter| self.wiped.contains(voter));
        let has_other = |node: NodeId| voters.is_voter(self.nodes[&node].member);
        let lost = lost.map(|voter| voter.node).find(|node| !has_other(*node));
        voters.kept.first().copied().or(lost)
    }
}

/// Gives an append other bounds: as true, and no more than the leader itself said.
fn slice(message: &mut Message, log: &Log, chance: &mut Chance) {
    let Body::Append { previous, entries, .. } = &mut message.body else { return };
    let through = previous.index.plus(entries.len() as u64);
    let earlier = previous.index.0.saturating_sub(chance.below(4)).max(log.base().index.0);
    let Some(term) = log.term(Index(earlier)) else { return };
    let last = through.0 - chance.below(through.0 - earlier);
    *previous = Position::new(Index(earlier), term);
    *entries = log.slice(Index(earlier).next(), Index(last), u64::MAX);
}

fn name(id: NodeId) -> &'static str {
    NAMES.get(id.0 as usize).copied().unwrap_or("n?")
}

/// What a write is good for.
fn moment(op: &LogOp, quorum: &Quorum) -> Option<Moment> {
    match op {
        LogOp::Append { entries } if quorum.is_leader() => {
            let mut payloads = entries.iter().map(|entry| &entry.payload);
            let is_configuration =
                payloads.any(|payload| matches!(payload, Payload::Configuration(_)));
            is_configuration.then_some(Moment::Configured)
        }
        LogOp::Truncate { .. } | LogOp::Install { .. } => Some(Moment::Cut),
        _ => None,
    }
}

/// Which input it is, for the trace.
const fn kind(input: &Input) -> u64 {
    match input {
        Input::Propose { .. } => 1,
        Input::Read { .. } => 2,
        Input::Change { .. } => 3,
        Input::Transfer { .. } => 4,
        Input::Resign => 5,
        Input::SnapshotTaken { .. } => 6,
        Input::Describe { .. } => 7,
        Input::Cancelled { .. } => 8,
        Input::Received(_) => 9,
        Input::Persisted { .. } => 10,
        Input::PersistFailed { .. } => 11,
        Input::Tick => 12,
    }
}
