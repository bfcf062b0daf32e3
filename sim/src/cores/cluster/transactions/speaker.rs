//! A producer that speaks the protocol of transactions itself, in its present or its older form,
//! and is mostly badly treated: requests come again over another connection, and late; answers are
//! lost when the work is done; ends are asked for while batches are on their way; and somebody
//! claims what was never given. What it is told is taken at its word. The same rules as of the
//! speakers of the world of nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quorate_core::batch::control::Ending;
use quorate_core::reached;
use quorate_net::kafka::error::Code;

use super::actor::{AGAIN, Actor};
use super::goes_on;
use super::requests::{Batch, Who};
use crate::chance::Between;
use crate::history::Value;
use crate::history::transactions::{Outcome, Place, Sent, Topic};
use crate::plan::transactions::{Part, Transactions};
use crate::workload::values;

/// Transactions of one life, at most.
const TRANSACTIONS_MAX: u64 = 20;
/// Records of one batch, at most.
pub(super) const BATCH_MAX: u64 = 5;
/// Bytes of a record's value.
const BYTES: u64 = 24;
/// How often a client that has nothing to do any more looks whether that is so.
const LOOK: Duration = Duration::from_millis(100);
/// About what a batch takes to its leader, and this to ask the coordinator.
const WAY_MAX: Duration = Duration::from_millis(20);

/// One life of a transactional id, as this client sees it.
pub(super) struct Speaker {
    pub(super) actor: Actor,
    pub(super) id: String,
    /// Its number, as its values tell it.
    writer: u32,
    /// The older protocol.
    pub(super) old: bool,
    pub(super) who: Who,
    pub(super) sequences: BTreeMap<Place, i32>,
    /// Of the open transaction, in the older protocol.
    added: BTreeSet<Place>,
}

/// What became of one request, as far as is known.
#[derive(Debug)]
pub(super) enum Told {
    Done,
    /// Surely not, with this code.
    Refused(Code),
    /// Nobody knows.
    Unknown,
}

/// What became of a transaction, for the life that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another transaction.
    Goes,
    /// This life can do no more.
    Ends,
}

/// A producer whom nobody treats badly, under an id that others may have as well.
pub(super) async fn produce(actor: Actor, place: u32) {
    let id = format!("x-{}", place % actor.spec.ids);
    live(Speaker::new(actor, id, place), Part::Produces(place)).await;
}

/// One whom everybody does; speaker N has the transactional id of producer N, if there is one.
pub(super) async fn speak(mut actor: Actor, place: u32) {
    actor.is_ill_treated = true;
    let old = place < actor.spec.old_speakers;
    let speaker = Speaker::new(actor, format!("x-{place}"), 2 * Transactions::MAX + place);
    live(Speaker { old, ..speaker }, Part::Speaks(place)).await;
}

async fn live(mut speaker: Speaker, part: Part) {
    loop {
        if speaker.actor.is_healed() && !goes_on(&speaker.actor.spec, part) {
            speaker.actor.pause(LOOK).await;
            continue;
        }
        speaker.live_once().await;
        speaker.actor.pause(AGAIN).await;
    }
}

impl Speaker {
    pub(super) fn new(actor: Actor, id: String, writer: u32) -> Self {
        Self {
            actor,
            id,
            writer,
            old: false,
            who: Who::NOBODY,
            sequences: BTreeMap::new(),
            added: BTreeSet::new(),
        }
    }

    /// From one InitProducerId to the next.
    async fn live_once(&mut self) {
        let healed = self.actor.is_healed();
        let Some(life) = self.begin_life().await else { return };
        for _ in 0..1 + self.actor.chance.below(TRANSACTIONS_MAX) {
            if self.actor.is_healed() != healed {
                return;
            }
            self.actor.rest().await;
            if self.transact(life).await == Next::Ends {
                return;
            }
        }
    }

    pub(super) async fn begin_life(&mut self) -> Option<usize> {
        // Whoever knows what it went by may say so (KIP-360).
        if self.actor.chance.one_in(2) {
            self.who = Who::NOBODY;
        }
        let (now, client) = (self.actor.at().now().monotonic, self.actor.client);
        let id = self.id.clone();
        let life = self.actor.at().with_history(|it| it.init_producer(&id, client, now));
        for _ in 0..self.actor.attempts() {
            match self.ask_who().await {
                Some(Ok(who)) => {
                    reached!("a-speaker-begins-a-life");
                    self.who = who;
                    self.sequences.clear();
                    self.added.clear();
                    let now = self.actor.at().now().monotonic;
                    let name = who.to_string();
                    self.actor.at().with_history(|it| it.producer_begins(life, now, &name));
                    return Some(life);
                }
                // Somebody else has the id by now.
                Some(Err(Code::ProducerFenced | Code::InvalidProducerEpoch)) => {
                    self.who = Who::NOBODY;
                }
                Some(Err(_)) | None => self.actor.forget(),
            }
            self.actor.pause(AGAIN).await;
        }
        None
    }

    /// A transaction of this life begins; its place in the history.
    pub(super) fn begin(&mut self, life: usize) -> usize {
        self.added.clear();
        let now = self.actor.at().now().monotonic;
        self.actor.at().with_history(|it| it.begin_transaction(life, now))
    }

    async fn transact(&mut self, life: usize) -> Next {
        let transaction = self.begin(life);
        let healed = self.actor.is_healed();
        let spec = self.actor.spec.clone();
        let badly = self.actor.is_ill_treated && !healed;
        let is_hasty = badly && self.actor.chance.hit(spec.hasty);
        let forges = badly && self.actor.chance.hit(spec.forge);
        let mut left = self.actor.chance.between(spec.records);
        let mut good = true;
        while good && left > 0 {
            let count = (1 + self.actor.chance.below(BATCH_MAX)).min(left);
            left -= count;
            let place = self.draw_place();
            let values = self.draw_values(count);
            good = self.store(transaction, place, &values, None).await;
            if self.actor.chance.one_in(4) {
                self.actor.rest().await;
            }
        }
        if forges {
            self.forge().await;
        }
        if is_hasty {
            good &= self.scatter(transaction).await;
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

    pub(super) fn draw_values(&mut self, count: u64) -> Vec<Value> {
        let draw = |_| {
            self.actor.values += 1;
            values::value(self.writer, BYTES, self.actor.values)
        };
        (0..count).map(draw).collect()
    }

    /// The next batch of the transaction there; `originals`: what its values are copies of.
    fn batch(
        &mut self,
        transaction: usize,
        place: Place,
        values: &[Value],
        originals: Option<&[Value]>,
    ) -> Batch {
        let now = self.actor.at().now();
        for (index, &value) in values.iter().enumerate() {
            let copy_of = originals.and_then(|all| all.get(index)).copied();
            let sent = Sent { place, value, copy_of };
            let tell = |it: &mut crate::history::History| {
                it.send_in_transaction(transaction, now.monotonic, sent);
            };
            self.actor.at().with_history(tell);
        }
        let sequence = *self.sequences.get(&place).unwrap_or(&0);
        Batch { who: self.who, sequence, values: values.to_vec(), at: now.wall }
    }

    /// Whether the values are stored, as far as this client is told.
    pub(super) async fn store(
        &mut self,
        transaction: usize,
        place: Place,
        values: &[Value],
        originals: Option<&[Value]>,
    ) -> bool {
        let batch = self.batch(transaction, place, values, originals);
        if !self.join(place).await {
            return false;
        }
        for _ in 0..self.actor.attempts() {
            match self.ask_to_store(place, &batch).await {
                Some(Ok(base)) => {
                    let next = batch.sequence + batch.values.len() as i32;
                    self.sequences.insert(place, next);
                    let now = self.actor.at().now().monotonic;
                    self.actor.at().with_history(|history| {
                        for (offset, &value) in (base..).zip(&batch.values) {
                            let what = (place, value);
                            history.stored_in_transaction(transaction, now, what, offset);
                        }
                    });
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
                | None => self.actor.forget(),
                Some(Err(_)) => return false,
            }
            self.actor.pause(AGAIN).await;
        }
        false
    }

    /// A batch to each partition at once. Nobody waits for what becomes of them.
    async fn scatter(&mut self, transaction: usize) -> bool {
        let places = 0..self.actor.spec.partitions;
        let mut ready = Vec::new();
        for place in places.map(|index| Place { topic: Topic::Input, index }) {
            if !self.join(place).await {
                return false;
            }
            let Some(leader) = self.actor.leader(place).await else { return false };
            ready.push((place, leader));
        }
        reached!("an-end-overtakes-batches");
        for (place, leader) in ready {
            let values = self.draw_values(1);
            let batch = self.batch(transaction, place, &values, None);
            self.send_and_forget(leader, place, &batch);
        }
        let soon = Between { low: Duration::ZERO, high: WAY_MAX };
        let soon = self.actor.chance.duration(soon);
        self.actor.pause(soon).await;
        true
    }

    /// In the older protocol the coordinator is told before the first record of a partition.
    async fn join(&mut self, place: Place) -> bool {
        if !self.old || self.added.contains(&place) {
            return true;
        }
        for _ in 0..self.actor.attempts() {
            match self.add_partition(place).await {
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
                | Told::Unknown => self.actor.forget(),
                Told::Refused(_) => return false,
            }
            self.actor.pause(AGAIN).await;
        }
        false
    }

    pub(super) async fn commit(&mut self, transaction: usize) -> Next {
        self.actor.rest().await;
        let now = self.actor.at().now().monotonic;
        self.actor.at().with_history(|it| it.ask_to_commit(transaction, now));
        let outcome = match self.end(Ending::Committed).await {
            Told::Done => Outcome::Committed,
            Told::Refused(_) => Outcome::Aborted,
            Told::Unknown => Outcome::Unknown,
        };
        let now = self.actor.at().now().monotonic;
        self.actor.at().with_history(|it| it.end_transaction(transaction, now, outcome));
        if outcome != Outcome::Committed {
            return Next::Ends;
        }
        reached!("a-speaker-commits");
        if self.actor.is_healed() {
            self.actor.at().prove();
        }
        Next::Goes
    }

    /// It never asks for more.
    pub(super) async fn abort(&mut self, transaction: usize) -> Next {
        let told = self.end(Ending::Aborted).await;
        let now = self.actor.at().now().monotonic;
        self.actor.at().with_history(|it| it.end_transaction(transaction, now, Outcome::Aborted));
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
    async fn end(&mut self, ending: Ending) -> Told {
        // Where an end cannot be told from the next one, whoever does not hear may not ask again.
        let may_repeat = !self.old || self.actor.spec.old_ends_echo;
        let (mut is_doubted, mut comes_again) = (false, false);
        for _ in 0..self.actor.attempts() {
            let (told, is_echoed) = self.ask_for_the_end(ending).await;
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
                ) => self.actor.forget(),
                Told::Refused(code) => {
                    let is_known = !is_doubted && !comes_again;
                    return if is_known { Told::Refused(code) } else { Told::Unknown };
                }
                Told::Unknown => {
                    is_doubted = true;
                    self.actor.forget();
                    if !may_repeat {
                        return Told::Unknown;
                    }
                }
            }
            self.actor.pause(AGAIN).await;
        }
        Told::Unknown
    }
}
