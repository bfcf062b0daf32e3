//! Producing: records gather into batches, batches go to the leaders of their partitions, each
//! once and in order if the producer is idempotent. Which batch goes when, and what follows from
//! an answer, is decided in `produce/queue.rs`; this file sends and waits.

mod part;
mod queue;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::Shared;
use futures_util::stream::{FuturesUnordered, StreamExt};
use quorate_core::batch::{Batch, Codec};
use quorate_core::id::{Offset, ProducerEpoch, ProducerId, TopicId};
use quorate_core::partition::interface::Acks;
use quorate_core::time::{Instant, Timestamp};
use tokio::sync::{Notify, Semaphore, oneshot};
use tracing::Instrument as _;

use self::part::{Answer, Part};
use self::queue::{Drained, Queues, Settled};
use super::metadata::{partition_named, refusal, topic_named};
use super::partitioner::partition_of_key;
use super::route::Lane;
use super::{Client, Error, Fate, RecordHeader};
use crate::kafka::messages as m;
use crate::kafka::messages::produce::{PartitionProduceData, TopicProduceData};
use crate::wire::{Records, Text};

/// How a producer batches, sends and repeats.
#[derive(Clone, Debug)]
pub struct ProducerConfig {
    pub acks: Acks,
    /// Each record once and in order, across retries (KIP-98). Needs acks=all.
    pub idempotent: bool,
    pub codec: Codec,
    /// A batch is sent once it has as many bytes before compression.
    pub batch_bytes_max: usize,
    /// Or as many records.
    pub batch_records_max: i32,
    /// Or once its first record has waited as long; zero waits only for a free request.
    pub linger: Duration,
    /// Requests without an answer, for each broker: 1 to 5.
    pub requests_in_flight_max: usize,
    /// Bytes of batches for one broker that are joined into one request.
    pub request_bytes_max: usize,
    /// Bytes of records that were accepted and have not settled; `send` waits for room.
    pub buffer_bytes_max: usize,
    /// From `send` to the outcome, retries included. Kafka's `delivery.timeout.ms`.
    pub delivery_timeout: Duration,
    /// How long the broker may wait for replicas.
    pub replication_timeout: Duration,
    /// How often one batch may be sent; `None` until `delivery_timeout`. Without idempotence a
    /// second attempt may store the records twice.
    pub attempts_max: Option<u32>,
    /// Whether the cluster may create a topic that is absent.
    pub create_topics: bool,
}

impl Default for ProducerConfig {
    fn default() -> Self {
        Self {
            acks: Acks::All,
            idempotent: true,
            codec: Codec::None,
            batch_bytes_max: 128 * 1024,
            batch_records_max: 100_000,
            linger: Duration::ZERO,
            requests_in_flight_max: 5,
            request_bytes_max: 1024 * 1024,
            buffer_bytes_max: 32 * 1024 * 1024,
            delivery_timeout: Duration::from_secs(120),
            replication_timeout: Duration::from_secs(30),
            attempts_max: None,
            create_topics: true,
        }
    }
}

/// A record to be produced.
#[derive(Clone, Debug, Default)]
pub struct Message {
    pub topic: Arc<str>,
    /// `None`: by the key, or with the others that have none.
    pub partition: Option<i32>,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<RecordHeader>,
    /// `None`: now, by the client's wall clock.
    pub timestamp: Option<Timestamp>,
}

/// Where a record stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub topic: Arc<str>,
    pub partition: i32,
    /// `None` if the broker does not say: acks=0, or an old duplicate.
    pub offset: Option<Offset>,
    /// The broker's for LogAppendTime topics, else the message's.
    pub timestamp: Timestamp,
    /// When the acknowledgement came, on the client's clock, whenever it is looked at.
    pub acknowledged: Instant,
}

/// Why a record was not acknowledged, and whether it may be in the log all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendError {
    pub error: Error,
    pub fate: Fate,
}

impl std::fmt::Display for SendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.fate {
            Fate::NotDone => write!(f, "{}", self.error),
            Fate::Unknown => write!(f, "{} (it may be stored all the same)", self.error),
        }
    }
}

impl std::error::Error for SendError {}

impl From<Error> for SendError {
    fn from(error: Error) -> Self {
        let fate = error.fate();
        Self { error, fate }
    }
}

type Outcome = Result<Settled, SendError>;

/// The outcome of one record, to be awaited. Dropping it does not take the record back.
#[derive(Clone)]
pub struct Delivery {
    batch: Shared<oneshot::Receiver<Outcome>>,
    topic: Arc<str>,
    partition: i32,
    place: i32,
    timestamp: Timestamp,
}

impl Future for Delivery {
    type Output = Result<Receipt, SendError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(outcome) = self.batch.poll_unpin(context) else { return Poll::Pending };
        Poll::Ready(match outcome {
            Ok(Ok(settled)) => Ok(Receipt {
                topic: Arc::clone(&self.topic),
                partition: self.partition,
                offset: settled.base.map(|base| base.plus(i64::from(self.place))),
                timestamp: settled.append_time.unwrap_or(self.timestamp),
                acknowledged: settled.at,
            }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Error::Closed.into()),
        })
    }
}

/// Sends records. Dropping it gives up what has not been sent; `close` does not.
pub struct Producer {
    shared: Arc<Inner>,
}

struct Inner {
    client: Client,
    config: ProducerConfig,
    /// Of the transactions that all batches are parts of.
    transactional_id: Option<Text>,
    queues: Mutex<Queues>,
    /// Something may be ripe.
    wake: Notify,
    /// Something has settled.
    settled: Notify,
    room: Semaphore,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    /// Starts a producer and the task that sends for it.
    ///
    /// # Errors
    ///
    /// `Invalid` if the configuration contradicts itself.
    pub fn producer(&self, config: ProducerConfig) -> Result<Producer, Error> {
        self.start_producer(config, None)
    }

    /// With a transactional id nothing goes before `Producer::tell`.
    pub(super) fn start_producer(
        &self,
        config: ProducerConfig,
        transactional_id: Option<Text>,
    ) -> Result<Producer, Error> {
        let invalid = |reason: &str| Err(Error::Invalid { reason: reason.to_owned() });
        if config.idempotent && !matches!(config.acks, Acks::All | Acks::AtLeast(_)) {
            return invalid("an idempotent producer needs acks=all: turn idempotence off");
        }
        if !(1..=5).contains(&config.requests_in_flight_max) {
            return invalid("requests in flight: 1 to 5, as a broker remembers five batches");
        }
        if config.batch_records_max < 1 || config.buffer_bytes_max < config.batch_bytes_max {
            return invalid("a batch must hold a record, and the buffer a batch");
        }
        let shared = Arc::new(Inner {
            client: self.clone(),
            queues: Mutex::new(Queues::new(&config, self.config(), transactional_id.is_some())),
            wake: Notify::new(),
            settled: Notify::new(),
            room: Semaphore::new(config.buffer_bytes_max),
            config,
            transactional_id,
        });
        tokio::spawn(run(Arc::clone(&shared)).in_current_span());
        Ok(Producer { shared })
    }
}

impl Producer {
    /// Accepts a record, waiting while the buffer is full. Records for one partition keep the
    /// order in which these calls return.
    ///
    /// # Errors
    ///
    /// Only if the record was not accepted; what becomes of an accepted one, `Delivery` tells.
    pub async fn send(&self, message: Message) -> Result<Delivery, SendError> {
        let shared = &self.shared;
        let client = &shared.client;
        let known = &client.inner.metadata;
        let age_max = client.config().metadata_age_max;
        let topic = match known.topic(&message.topic, client.now(), age_max) {
            Some(topic) => topic,
            None => {
                let create = shared.config.create_topics;
                let attempt = || client.topic_once(&message.topic, create);
                let asked = client.retry(&topic_named(&message.topic), attempt).await;
                // Whatever became of the question, the record itself went nowhere.
                asked.map_err(|error| SendError { error, fate: Fate::NotDone })?
            }
        };
        let count = topic.partition_count();
        if let Some(partition) = message.partition
            && !(0..count).contains(&partition)
        {
            let what = partition_named(&message.topic, partition);
            let reason = format!("{what} does not exist: the topic has {count} partitions");
            return Err(Error::Invalid { reason }.into());
        }
        let bytes = part::size_of(&message);
        if bytes > shared.config.buffer_bytes_max {
            let most = shared.config.buffer_bytes_max;
            let reason = format!("a record of {bytes} bytes is larger than the buffer of {most}");
            return Err(Error::Invalid { reason }.into());
        }
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        if shared.room.available_permits() < bytes {
            // Batches that linger would never make room.
            shared.lock().hurry();
            shared.wake.notify_one();
        }
        // Now and then this lets others run though there is room: whoever sends in a loop would
        // otherwise keep from its thread the very task that sends.
        let room = shared.room.acquire_many(permits).await.map_err(|_| Error::Closed)?;
        let now = client.clock().now();
        let mut queues = shared.lock();
        if queues.is_closed() {
            return Err(Error::Closed.into());
        }
        // From here on the batch holds the room, and gives it back when it settles.
        room.forget();
        let partition = match (message.partition, &message.key) {
            (Some(partition), _) => partition,
            (None, Some(key)) => partition_of_key(key, count),
            (None, None) => queues.sticky(&message.topic, count, bytes),
        };
        let (delivery, ripe) = queues.append(now, message, partition, bytes);
        drop(queues);
        if ripe {
            shared.wake.notify_one();
        }
        Ok(delivery)
    }

    /// Sends what lingers, and returns once all that was accepted before has settled.
    pub async fn flush(&self) {
        loop {
            let settled = self.shared.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            {
                let mut queues = self.shared.lock();
                if queues.is_empty() {
                    return;
                }
                queues.hurry();
            }
            self.shared.wake.notify_one();
            settled.await;
        }
    }

    /// The identity of the transaction that begins. All of the last one has settled.
    pub(super) fn tell(&self, id: ProducerId, epoch: ProducerEpoch) {
        self.shared.lock().tell(id, epoch);
    }

    /// Why the transaction cannot be committed, if so.
    pub(super) fn failure(&self) -> Option<Error> {
        self.shared.lock().failure().cloned()
    }

    /// Gives up what has not been sent, and returns once nothing is under way.
    pub(super) async fn forsake(&self) {
        self.shared.lock().lose();
        self.flush().await;
    }

    /// Flushes, and ends the producer's task.
    pub async fn close(self) {
        self.flush().await;
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.shared.lock().close();
        self.shared.wake.notify_one();
    }
}

/// What the sending task waits for.
enum Done {
    Sent(Sent),
    Asked,
    Identified(Result<(ProducerId, ProducerEpoch), Error>),
}

/// One request that has come to its end.
struct Sent {
    address: String,
    parts: Vec<(Part, Batch, Result<Answer, Error>)>,
}

type Job = Pin<Box<dyn Future<Output = Done> + Send>>;

async fn run(shared: Arc<Inner>) {
    let clock = Arc::clone(shared.client.clock());
    let mut jobs: FuturesUnordered<Job> = FuturesUnordered::new();
    let mut in_flight: BTreeMap<String, usize> = BTreeMap::new();
    let mut asking = false;
    loop {
        let now = clock.now().monotonic;
        let drained = drain(&shared, now, &in_flight);
        for (address, parts) in drained.requests {
            *in_flight.entry(address.clone()).or_default() += 1;
            jobs.push(Box::pin(send_parts(Arc::clone(&shared), address, parts)));
        }
        if drained.identify {
            jobs.push(Box::pin(identify(shared.client.clone())));
        }
        if !asking && let Some((topic, partition)) = drained.without_leader {
            asking = true;
            jobs.push(Box::pin(ask(shared.client.clone(), topic, partition)));
        }
        if drained.freed > 0 {
            shared.room.add_permits(drained.freed);
            shared.settled.notify_waiters();
        }
        if drained.over && jobs.is_empty() {
            shared.room.close();
            return;
        }
        let wake = drained.wake.unwrap_or(now + Duration::from_secs(3600));
        let done = tokio::select! {
            biased;
            Some(done) = jobs.next(), if !jobs.is_empty() => Some(done),
            () = shared.wake.notified() => None,
            () = clock.sleep_until(wake) => None,
        };
        match done {
            None => {}
            Some(Done::Asked) => asking = false,
            Some(Done::Identified(outcome)) => {
                shared.lock().identified(clock.now().monotonic, outcome);
            }
            Some(Done::Sent(sent)) => {
                if let Some(count) = in_flight.get_mut(&sent.address) {
                    *count -= 1;
                }
                settle(&shared, sent, clock.now().monotonic);
            }
        }
    }
}

fn drain(shared: &Inner, now: Instant, in_flight: &BTreeMap<String, usize>) -> Drained {
    let metadata = &shared.client.inner.metadata;
    let free = |address: &str| {
        in_flight.get(address).copied().unwrap_or_default() < shared.config.requests_in_flight_max
    };
    shared.lock().drain(now, &|topic, index| metadata.leader(topic, index), &free)
}

fn settle(shared: &Inner, sent: Sent, now: Instant) {
    let mut queues = shared.lock();
    for (part, batch, answer) in sent.parts {
        if answer.as_ref().is_err_and(Error::blames_metadata) {
            shared.client.inner.metadata.expire();
        }
        queues.answered(now, &part, batch, answer);
    }
}

/// A look at the metadata, with a pause where that did not help so that the task does not spin:
/// what is known may have no leader of the partition, or, from a node that is behind, not even it.
async fn ask(client: Client, topic: Arc<str>, partition: i32) -> Done {
    if let Err(error) = client.topic_once(&topic, false).await {
        tracing::debug!(%topic, %error, "no leader is known");
        client.clock().sleep(client.config().retry_backoff).await;
    } else if client.inner.metadata.leader(&topic, partition).is_none() {
        client.inner.metadata.expire();
        client.clock().sleep(client.config().retry_backoff).await;
    }
    Done::Asked
}

async fn identify(client: Client) -> Done {
    let request = m::InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: i32::MAX,
        ..Default::default()
    };
    let asked = client.ask_any(&request, Duration::ZERO).await;
    Done::Identified(asked.and_then(|response| match refusal(response.error_code) {
        Some(code) => Err(Error::refused("a producer id", code, None)),
        None => Ok((ProducerId(response.producer_id), ProducerEpoch(response.producer_epoch))),
    }))
}

/// Builds the batches, sends them in one request, and pairs them with their answers.
async fn send_parts(shared: Arc<Inner>, address: String, parts: Vec<Part>) -> Done {
    let built: Vec<(Part, Batch)> = parts
        .into_iter()
        .map(|mut part| {
            let batch = part.build();
            (part, batch)
        })
        .collect();
    let request = request(&shared, &built);
    let routes = &shared.client.inner.routes;
    let outcome = if shared.config.acks == Acks::None {
        routes.tell(&address, Lane::Produce, &request).await.map(|()| None)
    } else {
        let patience = shared.config.replication_timeout;
        routes.call(&address, Lane::Produce, &request, patience).await.map(Some)
    };
    let parts = built.into_iter().map(|(part, batch)| {
        let answer = match &outcome {
            Err(error) => Err(error.clone()),
            Ok(None) => Ok(Answer::default()),
            Ok(Some(response)) => answer(response, &part, &address),
        };
        (part, batch, answer)
    });
    let parts = parts.collect();
    Done::Sent(Sent { address, parts })
}

fn request(shared: &Inner, built: &[(Part, Batch)]) -> m::ProduceRequest {
    let config = &shared.config;
    let mut topics: Vec<TopicProduceData> = Vec::new();
    for (part, batch) in built {
        let records: Records = batch.chunks().into_iter().collect();
        let data = PartitionProduceData { index: part.partition, records: Some(records) };
        match topics.last_mut().filter(|topic| topic.name == *part.topic) {
            Some(topic) => topic.partition_data.push(data),
            None => topics.push(TopicProduceData {
                name: Text::from(&*part.topic),
                topic_id: part.topic_id,
                partition_data: vec![data],
            }),
        }
    }
    let acks = match config.acks {
        Acks::None => 0,
        Acks::Leader => 1,
        Acks::All => -1,
        Acks::AtLeast(copies) => i16::try_from(copies).unwrap_or(i16::MAX),
    };
    let timeout_ms = i32::try_from(config.replication_timeout.as_millis()).unwrap_or(i32::MAX);
    let transactional_id = shared.transactional_id.clone();
    m::ProduceRequest { transactional_id, acks, timeout_ms, topic_data: topics }
}

/// What `response` says about `part`. The topic stands there by name or, from version 13 on, by
/// its id.
fn answer(response: &m::ProduceResponse, part: &Part, address: &str) -> Result<Answer, Error> {
    let named = |topic: &&m::produce::TopicProduceResponse| {
        topic.name == *part.topic
            || (part.topic_id != TopicId::NONE && topic.topic_id == part.topic_id)
    };
    let topics = response.responses.iter().filter(named);
    let mut partitions = topics.flat_map(|topic| &topic.partition_responses);
    let what = || partition_named(&part.topic, part.partition);
    let found = partitions.find(|found| found.index == part.partition).ok_or_else(|| {
        Error::Malformed { address: address.to_owned(), reason: format!("{} is missing", what()) }
    })?;
    if let Some(code) = refusal(found.error_code) {
        let detail = found.record_errors.first();
        let detail = detail.and_then(|record| record.batch_index_error_message.as_ref());
        let message = found.error_message.as_ref().or(detail);
        return Err(Error::refused(what(), code, message.map(Text::as_str)));
    }
    Ok(Answer {
        base: Some(Offset(found.base_offset)).filter(|base| base.0 >= 0),
        append_time: Some(Timestamp(found.log_append_time_ms)).filter(|time| time.0 >= 0),
    })
}
