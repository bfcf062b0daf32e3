//! Writers of several nodes: each finds out who leads, sends its batches there, and looks again
//! when it is refused. The rules of what it sends are the workload's.

use std::collections::BTreeMap;
use std::time::Duration;

use super::clients::{Answer, Told, What};
use super::{Cluster, NAMES};
use crate::history::{Call, End, Partition};
use crate::plan::{Acks, Plan};
use crate::workload::writer::{Answer as Word, Writer};

/// How long it waits before it asks again who leads, or for an id.
const AGAIN: Duration = Duration::from_millis(20);
/// Nobody waits longer for the word on a deletion.
const DELETING: Duration = Duration::from_millis(500);

pub(super) struct WriterActor {
    pub(super) writer: Writer,
    /// Rises with each attempt; answers to earlier ones are not heard.
    attempt: u64,
    attempts: u32,
    /// Batches of the attempt without an answer, and where each was sent.
    unanswered: BTreeMap<usize, usize>,
    /// Which node was asked for something else.
    asked: Option<usize>,
    /// The timer that counts.
    pub(super) token: u64,
    leaders: BTreeMap<Partition, usize>,
    at_healing: Option<BTreeMap<Partition, u64>>,
}

impl WriterActor {
    pub(super) fn new(plan: &Plan, client: u32) -> Self {
        Self {
            writer: Writer::new(plan, client),
            attempt: 0,
            attempts: 0,
            unanswered: BTreeMap::new(),
            asked: None,
            token: 0,
            leaders: BTreeMap::new(),
            at_healing: None,
        }
    }

    pub(super) fn heal(&mut self) {
        self.at_healing = Some(self.writer.acknowledged.clone());
    }

    /// Whom it asks at the moment, for people.
    pub(super) fn asks(&self, partition: Partition) -> String {
        let is_about = |place: usize| {
            self.writer.round.get(place).is_some_and(|append| append.partition == partition)
        };
        let sent = self.unanswered.iter().find(|(place, _)| is_about(**place));
        match (self.asked, sent) {
            (Some(n), _) if self.leaders.is_empty() => {
                format!(" [it asks {} who leads]", NAMES[n])
            }
            (Some(n), _) => format!(" [it asks {} for a producer id]", NAMES[n]),
            (None, Some((_, n))) => format!(" [it asks {}]", NAMES[*n]),
            (None, None) if !self.leaders.contains_key(&partition) => {
                " [it knows of no leader]".to_owned()
            }
            (None, None) => String::new(),
        }
    }

    /// A partition of which it has heard nothing since the healing.
    pub(super) fn unproven(&self, partitions: &[Partition]) -> Option<Partition> {
        let before = self.at_healing.as_ref().filter(|_| self.writer.acks() != Acks::None)?;
        let count = |counts: &BTreeMap<Partition, u64>, partition: &Partition| {
            counts.get(partition).copied().unwrap_or(0)
        };
        let unproven = |partition: &&Partition| {
            count(&self.writer.acknowledged, partition) <= count(before, partition)
        };
        partitions.iter().find(unproven).copied()
    }
}

impl Cluster {
    fn writer(&mut self, client: u32) -> &mut WriterActor {
        self.clients.writers.get_mut(&client).expect("a writer")
    }

    pub(super) fn on_writer_wakes(&mut self, client: u32) {
        let actor = self.writer(client);
        if !actor.unanswered.is_empty() {
            self.give_up_attempt(client, None);
        } else if actor.leaders.is_empty() {
            self.find_leaders(client);
        } else if actor.writer.wants_producer() && actor.writer.round.is_empty() {
            self.find_producer(client);
        } else if actor.writer.round.is_empty() {
            self.begin_round(client);
        } else {
            self.send_attempt(client);
        }
    }

    fn find_leaders(&mut self, client: u32) {
        self.ask_some_node(client, What::Metadata);
    }

    fn find_producer(&mut self, client: u32) {
        self.ask_some_node(client, What::ProducerId);
    }

    fn ask_some_node(&mut self, client: u32, what: What) {
        let n = self.some_node(client);
        let timeout = self.timeout();
        let actor = self.writer(client);
        actor.attempt += 1;
        actor.asked = Some(n);
        let attempt = actor.attempt;
        self.send_request(client, n, attempt, what);
        self.wake_after(client, timeout);
    }

    fn begin_round(&mut self, client: u32) {
        let now = self.client_now();
        let actor = self.clients.writers.get_mut(&client).expect("a writer");
        actor.attempts = 0;
        if let Some((partition, before)) = actor.writer.draw_delete() {
            actor.attempt += 1;
            let attempt = actor.attempt;
            if let Some(&n) = actor.leaders.get(&partition) {
                let call = Call::Delete { partition, before };
                let operation = self.history.invoke(client, now.monotonic, call);
                let what = What::Delete { operation, partition, before };
                self.send_request(client, n, attempt, what);
            }
            self.wake_after(client, DELETING);
            return;
        }
        // What must be shown to work after the healing is not left to chance.
        actor.writer.wanted = actor.unproven(&self.clients.partitions);
        actor.writer.begin(&mut self.history, now);
        self.send_attempt(client);
    }

    fn send_attempt(&mut self, client: u32) {
        let timeout = self.timeout();
        let actor = self.clients.writers.get_mut(&client).expect("a writer");
        actor.attempt += 1;
        actor.attempts += 1;
        let attempt = actor.attempt;
        let answered = actor.writer.acks() != Acks::None;
        let mut requests = Vec::new();
        for place in actor.writer.open() {
            let append = &mut actor.writer.round[place];
            let Some(&n) = actor.leaders.get(&append.partition) else { continue };
            self.history.attempt(append.operation);
            append.settled = !answered;
            if answered {
                actor.unanswered.insert(place, n);
            }
            let (partition, batch) = (append.partition, append.batch.clone());
            requests.push((n, What::Append { place, partition, batch }));
        }
        let waits = !actor.unanswered.is_empty();
        for (n, what) in requests {
            self.send_request(client, n, attempt, what);
        }
        if waits {
            self.wake_after(client, timeout);
        } else {
            self.end_attempt(client);
        }
    }

    /// Nothing more is heard of the attempt, or of what was sent to one node.
    fn give_up_attempt(&mut self, client: u32, node: Option<usize>) {
        let now = self.client_now().monotonic;
        let actor = self.clients.writers.get_mut(&client).expect("a writer");
        actor.leaders.clear();
        let gone = actor.unanswered.extract_if(.., |_, n| node.is_none_or(|node| node == *n));
        for (place, _) in gone.collect::<Vec<_>>() {
            actor.writer.on_answer(place, Word::InDoubt, &mut self.history, now);
        }
        if actor.unanswered.is_empty() {
            self.end_attempt(client);
        }
    }

    fn end_attempt(&mut self, client: u32) {
        let now = self.client_now().monotonic;
        let actor = self.clients.writers.get_mut(&client).expect("a writer");
        // Answers that are still under way are not heard any more.
        actor.attempt += 1;
        let is_done = actor.writer.open().is_empty();
        if !is_done {
            // Somebody else may lead by now.
            actor.leaders.clear();
        }
        let delay = if is_done || actor.attempts >= actor.writer.attempts_max() {
            actor.writer.end(&mut self.history, now);
            actor.writer.pause()
        } else {
            Duration::from_millis(actor.writer.chance.below(20 << actor.attempts.min(5)))
        };
        self.wake_after(client, delay);
    }

    pub(super) fn on_writer_answer(&mut self, answer: Answer) {
        let now = self.client_now().monotonic;
        let actor = self.clients.writers.get_mut(&answer.client).expect("a writer");
        if answer.attempt != actor.attempt {
            return;
        }
        match answer.told {
            Told::Metadata(leaders) => {
                let is_known = !leaders.is_empty();
                actor.leaders = leaders;
                actor.asked = None;
                self.wake_after(answer.client, if is_known { Duration::ZERO } else { AGAIN });
            }
            Told::ProducerId(id) => {
                actor.asked = None;
                if let Some(id) = id {
                    actor.writer.set_producer(id, 0);
                }
                let delay = if id.is_some() { Duration::ZERO } else { AGAIN };
                self.wake_after(answer.client, delay);
            }
            Told::Delete { operation, log_start } => {
                if let Some(log_start) = log_start {
                    self.history.complete(operation, now, End::Deleted { log_start });
                }
                actor.attempt += 1;
            }
            Told::Append { place, word } => {
                if actor.unanswered.remove(&place).is_none() {
                    return;
                }
                actor.writer.on_answer(place, word, &mut self.history, now);
                if actor.unanswered.is_empty() {
                    self.end_attempt(answer.client);
                }
            }
            Told::Read { .. } | Told::Conversation(_) => {}
        }
    }

    /// A writer's connection to a node is gone: nothing more is heard on it.
    pub(super) fn on_writer_broken(&mut self, client: u32, n: usize, attempt: u64) {
        let actor = self.writer(client);
        if attempt < actor.attempt {
            return;
        }
        if actor.asked.take_if(|asked| *asked == n).is_some() {
            actor.attempt += 1;
            self.wake_after(client, AGAIN);
        } else if actor.unanswered.values().any(|sent| *sent == n) {
            self.give_up_attempt(client, Some(n));
        }
    }
}
