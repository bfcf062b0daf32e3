//! Writers and readers that use our client library as an application would: it connects, batches,
//! numbers, retries and seeks by itself. What it says of a record's fate is taken at its word, and
//! the checkers judge it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::batch::{Batch, Codec};
use quorate_core::id::Offset;
use quorate_core::partition::interface as partition;
use quorate_core::reached;
use quorate_core::time::Timestamp;
use quorate_net::client::{
    Client, ClientConfig, Consumer, ConsumerConfig, Delivery, Fate, FetchOptions, ListedOffset,
    OnReset, Position, Producer, ProducerConfig, SendError,
};
use quorate_net::kafka::error::Code;
use tokio::sync::oneshot;

use super::super::values;
use super::reading::complain_of_rot;
use super::{PATIENCE, Scene, topic_name, unproven};
use crate::chance::Chance;
use crate::history::{Call, Complaint, End, OperationId, Partition, Seen};
use crate::plan::{Acks, Codecs};

/// How long after its delivery's timeout a record may be without an outcome, in waits for an
/// answer: one to connect, one for the version handshake, one for the answer, and one for luck.
const WAITS: u32 = 4;

/// A batch's delivery and what it is in the history.
type Sent = (OperationId, Partition, Delivery);

/// Writes until the run is over; says so as the other writers do.
pub async fn write(scene: Scene, client: u32, proven: oneshot::Sender<()>) {
    let mut proven = Some(proven);
    let mut writer = LibraryWriter::new(scene, client);
    let mut at_healing: Option<BTreeMap<Partition, u64>> = None;
    writer.scene.stage.note(client, "has not begun");
    while !writer.scene.stage.is_over() {
        let patient = writer.scene.stage.is_healed();
        let producer = writer.producer();
        let rounds = 1 + writer.chance.below(20);
        for _ in 0..rounds {
            let stage = &writer.scene.stage;
            if stage.is_healed() && proven.is_some() {
                let before = at_healing.get_or_insert_with(|| writer.acknowledged.clone());
                let acks = writer.scene.plan.workload.acks;
                let counts = (&writer.acknowledged, &*before);
                writer.wanted = unproven(&writer.scene, acks, counts, client, None);
                if writer.wanted.is_none() {
                    let _ = proven.take().map(|proven| proven.send(()));
                }
            }
            // The patience of a client is settled when it is made.
            if stage.is_over() || stage.is_healed() != patient {
                break;
            }
            let pause = writer.chance.duration(writer.scene.plan.workload.pause);
            writer.scene.clock.sleep(pause.max(writer.scene.pace())).await;
            let deletes = writer.scene.plan.workload.delete_records;
            if writer.chance.hit(deletes) {
                writer.delete_records().await;
                continue;
            }
            let sent = writer.send(&producer).await;
            writer.settle(sent).await;
        }
        writer.part_with(producer).await;
    }
    writer.scene.stage.done(client);
}

struct LibraryWriter {
    scene: Scene,
    client: u32,
    chance: Chance,
    values: u64,
    partitions: Vec<Partition>,
    /// The next round begins with this one.
    wanted: Option<Partition>,
    acknowledged: BTreeMap<Partition, u64>,
    /// Everything below was acknowledged to be there.
    known_end: BTreeMap<Partition, i64>,
    /// Of the present producer.
    overdue_after: Duration,
    attempts_max: Option<u32>,
    idempotent: bool,
}

impl LibraryWriter {
    fn new(scene: Scene, client: u32) -> Self {
        Self {
            client,
            chance: Chance::new(scene.plan.seed, &format!("library writer {client}")),
            values: 0,
            partitions: scene.partitions(),
            wanted: None,
            acknowledged: BTreeMap::new(),
            known_end: BTreeMap::new(),
            overdue_after: Duration::ZERO,
            attempts_max: None,
            idempotent: false,
            scene,
        }
    }

    /// A producer of its own kind, on connections of its own.
    fn producer(&mut self) -> Producer {
        let client = library(&self.scene, &mut self.chance);
        let (chance, workload) = (&mut self.chance, &self.scene.plan.workload);
        let timeout = client.config().request_timeout;
        let codecs: &[Codec] = match workload.codec {
            Codecs::Mixed => &Codec::ALL,
            Codecs::Plain => &[Codec::None],
            Codecs::Gzip => &[Codec::Gzip],
            Codecs::Snappy => &[Codec::Snappy],
            Codecs::Lz4 => &[Codec::Lz4],
            Codecs::Zstd => &[Codec::Zstd],
        };
        let batch_bytes_max = *chance.pick(&[1, 1024, 128 << 10]);
        self.attempts_max = *chance.pick(&[None, None, Some(1), Some(workload.attempts)]);
        self.idempotent = workload.idempotent && workload.acks == Acks::All;
        let config = ProducerConfig {
            acks: match workload.acks {
                Acks::None => partition::Acks::None,
                Acks::Leader => partition::Acks::Leader,
                Acks::All => partition::Acks::All,
            },
            idempotent: self.idempotent,
            codec: *chance.pick(codecs),
            batch_bytes_max,
            batch_records_max: *chance.pick(&[1, 3, 100_000]),
            linger: Duration::from_millis(*chance.pick(&[0, 0, 5])),
            requests_in_flight_max: workload.in_flight as usize,
            buffer_bytes_max: batch_bytes_max.max(*chance.pick(&[4096, 1 << 20])),
            // One that gives up while an attempt is under way tells the most.
            delivery_timeout: timeout * *chance.pick(&[1, 3, 30]),
            replication_timeout: timeout,
            attempts_max: self.attempts_max,
            create_topics: false,
            ..ProducerConfig::default()
        };
        self.overdue_after = config.delivery_timeout + (timeout * 2) * WAITS;
        client.producer(config).expect("the settings fit together")
    }

    /// Hands over the records of one round.
    async fn send(&mut self, producer: &Producer) -> Vec<Sent> {
        let workload = &self.scene.plan.workload;
        let undated = self.chance.hit(workload.undated);
        let acks = workload.acks;
        let most = workload.records.high * u64::from(workload.in_flight);
        let mut sent = Vec::new();
        self.partitions = self.scene.partitions();
        for _ in 0..1 + self.chance.below(most) {
            let wanted = self.wanted.take();
            let partition = wanted.unwrap_or_else(|| *self.chance.pick(&self.partitions));
            self.values += 1;
            let bytes = self.chance.between(self.scene.plan.workload.value_bytes);
            let value =
                values::value(values::writer(&self.scene.plan, self.client), bytes, self.values);
            let mut message = values::message(value);
            message.topic = Arc::from(topic_name(partition).as_str());
            message.partition = Some(partition.index as i32);
            message.timestamp = undated.then_some(Timestamp::NONE);
            let call =
                Call::Append { partition, values: vec![value], acks, producer: None, attempts: 0 };
            let now = self.scene.now().monotonic;
            let operation = self.scene.history().invoke(self.client, now, call);
            // An idempotent one answers for its repetitions; one that may repeat itself does not.
            let attempts = if self.idempotent || self.attempts_max == Some(1) { 1 } else { 2 };
            for _ in 0..attempts {
                self.scene.history().attempt(operation);
            }
            match producer.send(message).await {
                Ok(delivery) => sent.push((operation, partition, delivery)),
                Err(error) => self.on_failure(operation, partition, &error),
            }
        }
        sent
    }

    /// Asks for the oldest records of a partition to go, or for all.
    async fn delete_records(&mut self) {
        let client = library(&self.scene, &mut self.chance);
        let partition = *self.chance.pick(&self.partitions);
        let known = self.known_end.get(&partition).copied().unwrap_or(0);
        let before = (!self.chance.one_in(4)).then(|| self.chance.below(known as u64 + 1) as i64);
        let now = self.scene.now().monotonic;
        let call = Call::Delete { partition, before };
        let operation = self.scene.history().invoke(self.client, now, call);
        let (topic, index) = (topic_name(partition), partition.index as i32);
        match client.delete_records(topic.as_str(), index, before.map(Offset)).await {
            Ok(start) => {
                reached!("the-library-deletes");
                let now = self.scene.now().monotonic;
                let end = End::Deleted { log_start: start.0 };
                self.scene.history().complete(operation, now, end);
            }
            Err(error) => {
                let now = self.scene.now().monotonic;
                self.scene.history().refused(operation, now, &error.to_string());
            }
        }
    }

    /// Waits until every record has its outcome. One that never gets it is a fault of the library.
    async fn settle(&mut self, sent: Vec<Sent>) {
        let overdue = self.scene.now().monotonic + self.overdue_after;
        for (operation, partition, delivery) in sent {
            let outcome = tokio::select! {
                biased;
                outcome = delivery => outcome,
                () = self.scene.clock.sleep_until(overdue) => {
                    let after = self.overdue_after.as_millis();
                    let sentence = format!(
                        "operation {} has no outcome {after} ms after it was sent", operation.0
                    );
                    self.complain(partition, sentence);
                    continue;
                }
            };
            match outcome {
                // Nobody has said that it is stored.
                Ok(_) if self.scene.plan.workload.acks == Acks::None => {}
                Ok(receipt) => {
                    let base = receipt.offset.map(|offset| offset.0);
                    if let Some(base) = base {
                        let known = self.known_end.entry(partition).or_default();
                        *known = (base + 1).max(*known);
                    }
                    let end = End::Appended { base, append_time: None };
                    let at = receipt.acknowledged;
                    self.scene.history().complete(operation, at, end);
                    *self.acknowledged.entry(partition).or_default() += 1;
                    reached!("the-library-appends");
                }
                Err(error) => self.on_failure(operation, partition, &error),
            }
        }
    }

    fn on_failure(&self, operation: OperationId, partition: Partition, error: &SendError) {
        self.scene.stage.note(self.client, format!("got nothing acknowledged: {error}"));
        let now = self.scene.now().monotonic;
        self.scene.history().refused(operation, now, &error.to_string());
        match error.fate {
            Fate::Unknown => reached!("the-library-does-not-know"),
            Fate::NotDone => {
                reached!("the-library-knows-it-failed");
                self.scene.history().complete(operation, now, End::Failed);
            }
        }
        if error.error.code().is_some_and(|code| !is_answer(code)) {
            self.complain(partition, format!("operation {} was told {error}", operation.0));
        }
    }

    fn complain(&self, partition: Partition, sentence: String) {
        let complaint = Complaint { property: "answer", partition, sentence };
        self.scene.history().complaints.push(complaint);
    }

    /// An application ends its producer in good order, or leaves it with records under way.
    async fn part_with(&mut self, producer: Producer) {
        if self.chance.one_in(3) {
            let sent = self.send(&producer).await;
            drop(producer);
            reached!("the-library-is-dropped-at-work");
            self.settle(sent).await;
        } else {
            producer.close().await;
        }
    }
}

/// What a node may say to a producer that does as it should.
const fn is_answer(code: Code) -> bool {
    matches!(
        code,
        Code::UnknownTopicOrPartition
            // Where the topic is not known yet.
            | Code::UnknownTopicId
            | Code::MessageTooLarge
            | Code::RecordListTooLarge
            | Code::NotEnoughReplicas
            | Code::NotEnoughReplicasAfterAppend
            | Code::InvalidTimestamp
            | Code::ThrottlingQuotaExceeded
            // A batch before it was given up.
            | Code::OutOfOrderSequenceNumber
            | Code::NotLeaderOrFollower
            | Code::LeaderNotAvailable
            | Code::RequestTimedOut
            | Code::NetworkException
            | Code::KafkaStorageError
            | Code::UnknownServerError
    )
}

/// A client on connections of its own. After the healing it is as patient as the others are.
pub(super) fn library(scene: &Scene, chance: &mut Chance) -> Client {
    library_as(scene, config(scene, chance))
}

pub(super) fn library_as(scene: &Scene, config: ClientConfig) -> Client {
    Client::new(Arc::clone(&scene.network), Arc::clone(&scene.clock), config)
}

pub(super) fn config(scene: &Scene, chance: &mut Chance) -> ClientConfig {
    let timeout = scene.timeout();
    ClientConfig {
        connect_timeout: timeout,
        request_timeout: timeout,
        operation_timeout: timeout * 3,
        retry_backoff: Duration::from_millis(1 + chance.below(50)),
        metadata_age_max: *chance.pick(&[Duration::from_secs(1), Duration::from_secs(300)]),
        seed: chance.number(),
        ..ClientConfig::new(&scene.addresses.join(","))
    }
}

/// Reads until the run is over. Says so once the run is healed and every partition gave something.
pub async fn read(scene: Scene, client: u32, proven: oneshot::Sender<()>) {
    let mut reader = LibraryReader {
        chance: Chance::new(scene.plan.seed, &format!("library reader {client}")),
        positions: BTreeMap::new(),
        missing: Vec::new(),
        proven: Some(proven),
        scene,
        client,
    };
    while !reader.scene.stage.is_over() {
        reader.find_partitions();
        let library = library(&reader.scene, &mut reader.chance);
        let options = FetchOptions {
            wait_max: reader.scene.plan.workload.wait,
            partition_bytes_max: reader.scene.plan.workload.read_bytes as i32,
            ..FetchOptions::default()
        };
        if reader.chance.one_in(2) {
            reader.fetch(&library, &options).await;
        } else {
            reader.poll(library, options).await;
        }
    }
    reader.scene.stage.done(client);
}

struct LibraryReader {
    scene: Scene,
    client: u32,
    chance: Chance,
    positions: BTreeMap<Partition, i64>,
    /// Partitions that have given nothing since the healing.
    missing: Vec<Partition>,
    proven: Option<oneshot::Sender<()>>,
}

impl LibraryReader {
    /// Partitions that are new are read from their beginning.
    fn find_partitions(&mut self) {
        // Without answers, nobody notices that a gap in the sequence keeps a writer's records out.
        let unheard = self.scene.plan.workload.acks == Acks::None;
        for partition in self.scene.partitions() {
            if let Entry::Vacant(place) = self.positions.entry(partition) {
                place.insert(0);
                if !unheard {
                    self.missing.push(partition);
                }
            }
        }
    }

    /// Whether this client is to make place for the next.
    fn is_over(&self, patient: bool) -> bool {
        let stage = &self.scene.stage;
        stage.is_over() || stage.is_healed() != patient
    }

    /// Single fetches, partition by partition.
    async fn fetch(&mut self, library: &Client, options: &FetchOptions) {
        let patient = self.scene.stage.is_healed();
        for _ in 0..1 + self.chance.below(50) {
            for partition in self.scene.partitions() {
                if self.is_over(patient) {
                    return;
                }
                if self.chance.one_in(8) {
                    self.ask_for_end(library, partition).await;
                }
                let from = self.positions.get(&partition).copied().unwrap_or(0);
                let now = self.scene.now().monotonic;
                let call = Call::Read { partition, from };
                let operation = self.scene.history().invoke(self.client, now, call);
                let (topic, index) = (topic_name(partition), partition.index as i32);
                let fetched = library.fetch(topic.as_str(), index, Offset(from), options).await;
                match fetched {
                    Ok(fetched) => {
                        let (end, start) = (fetched.high_watermark.0, fetched.log_start.0);
                        let read = (operation, partition, from);
                        self.take(read, &fetched.batches, (end, start));
                    }
                    Err(error) => {
                        let now = self.scene.now().monotonic;
                        self.scene.history().complete(operation, now, End::Failed);
                        self.on_error(partition, &error, library).await;
                    }
                }
            }
            let pause = Duration::from_micros(500 + self.chance.below(20_000));
            self.scene.clock.sleep(pause.max(self.scene.leisure())).await;
        }
    }

    /// Where the log ends, as its leader knows it.
    async fn ask_for_end(&self, library: &Client, partition: Partition) {
        let now = self.scene.now().monotonic;
        let call = Call::Latest { partition };
        let operation = self.scene.history().invoke(self.client, now, call);
        let (topic, index) = (topic_name(partition), partition.index as i32);
        let isolation = partition::Isolation::ReadUncommitted;
        let asked = library.list_offset_once(topic.as_str(), index, Position::End, isolation).await;
        let end = match asked {
            Ok(ListedOffset { offset: Some(at), leader_epoch: Some(epoch), .. }) => {
                End::Ends { at: at.0, leader_epoch: epoch.0 }
            }
            _ => End::Failed,
        };
        let now = self.scene.now().monotonic;
        self.scene.history().complete(operation, now, end);
    }

    async fn on_error(
        &mut self,
        partition: Partition,
        error: &quorate_net::client::Error,
        library: &Client,
    ) {
        self.scene.stage.note(self.client, format!("cannot read {partition}: {error}"));
        let Some(code) = error.code() else { return };
        complain_of_rot(&self.scene, partition, code.code(), "a reader of the library");
        if code != Code::OffsetOutOfRange {
            return;
        }
        let (topic, index) = (topic_name(partition), partition.index as i32);
        let isolation = partition::Isolation::ReadUncommitted;
        let position = Position::Beginning;
        let listed = library.list_offset_once(topic.as_str(), index, position, isolation).await;
        if let Ok(start) = listed
            && let Some(offset) = start.offset
        {
            self.positions.insert(partition, offset.0);
        }
    }

    /// All partitions at once, by a consumer that finds its way back by itself.
    async fn poll(&mut self, library: Client, options: FetchOptions) {
        let patient = self.scene.stage.is_healed();
        let ready_max = *self.chance.pick(&[1, 4]);
        let on_reset = OnReset::Beginning;
        let config = ConsumerConfig { fetch: options, on_reset, ready_max };
        let mut consumer = Consumer::new(library, config);
        for (partition, from) in &self.positions {
            let topic = Arc::from(topic_name(*partition).as_str());
            let position = Position::Offset(Offset(*from));
            consumer.assign(&topic, partition.index as i32, position);
        }
        let begun = self.scene.now().monotonic;
        for _ in 0..1 + self.chance.below(200) {
            if self.is_over(patient) {
                return;
            }
            match consumer.poll(PATIENCE).await {
                Ok(None) => {}
                Err(error) => {
                    self.scene.stage.note(self.client, format!("cannot poll: {error}"));
                    self.scene.clock.sleep(Duration::from_millis(20)).await;
                    return;
                }
                Ok(Some(read)) => {
                    let topic = read.topic.trim_start_matches('t').parse().expect("our topic");
                    let partition = Partition { topic, index: read.partition as u32 };
                    // It goes on where it was, or where it was reset to.
                    let asked = *self.positions.get(&partition).unwrap_or(&read.from.0);
                    let was_reset = read.log_start.0 > asked || read.from.0 < asked;
                    let from = if was_reset { read.from.0 } else { asked };
                    let call = Call::Read { partition, from };
                    // When it was asked for is not known but for that.
                    let operation = self.scene.history().invoke(self.client, begun, call);
                    let known = (read.high_watermark.0, read.log_start.0);
                    self.take((operation, partition, from), &read.batches, known);
                }
            }
        }
    }

    fn take(
        &mut self,
        (operation, partition, from): (OperationId, Partition, i64),
        batches: &[Batch],
        (high_watermark, log_start): (i64, i64),
    ) {
        let mut records: Vec<Seen> = Vec::new();
        for batch in batches {
            values::records(batch, from, &mut records);
        }
        if let Some(batch) = batches.last() {
            reached!("the-library-reads");
            self.positions.insert(partition, batch.header().next_offset().0);
            if self.scene.stage.is_healed() {
                self.missing.retain(|missing| *missing != partition);
            }
        }
        let end = End::Read { records, high_watermark, log_start };
        let now = self.scene.now().monotonic;
        self.scene.history().complete(operation, now, end);
        if self.missing.is_empty() {
            let _ = self.proven.take().map(|proven| proven.send(()));
        } else if self.scene.stage.is_healed() {
            let missing = self.missing[0];
            self.scene.stage.note(self.client, format!("got nothing of {missing}"));
        }
    }
}
