//! Writers and readers over a network: the rules of `writer`, carried out with a thin client
//! against anything that speaks Kafka's protocol.

pub mod committers;
pub mod groups;
pub mod health;
pub mod library;
pub mod operator;
pub mod reading;
pub mod setup;
pub mod transactions;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use quorate_core::id::TopicId;
use quorate_core::time::Now;
use quorate_net::clock::Clock;
use quorate_net::kafka::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsTopic};
use quorate_net::kafka::messages::produce::{PartitionProduceData, TopicProduceData};
use quorate_net::kafka::messages::{DeleteRecordsRequest, InitProducerIdRequest, ProduceRequest};
use quorate_net::transport::Network;
use quorate_net::wire::{Records, Text};
use tokio::sync::oneshot;

use super::client::{Link, within};
use super::writer::{Answer, Writer};
use crate::chance::Between;
use crate::history::{Call, End, History, Partition, client_name};
use crate::plan::{Acks, AppendRead, Codecs, Plan};
use crate::trace::{self, Mark};

const PATIENCE: Duration = Duration::from_secs(10);

/// Between rounds of writers that ask for no answer, once others are to get on: some ten records a
/// round, each perhaps in a segment of its own, and a sync of 20 ms for each.
const PACE: Duration = Duration::from_millis(500);

/// For each record that a round may have, between rounds of writers that make room: in small
/// segments every other one closes a file, and a closed file is three syncs on every node.
const ROOM: Duration = Duration::from_millis(50);

/// Operations of one life until its writers and readers take their time.
const HURRY_MAX: usize = 4_000;

/// The pause that they take then.
const LEISURE: Duration = Duration::from_millis(100);

/// What every client of a run shares.
pub struct Scene {
    pub plan: Arc<Plan>,
    pub history: Arc<Mutex<History>>,
    pub stage: Arc<Stage>,
    /// The nodes' addresses, `host:port`.
    pub addresses: Vec<String>,
    /// How often it was connected anew; each time, the next address is taken.
    pub attempts: AtomicUsize,
    /// The client's own network and clock; the clock is the one true time.
    pub network: Arc<dyn Network>,
    pub clock: Arc<dyn Clock>,
}

/// How far the run is.
#[derive(Debug, Default)]
pub struct Stage {
    /// No fault strikes any more: whoever waits now must get an answer.
    healed: AtomicBool,
    /// A copy does not come near, or others do not get on: writers are to leave disks some time.
    makes_room: AtomicBool,
    /// Readers and writers are to stop.
    over: AtomicBool,
    /// Steps that the last reading has got on by.
    progress: AtomicU64,
    /// What each client waits for, in words.
    waiting: Mutex<BTreeMap<u32, String>>,
    operators: Mutex<operator::Done>,
    /// Topics that somebody has asked to delete.
    deleted: Mutex<BTreeSet<TopicId>>,
}

impl Stage {
    pub fn heal(&self) {
        self.healed.store(true, Ordering::Relaxed);
    }

    pub fn is_healed(&self) -> bool {
        self.healed.load(Ordering::Relaxed)
    }

    pub(super) fn make_room(&self, makes_room: bool) {
        self.makes_room.store(makes_room, Ordering::Relaxed);
    }

    fn makes_room(&self) -> bool {
        self.makes_room.load(Ordering::Relaxed)
    }

    pub fn finish(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub(super) fn advance(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    pub fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    pub fn note(&self, client: u32, waits_for: impl Into<String>) {
        self.waiting.lock().expect("one thread").insert(client, waits_for.into());
    }

    /// What operators have done.
    pub fn operators(&self) -> MutexGuard<'_, operator::Done> {
        self.operators.lock().expect("one thread")
    }

    /// From here on, whatever is of this topic may be gone.
    pub(super) fn may_delete(&self, topic: TopicId) {
        self.deleted.lock().expect("one thread").insert(topic);
    }

    /// Whether it is a log, as violations name it, of a topic that somebody has asked to delete.
    pub fn is_deleted(&self, log: &str) -> bool {
        let deleted = self.deleted.lock().expect("one thread");
        deleted.iter().any(|topic| log.starts_with(&topic.to_string()))
    }

    pub fn done(&self, client: u32) {
        self.waiting.lock().expect("one thread").remove(&client);
    }

    /// What the clients wait for, one sentence each.
    pub fn waiting(&self) -> Vec<String> {
        let waiting = self.waiting.lock().expect("one thread");
        waiting.iter().map(|(client, what)| format!("c{client} {what}")).collect()
    }
}

impl Scene {
    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().expect("one thread")
    }

    /// How long a client waits for an answer. After the healing it is patient: a slow link is no
    /// fault of the node.
    fn timeout(&self) -> Duration {
        let timeout = self.plan.workload.timeout;
        if self.stage.is_healed() { timeout.max(PATIENCE) } else { timeout }
    }

    /// The shortest pause between two rounds of a writer.
    fn pace(&self) -> Duration {
        // Two of them may come at that pace.
        let AppendRead { writers, library_writers, .. } = self.plan.workload;
        let share = (writers + library_writers).div_ceil(2).max(1);
        self.leisure().max(self.pace_of_repair() * share)
    }

    /// A life in which much has happened goes on at a walk: what a hundred thousand operations
    /// would show is shown sooner by the next seed.
    fn leisure(&self) -> Duration {
        let history = self.history();
        let transactions = &history.transactions;
        let many = history.operations.len() + transactions.transactions.len();
        let is_long = many + transactions.views.len() >= HURRY_MAX;
        if is_long { LEISURE } else { Duration::ZERO }
    }

    /// After the healing, a replica that was away is to come near those that take what writers
    /// send. It writes no faster than they do, so it never does where writers fill the disks. Who
    /// asks for no answer, or the leader alone, sends for ever more than the slowest disk takes:
    /// that lets no member of a group keep its session, nor a transaction its time, either, here as
    /// with Kafka.
    fn pace_of_repair(&self) -> Duration {
        let is_cluster = self.plan.cluster.nodes > 1;
        let waits = self.plan.has_groups() || self.plan.transactions.is_some();
        match self.plan.workload.acks {
            _ if !self.stage.is_healed() => Duration::ZERO,
            // Pauses between rounds do not bound what a round has: where all disks are alike and
            // full, a copy stays as many seconds behind as it was (seed 4826 of three nodes), and a
            // hundred records a round without answers are for ever more than three disks take (seed
            // 1483 of three nodes: no transaction within 1 s in 240 s, without any fault as well).
            _ if self.stage.makes_room() => {
                let AppendRead { records, in_flight, .. } = self.plan.workload;
                PACE.max(ROOM * (records.high as u32 * in_flight))
            }
            Acks::None | Acks::Leader if is_cluster || waits => PACE,
            Acks::All if is_cluster => LEISURE,
            // A handful of segments a round that wait for syncs of 20 ms are a second for each step
            // of a transaction that may last no longer.
            Acks::All if waits => PACE,
            _ => Duration::ZERO,
        }
    }

    fn now(&self) -> Now {
        self.clock.now()
    }

    async fn connect(&self, client: u32) -> Option<Link> {
        let next = self.attempts.fetch_add(1, Ordering::Relaxed);
        let address = &self.addresses[next % self.addresses.len()];
        self.connect_to(client, address).await
    }

    async fn connect_to(&self, client: u32, address: &str) -> Option<Link> {
        let timeout = self.timeout();
        match within(&*self.clock, timeout, Link::connect(&self.network, address)).await {
            Ok(link) => Some(link),
            Err(error) => {
                self.stage.note(client, format!("cannot connect: {error}"));
                None
            }
        }
    }
}

/// Writes until the run is over. Says so once the run is healed and one batch more is acknowledged
/// on every partition.
pub async fn write(scene: Scene, client: u32, proven: oneshot::Sender<()>) {
    let mut proven = Some(proven);
    let mut writer = Writer::new(&scene.plan, client);
    let mut link = None;
    let version = writer.chance.between(produce_versions(scene.plan.workload.codec)) as i16;
    let mut at_healing: Option<BTreeMap<Partition, u64>> = None;
    scene.stage.note(client, "has not begun");
    while !scene.stage.is_over() {
        if scene.stage.is_healed() && proven.is_some() {
            let before = at_healing.get_or_insert_with(|| writer.acknowledged.clone());
            // At the pace of repair, chance alone may pass a partition over until the run ends.
            let counts = (&writer.acknowledged, &*before);
            let asks = link.as_ref().map(Link::address);
            writer.wanted = unproven(&scene, writer.acks(), counts, client, asks);
            if writer.wanted.is_none() {
                let _ = proven.take().map(|proven| proven.send(()));
            }
        }
        let pause = writer.pause();
        scene.clock.sleep(pause.max(scene.pace())).await;
        if link.is_none() {
            link = scene.connect(client).await;
        }
        let Some(open) = &mut link else { continue };
        if writer.wants_producer() {
            if let Err(error) = init_producer(&scene, open, &mut writer).await {
                scene.stage.note(client, format!("has no producer id: {error}"));
                link = None;
            }
            continue;
        }
        if let Some((partition, before)) = writer.draw_delete() {
            if delete(&scene, open, client, partition, before).await.is_err() {
                link = None;
            }
            continue;
        }
        round(&scene, &mut link, &mut writer, version).await;
    }
    scene.stage.done(client);
}

/// A partition that the writer has not shown to work yet: what was acknowledged is no more than it
/// was before the healing. `asks`: whom it is connected to.
fn unproven(
    scene: &Scene,
    acks: Acks,
    (acknowledged, before): (&BTreeMap<Partition, u64>, &BTreeMap<Partition, u64>),
    client: u32,
    asks: Option<&str>,
) -> Option<Partition> {
    if acks == Acks::None {
        scene.stage.done(client);
        return None;
    }
    let count = |counts: &BTreeMap<Partition, u64>, partition: &Partition| {
        counts.get(partition).copied().unwrap_or(0)
    };
    let missing = scene
        .partitions()
        .into_iter()
        .find(|partition| count(acknowledged, partition) <= count(before, partition));
    if let Some(partition) = missing {
        let asks = asks.map(|address| format!(" [it asks {address}]")).unwrap_or_default();
        scene.stage.note(client, format!("got nothing acknowledged on {partition}{asks}"));
    }
    missing
}

async fn round(scene: &Scene, link: &mut Option<Link>, writer: &mut Writer, version: i16) {
    writer.begin(&mut scene.history(), scene.now());
    for attempt in 0..writer.attempts_max() {
        if attempt > 0 {
            let pause = Duration::from_millis(writer.chance.below(20 << attempt.min(5)));
            scene.clock.sleep(pause).await;
        }
        if writer.open().is_empty() || (attempt > 0 && scene.stage.is_over()) {
            break;
        }
        if link.is_none() {
            *link = scene.connect(writer.client).await;
        }
        if let Some(open) = link
            && send_round(scene, open, writer, version).await.is_err()
        {
            *link = None;
        }
    }
    let now = scene.now().monotonic;
    writer.end(&mut scene.history(), now);
}

/// Sends what is open in the round, and takes the answers in order. After an error, the batches
/// without an answer are in doubt.
async fn send_round(
    scene: &Scene,
    link: &mut Link,
    writer: &mut Writer,
    version: i16,
) -> io::Result<()> {
    let open = writer.open();
    let timeout = scene.timeout();
    let answered = writer.acks() != Acks::None;
    let mut failed = None;
    for place in &open {
        let append = &writer.round[*place];
        scene.history().attempt(append.operation);
        let request = produce(timeout, writer, *place);
        if failed.is_none() {
            let sent = link.send(version, &request, answered);
            failed = within(&*scene.clock, timeout, sent).await.err();
        }
    }
    for place in open {
        let answer = match &failed {
            None if answered => {
                let received = link.receive::<ProduceRequest>();
                within(&*scene.clock, timeout, received).await.and_then(|response| {
                    let found = response.responses.first();
                    let found = found.and_then(|topic| topic.partition_responses.first());
                    let found = found.ok_or_else(|| io::Error::other("an empty response"))?;
                    let time = found.log_append_time_ms;
                    let append_time = (time >= 0).then_some(time);
                    Ok(match found.error_code {
                        0 => Answer::Appended { base: found.base_offset, append_time },
                        code => Answer::Refused(code),
                    })
                })
            }
            _ => Ok(Answer::InDoubt),
        };
        let answer = answer.unwrap_or_else(|error| {
            scene.stage.note(writer.client, format!("got no answer: {error}"));
            failed = Some(error);
            Answer::InDoubt
        });
        let now = scene.now().monotonic;
        writer.on_answer(place, answer, &mut scene.history(), now);
        if !answered {
            writer.round[place].settled = true;
        }
    }
    failed.map_or(Ok(()), Err)
}

/// The node gives up no sooner than the client does.
fn produce(timeout: Duration, writer: &Writer, place: usize) -> ProduceRequest {
    let append = &writer.round[place];
    let mut records = Records::default();
    for chunk in append.batch.chunks() {
        records.push(chunk);
    }
    let partition_data =
        vec![PartitionProduceData { index: append.partition.index as i32, records: Some(records) }];
    let name = topic_name(append.partition);
    ProduceRequest {
        acks: match writer.acks() {
            Acks::None => 0,
            Acks::Leader => 1,
            Acks::All => -1,
        },
        timeout_ms: timeout.as_millis() as i32,
        topic_data: vec![TopicProduceData { name, partition_data, ..Default::default() }],
        ..Default::default()
    }
}

/// An operator has its answer.
fn note_act(
    now: quorate_core::time::Instant,
    client: u32,
    node: u32,
    text: impl FnOnce() -> String,
) {
    trace::event(
        now.as_duration(),
        Mark::Complete,
        client_name(client),
        [u64::from(node), 0, 0],
        text,
    );
}

/// The versions that writers use: those that name topics; Zstandard is younger than some.
const fn produce_versions(codec: Codecs) -> Between<u64> {
    match codec {
        Codecs::Zstd | Codecs::Mixed => Between { low: 7, high: 12 },
        _ => Between { low: 3, high: 12 },
    }
}

/// The name of a partition's topic.
pub(super) fn topic_name(partition: Partition) -> Text {
    Text::from(format!("t{}", partition.topic))
}

async fn init_producer(scene: &Scene, link: &mut Link, writer: &mut Writer) -> io::Result<()> {
    let request = InitProducerIdRequest { transaction_timeout_ms: 60_000, ..Default::default() };
    let timeout = scene.timeout();
    let response = within(&*scene.clock, timeout, link.call(2, &request)).await?;
    if response.error_code == 0 {
        writer.set_producer(response.producer_id, response.producer_epoch);
        Ok(())
    } else {
        Err(io::Error::other(format!("error {}", response.error_code)))
    }
}

async fn delete(
    scene: &Scene,
    link: &mut Link,
    client: u32,
    partition: Partition,
    before: Option<i64>,
) -> io::Result<()> {
    let call = Call::Delete { partition, before };
    let operation = scene.history().invoke(client, scene.now().monotonic, call);
    let wanted = DeleteRecordsPartition {
        partition_index: partition.index as i32,
        offset: before.unwrap_or(-1),
    };
    let topic = DeleteRecordsTopic { name: topic_name(partition), partitions: vec![wanted] };
    let timeout = scene.timeout();
    let timeout_ms = timeout.as_millis() as i32;
    let request = DeleteRecordsRequest { topics: vec![topic], timeout_ms };
    let response = within(&*scene.clock, timeout, link.call(1, &request)).await?;
    let found = response.topics.first().and_then(|topic| topic.partitions.first());
    let found = found.ok_or_else(|| io::Error::other("an empty response"))?;
    if found.error_code == 0 {
        let end = End::Deleted { log_start: found.low_watermark };
        let now = scene.now().monotonic;
        scene.history().complete(operation, now, end);
    }
    Ok(())
}
