//! Several nodes in the world of cores: each a shard with its seat in the quorum and its replicas,
//! on a disk and a network of our own, with thin versions of what the shipping node puts around
//! them: registration and heartbeats, the way to the controller, logs opened and dropped.
//!
//! On the way an omniscient observer (`shadow.rs`) checks what no client can see.

mod asks;
mod chatter;
mod cleaner;
mod clients;
mod committers;
mod conversations;
mod disk;
mod ends;
mod inject;
mod keeper;
mod log;
mod member;
mod members;
mod node;
mod operator;
mod readers;
mod refine;
mod replay;
mod shadow;
mod transactions;
mod wires;
mod words;
mod writers;

use std::collections::VecDeque;
use std::time::Duration;

use quorate_core::id::{NodeId, Offset, PartitionId};
use quorate_core::partition::interface::Message;
use quorate_core::shard::interface::Input;
use quorate_core::time::Instant;

use self::cleaner::Passed;
use self::clients::{Answer, Clients, Request};
use self::conversations::{Ask, Conversations};
use self::disk::Report;
use self::node::Node;
use self::operator::Operators;
use self::replay::Replay;
use self::shadow::Shadow;
use self::transactions::{Done, Errand};
use self::wires::Wires;
use super::VALUE_BYTES_MAX;
use crate::chance::Chance;
use crate::history::History;
use crate::plan::{Acks, Codecs, Plan};
use crate::run::Observed;
use crate::trace::{self, Mark};

/// The nodes' names.
const NAMES: [&str; crate::plan::Nodes::MAX as usize] = ["n1", "n2", "n3", "n4", "n5", "n6", "n7"];

/// Something that happens at its time. `n` is a node's place, `life` that in which it was planned.
enum Event {
    /// The shard's deadline.
    Tick { n: usize, life: u32, due: Instant },
    /// A group of writes is synced, or is not.
    Synced { n: usize, life: u32, failed: Option<Duration> },
    /// The process hears of it.
    Reported { n: usize, life: u32, reports: Vec<Report> },
    /// A message of another node arrives.
    Packet(Box<Packet>),
    /// A part of a log was read for a follower.
    LogRead { n: usize, life: u32, wanted: Box<Wanted> },
    /// The node looks at what was committed.
    News { n: usize, life: u32 },
    /// A wait of a request to the controller is over.
    AskDue { n: usize, life: u32, ask: u64, turn: u64 },
    /// The next heartbeat.
    Beat { n: usize, life: u32, turn: u64 },
    /// There is a new connection between `n` and `peer`.
    Connected { n: usize, life: u32, peer: usize },
    /// Nobody listens any more where `peer` did.
    Gone { n: usize, life: u32, peer: usize },
    /// A coordinator's log is read on.
    Replays { n: usize, life: u32, replay: Box<Replay> },
    /// A pass of compaction is over.
    Passed { n: usize, life: u32, passed: Box<Passed> },
    /// Nobody waits for an errand any longer.
    ErrandDue { n: usize, life: u32, errand: u64 },
    /// A client's request leaves once more, or late.
    Late { client: u32, n: usize, ask: Box<Ask> },
    /// A client's request arrives.
    Request(Box<Request>),
    /// One that came to a paused node is taken up: the client's oldest there.
    Deferred { client: u32, n: usize },
    /// A reader that found nothing reaches the machine: what it looked at may be old by then.
    Waits { n: usize, life: u32, wait: Box<clients::Waits> },
    /// An answer reaches a client.
    Answer(Box<Answer>),
    /// A client hears that its connection to a node is gone; what it had asked up to this attempt.
    Broken { client: u32, n: usize, attempt: u64 },
    /// A client's timer.
    Wakes { client: u32, token: u64 },
    /// Topics are created, until all are there.
    Operate,
    /// Something is decided about the metadata.
    Chatter,
    /// An operator tries once more, or goes on.
    ActDue { act: u64, turn: u64 },
    /// The plan's fault of this place strikes.
    Fault(usize),
    /// The node starts, if it is down.
    Starts { n: usize, life: u32 },
    /// The node is asked to stop.
    Stops { n: usize, roll: Option<Roll> },
    /// A stop gets on without what it waits for.
    Stopping { n: usize, life: u32, stage: u8 },
    /// A paused node goes on.
    Resumes { n: usize },
}

/// All nodes stop and start, one after another.
#[derive(Clone, Copy)]
struct Roll {
    first: usize,
    done: usize,
    down: Duration,
}

/// What a leader wants to have read for a follower.
struct Wanted {
    partition: PartitionId,
    to: NodeId,
    from: Offset,
    up_to: Offset,
    bytes_max: usize,
}

/// A message between nodes.
struct Packet {
    from: usize,
    to: usize,
    /// The sender's life.
    life: u32,
    payload: Payload,
}

#[derive(Clone)]
enum Payload {
    Quorum(quorate_core::quorum::interface::Message),
    Replica(PartitionId, Message),
    /// To the controller: which request, at which turn of it.
    Ask {
        ask: u64,
        turn: u64,
        input: quorate_core::controller::interface::Input,
    },
    /// Its answer; `None`: the controller is not here.
    Told {
        ask: u64,
        turn: u64,
        outcome: Option<quorate_core::controller::interface::Outcome>,
    },
    /// Something to be done for the sake of a transaction.
    Errand {
        errand: u64,
        what: Errand,
    },
    /// It is done.
    Done {
        errand: u64,
        done: Done,
    },
}

impl Payload {
    /// For the trace: what `from` says.
    fn told_by(&self, from: &str) -> String {
        match self {
            Self::Quorum(message) => {
                format!("{from} says in term {}: {}", message.term, words::of_quorum(&message.body))
            }
            Self::Replica(partition, message) => {
                format!("{from} says of {partition} {}", words::of_replica(message))
            }
            Self::Ask { input, .. } => format!("{from} asks: {input:?}"),
            Self::Told { outcome, .. } => format!("{from} answers: {outcome:?}"),
            Self::Errand { what, .. } => format!("{from} {}", words::of_errand(what)),
            Self::Done { done, .. } => format!("{from} {}", words::of_done(*done)),
        }
    }
}

impl Event {
    /// The node whose process does it, and in which life; a paused one does it later.
    const fn process(&self) -> Option<(usize, u32)> {
        match *self {
            Self::Tick { n, life, .. }
            | Self::Reported { n, life, .. }
            | Self::LogRead { n, life, .. }
            | Self::News { n, life }
            | Self::AskDue { n, life, .. }
            | Self::Beat { n, life, .. }
            | Self::Connected { n, life, .. }
            | Self::Gone { n, life, .. }
            | Self::Waits { n, life, .. }
            | Self::Replays { n, life, .. }
            | Self::Passed { n, life, .. }
            | Self::ErrandDue { n, life, .. }
            | Self::Stopping { n, life, .. } => Some((n, life)),
            _ => None,
        }
    }
}

type Agenda = super::agenda::Agenda<Event>;

struct Cluster {
    plan: Plan,
    agenda: Agenda,
    nodes: Vec<Node>,
    wires: Wires,
    clients: Clients,
    conversations: Conversations,
    operators: Operators,
    /// How often the metadata is written, if it is busy.
    chatter: Option<Duration>,
    shadow: Shadow,
    /// Inputs that follow from what has just happened, in their order.
    todo: VecDeque<(usize, u32, Input)>,
    /// What the quorum's member said in this step, as far as its specification hears it.
    said: Vec<(NodeId, quorate_core::quorum::interface::Message)>,
    /// Empty between steps; kept for its memory.
    effects: Vec<quorate_core::shard::interface::Effect>,
    /// Delays within the nodes.
    inbox: Chance,
    /// Names requests to the controller and their turns.
    next_ask: u64,
    /// Steps between two checks of all invariants; `None` for never.
    check_every: Option<u64>,
    steps: u64,
    history: History,
    observed: Observed,
    healed: bool,
}

/// Steps between two checks of all invariants, unless the seed asks for one at each step.
const CHECK_EVERY: u64 = 256;

/// Runs a plan of several nodes; with `checks`, the machines' own invariants and those of the
/// whole are looked at on the way.
pub(super) fn run(plan: &Plan, checks: bool) -> Observed {
    let mut cluster = Cluster::new(plan, checks);
    for (place, fault) in cluster.plan.faults.iter().enumerate() {
        cluster.agenda.at(fault.at, Event::Fault(place));
    }
    let run = cluster.plan.run.clone();
    for n in 0..cluster.nodes.len() {
        cluster.start(n);
    }
    cluster.agenda.after(Duration::from_millis(1), Event::Operate);
    cluster.agenda.after(Duration::from_millis(1), Event::Chatter);
    cluster.wake_all();
    cluster.go_on(run.safety, |_| false);
    cluster.heal();
    cluster.go_on(run.safety + run.liveness, Cluster::is_well);
    cluster.observed.stuck = cluster.unwell();
    if cluster.observed.stuck.is_empty() {
        cluster.finish(run.liveness);
    }
    cluster.end()
}

impl Cluster {
    fn new(plan: &Plan, checks: bool) -> Self {
        let mut plan = plan.clone();
        // The machines do not look into records; their size matters only to segments.
        plan.workload.codec = Codecs::Plain;
        plan.workload.value_bytes.high = plan.workload.value_bytes.high.min(VALUE_BYTES_MAX);
        // As Kafka's producers: who remembers what it sent wants to know that it is kept.
        plan.workload.idempotent &= plan.workload.acks == Acks::All;
        if plan.workload.acks == Acks::None {
            // Nothing else holds such a writer up, and whoever is to join the set in sync must once
            // have all that is committed: one round trip without a batch, now and then.
            let round = 4 * (plan.link.latency.high + plan.disk.sync.high);
            plan.workload.pause.high += round;
        }
        let mut chance = Chance::new(plan.seed, "checks");
        let check_every = if chance.one_in(16) { 1 } else { CHECK_EVERY };
        let nodes: Vec<Node> =
            (0..plan.cluster.nodes as usize).map(|n| Node::new(&plan, n)).collect();
        Self {
            agenda: Agenda::new(),
            chatter: chatter::draw(&plan, nodes[0].quorum_limits()),
            nodes,
            wires: Wires::new(&plan),
            clients: Clients::new(&plan),
            conversations: Conversations::new(&plan),
            operators: Operators::default(),
            shadow: Shadow::new(&plan),
            todo: VecDeque::new(),
            said: Vec::new(),
            effects: Vec::new(),
            inbox: Chance::new(plan.seed, "inbox"),
            next_ask: 0,
            check_every: checks.then_some(check_every),
            steps: 0,
            history: History::default(),
            observed: Observed::default(),
            healed: false,
            plan,
        }
    }

    /// Lets things happen until `end`, or until `enough` is true.
    fn go_on(&mut self, end: Duration, enough: impl Fn(&Self) -> bool) {
        let mut looked = Duration::ZERO;
        while let Some(at) = self.agenda.next_at() {
            if at > end {
                break;
            }
            // To look costs more than a step.
            if at >= looked {
                looked = at + Duration::from_millis(10);
                if enough(self) {
                    return;
                }
            }
            let Some(event) = self.agenda.pop() else { break };
            self.happens(event);
        }
        self.agenda.now = self.agenda.now.max(end);
    }

    fn happens(&mut self, event: Event) {
        if let Some((n, life)) = event.process() {
            let node = &self.nodes[n];
            if life != node.life {
                return;
            }
            if let Some(until) = node.paused_until {
                self.agenda.at(until, event);
                return;
            }
        }
        match event {
            Event::Tick { n, due, .. } => self.on_tick(n, due),
            Event::Synced { n, life, failed } => self.on_synced(n, life, failed),
            Event::Reported { n, reports, .. } => self.on_reported(n, reports),
            Event::Packet(packet) => self.on_packet(packet),
            Event::LogRead { n, wanted, .. } => self.on_log_read(n, &wanted),
            Event::News { n, .. } => self.on_news(n),
            Event::AskDue { n, ask, turn, .. } => self.on_ask_due(n, ask, turn),
            Event::Beat { n, turn, .. } => self.on_beat(n, turn),
            Event::Connected { n, peer, .. } => self.on_connected(n, peer),
            Event::Gone { n, peer, .. } => self.on_gone(n, peer),
            Event::Replays { n, replay, .. } => self.on_replay(n, replay),
            Event::Passed { n, passed, .. } => self.on_passed(n, *passed),
            Event::ErrandDue { n, errand, .. } => self.on_errand_due(n, errand),
            Event::Late { client, n, ask } => self.on_late(client, n, ask),
            Event::Request(request) => self.on_request(request),
            Event::Deferred { client, n } => self.on_deferred(client, n),
            Event::Waits { n, wait, .. } => self.on_waits(n, *wait),
            Event::Answer(answer) => self.on_answer(*answer),
            Event::Broken { client, n, attempt } => self.on_broken(client, n, attempt),
            Event::Wakes { client, token } => self.on_wake(client, token),
            Event::Operate => self.operate(),
            Event::Chatter => self.chatter(),
            Event::ActDue { act, turn } => self.on_act_due(act, turn),
            Event::Fault(place) => self.strike(place),
            Event::Starts { n, life } => {
                if life == self.nodes[n].life {
                    self.start(n);
                }
            }
            Event::Stops { n, roll } => self.stop(n, roll),
            Event::Stopping { n, stage, .. } => self.on_stopping(n, stage),
            Event::Resumes { n } => {
                let now = self.agenda.now;
                self.nodes[n].paused_until.take_if(|until| *until <= now);
            }
        }
        self.settle();
    }

    /// Does what follows from what has just happened.
    fn settle(&mut self) {
        while let Some((n, life, input)) = self.todo.pop_front() {
            if life == self.nodes[n].life {
                self.step(n, input);
            }
        }
    }

    /// The node's shard is given this, behind all that it is given already.
    fn tell(&mut self, n: usize, input: Input) {
        let life = self.nodes[n].life;
        self.todo.push_back((n, life, input));
    }

    fn note(&self, n: usize, mark: Mark, number: u64, text: &str) {
        trace::event(self.agenda.now, mark, NAMES[n], [number, 0, 0], || text.to_owned());
    }

    /// The run is over: what was seen.
    fn end(mut self) -> Observed {
        self.check_history();
        let mut observed = self.observed;
        observed.steps = self.steps;
        observed.simulated = self.agenda.now;
        observed.violations.append(&mut self.shadow.violations);
        observed.history = self.history;
        let tally = observed.history.tally();
        let numbers = [tally.operations as u64, tally.acknowledged as u64, tally.read as u64];
        trace::event(observed.simulated, Mark::Run, "all", numbers, || format!("ends, {tally:?}"));
        observed
    }
}
