//! Clients of the world of cores: the writer's rules, as actors that send, wait and give up.
//! Readers are in `readers.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::batch::{Batch, Levels};
use quorate_core::id::{Offset, RequestId};
use quorate_core::partition::interface as core;
use quorate_core::time::Now;
use quorate_core::time::Timestamp;
use quorate_net::kafka::error::Code;

use super::node::Reply;
use super::readers::{ReaderActor, ReaderReply};
use super::{Cores, Event};
use crate::chance::Chance;
use crate::history::{Call, End, OperationId, Partition};
use crate::plan::{Acks, Plan};
use crate::workload::writer::{Answer, Writer, partitions};

/// Until a node that stopped by itself is started again, unless a fault says otherwise.
const RESTART: Duration = Duration::from_millis(300);

/// A request on its way to the node.
pub(super) struct Request {
    client: u32,
    /// Which of the client's attempts it belongs to.
    attempt: u64,
    what: What,
}

pub(super) enum What {
    Append { place: usize, partition: Partition, batch: Batch },
    Delete { operation: OperationId, partition: Partition, before: Option<i64> },
    Read { operation: OperationId, partition: Partition, from: i64 },
}

/// Who waits for an answer of the shard.
pub(super) struct Waiting {
    client: u32,
    attempt: u64,
    what: Wanted,
}

#[derive(Clone, Copy)]
enum Wanted {
    Append { place: usize },
    Delete { operation: OperationId },
    Read { operation: OperationId, partition: Partition, from: i64 },
}

/// An answer on its way to a writer.
pub(super) struct WriterReply {
    client: u32,
    attempt: u64,
    what: Told,
}

enum Told {
    Append { place: usize, answer: Answer },
    Delete { operation: OperationId, log_start: Option<i64> },
}

pub(super) struct WriterActor {
    writer: Writer,
    /// Rises with each attempt; answers to earlier ones are not heard.
    attempt: u64,
    attempts: u32,
    /// Batches of the attempt without an answer.
    unanswered: Vec<usize>,
    /// The timer that counts.
    token: u64,
    at_healing: Option<BTreeMap<Partition, u64>>,
}

/// A connection that was reset.
struct Broken {
    /// Requests of attempts up to this one may be lost.
    attempt: u64,
    /// One was: nothing more of it arrives.
    ended: bool,
}

pub(super) struct Actors {
    pub(super) writers: Vec<WriterActor>,
    pub(super) readers: Vec<ReaderActor>,
    pub(super) partitions: Vec<Partition>,
    pub(super) requests: BTreeMap<RequestId, Waiting>,
    next_request: u64,
    next_producer: i64,
    /// The last connection of each client that was reset.
    broken: BTreeMap<u32, Broken>,
    pub(super) restart: Duration,
}

impl Actors {
    pub(super) fn new(plan: &Plan) -> Self {
        let (writers, readers) = (plan.workload.writers, plan.workload.readers);
        let partitions = partitions(plan);
        let writer = |client| WriterActor {
            writer: Writer::new(plan, client),
            attempt: 0,
            attempts: 0,
            unanswered: Vec::new(),
            token: 0,
            at_healing: None,
        };
        let reader = |client: u32| ReaderActor {
            chance: Chance::new(plan.seed, &format!("reader {client}")),
            attempt: 0,
            token: 0,
            turn: 0,
            positions: partitions.iter().map(|partition| (*partition, 0)).collect(),
        };
        Self {
            writers: (0..writers).map(writer).collect(),
            readers: (writers..writers + readers).map(reader).collect(),
            partitions,
            requests: BTreeMap::new(),
            next_request: 1,
            next_producer: 1000,
            broken: BTreeMap::new(),
            restart: RESTART,
        }
    }

    pub(super) fn count(&self) -> u32 {
        (self.writers.len() + self.readers.len()) as u32
    }

    pub(super) fn next_request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    pub(super) fn heal(&mut self) {
        for actor in &mut self.writers {
            actor.at_healing = Some(actor.writer.acknowledged.clone());
        }
    }

    /// The writers that wait for something since the healing.
    fn unproven(&self, plan: &Plan) -> impl Iterator<Item = (u32, Partition)> {
        let needed = plan.workload.acks != Acks::None;
        self.writers.iter().filter(move |_| needed).filter_map(|actor| {
            let before = actor.at_healing.as_ref()?;
            let count = |counts: &BTreeMap<Partition, u64>, partition: &Partition| {
                counts.get(partition).copied().unwrap_or(0)
            };
            let missing = self.partitions.iter().find(|partition| {
                count(&actor.writer.acknowledged, partition) <= count(before, partition)
            })?;
            Some((actor.writer.client, *missing))
        })
    }

    pub(super) fn proven(&self, plan: &Plan) -> bool {
        self.unproven(plan).next().is_none()
    }

    pub(super) fn waiting(&self, plan: &Plan) -> Vec<String> {
        self.unproven(plan)
            .map(|(client, partition)| format!("c{client} got nothing acknowledged on {partition}"))
            .collect()
    }
}

impl Cores {
    /// Every client begins.
    pub(super) fn wake_all(&mut self) {
        for client in 0..self.actors.count() {
            self.wake_after(client, Duration::from_millis(1));
        }
    }

    pub(super) fn wake_after(&mut self, client: u32, delay: Duration) {
        let writers = self.actors.writers.len() as u32;
        let token = if client < writers {
            &mut self.actors.writers[client as usize].token
        } else {
            &mut self.actors.readers[(client - writers) as usize].token
        };
        *token += 1;
        let token = *token;
        self.agenda.after(delay, Event::Wakes { client, token });
    }

    /// The clients' clock: the true time.
    pub(super) fn client_now(&self) -> Now {
        let wall = 1_767_225_600_000 + self.agenda.now.as_millis() as i64;
        Now { monotonic: self.agenda.instant(), wall: Timestamp(wall) }
    }

    pub(super) fn on_wake(&mut self, client: u32, token: u64) {
        let writers = self.actors.writers.len() as u32;
        if client >= writers {
            let reader = &self.actors.readers[(client - writers) as usize];
            if reader.token == token {
                self.read_next(client);
            }
            return;
        }
        let actor = &mut self.actors.writers[client as usize];
        if actor.token != token {
            return;
        }
        if !actor.unanswered.is_empty() {
            self.give_up_attempt(client);
        } else if !actor.writer.round.is_empty() {
            self.send_attempt(client);
        } else {
            self.begin_round(client);
        }
    }

    fn begin_round(&mut self, client: u32) {
        let now = self.client_now();
        let actor = &mut self.actors.writers[client as usize];
        if actor.writer.wants_producer() {
            self.actors.next_producer += 1;
            actor.writer.set_producer(self.actors.next_producer, 0);
        }
        actor.attempts = 0;
        if let Some((partition, before)) = actor.writer.draw_delete() {
            actor.attempt += 1;
            let attempt = actor.attempt;
            let call = Call::Delete { partition, before };
            let operation = self.history.invoke(client, now.monotonic, call);
            self.send(client, attempt, What::Delete { operation, partition, before });
            self.wake_after(client, Duration::from_millis(50));
            return;
        }
        actor.writer.begin(&mut self.history, now);
        self.send_attempt(client);
    }

    fn send_attempt(&mut self, client: u32) {
        let actor = &mut self.actors.writers[client as usize];
        actor.attempt += 1;
        actor.attempts += 1;
        let attempt = actor.attempt;
        let open = actor.writer.open();
        let answered = actor.writer.acks() != Acks::None;
        let mut requests = Vec::new();
        for place in open {
            let append = &mut actor.writer.round[place];
            self.history.attempt(append.operation);
            append.settled = !answered;
            if answered {
                actor.unanswered.push(place);
            }
            let (partition, batch) = (append.partition, append.batch.clone());
            requests.push(What::Append { place, partition, batch });
        }
        for what in requests {
            self.send(client, attempt, what);
        }
        if answered {
            let timeout = self.plan.workload.timeout;
            self.wake_after(client, timeout);
        } else {
            self.end_attempt(client);
        }
    }

    /// Sends a request; those of one attempt arrive in their order.
    pub(super) fn send(&mut self, client: u32, attempt: u64, what: What) {
        let at = self.links.request_arrives(client, self.agenda.now);
        let life = self.node.life;
        let request = Box::new(Request { client, attempt, what });
        self.agenda.at(at, Event::Arrives { life, request });
    }

    fn give_up_attempt(&mut self, client: u32) {
        let now = self.client_now().monotonic;
        let actor = &mut self.actors.writers[client as usize];
        for place in std::mem::take(&mut actor.unanswered) {
            actor.writer.on_answer(place, Answer::InDoubt, &mut self.history, now);
        }
        self.end_attempt(client);
    }

    fn end_attempt(&mut self, client: u32) {
        let now = self.client_now().monotonic;
        let actor = &mut self.actors.writers[client as usize];
        // Answers that are still under way are not heard any more.
        actor.attempt += 1;
        let done = actor.writer.open().is_empty();
        let delay = if done || actor.attempts >= actor.writer.attempts_max() {
            actor.writer.end(&mut self.history, now);
            actor.writer.pause()
        } else {
            Duration::from_millis(actor.writer.chance.below(20 << actor.attempts.min(5)))
        };
        self.wake_after(client, delay);
    }

    pub(super) fn on_writer_reply(&mut self, reply: WriterReply) {
        let now = self.client_now().monotonic;
        let actor = &mut self.actors.writers[reply.client as usize];
        if reply.attempt != actor.attempt {
            return;
        }
        match reply.what {
            Told::Delete { operation, log_start } => {
                if let Some(log_start) = log_start {
                    self.history.complete(operation, now, End::Deleted { log_start });
                }
                actor.attempt += 1;
            }
            Told::Append { place, answer } => {
                let Some(found) = actor.unanswered.iter().position(|other| *other == place) else {
                    return;
                };
                actor.unanswered.remove(found);
                actor.writer.on_answer(place, answer, &mut self.history, now);
                if actor.unanswered.is_empty() {
                    self.end_attempt(reply.client);
                }
            }
        }
    }

    /// A client's connection is gone: nothing more is heard on it.
    pub(super) fn on_broken(&mut self, client: u32, life: u32) {
        let writers = self.actors.writers.len() as u32;
        if client >= writers {
            let reader = &mut self.actors.readers[(client - writers) as usize];
            reader.attempt += 1;
            self.wake_after(client, Duration::from_millis(5));
            return;
        }
        let actor = &self.actors.writers[client as usize];
        if life == self.node.life {
            let broken = Broken { attempt: actor.attempt, ended: false };
            self.actors.broken.insert(client, broken);
        }
        if !actor.unanswered.is_empty() {
            self.give_up_attempt(client);
        }
    }

    /// A request reaches the node, if it is still the one it was sent to.
    pub(super) fn on_arrival(&mut self, life: u32, request: Request) {
        // A node that is stopping still hears what was sent before, and must say no.
        if life != self.node.life || !self.node.is_up() {
            return;
        }
        // What was under way on a connection when it was reset arrives up to some place.
        if let Some(broken) = self.actors.broken.get_mut(&request.client)
            && request.attempt <= broken.attempt
            && (broken.ended || !self.links.survives_reset())
        {
            broken.ended = true;
            return;
        }
        let id = self.actors.next_request();
        let (client, attempt) = (request.client, request.attempt);
        let now = self.node.now(&self.agenda).monotonic;
        let (partition, wanted, input) = match request.what {
            What::Append { place, partition, batch } => {
                let until = now + self.plan.workload.timeout;
                let acks = match self.plan.workload.acks {
                    Acks::None => core::Acks::None,
                    Acks::Leader => core::Acks::Leader,
                    Acks::All => core::Acks::All,
                };
                let levels = Levels::DEFAULT;
                let produce =
                    core::Produce { request: id, batch, levels, acks, until, guard: None };
                (partition, Wanted::Append { place }, core::Input::Produce(produce))
            }
            What::Delete { operation, partition, before } => {
                let before = before.map(Offset);
                let until = now + self.plan.workload.timeout;
                let input = core::Input::DeleteRecords { request: id, before, until };
                (partition, Wanted::Delete { operation }, input)
            }
            What::Read { operation, partition, from } => {
                let wanted = Wanted::Read { operation, partition, from };
                let waiting = Waiting { client, attempt, what: wanted };
                let place = self.places.of(partition);
                if self.node.end(place) != Offset(from) || self.plan.workload.wait.is_zero() {
                    self.answer(waiting, &core::Outcome::Advanced);
                    return;
                }
                let until = now + self.plan.workload.wait;
                let isolation = core::Isolation::ReadUncommitted;
                let beyond = Offset(from);
                let wait = core::Wait { request: id, beyond, bytes_min: 1, isolation, until };
                self.actors.requests.insert(id, waiting);
                let delay = Duration::from_micros(self.inbox.below(200));
                self.agenda.after(delay, Event::Waits { life, place, wait });
                return;
            }
        };
        self.actors.requests.insert(id, Waiting { client, attempt, what: wanted });
        self.node.ask(&mut self.agenda, self.places.of(partition), input);
    }

    pub(super) fn send_reply(&mut self, reply: Reply) {
        if let Some(waiting) = self.actors.requests.remove(&reply.request) {
            self.answer(waiting, &reply.outcome);
        }
    }

    fn answer(&mut self, waiting: Waiting, outcome: &core::Outcome) {
        let Waiting { client, attempt, what } = waiting;
        let is_silent = self.plan.workload.acks == Acks::None;
        let event = match what {
            Wanted::Append { .. }
                if is_silent && matches!(outcome, core::Outcome::Produced { .. }) =>
            {
                return;
            }
            Wanted::Append { place } => {
                let answer = judge(outcome);
                let what = Told::Append { place, answer };
                Event::Writer(WriterReply { client, attempt, what })
            }
            Wanted::Delete { operation } => {
                let log_start = match outcome {
                    core::Outcome::RecordsDeleted { log_start } => Some(log_start.0),
                    _ => None,
                };
                let what = Told::Delete { operation, log_start };
                Event::Writer(WriterReply { client, attempt, what })
            }
            Wanted::Read { operation, partition, from } => {
                let (end, next) = self.read(partition, from, outcome);
                let reply = ReaderReply { client, attempt, operation, partition, end, next };
                Event::Reader(reply)
            }
        };
        if let Some(at) = self.links.reply_arrives(client, self.agenda.now) {
            self.agenda.at(at, event);
        }
    }
}

fn judge(outcome: &core::Outcome) -> Answer {
    match outcome {
        core::Outcome::Produced { base, append_time, .. } => {
            Answer::Appended { base: base.0, append_time: append_time.map(Timestamp::millis) }
        }
        core::Outcome::Refused(refusal) => Answer::Refused(Code::from(refusal).code()),
        _ => Answer::InDoubt,
    }
}
