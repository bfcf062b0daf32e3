//! Clients that produce in transactions, copy from one topic to another in transactions, and read
//! what is committed; all by our client library. What they do and are told is recorded, and
//! `check/transactions` judges it.

mod copier;
mod last;
mod producer;
mod reader;
mod speaker;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use quorate_core::reached;
use quorate_net::client::{
    EndError, Fate, GroupPlace, Message, TransactionConfig, TransactionalProducer,
};

pub use self::last::read_last;
use super::super::values;
use super::Scene;
use super::library::library;
use crate::chance::Chance;
use crate::history::Value;
use crate::history::transactions::{Outcome, Place, Sent, Topic};
use crate::plan::transactions::{Part, Transactions};

/// The group that copies.
const GROUP: &str = "xg";
/// How often it is looked whether all works.
const LOOK: Duration = Duration::from_millis(100);
/// Bytes of a record's value.
const BYTES: u64 = 24;
/// What a client writes as fast as it can; then it takes its time.
const VALUES_AT_ONCE: u64 = 300;
/// After the healing, rests between the records of one transaction, at most: each may be `LEISURE`
/// in a long life, and 72 records with 15 of them outlast a transaction that may take a second.
/// Clients take their leisure between transactions.
const RESTS_AFTER: u32 = 3;
/// Before a client that was refused tries again.
const AGAIN: Duration = Duration::from_millis(50);

/// What was committed since the healing, by client.
#[derive(Debug, Default)]
pub struct Commits(Mutex<BTreeMap<u32, u64>>);

impl Commits {
    fn counts(&self) -> MutexGuard<'_, BTreeMap<u32, u64>> {
        self.0.lock().expect("one thread")
    }
}

/// A client that has to do with transactions, over all its lives.
struct Actor {
    scene: Scene,
    client: u32,
    spec: Transactions,
    chance: Chance,
    commits: Arc<Commits>,
    values: u64,
}

/// Lives until the run is over.
pub async fn live(scene: Scene, client: u32, commits: Arc<Commits>) {
    let spec = scene.plan.transactions.clone().expect("a plan with transactions");
    let part = scene.plan.part(client).expect("a client of transactions");
    let chance = Chance::new(scene.plan.seed, &format!("transactions {client}"));
    let mut actor = Actor { scene, client, spec, chance, commits, values: 0 };
    actor.note("has not begun");
    while !actor.is_over() {
        match part {
            Part::Produces(place) => producer::live(&mut actor, place).await,
            Part::Copies(place) => copier::live(&mut actor, Transactions::MAX + place).await,
            Part::Reads(_) => reader::live(&mut actor).await,
            Part::Speaks(place) => speaker::live(&mut actor, place).await,
        }
        actor.pause(AGAIN).await;
    }
}

/// Whether a producer goes on after the healing: of those that share an id, the first.
fn goes_on(spec: &Transactions, place: u32) -> bool {
    place < spec.ids
}

/// Waits, once the run is healed, until each id has committed something, and the copiers as well.
pub async fn settle(scene: &Scene, commits: &Commits, client: u32) {
    let Some(spec) = &scene.plan.transactions else { return };
    loop {
        scene.clock.sleep(LOOK).await;
        if !scene.stage.is_healed() {
            continue;
        }
        match missing(scene, spec, commits) {
            None => break,
            Some(missing) => scene.stage.note(client, missing),
        }
    }
    scene.stage.done(client);
}

fn missing(scene: &Scene, spec: &Transactions, commits: &Commits) -> Option<String> {
    let counts = commits.counts();
    let mut copies = false;
    for client in scene.plan.transactional() {
        let committed = counts.contains_key(&client);
        match scene.plan.part(client)? {
            Part::Produces(place) if goes_on(spec, place) && !committed => {
                return Some(format!("sees no transaction of c{client} committed"));
            }
            Part::Speaks(place) if speaker::goes_on(spec, place) && !committed => {
                return Some(format!("sees no transaction of c{client} committed"));
            }
            Part::Copies(_) => copies |= committed,
            Part::Produces(_) | Part::Reads(_) | Part::Speaks(_) => {}
        }
    }
    (spec.copiers > 0 && !copies).then(|| "sees no copy committed".to_owned())
}

fn all_places(spec: &Transactions) -> impl Iterator<Item = Place> + use<> {
    let partitions = spec.partitions;
    [Topic::Input, Topic::Output]
        .into_iter()
        .flat_map(move |topic| (0..partitions).map(move |index| Place { topic, index }))
}

fn message_to(place: Place, value: Value) -> Message {
    let mut message = values::message(value);
    message.topic = Arc::from(place.topic.name());
    message.partition = Some(place.index as i32);
    message
}

/// What became of a transaction, for the life that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Another transaction.
    Goes,
    /// This life can do no more.
    Ends,
}

impl Actor {
    fn is_over(&self) -> bool {
        self.scene.stage.is_over()
    }

    fn note(&self, what: impl Into<String>) {
        self.scene.stage.note(self.client, what);
    }

    async fn pause(&self, during: Duration) {
        self.scene.clock.sleep(during).await;
    }

    async fn rest(&mut self) {
        let pause = self.chance.duration(self.spec.pause);
        // After the healing there is a deadline.
        let pause = if self.scene.stage.is_healed() { pause.min(AGAIN) } else { pause };
        // Many transactions follow at once, and not more than readers can take in.
        let pause = if self.values > VALUES_AT_ONCE { pause.max(AGAIN) } else { pause };
        let pause = pause.max(self.scene.leisure());
        self.pause(pause).await;
    }

    /// A new life of `id`; the place of its record in the history.
    async fn begin_life(&mut self, id: &str) -> Option<(TransactionalProducer, usize)> {
        let client = library(&self.scene, &mut self.chance);
        let now = self.scene.now().monotonic;
        let life = self.scene.history().init_producer(id, self.client, now);
        let timeout = client.config().request_timeout;
        let mut config =
            TransactionConfig { timeout: self.spec.timeout, ..TransactionConfig::new(id) };
        config.producer.create_topics = false;
        config.producer.delivery_timeout = timeout * *self.chance.pick(&[1, 3, 10]);
        config.producer.replication_timeout = timeout;
        config.producer.batch_records_max = *self.chance.pick(&[1, 3, 100_000]);
        config.producer.requests_in_flight_max = *self.chance.pick(&[1, 5]);
        match client.transactional(config).await {
            Ok(producer) => {
                reached!("a-transactional-id-begins-a-life");
                let now = self.scene.now().monotonic;
                let (id, epoch) = producer.identity();
                let identity = format!("{id}@{epoch}");
                self.scene.history().producer_begins(life, now, &identity);
                Some((producer, life))
            }
            Err(error) => {
                self.note(format!("cannot begin to produce: {error}"));
                None
            }
        }
    }

    /// Hands values over; whether all were accepted.
    async fn send(
        &mut self,
        producer: &mut TransactionalProducer,
        transaction: usize,
        sent: &[Sent],
    ) -> bool {
        let mut rests = if self.scene.stage.is_healed() { RESTS_AFTER } else { u32::MAX };
        for sent in sent {
            let now = self.scene.now().monotonic;
            self.scene.history().send_in_transaction(transaction, now, *sent);
            if let Err(error) = producer.send(message_to(sent.place, sent.value)).await {
                self.note(format!("cannot send: {error}"));
                return false;
            }
            if self.chance.one_in(4) && rests > 0 {
                rests -= 1;
                self.rest().await;
            }
        }
        true
    }

    async fn commit(&mut self, producer: &mut TransactionalProducer, transaction: usize) -> Next {
        // What it asks for begins only when all is stored.
        producer.flush().await;
        self.rest().await;
        let now = self.scene.now().monotonic;
        self.scene.history().ask_to_commit(transaction, now);
        let outcome = producer.commit().await;
        let now = self.scene.now().monotonic;
        match outcome {
            Ok(()) => {
                reached!("a-transaction-is-committed");
                let holds = {
                    let mut history = self.scene.history();
                    history.end_transaction(transaction, now, Outcome::Committed);
                    // Offsets alone, behind markers, are no copy.
                    !history.transactions.transactions[transaction].sent.is_empty()
                };
                if holds && self.scene.stage.is_healed() {
                    *self.commits.counts().entry(self.client).or_default() += 1;
                }
                Next::Goes
            }
            Err(EndError { error, fate: Fate::NotDone }) => {
                self.note(format!("cannot commit: {error}"));
                self.scene.history().end_transaction(transaction, now, Outcome::Aborted);
                if producer.is_adrift() { Next::Ends } else { self.abort(producer, None).await }
            }
            Err(error) => {
                reached!("nobody-knows-whether-a-transaction-is-committed");
                self.note(format!("does not know whether it has committed: {error}"));
                Next::Ends
            }
        }
    }

    /// Whatever is told, it never asked for more.
    async fn abort(
        &mut self,
        producer: &mut TransactionalProducer,
        transaction: Option<usize>,
    ) -> Next {
        let outcome = producer.abort().await;
        if let Some(transaction) = transaction {
            let now = self.scene.now().monotonic;
            self.scene.history().end_transaction(transaction, now, Outcome::Aborted);
        }
        match outcome {
            Ok(()) => {
                reached!("a-transaction-is-aborted");
                Next::Goes
            }
            Err(error) => {
                self.note(format!("cannot abort: {error}"));
                Next::Ends
            }
        }
    }
}

/// A member's place in the group that copies.
fn group_place(member: &str, generation: i32) -> GroupPlace {
    let (group, member) = (GROUP.to_owned(), member.to_owned());
    GroupPlace { group, generation, member, instance: None }
}
