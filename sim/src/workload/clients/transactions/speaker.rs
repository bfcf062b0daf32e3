//! A producer that speaks the protocol of transactions itself, in its present or its older form,
//! and whom the network treats badly: requests come again over another connection, and late;
//! answers are lost when the work is done; ends are asked for while batches are on their way; and
//! somebody claims what was never given. What it is told is taken at its word.

mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quorate_core::reached;
use quorate_net::kafka::error::Code;

use self::requests::{Batch, Who};
use super::super::super::client::Link;
use super::super::super::values;
use super::{AGAIN, Actor, BYTES, LOOK, Next};
use crate::chance::Between;
use crate::history::Value;
use crate::history::transactions::{Outcome, Place, Sent, Topic};
use crate::plan::transactions::Transactions;

/// Transactions of one life, at most.
const TRANSACTIONS_MAX: u64 = 20;
/// Records of one batch, at most.
const BATCH_MAX: u64 = 5;
/// How often a question is asked while faults strike, at most; and once they do not.
const ATTEMPTS: u64 = 8;
const ATTEMPTS_AFTER: u64 = 1000;

/// One life of a transactional id, as this client sees it.
struct Speaker<'a> {
    actor: &'a mut Actor,
    id: String,
    /// Its number, as its values tell it.
    writer: u32,
    /// The older protocol.
    old: bool,
    /// By address; one that has failed is gone.
    links: BTreeMap<String, Link>,
    coordinator: Option<String>,
    leaders: BTreeMap<Place, String>,
    who: Who,
    sequences: BTreeMap<Place, i32>,
    /// Of the open transaction, in the older protocol.
    added: BTreeSet<Place>,
}

/// What became of one request, as far as is known.
enum Told {
    Done,
    /// Surely not, with this code.
    Refused(Code),
    /// Nobody knows.
    Unknown,
}

/// Of those that share an id with a producer, none goes on after the healing.
pub(super) fn goes_on(spec: &Transactions, place: u32) -> bool {
    place >= spec.ids
}

/// Some lives, as long as nothing changes.
pub(super) async fn live(actor: &mut Actor, place: u32) {
    let healed = actor.scene.stage.is_healed();
    if healed && !goes_on(&actor.spec, place) {
        actor.scene.stage.done(actor.client);
        return actor.pause(LOOK).await;
    }
    let writer = 2 * Transactions::MAX + place;
    let mut speaker = Speaker {
        id: format!("x-{place}"),
        writer,
        old: place < actor.spec.old_speakers,
        links: BTreeMap::new(),
        coordinator: None,
        leaders: BTreeMap::new(),
        who: Who::NOBODY,
        sequences: BTreeMap::new(),
        added: BTreeSet::new(),
        actor,
    };
    for _ in 0..10 {
        if speaker.actor.is_over() || speaker.actor.scene.stage.is_healed() != healed {
            break;
        }
        speaker.live_once().await;
        speaker.actor.pause(AGAIN).await;
    }
}

impl Speaker<'_> {
    fn is_healed(&self) -> bool {
        self.actor.scene.stage.is_healed()
    }

    fn attempts(&mut self) -> u64 {
        if self.is_healed() { ATTEMPTS_AFTER } else { 1 + self.actor.chance.below(ATTEMPTS) }
    }

    /// From one InitProducerId to the next.
    async fn live_once(&mut self) {
        let healed = self.is_healed();
        let Some(life) = self.begin_life().await else { return };
        for _ in 0..1 + self.actor.chance.below(TRANSACTIONS_MAX) {
            if self.actor.is_over() || self.is_healed() != healed {
                return;
            }
            self.actor.rest().await;
            if self.transact(life).await == Next::Ends {
                return;
            }
        }
    }

    async fn begin_life(&mut self) -> Option<usize> {
        // Whoever knows what it went by may say so (KIP-360).
        if self.actor.chance.one_in(2) {
            self.who = Who::NOBODY;
        }
        let now = self.actor.scene.now().monotonic;
        let life = self.actor.scene.history().init_producer(&self.id, self.actor.client, now);
        for _ in 0..self.attempts() {
            match self.ask_who().await {
                Some(Ok(who)) => {
                    reached!("a-speaker-begins-a-life");
                    self.who = who;
                    self.sequences.clear();
                    let now = self.actor.scene.now().monotonic;
                    let name = format!("{}@{}", who.producer, who.epoch);
                    self.actor.scene.history().producer_begins(life, now, &name);
                    return Some(life);
                }
                // Somebody else has the id by now.
                Some(Err(Code::ProducerFenced | Code::InvalidProducerEpoch)) => {
                    self.who = Who::NOBODY;
                }
                Some(Err(_)) | None => self.coordinator = None,
            }
            if self.actor.is_over() {
                break;
            }
            self.actor.pause(AGAIN).await;
        }
        self.actor.note("cannot begin to produce");
        None
    }

    async fn transact(&mut self, life: usize) -> Next {
        let now = self.actor.scene.now().monotonic;
        let transaction = self.actor.scene.history().begin_transaction(life, now);
        self.added.clear();
        let healed = self.is_healed();
        let spec = self.actor.spec.clone();
        let is_hasty = !healed && self.actor.chance.hit(spec.hasty);
        let forges = !healed && self.actor.chance.hit(spec.forge);
        let mut left = self.actor.chance.between(spec.records);
        // Where the transaction has written nothing yet, its coordinator is asked.
        if is_hasty && self.actor.chance.one_in(2) {
            left = 0;
        }
        let mut good = true;
        while good && left > 0 {
            let count = (1 + self.actor.chance.below(BATCH_MAX)).min(left);
            left -= count;
            let index = self.actor.chance.below(spec.partitions.into()) as u32;
            let place = Place { topic: Topic::Input, index };
            let batch = self.draw_batch(transaction, place, count);
            good = self.store(transaction, place, &batch).await;
            if self.actor.chance.one_in(4) {
                self.actor.rest().await;
            }
        }
        if forges {
            self.forge().await;
        }
        if is_hasty {
            good &= self.send_and_forget(transaction).await;
        }
        if !healed && self.actor.chance.hit(spec.abandon) {
            reached!("a-speaker-leaves-a-transaction-open");
            return Next::Ends;
        }
        if !good || is_hasty || self.actor.chance.hit(spec.abort) {
            let next = self.abort(transaction).await;
            // One epoch for all transactions: what is on its way might join the next one.
            return if self.old && (!good || is_hasty) { Next::Ends } else { next };
        }
        self.commit(transaction).await
    }

    fn draw_values(&mut self, count: u64) -> Vec<Value> {
        let draw = |_| {
            self.actor.values += 1;
            values::value(self.writer, BYTES, self.actor.values)
        };
        (0..count).map(draw).collect()
    }

    /// The next batch of the transaction there.
    fn draw_batch(&mut self, transaction: usize, place: Place, count: u64) -> Batch {
        let values = self.draw_values(count);
        for &value in &values {
            let now = self.actor.scene.now().monotonic;
            let sent = Sent { place, value, copy_of: None };
            self.actor.scene.history().send_in_transaction(transaction, now, sent);
        }
        let sequence = *self.sequences.get(&place).unwrap_or(&0);
        Batch { who: self.who, sequence, values, at: self.actor.scene.now().wall }
    }

    /// Whether the batch is stored, as far as this client is told.
    async fn store(&mut self, transaction: usize, place: Place, batch: &Batch) -> bool {
        if !self.join(place).await {
            return false;
        }
        for _ in 0..self.attempts() {
            match self.produce(place, batch).await {
                Some(Ok(base)) => {
                    let next = batch.sequence + batch.values.len() as i32;
                    self.sequences.insert(place, next);
                    let now = self.actor.scene.now().monotonic;
                    let mut history = self.actor.scene.history();
                    for (offset, &value) in (base..).zip(&batch.values) {
                        history.stored_in_transaction(transaction, now, (place, value), offset);
                    }
                    return true;
                }
                Some(Err(
                    Code::NotLeaderOrFollower
                    | Code::UnknownTopicOrPartition
                    | Code::LeaderNotAvailable
                    | Code::NotEnoughReplicas
                    | Code::NotEnoughReplicasAfterAppend
                    | Code::RequestTimedOut
                    | Code::CoordinatorLoadInProgress
                    | Code::CoordinatorNotAvailable
                    | Code::NotCoordinator
                    | Code::ConcurrentTransactions,
                ))
                | None => {
                    self.leaders.remove(&place);
                }
                Some(Err(code)) => {
                    self.actor.note(format!("cannot write to {place}: {code:?}"));
                    return false;
                }
            }
            if self.actor.is_over() {
                return false;
            }
            self.actor.pause(AGAIN).await;
        }
        self.actor.note(format!("cannot write to {place}"));
        false
    }

    /// A batch to each partition at once, those for one leader in one request or each in its own.
    /// Nobody waits for what becomes of them.
    async fn send_and_forget(&mut self, transaction: usize) -> bool {
        let places = 0..self.actor.spec.partitions;
        let places: Vec<Place> = places.map(|index| Place { topic: Topic::Input, index }).collect();
        let (together, mut ready) = (self.actor.chance.one_in(2), Vec::new());
        for place in places {
            if !self.join(place).await {
                return false;
            }
            let Some(leader) = self.leader(place).await else { return false };
            let group = if together { 0 } else { place.index };
            ready.push(((leader, group), place));
        }
        reached!("an-end-overtakes-batches");
        let mut requests = BTreeMap::<(String, u32), Vec<(Place, Batch)>>::new();
        for (to, place) in ready {
            let batch = self.draw_batch(transaction, place, 1);
            requests.entry(to).or_default().push((place, batch));
        }
        for ((leader, _), mut batches) in requests {
            let what: Vec<String> = batches.iter().map(|(place, it)| it.told(*place)).collect();
            let mut what = what.join(", ");
            let strangers = self.strangers(batches[0].0);
            if !strangers.is_empty() {
                reached!("others-stand-in-one-request");
                what =
                    format!("{what}, and {} of producers that there never were", strangers.len());
            }
            batches.extend(strangers);
            let request = self.produce_request(batches.iter().map(|(place, it)| (*place, it)));
            self.echo(&leader, self.produce_version(), request, Duration::ZERO, &what);
        }
        // About as long as they take to their leaders, and these to ask the coordinator.
        let way = self.actor.scene.plan.link.latency.high * 5;
        let soon = self.actor.chance.duration(Between { low: Duration::ZERO, high: way });
        self.actor.pause(soon).await;
        true
    }

    /// In the older protocol the coordinator is told before the first record of a partition.
    async fn join(&mut self, place: Place) -> bool {
        if !self.old || self.added.contains(&place) {
            return true;
        }
        for _ in 0..self.attempts() {
            match self.add_partition(place, self.who).await {
                Told::Done => {
                    self.added.insert(place);
                    return true;
                }
                Told::Refused(
                    Code::ConcurrentTransactions
                    | Code::CoordinatorLoadInProgress
                    | Code::CoordinatorNotAvailable
                    | Code::NotCoordinator
                    | Code::UnknownTopicOrPartition,
                )
                | Told::Unknown => self.coordinator = None,
                Told::Refused(code) => {
                    self.actor.note(format!("cannot add {place}: {code:?}"));
                    return false;
                }
            }
            if self.actor.is_over() {
                return false;
            }
            self.actor.pause(AGAIN).await;
        }
        false
    }

    async fn commit(&mut self, transaction: usize) -> Next {
        self.actor.rest().await;
        let now = self.actor.scene.now().monotonic;
        self.actor.scene.history().ask_to_commit(transaction, now);
        let told = self.end(true).await;
        let outcome = match told {
            Told::Done => Outcome::Committed,
            Told::Refused(_) => Outcome::Aborted,
            Told::Unknown => Outcome::Unknown,
        };
        let now = self.actor.scene.now().monotonic;
        self.actor.scene.history().end_transaction(transaction, now, outcome);
        if outcome != Outcome::Committed {
            return Next::Ends;
        }
        reached!("a-speaker-commits");
        if self.is_healed() {
            *self.actor.commits.counts().entry(self.actor.client).or_default() += 1;
        }
        Next::Goes
    }

    /// It never asks for more.
    async fn abort(&mut self, transaction: usize) -> Next {
        let told = self.end(false).await;
        let now = self.actor.scene.now().monotonic;
        self.actor.scene.history().end_transaction(transaction, now, Outcome::Aborted);
        match told {
            Told::Done => {
                reached!("a-speaker-aborts");
                Next::Goes
            }
            Told::Refused(_) | Told::Unknown => Next::Ends,
        }
    }

    /// Asks for the end until it is known. A refusal means that it was not done only if no attempt
    /// may have been heard. That no such transaction is there to be ended means it always: who has
    /// ended it so is told so again.
    async fn end(&mut self, commits: bool) -> Told {
        // Where an end cannot be told from the next one, whoever does not hear may not ask again.
        let may_repeat = !self.old || self.actor.spec.old_ends_echo;
        let (mut is_doubted, mut comes_again) = (false, false);
        for _ in 0..self.attempts() {
            let (told, is_echoed) = self.ask_for_the_end(commits).await;
            comes_again |= is_echoed;
            match told {
                Told::Done => return Told::Done,
                Told::Refused(Code::InvalidTxnState) if !comes_again => {
                    return Told::Refused(Code::InvalidTxnState);
                }
                Told::Refused(
                    Code::ConcurrentTransactions
                    | Code::CoordinatorLoadInProgress
                    | Code::CoordinatorNotAvailable
                    | Code::NotCoordinator,
                ) => self.coordinator = None,
                Told::Refused(code) => {
                    self.actor.note(format!("cannot end a transaction: {code:?}"));
                    return if is_doubted || comes_again {
                        Told::Unknown
                    } else {
                        Told::Refused(code)
                    };
                }
                Told::Unknown => {
                    is_doubted = true;
                    self.coordinator = None;
                    if !may_repeat {
                        return Told::Unknown;
                    }
                }
            }
            if self.actor.is_over() {
                return Told::Unknown;
            }
            self.actor.pause(AGAIN).await;
        }
        Told::Unknown
    }
}
