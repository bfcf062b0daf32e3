//! The world of cores: the pure machines in a loop of discrete events, without any runtime. Same
//! plans, workload rules, history and checkers as the world of nodes, at millions of steps a
//! second; instead of a disk and a network there are completions and answers that come or do not.

mod agenda;
mod clients;
mod cluster;
mod inject;
mod ledger;
mod log;
mod node;
mod readers;
mod shadow;

use std::time::Duration;

use quorate_core::id::{PartitionId, TopicId};
use quorate_core::partition::interface::{self as core, Wait};
use quorate_core::time::Instant;

use self::clients::{Actors, Request, WriterReply};
use self::inject::{Closing, Links};
use self::node::CoreNode;
use self::readers::ReaderReply;
use crate::chance::Chance;
use crate::fault::power_loss::Unsynced;
use crate::history::{History, Partition};
use crate::plan::{Codecs, Plan};
use crate::run::Observed;
use crate::trace::{self, Mark};
use crate::workload::writer::partitions;

/// Bytes of a record's value, at most.
const VALUE_BYTES_MAX: u64 = 32;

/// Something that happens at its time.
enum Event {
    /// The shard's deadline, in one of the node's lives.
    Tick { life: u32, due: Instant },
    /// A group of writes is synced.
    Synced { life: u32, failed: bool },
    /// Appends that wait for no sync are written.
    Cached { life: u32 },
    /// A request reaches the node.
    Arrives { life: u32, request: Box<Request> },
    /// A reader that found nothing reaches the machine: what it looked at may be old by then.
    Waits { life: u32, place: usize, wait: Wait },
    /// An answer reaches a writer.
    Writer(WriterReply),
    /// An answer reaches a reader.
    Reader(ReaderReply),
    /// A client's timer.
    Wakes { client: u32, token: u64 },
    /// A client hears that its connection is gone.
    Broken { client: u32, life: u32 },
    /// The plan's fault of this place strikes.
    Fault(usize),
    /// The node starts, if it is down.
    Starts { life: u32 },
    /// A paused node goes on.
    Resumes,
    /// A node that was asked to stop had time enough.
    Patience { life: u32 },
}

impl Event {
    /// Whether a paused process does it later.
    const fn is_the_process(&self) -> bool {
        matches!(
            self,
            Self::Tick { .. } | Self::Cached { .. } | Self::Arrives { .. } | Self::Waits { .. }
        )
    }
}

/// What is to come in a world of one node.
type Agenda = agenda::Agenda<Event>;

struct Cores {
    plan: Plan,
    places: Places,
    agenda: Agenda,
    node: CoreNode,
    links: Links,
    actors: Actors,
    /// Delays between the connections and the machines.
    inbox: Chance,
    /// The node is being stopped in good order.
    closing: Option<Closing>,
    history: History,
    observed: Observed,
    healed: bool,
}

/// The partitions of a plan in a row, and the core's names for them.
#[derive(Clone)]
struct Places {
    partitions: Vec<Partition>,
    /// The place of each topic's first partition.
    first: Vec<usize>,
}

impl Places {
    fn new(plan: &Plan) -> Self {
        let partitions = partitions(plan);
        let first = |topic| partitions.partition_point(|partition| partition.topic < topic);
        let first = (0..plan.topics.len() as u32).map(first).collect();
        Self { partitions, first }
    }

    fn partitions(&self) -> impl Iterator<Item = Partition> {
        self.partitions.iter().copied()
    }

    fn partition(&self, place: usize) -> Partition {
        self.partitions[place]
    }

    fn of(&self, partition: Partition) -> usize {
        self.first[partition.topic as usize] + partition.index as usize
    }

    fn id(&self, partition: Partition) -> PartitionId {
        let mut topic = [0; 16];
        topic[0] = 0x71;
        topic[15] = partition.topic as u8;
        PartitionId { topic: TopicId(topic), index: partition.index as i32 }
    }

    fn place(&self, id: PartitionId) -> usize {
        self.first[usize::from(id.topic.0[15])] + id.index as usize
    }
}

/// Runs a plan; with `checks`, the machines' own invariants are looked at on the way.
pub fn run(plan: &Plan, checks: bool) -> Observed {
    if plan.cluster.nodes > 1 {
        return cluster::run(plan, checks);
    }
    let agenda = Agenda::new();
    let mut plan = plan.clone();
    // The machines do not look into records; their size matters only to segments.
    plan.workload.codec = Codecs::Plain;
    plan.workload.value_bytes.high = plan.workload.value_bytes.high.min(VALUE_BYTES_MAX);
    let places = Places::new(&plan);
    let mut cores = Cores {
        agenda,
        node: CoreNode::new(&plan, places.clone(), checks),
        links: Links::new(&plan),
        actors: Actors::new(&plan),
        inbox: Chance::new(plan.seed, "inbox n1"),
        closing: None,
        history: History::default(),
        observed: Observed::default(),
        healed: false,
        places,
        plan,
    };
    for (place, fault) in cores.plan.faults.iter().enumerate() {
        cores.agenda.at(fault.at, Event::Fault(place));
    }
    let run = cores.plan.run.clone();
    cores.start();
    cores.wake_all();
    cores.go_on(run.safety, false);
    cores.heal();
    cores.go_on(run.safety + run.liveness, true);
    if !cores.actors.proven(&cores.plan) {
        cores.observed.stuck = cores.actors.waiting(&cores.plan);
    }
    cores.last_reading();
    let mut observed = cores.observed;
    observed.steps = cores.node.steps;
    observed.simulated = cores.agenda.now;
    observed.violations.append(&mut cores.node.violations);
    observed.history = cores.history;
    let tally = observed.history.tally();
    let numbers = [tally.operations as u64, tally.acknowledged as u64, tally.read as u64];
    trace::event(observed.simulated, Mark::Run, "all", numbers, || format!("ends, {tally:?}"));
    observed
}

impl Cores {
    /// Lets things happen until `end`; with `prove`, until the writers have shown that all works.
    fn go_on(&mut self, end: Duration, prove: bool) {
        while let Some(at) = self.agenda.next_at() {
            if at > end || (prove && self.actors.proven(&self.plan)) {
                break;
            }
            let Some(event) = self.agenda.pop() else { break };
            self.happens(event);
        }
        if !prove {
            self.agenda.now = self.agenda.now.max(end);
        }
    }

    fn happens(&mut self, event: Event) {
        // A paused process does nothing; its timers and answers wait, and so do its requests.
        if let Some(until) = self.node.paused_until
            && event.is_the_process()
        {
            self.agenda.at(until, event);
            return;
        }
        match event {
            Event::Tick { life, due } => {
                if life == self.node.life {
                    self.node.on_tick(&mut self.agenda, due);
                }
            }
            Event::Synced { life, failed } => {
                if life == self.node.life {
                    self.node.on_synced(&mut self.agenda, failed);
                }
            }
            Event::Cached { life } => {
                if life == self.node.life {
                    self.node.on_cached(&mut self.agenda);
                }
            }
            Event::Arrives { life, request } => self.on_arrival(life, *request),
            Event::Waits { life, place, wait } => {
                if life == self.node.life {
                    self.node.ask(&mut self.agenda, place, core::Input::Wait(wait));
                }
            }
            Event::Writer(reply) => self.on_writer_reply(reply),
            Event::Reader(reply) => self.on_reader_reply(reply),
            Event::Wakes { client, token } => self.on_wake(client, token),
            Event::Broken { client, life } => self.on_broken(client, life),
            Event::Fault(place) => self.strike(place),
            Event::Starts { life } => {
                if life == self.node.life {
                    self.start();
                }
            }
            Event::Resumes => self.node.paused_until = None,
            Event::Patience { life } => {
                if life == self.node.life {
                    self.lose_patience();
                }
            }
        }
        self.deliver();
    }

    /// What the node has answered goes on its way; what it asked for is noted.
    fn deliver(&mut self) {
        if let Some(reason) = self.node.halted.take() {
            self.on_halt(&reason);
        }
        for reply in std::mem::take(&mut self.node.replies) {
            if matches!(reply.outcome, core::Outcome::Closed) {
                self.on_closed(reply.request);
            } else {
                self.send_reply(reply);
            }
        }
    }

    fn start(&mut self) {
        self.node.start(&mut self.agenda);
        let life = self.node.life;
        self.note(Mark::Node, u64::from(life), "starts");
    }

    fn note(&self, mark: Mark, number: u64, text: &str) {
        trace::event(self.agenda.now, mark, "n1", [number, 0, 0], || text.to_owned());
    }

    /// Loses power once more, and reads everything that must have survived it.
    fn last_reading(&mut self) {
        let mut chance = Chance::new(self.plan.seed, "end");
        let unsynced = *chance.pick(Unsynced::ALL);
        if !chance.one_in(4) {
            self.lose_power(unsynced);
            self.start();
        }
        self.history.begin_last_phase();
        self.read_everything();
    }
}
