//! The metadata quorum: Raft over entries it does not look into. Its state, its inputs in their
//! order, what is said and when. Who leads is `election`'s, what a leader does `leader`'s, what
//! its followers do `follower`'s.

mod check;
pub mod configuration;
mod disk;
mod election;
mod follower;
mod founding;
pub mod identity;
pub mod interface;
mod leader;
pub mod limits;
pub mod log;
mod membership;
pub mod message;
mod opaque;
mod progress;
mod read;
pub mod recovered;
mod replication;
mod seeking;
mod snapshot;
pub mod votes;

use std::collections::BTreeSet;

use self::disk::Disk;
use self::follower::Following;
use self::founding::Answers;
use self::interface::{
    Body, ClusterId, Configuration, Effect, Entry, HaltReason, HardState, Index, Input, Limits,
    LogOp, Member, Message, Outcome, Position, Recovered, Refusal, Role, Setup, Snapshot, Term,
};
use self::leader::Leader;
use self::log::Log;
use self::seeking::Seeking;
use crate::id::{NodeId, RequestId, WriteId};
use crate::machine::Machine;
use crate::rng::Rng;
use crate::time::{Instant, Now};
use crate::{mutant, reached};

/// Answers that wait for the disk; more are dropped, as the network may.
const HELD_MAX: usize = 1000;

/// One member of the quorum, voting or observing.
#[derive(Clone, Debug)]
pub struct Quorum {
    setup: Setup,
    limits: Limits,
    rng: Rng,
    hard: HardState,
    snapshot: Snapshot,
    log: Log,
    disk: Disk,
    /// Said once the term and the vote they speak of are on the disk.
    held: Vec<(WriteId, NodeId, Message)>,
    /// A majority has everything up to here.
    committed: Index,
    /// The application was given everything up to here; never beyond what this disk has.
    delivered: Index,
    state: State,
    following: Following,
    answers: Answers,
    seeking: Seeking,
    /// When to stand for election, or, without a vote, to ask for a leader.
    election_at: Instant,
    /// Bytes of what was delivered since the last snapshot, and whether one was asked for.
    bytes_since_snapshot: u64,
    is_snapshot_asked: bool,
    /// What the application was last told.
    told: Option<Role>,
    is_halted: bool,
}

#[derive(Clone, Debug)]
enum State {
    Follower,
    /// Asks whether an election would be won.
    PreCandidate {
        granted: BTreeSet<Member>,
    },
    Candidate {
        granted: BTreeSet<Member>,
    },
    Leader(Box<Leader>),
}

impl Quorum {
    /// A member with what its disk remembers. `limits` and `recovered` pass their `check`, or
    /// this panics. `seed` spreads elections in time and names a cluster that is founded here.
    pub fn new(setup: Setup, recovered: Recovered, limits: Limits, seed: u64) -> Self {
        if let Err(reason) = limits.check() {
            panic!("{reason}");
        }
        recovered.check();
        let Recovered { mut hard, snapshot, log } = recovered;
        // A founder may have died between the one write and the other.
        hard.cluster = hard.cluster.or_else(|| log.configuration().map(|voters| voters.cluster));
        Self {
            setup,
            limits,
            rng: Rng::new(seed),
            hard,
            disk: Disk::new(log.last().index),
            held: Vec::new(),
            committed: snapshot.position.index,
            delivered: snapshot.position.index,
            snapshot,
            log,
            state: State::Follower,
            following: Following::default(),
            answers: Answers::default(),
            seeking: Seeking::default(),
            election_at: Instant::ZERO,
            bytes_since_snapshot: 0,
            is_snapshot_asked: false,
            told: None,
            is_halted: false,
        }
    }

    /// Who votes, as far as this node knows; nobody before there is a cluster.
    pub fn configuration(&self) -> Option<&Configuration> {
        self.log.configuration()
    }

    /// Who this node is to the others.
    pub const fn me(&self) -> Member {
        self.setup.me
    }

    /// Whether it was elected in its term, in charge yet or not.
    pub const fn is_leader(&self) -> bool {
        matches!(self.state, State::Leader(_))
    }

    /// Whose member this is, if the disk knows it for certain: a cluster that was founded and is
    /// not durable may yet be founded by another name.
    pub fn cluster(&self) -> Option<ClusterId> {
        self.hard.cluster.filter(|_| self.disk.hard_state().is_none())
    }

    pub const fn term(&self) -> Term {
        self.hard.term
    }

    pub const fn committed(&self) -> Index {
        self.committed
    }

    /// The log in memory, for those who check it.
    pub const fn log(&self) -> &Log {
        &self.log
    }

    /// Who leads, as far as this node knows.
    pub fn leader(&self) -> Option<NodeId> {
        match &self.state {
            State::Leader(_) => Some(self.setup.me.node),
            _ => self.following.leader.map(|leader| leader.node),
        }
    }

    pub fn role(&self) -> Role {
        let term = self.hard.term;
        match &self.state {
            State::Leader(leader) if self.is_in_charge(leader) => Role::Leading { term },
            State::Leader(_) => Role::Following { term, leader: None },
            _ => Role::Following { term, leader: self.leader() },
        }
    }

    /// Whether the leader knows, and was given, everything that was committed before it led.
    fn is_in_charge(&self, leader: &Leader) -> bool {
        self.committed.min(self.delivered) >= leader.first
    }

    fn is_voter(&self) -> bool {
        self.configuration().is_some_and(|voters| voters.is_voter(self.setup.me))
    }

    fn begin(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.snapshot.position != Position::ZERO {
            effects.push(Effect::Restore { snapshot: self.snapshot.clone() });
        }
        self.election_at = self.draw_election_at(now);
        // zoo B3: who led before the crash does not lead after it.
        if mutant!("same-epoch-leader-after-restart")
            && self.hard.vote == Some(self.setup.me)
            && self.log.last().term == self.hard.term
        {
            self.become_leader(now, effects);
        }
        if self.votes_alone() {
            // Nobody else could lead: there is nobody to wait for.
            self.on_election_timeout(now, effects);
            return;
        }
        self.tell_role(effects);
        self.ask(now, effects);
    }

    fn votes_alone(&self) -> bool {
        self.configuration().is_some_and(|voters| voters.voters.iter().eq([&self.setup.me]))
    }

    /// Issues a write; it is done when `Persisted` says so.
    fn persist(&mut self, op: LogOp, effects: &mut Vec<Effect>) {
        let write = self.disk.issue(&op, self.log.last().index);
        effects.push(Effect::Persist { write, op });
    }

    fn persist_hard_state(&mut self, hard: HardState, effects: &mut Vec<Effect>) {
        assert!(hard.term >= self.hard.term, "a term is never taken back");
        self.hard = hard;
        self.persist(LogOp::HardState(hard), effects);
    }

    /// Puts entries that follow the log into it and onto the disk.
    fn append(&mut self, entries: Vec<Entry>, effects: &mut Vec<Effect>) {
        entries.iter().for_each(|entry| self.log.push(entry.clone()));
        self.persist(LogOp::Append { entries }, effects);
    }

    fn send(&mut self, to: Member, body: Body, effects: &mut Vec<Effect>) {
        let message = Message {
            cluster: self.hard.cluster,
            from: self.setup.me,
            to: Some(to.directory),
            term: self.hard.term,
            body,
        };
        self.post(to.node, message, effects);
    }

    /// Sends once the term and the vote are on the disk: whoever hears of them may rely on them.
    fn post(&mut self, to: NodeId, message: Message, effects: &mut Vec<Effect>) {
        match self.disk.hard_state() {
            Some(write) if !mutant!("vote-before-fsync") => {
                if self.held.len() < HELD_MAX {
                    self.held.push((write, to, message));
                }
            }
            _ => effects.push(Effect::Send { to, message }),
        }
    }

    fn on_persisted(&mut self, now: Now, through: WriteId, effects: &mut Vec<Effect>) {
        let installed = self.disk.complete(through);
        for (write, to, message) in std::mem::take(&mut self.held) {
            if write <= through {
                effects.push(Effect::Send { to, message });
            } else {
                self.held.push((write, to, message));
            }
        }
        if installed == Some(self.snapshot.position)
            && self.snapshot.position.index > self.delivered
        {
            self.restore(effects);
        }
        match &self.state {
            State::Candidate { .. } if self.disk.hard_state().is_none() => {
                self.count_vote(now, self.setup.me, effects);
            }
            State::Leader(_) => self.advance_committed(now, effects),
            _ => self.acknowledge(effects),
        }
        self.deliver(now, effects);
    }

    /// Gives the application what is committed and on this disk: what it has seen it will see
    /// again after any crash.
    fn deliver(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let mut through = self.committed.min(self.disk.durable_end());
        // zoo B24: the application is ahead of the log that a restart would give it.
        if mutant!("applied-index-not-atomic") {
            through = self.committed;
        }
        if through > self.delivered && self.delivered >= self.log.base().index {
            let entries = self.log.slice(self.delivered.next(), through, u64::MAX);
            self.delivered = through;
            self.bytes_since_snapshot += entries.iter().map(Entry::bytes).sum::<u64>();
            effects.push(Effect::Committed { entries });
            if self.bytes_since_snapshot >= self.limits.snapshot_after_bytes
                && !self.is_snapshot_asked
            {
                self.is_snapshot_asked = true;
                effects.push(Effect::TakeSnapshot);
            }
        }
        self.answer_delivered(now, effects);
    }

    /// Hears that the term is `term`; whoever this node was in an older one, it follows now.
    fn follow_term(&mut self, now: Now, term: Term, effects: &mut Vec<Effect>) {
        assert!(term > self.hard.term, "only a newer term is followed");
        if let State::Leader(leader) = &mut self.state {
            leader.end_transfer(Outcome::Transferred, effects);
        }
        self.step_down(now, Refusal::Unknown, effects);
        self.persist_hard_state(HardState { term, vote: None, ..self.hard }, effects);
        self.held.clear();
        self.following = Following::default();
        self.tell_role(effects);
    }

    /// Says who leads, whenever that is another than was said.
    fn tell_role(&mut self, effects: &mut Vec<Effect>) {
        let role = self.role();
        if self.told != Some(role) {
            self.told = Some(role);
            effects.push(Effect::RoleChanged(role));
        }
    }

    fn on_received(&mut self, now: Now, message: Message, effects: &mut Vec<Effect>) {
        // zoo B18: a node whose disk was wiped is not who is meant.
        if mutant!("reformatted-voter-votes")
            && let Some(directory) = message.to
        {
            self.setup.me.directory = directory;
        }
        let is_me = message.to.is_none_or(|to| to == self.setup.me.directory);
        if !is_me || message.from == self.setup.me || !message.is_sound() {
            reached!("message-for-somebody-else");
            return;
        }
        match message.body {
            Body::Ask { .. } => return self.on_ask(now, &message, effects),
            Body::Answer { voters } => {
                return self.on_answer(now, message.cluster, message.from, voters, effects);
            }
            Body::Leads { leader, .. } => return self.on_leads(&message, leader, effects),
            Body::Bare { voters } => {
                return self.on_bare(now, message.cluster, message.from, voters, effects);
            }
            Body::Take { instead_of, cluster } => {
                return self.on_take(message.from, instead_of, cluster, effects);
            }
            _ => {}
        }
        let Some(cluster) = message.cluster else { return };
        if self.hard.cluster.is_some_and(|mine| mine != cluster) {
            reached!("message-of-another-cluster");
            return;
        }
        if let Body::PreVote { term, last } = message.body {
            return self.on_pre_vote(now, &message, term, last, effects);
        }
        if self.hard.cluster.is_none() {
            reached!("taken-into-a-cluster");
            self.persist_hard_state(HardState { cluster: Some(cluster), ..self.hard }, effects);
        }
        if self.admit_term(now, &message, effects) {
            self.on_admitted(now, message, effects);
        }
    }

    /// Whether the message is of this term, which it may just have begun.
    fn admit_term(&mut self, now: Now, message: &Message, effects: &mut Vec<Effect>) -> bool {
        let is_pre_vote_reply = matches!(message.body, Body::PreVoteReply { .. });
        // zoo B15: whoever is refused by a newer term must learn of it, or asks for ever.
        if mutant!("prevote-deadlock-on-terms") && is_pre_vote_reply {
            return message.term <= self.hard.term;
        }
        if message.term > self.hard.term {
            if self.is_disturbing(now, message) {
                return false;
            }
            self.follow_term(now, message.term, effects);
        }
        if message.term < self.hard.term {
            match message.body {
                Body::Append { .. } | Body::Heartbeat { .. } | Body::Chunk { .. } => {
                    reached!("a-deposed-leader-is-told");
                    self.send(message.from, Body::Outdated, effects);
                }
                Body::Vote { .. } => {
                    self.send(message.from, Body::VoteReply { granted: false }, effects);
                }
                _ => {}
            }
            // Who would vote for a newer term is in an older one.
            return is_pre_vote_reply;
        }
        true
    }

    fn on_admitted(&mut self, now: Now, message: Message, effects: &mut Vec<Effect>) {
        let from = message.from;
        match message.body {
            Body::Vote { last, .. } => self.on_vote(now, from, last, effects),
            Body::VoteReply { granted } => self.on_vote_reply(now, from, granted, effects),
            Body::PreVoteReply { term, granted } => {
                self.on_pre_vote_reply(now, from, term, granted, effects);
            }
            Body::Append { previous, entries, committed, round } => {
                if self.follow(now, from, round, effects) {
                    self.on_append(now, previous, entries, committed, effects);
                }
            }
            Body::Heartbeat { committed, round } => {
                if self.follow(now, from, round, effects) {
                    self.on_heartbeat(now, committed, effects);
                }
            }
            Body::Chunk { position, configuration, bytes_total, offset, data, round } => {
                let chunk = snapshot::Chunk { position, configuration, bytes_total, offset, data };
                if self.follow(now, from, round, effects) {
                    self.on_chunk(now, chunk, effects);
                }
            }
            Body::TimeoutNow => self.on_timeout_now(now, from, effects),
            Body::Appended { through, round } => {
                self.on_appended(now, from, through, round, effects);
            }
            Body::Mismatch { previous, hint, round } => {
                self.on_mismatch(now, from, (previous, hint), round, effects);
            }
            Body::HeartbeatReply { round, through, received } => {
                self.on_heartbeat_reply(now, from, (through, received), round, effects);
            }
            Body::ChunkReply { position, received, round } => {
                self.on_chunk_reply(now, from, (position, received), round, effects);
            }
            Body::Outdated
            | Body::PreVote { .. }
            | Body::Ask { .. }
            | Body::Answer { .. }
            | Body::Leads { .. }
            | Body::Bare { .. }
            | Body::Take { .. } => {}
        }
    }

    fn on_tick(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if matches!(self.state, State::Leader(_)) {
            self.on_leader_tick(now, effects);
        } else if self.election_at <= now.monotonic {
            self.on_election_timeout(now, effects);
        }
    }

    fn on_persist_failed(&mut self, write: WriteId, effects: &mut Vec<Effect>) {
        self.is_halted = true;
        if let State::Leader(leader) = std::mem::replace(&mut self.state, State::Follower) {
            leader.refuse_all(Refusal::Storage, effects);
        }
        self.held.clear();
        self.following.leader = None;
        self.tell_role(effects);
        effects.push(Effect::Halt { reason: HaltReason::PersistFailed { write } });
    }
}

impl Machine for Quorum {
    type Input = Input;
    type Effect = Effect;

    const TICK: Input = Input::Tick;

    fn step(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        if self.is_halted {
            if let Some(request) = input.request() {
                refuse(request, Refusal::Storage, effects);
            }
            return;
        }
        if self.told.is_none() {
            self.begin(now, effects);
        }
        match input {
            Input::Propose { request, term, data } => {
                self.on_propose(now, request, term, data, effects);
            }
            Input::Read { request } => self.on_read(now, request, effects),
            Input::Change { request, change } => self.on_change(now, request, change, effects),
            Input::Transfer { request, to } => self.on_transfer(now, request, to, effects),
            Input::Describe { request } => {
                let outcome = Outcome::Described(Box::new(self.status(now)));
                effects.push(Effect::Reply { request, outcome });
            }
            Input::Resign => self.on_resign(now, effects),
            Input::SnapshotTaken { through, data } => {
                self.on_snapshot_taken(through, data, effects);
            }
            Input::Cancelled { request } => self.on_cancelled(request),
            Input::Received(message) => self.on_received(now, message, effects),
            Input::Persisted { through } => self.on_persisted(now, through, effects),
            Input::PersistFailed { write } => self.on_persist_failed(write, effects),
            Input::Tick => self.on_tick(now, effects),
        }
        self.tell_role(effects);
        assert!(
            self.delivered <= self.committed && self.committed <= self.log.last().index,
            "{self}"
        );
    }

    fn deadline(&self) -> Option<Instant> {
        if self.is_halted {
            return None;
        }
        match &self.state {
            // The first step begins everything.
            _ if self.told.is_none() => Some(Instant::ZERO),
            State::Leader(leader) => Some(leader.deadline()),
            _ => Some(self.election_at),
        }
    }

    fn check(&self) {
        self.check_all();
    }
}

fn refuse(request: RequestId, refusal: Refusal, effects: &mut Vec<Effect>) {
    effects.push(Effect::Reply { request, outcome: Outcome::Refused(refusal) });
}
