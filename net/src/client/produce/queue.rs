//! What a producer holds: open batches, batches that wait, batches under way. It decides which
//! batch may go, which sequence numbers it has, and what an answer means. It neither sends nor
//! waits; time and answers are told to it.
//!
//! A batch keeps its sequence numbers through all its attempts, so that the broker knows a copy.
//! After a failed attempt a partition sends one batch at a time, the oldest first, until one is
//! accepted. A gap in the sequence (a batch was given up) is closed by a new producer id, once
//! nothing is under way; what may have been stored under the old id is never sent under the new.

mod transactional;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use quorate_core::batch::{self, Batch, BatchBuilder, Codec, sequence_plus};
use quorate_core::id::{Offset, ProducerEpoch, ProducerId, TopicId};
use quorate_core::mutant;
use quorate_core::partition::interface::Acks;
use quorate_core::time::{Instant, Now, Timestamp};
use tokio::sync::oneshot;

use super::part::{Answer, Content, Part};
use super::{Delivery, Message, Outcome, ProducerConfig, SendError};
use crate::client::metadata::partition_named;
use crate::client::partitioner::Sticky;
use crate::client::{ClientConfig, Error, Fate};
use crate::kafka::error::Code;

/// What a batch's deliveries learn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settled {
    pub base: Option<Offset>,
    pub append_time: Option<Timestamp>,
    pub at: Instant,
}

struct Open {
    builder: BatchBuilder,
    opened: Instant,
    room: usize,
    reply: oneshot::Sender<Outcome>,
    delivery: Delivery,
}

struct Entry {
    id: u64,
    content: Content,
    records: i32,
    room: usize,
    /// Counted from the first record.
    deadline: Instant,
    not_before: Instant,
    attempts: u32,
    sequence: Option<i32>,
    in_flight: bool,
    /// Nothing stood before it when it was last sent.
    led: bool,
    /// An attempt ended without a word: the batch may be stored.
    uncertain: bool,
    last: Option<Error>,
    reply: oneshot::Sender<Outcome>,
}

#[derive(Default)]
struct Queue {
    open: Option<Open>,
    /// In the order of their records.
    entries: VecDeque<Entry>,
    next_sequence: i32,
    /// An attempt failed: one batch at a time.
    recovering: bool,
    /// The broker has accepted a batch of the present identity. A broker that knows nothing of
    /// a producer takes any sequence number for its first, so until then too: one at a time. Not
    /// in a transaction, which leaders let begin with 0 alone (`transaction.version` 2).
    known: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Identity {
    NotWanted,
    /// To be asked for at this instant.
    Missing(Instant),
    Asked,
    Known(ProducerId, ProducerEpoch),
    /// A sequence has a gap: no batch goes until none is under way.
    Void,
    /// Told by the owner of a transaction, and no longer good: nothing goes.
    Lost,
}

/// What the sending task is to do.
#[derive(Default)]
pub(super) struct Drained {
    pub requests: Vec<(String, Vec<Part>)>,
    pub identify: bool,
    /// A partition whose leader must be asked for.
    pub without_leader: Option<(Arc<str>, i32)>,
    /// Bytes of room that have become free.
    pub freed: usize,
    /// When to look again if nothing happens.
    pub wake: Option<Instant>,
    /// Closed, and nothing is left.
    pub over: bool,
}

type Leader<'a> = &'a dyn Fn(&str, i32) -> Option<(String, TopicId)>;
type Free<'a> = &'a dyn Fn(&str) -> bool;

pub(super) struct Queues {
    topics: BTreeMap<Arc<str>, BTreeMap<i32, Queue>>,
    sticky: BTreeMap<Arc<str>, Sticky>,
    identity: Identity,
    /// Batches are parts of transactions: the identity is told from outside, never asked for.
    transactional: bool,
    /// Why the transaction cannot be committed: what the first batch that was not stored met.
    failure: Option<Error>,
    next_entry: u64,
    in_flight: usize,
    /// Batches, open ones included.
    held: usize,
    freed: usize,
    hurry: bool,
    closed: bool,
    linger: Duration,
    delivery_timeout: Duration,
    backoff: Duration,
    backoff_max: Duration,
    codec: Codec,
    batch_bytes_max: usize,
    batch_records_max: i32,
    request_bytes_max: usize,
    attempts_max: u32,
    seed: u64,
}

impl Queues {
    pub(super) fn new(config: &ProducerConfig, client: &ClientConfig, transactional: bool) -> Self {
        let missing = if transactional { Identity::Lost } else { Identity::Missing(Instant::ZERO) };
        // Without an answer nobody can tell whether a second attempt is wanted.
        let once = config.acks == Acks::None;
        Self {
            topics: BTreeMap::new(),
            sticky: BTreeMap::new(),
            identity: if config.idempotent { missing } else { Identity::NotWanted },
            transactional,
            failure: None,
            next_entry: 0,
            in_flight: 0,
            held: 0,
            freed: 0,
            hurry: false,
            closed: false,
            linger: config.linger,
            delivery_timeout: config.delivery_timeout,
            backoff: client.retry_backoff,
            backoff_max: client.retry_backoff_max,
            codec: config.codec,
            batch_bytes_max: config.batch_bytes_max,
            batch_records_max: config.batch_records_max,
            request_bytes_max: config.request_bytes_max,
            attempts_max: if once { 1 } else { config.attempts_max.unwrap_or(u32::MAX).max(1) },
            seed: client.seed,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held == 0
    }

    pub(super) const fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Nothing lingers until nothing is held.
    pub(super) fn hurry(&mut self) {
        self.hurry = true;
    }

    pub(super) fn sticky(&mut self, topic: &Arc<str>, partitions: i32, bytes: usize) -> i32 {
        if !self.sticky.contains_key(topic) {
            let sticky = Sticky::new(self.seed, self.batch_bytes_max);
            self.sticky.insert(Arc::clone(topic), sticky);
        }
        self.sticky.get_mut(topic).map_or(0, |sticky| sticky.next(partitions, bytes))
    }

    /// Adds a record; also says whether the sending task should look.
    pub(super) fn append(
        &mut self,
        now: Now,
        message: Message,
        partition: i32,
        room: usize,
    ) -> (Delivery, bool) {
        let timestamp = message.timestamp.unwrap_or(now.wall);
        let queues = match self.topics.get_mut(&message.topic) {
            Some(queues) => queues,
            None => self.topics.entry(Arc::clone(&message.topic)).or_default(),
        };
        let known = self.transactional;
        let queue = queues.entry(partition).or_insert(Queue { known, ..Queue::default() });
        let full = queue.open.as_ref().is_some_and(|open| {
            open.builder.bytes() + room > self.batch_bytes_max
                || open.builder.count() >= self.batch_records_max
        });
        if full {
            let deadline = self.delivery_timeout;
            queue.shut(&mut self.next_entry, deadline);
        }
        let fresh = queue.open.is_none();
        let open = queue.open.get_or_insert_with(|| {
            self.held += 1;
            open(BatchBuilder::new(self.codec), now.monotonic, &message.topic, partition)
        });
        let place = open.builder.count();
        let headers: Vec<batch::record::RecordHeader<'_>> = message
            .headers
            .iter()
            .map(|header| batch::record::RecordHeader {
                key: &header.key,
                value: header.value.as_deref(),
            })
            .collect();
        open.builder.append(timestamp, message.key.as_deref(), message.value.as_deref(), headers);
        open.room += room;
        let delivery = Delivery { place, timestamp, ..open.delivery.clone() };
        let ripe = full || fresh || open.builder.bytes() >= self.batch_bytes_max;
        (delivery, ripe)
    }

    /// Takes what may be sent now.
    pub(super) fn drain(&mut self, now: Instant, leader: Leader<'_>, free: Free<'_>) -> Drained {
        let mut drained = Drained::default();
        self.expire(now);
        self.renew_identity();
        if self.closed || self.identity == Identity::Lost {
            self.give_up(&self.failure.clone().unwrap_or(Error::Closed));
        }
        match self.identity {
            Identity::Missing(at) if at > now => drained.wake_at(at),
            Identity::Missing(_) if self.held > 0 => {
                self.identity = Identity::Asked;
                drained.identify = true;
            }
            Identity::Missing(_) | Identity::Asked | Identity::Void | Identity::Lost => {}
            Identity::NotWanted | Identity::Known(..) => {
                self.take_ripe(now, leader, free, &mut drained);
            }
        }
        self.note_deadlines(&mut drained);
        if self.held == 0 {
            self.hurry = false;
        }
        drained.freed = std::mem::take(&mut self.freed);
        drained.over = self.closed && self.held == 0;
        drained
    }

    fn take_ripe(
        &mut self,
        now: Instant,
        leader: Leader<'_>,
        free: Free<'_>,
        drained: &mut Drained,
    ) {
        // By address: the parts taken, and their bytes.
        let mut requests: BTreeMap<String, (Vec<Part>, usize)> = BTreeMap::new();
        let identity = match self.identity {
            Identity::Known(id, epoch) => Some((id, epoch)),
            _ => None,
        };
        for (topic, queues) in &mut self.topics {
            for (&partition, queue) in queues {
                let linger = if self.hurry { Duration::ZERO } else { self.linger };
                let Some(place) = queue.ripe(now, linger, self.batch_bytes_max, drained) else {
                    continue;
                };
                let Some((address, topic_id)) = leader(topic, partition) else {
                    drained.without_leader.get_or_insert_with(|| (Arc::clone(topic), partition));
                    continue;
                };
                let request = requests.get(&address);
                let room = request.is_none_or(|(_, bytes)| *bytes < self.request_bytes_max);
                if !room || (request.is_none() && !free(&address)) {
                    continue;
                }
                if place == queue.entries.len() {
                    queue.shut(&mut self.next_entry, self.delivery_timeout);
                }
                let entry = &mut queue.entries[place];
                (entry.in_flight, entry.led) = (true, place == 0);
                entry.attempts += 1;
                self.in_flight += 1;
                if identity.is_some() && entry.sequence.is_none() {
                    entry.sequence = Some(queue.next_sequence);
                    queue.next_sequence = sequence_plus(queue.next_sequence, entry.records);
                }
                let sequence = entry.sequence;
                let part = Part {
                    topic: Arc::clone(topic),
                    topic_id,
                    partition,
                    entry: entry.id,
                    content: std::mem::replace(&mut entry.content, Content::Away),
                    codec: self.codec,
                    identity: identity.zip(sequence).map(|((id, epoch), at)| (id, epoch, at)),
                    transactional: self.transactional,
                };
                let (parts, bytes) = requests.entry(address).or_default();
                parts.push(part);
                *bytes += entry.room;
            }
        }
        drained.requests =
            requests.into_iter().map(|(address, (parts, _))| (address, parts)).collect();
    }

    /// An attempt has ended. `batch` comes back for the case that there is another one.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        part: &Part,
        batch: Batch,
        answer: Result<Answer, Error>,
    ) {
        self.in_flight -= 1;
        let Some(queue) =
            self.topics.get_mut(&part.topic).and_then(|queues| queues.get_mut(&part.partition))
        else {
            return;
        };
        let Some(place) = queue.entries.iter().position(|entry| entry.id == part.entry) else {
            return;
        };
        let entry = &mut queue.entries[place];
        entry.in_flight = false;
        entry.content = Content::Built(batch);
        let error = match answer {
            Ok(Answer { base, append_time }) => {
                return self.settle(part, place, Ok(Settled { base, append_time, at: now }));
            }
            // An old copy of it is in the log; where, nobody remembers.
            Err(error) if error.code() == Some(Code::DuplicateSequenceNumber) => {
                let (base, append_time) = (None, None);
                return self.settle(part, place, Ok(Settled { base, append_time, at: now }));
            }
            Err(error) => error,
        };
        entry.uncertain |= error.fate() == Fate::Unknown;
        entry.last = Some(error.clone());
        let behind = !entry.led && (place > 0 || queue.recovering);
        let idempotent = entry.sequence.is_some();
        let sequence_broken = idempotent
            && matches!(
                error.code(),
                Some(
                    Code::OutOfOrderSequenceNumber
                        | Code::UnknownProducerId
                        | Code::InvalidProducerEpoch
                )
            );
        // One that came before a failed predecessor is out of order through no fault of its own.
        let only_early = behind && error.code() == Some(Code::OutOfOrderSequenceNumber);
        let again = error.is_retriable() || sequence_broken;
        if again && entry.attempts < self.attempts_max {
            let doublings = entry.attempts.saturating_sub(1).min(10);
            let pause = (self.backoff * 2_u32.pow(doublings)).min(self.backoff_max);
            entry.not_before = now + pause;
            queue.recovering = true;
            if mutant!("client-renumbers-retries") {
                queue.entries[place].sequence = None;
            }
            if sequence_broken && !only_early {
                self.identity = Identity::Void;
            }
            return;
        }
        let fate = if entry.uncertain { Fate::Unknown } else { Fate::NotDone };
        self.fail(&error);
        self.settle(part, place, Err(SendError { error, fate }));
    }

    fn settle(&mut self, part: &Part, place: usize, outcome: Outcome) {
        let queues = self.topics.get_mut(&part.topic);
        if let Some(queue) = queues.and_then(|queues| queues.get_mut(&part.partition)) {
            if outcome.is_ok() {
                queue.recovering = false;
                queue.known = true;
            }
            self.freed += queue.end(place, outcome, &mut self.identity);
            self.held -= 1;
        }
    }

    /// Gives up the batches whose time is over and that are not under way.
    fn expire(&mut self, now: Instant) {
        let mut overdue_first = None;
        for (topic, queues) in &mut self.topics {
            for (&partition, queue) in queues {
                if queue.open.as_ref().is_some_and(|o| o.opened + self.delivery_timeout <= now) {
                    queue.shut(&mut self.next_entry, self.delivery_timeout);
                }
                let overdue = |entry: &Entry| !entry.in_flight && entry.deadline <= now;
                while let Some(place) = queue.entries.iter().position(overdue) {
                    let what = format!("producing to {}", partition_named(topic, partition));
                    let after = self.delivery_timeout;
                    let last = queue.entries[place].last.take().map(Box::new);
                    let error = Error::Expired { what, after, last };
                    overdue_first.get_or_insert_with(|| error.clone());
                    let outcome = Err(queue.entries[place].failure(error));
                    self.freed += queue.end(place, outcome, &mut self.identity);
                    self.held -= 1;
                }
            }
        }
        if let Some(error) = overdue_first {
            self.fail(&error);
        }
    }

    /// Once nothing is under way, batches that are certainly not stored lose their numbers and
    /// wait for a new producer id; what may be stored ends as unknown.
    fn renew_identity(&mut self) {
        if self.identity != Identity::Void || self.in_flight > 0 {
            return;
        }
        if self.transactional {
            return self.lose();
        }
        self.identity = Identity::Missing(Instant::ZERO);
        for queue in self.topics.values_mut().flat_map(BTreeMap::values_mut) {
            queue.next_sequence = 0;
            queue.recovering = false;
            queue.known = false;
            for entry in &mut queue.entries {
                if !entry.uncertain {
                    entry.sequence = None;
                }
            }
            while let Some(place) = queue.entries.iter().position(|entry| entry.sequence.is_some())
            {
                let error = queue.entries[place].last.take().unwrap_or(Error::Closed);
                let outcome = Err(SendError { error, fate: Fate::Unknown });
                // The identity is being renewed already.
                let mut renewed = Identity::NotWanted;
                self.freed += queue.end(place, outcome, &mut renewed);
                self.held -= 1;
            }
        }
    }

    /// The answer to `Drained::identify`.
    pub(super) fn identified(
        &mut self,
        now: Instant,
        outcome: Result<(ProducerId, ProducerEpoch), Error>,
    ) {
        match outcome {
            Ok((id, epoch)) => self.identity = Identity::Known(id, epoch),
            Err(error) => {
                self.identity = Identity::Missing(now + self.backoff_max.min(self.backoff * 4));
                if !error.is_retriable() {
                    self.give_up(&error);
                }
            }
        }
    }

    /// Ends every batch that is not under way.
    fn give_up(&mut self, error: &Error) {
        for queue in self.topics.values_mut().flat_map(BTreeMap::values_mut) {
            queue.shut(&mut self.next_entry, Duration::ZERO);
            while let Some(place) = queue.entries.iter().position(|entry| !entry.in_flight) {
                let outcome = Err(queue.entries[place].failure(error.clone()));
                self.freed += queue.end(place, outcome, &mut self.identity);
                self.held -= 1;
            }
        }
    }

    fn note_deadlines(&self, drained: &mut Drained) {
        for queue in self.topics.values().flat_map(BTreeMap::values) {
            for entry in queue.entries.iter().filter(|entry| !entry.in_flight).take(1) {
                drained.wake_at(entry.deadline);
            }
            if let Some(open) = &queue.open {
                drained.wake_at(open.opened + self.delivery_timeout);
            }
        }
    }
}

impl Drained {
    fn wake_at(&mut self, at: Instant) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}

fn open(builder: BatchBuilder, now: Instant, topic: &Arc<str>, partition: i32) -> Open {
    let (reply, receiver) = oneshot::channel();
    let delivery = Delivery {
        batch: receiver.shared(),
        topic: Arc::clone(topic),
        partition,
        place: 0,
        timestamp: Timestamp::NONE,
    };
    Open { builder, opened: now, room: 0, reply, delivery }
}

impl Entry {
    fn failure(&self, error: Error) -> SendError {
        let fate = if self.uncertain { Fate::Unknown } else { Fate::NotDone };
        SendError { error, fate }
    }
}

impl Queue {
    /// The open batch, if there is one, takes no more records.
    fn shut(&mut self, next_entry: &mut u64, delivery_timeout: Duration) {
        let Some(open) = self.open.take() else { return };
        let id = *next_entry;
        *next_entry += 1;
        self.entries.push_back(Entry {
            id,
            records: open.builder.count(),
            content: Content::Fresh(open.builder),
            room: open.room,
            deadline: open.opened + delivery_timeout,
            not_before: open.opened,
            attempts: 0,
            sequence: None,
            in_flight: false,
            led: false,
            uncertain: false,
            last: None,
            reply: open.reply,
        });
    }

    /// The place of the batch that may go now; one past the last is the open one. Notes when to
    /// look again otherwise.
    fn ripe(
        &self,
        now: Instant,
        linger: Duration,
        bytes_max: usize,
        drained: &mut Drained,
    ) -> Option<usize> {
        let next = self.entries.iter().position(|entry| !entry.in_flight);
        let alone = self.recovering || !self.known;
        if alone && self.entries.iter().any(|entry| entry.in_flight) {
            return None;
        }
        if let Some(place) = next {
            let at = self.entries[place].not_before;
            if at > now {
                drained.wake_at(at);
                return None;
            }
            return Some(place);
        }
        let open = self.open.as_ref()?;
        let at = open.opened + linger;
        if at <= now || open.builder.bytes() >= bytes_max {
            return Some(self.entries.len());
        }
        drained.wake_at(at);
        None
    }

    /// Ends the batch at `place` and gives its room back. If its numbers are lost to the log, the
    /// last ones are taken back; others leave a gap, which voids the identity.
    fn end(&mut self, place: usize, outcome: Outcome, identity: &mut Identity) -> usize {
        let Some(entry) = self.entries.remove(place) else { return 0 };
        if let (Err(_), Some(sequence)) = (&outcome, entry.sequence) {
            let last = sequence_plus(sequence, entry.records) == self.next_sequence;
            if last && !entry.uncertain {
                self.next_sequence = sequence;
            } else if matches!(identity, Identity::Known(..)) {
                *identity = Identity::Void;
            }
        }
        if self.entries.is_empty() {
            self.recovering = false;
        }
        // Nobody may wait for it any more.
        let _ = entry.reply.send(outcome);
        entry.room
    }
}

#[cfg(test)]
mod tests;
