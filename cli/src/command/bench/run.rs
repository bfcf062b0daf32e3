//! The runs themselves: producers that keep a rate, a collector of acknowledgements, a reader.

pub(super) mod transactions;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::future::try_join_all;
use hdrhistogram::Histogram;
use quorate_core::batch::{self, Codec};
use quorate_core::id::Offset;
use quorate_core::partition::interface::Isolation;
use quorate_core::time::Instant;
use quorate_net::client::{
    Client, Consumer, ConsumerConfig, Delivery, FetchOptions, Message, PartitionBatches, Position,
    Producer,
};
use quorate_net::clock::Clock;
use tokio::sync::mpsc;

use self::transactions::Phases;
use super::report::{Report, histogram, micros};
use super::{producer_config, values};
use crate::args::BenchArgs;
use crate::command::Context;
use crate::failure::Failure;
use crate::output::human;

/// Acknowledgements that may be awaited by one collector.
const AWAITED_MAX: usize = 200_000;
/// The longest a reader waits before it gives up.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// When each record is due.
#[derive(Clone, Copy)]
struct Pace {
    start: Instant,
    rate: Option<u64>,
}

impl Pace {
    fn due(&self, record: u64) -> Option<Instant> {
        let rate = self.rate?;
        let nanos = u128::from(record) * 1_000_000_000 / u128::from(rate.max(1));
        Some(self.start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// Waits until `record` is due; gives the instant from which its latency counts.
    async fn wait(&self, clock: &Arc<dyn Clock>, record: u64) -> Instant {
        match self.due(record) {
            None => clock.now().monotonic,
            Some(due) => {
                if clock.now().monotonic < due {
                    clock.sleep_until(due).await;
                }
                due
            }
        }
    }
}

/// Shows how far a run is, on a terminal.
async fn show(context: &Context, what: &str, count: &AtomicU64, total: u64) -> Failure {
    loop {
        context.clock.sleep(Duration::from_millis(250)).await;
        let done = count.load(Ordering::Relaxed).min(total);
        let filled = usize::try_from(done * 30 / total.max(1)).unwrap_or(30);
        let bar = format!("{}{}", "█".repeat(filled), "░".repeat(30 - filled));
        let (done, total) = (human::count(done), human::count(total));
        context.output.progress(&format!("{what} {bar} {done} of {total}"));
    }
}

pub(super) async fn produce(
    context: &Context,
    args: &BenchArgs,
    topic: &Arc<str>,
) -> Result<Report, Failure> {
    let count = Arc::new(AtomicU64::new(0));
    let total = args.records + args.warmup;
    let work = async {
        if args.warmup > 0 {
            let warmup = BenchArgs { records: args.warmup, ..args.clone() };
            produce_all(context, &warmup, topic, &count).await?;
        }
        produce_all(context, args, topic, &count).await
    };
    let (took, found) = tokio::select! {
        biased;
        outcome = work => outcome?,
        failure = show(context, "producing", &count, total) => return Err(failure),
    };
    let report = Report::new("produce", args.records, args.records * args.size, took);
    let report = report.latencies(&found.latencies);
    Ok(match &found.phases {
        Some(phases) => report.transactions(phases),
        None => report,
    })
}

/// What one producer found, or all together.
struct Found {
    latencies: Histogram<u64>,
    /// When the last record was acknowledged, or committed.
    last: Instant,
    /// Of its transactions.
    phases: Option<Phases>,
}

impl Found {
    fn new() -> Self {
        Self { latencies: histogram(), last: Instant::ZERO, phases: None }
    }

    fn add(&mut self, other: Self) -> Result<(), Failure> {
        let unlike = |error| Failure::new(format!("latencies: {error}"));
        self.latencies.add(&other.latencies).map_err(unlike)?;
        self.last = self.last.max(other.last);
        match (&mut self.phases, other.phases) {
            (Some(phases), Some(other)) => phases.add(&other).map_err(unlike)?,
            (None, other) => self.phases = other,
            (Some(_), None) => {}
        }
        Ok(())
    }
}

type Task = Pin<Box<dyn Future<Output = Result<Found, Failure>> + Send>>;

/// A producer's two halves, each a task of its own: one sends, one awaits what was sent.
fn task(
    sending: impl Future<Output = Result<(), Failure>> + Send + 'static,
    collecting: impl Future<Output = Result<Found, Failure>> + Send + 'static,
) -> Task {
    let ended = |error| Failure::new(format!("a task ended: {error}"));
    Box::pin(async move {
        let (sent, collected) = (tokio::spawn(sending), tokio::spawn(collecting));
        let collected = collected.await.map_err(ended)?;
        sent.await.map_err(ended)??;
        collected
    })
}

async fn produce_all(
    context: &Context,
    args: &BenchArgs,
    topic: &Arc<str>,
    count: &Arc<AtomicU64>,
) -> Result<(Duration, Found), Failure> {
    let producers = u64::from(args.producers);
    let clock = &context.clock;
    let start = clock.now().monotonic;
    let mut tasks: Vec<Task> = Vec::new();
    for index in 0..producers {
        let client = context.client();
        let share = args.records / producers + u64::from(index < args.records % producers);
        let rate = args.rate.map(|rate| (rate / producers).max(1));
        let pace = Pace { start, rate };
        let (clock, topic, count) = (Arc::clone(clock), Arc::clone(topic), Arc::clone(count));
        if let Some(duration) = args.transactional {
            let first = duration * (u32::try_from(index).unwrap_or(0) + 1) / args.producers;
            let work = transactions::Share { count: share, pace, duration, first };
            let (sender, receiver) = mpsc::channel(AWAITED_MAX);
            let who = (client, index);
            let sending = transactions::send(who, clock, args.clone(), topic, work, sender);
            tasks.push(task(sending, transactions::collect(receiver, count)));
            continue;
        }
        let producer = client.producer(producer_config(args)?)?;
        let (sender, receiver) = mpsc::channel(AWAITED_MAX);
        let sending = send(clock, producer, topic, values(args.size), (share, pace), sender);
        tasks.push(task(sending, collect(receiver, count)));
    }
    let mut all = Found::new();
    for found in try_join_all(tasks).await? {
        all.add(found)?;
    }
    Ok((all.last.saturating_since(start), all))
}

async fn send(
    clock: Arc<dyn Clock>,
    producer: Producer,
    topic: Arc<str>,
    values: Vec<Bytes>,
    (count, pace): (u64, Pace),
    sender: mpsc::Sender<(Instant, Delivery)>,
) -> Result<(), Failure> {
    for (record, value) in (0..count).zip(values.iter().cycle()) {
        let due = pace.wait(&clock, record).await;
        let message =
            Message { topic: Arc::clone(&topic), value: Some(value.clone()), ..Message::default() };
        let delivery = producer.send(message).await?;
        if sender.send((due, delivery)).await.is_err() {
            // The collector met a failure, and tells it.
            break;
        }
    }
    drop(sender);
    producer.close().await;
    Ok(())
}

async fn collect(
    mut receiver: mpsc::Receiver<(Instant, Delivery)>,
    count: Arc<AtomicU64>,
) -> Result<Found, Failure> {
    let mut found = Found::new();
    while let Some((due, delivery)) = receiver.recv().await {
        let receipt = delivery.await?;
        found.latencies.saturating_record(micros(receipt.acknowledged.saturating_since(due)));
        found.last = found.last.max(receipt.acknowledged);
        count.fetch_add(1, Ordering::Relaxed);
    }
    Ok(found)
}

/// Records that the topic holds now.
pub(super) async fn records_in(context: &Context, topic: &Arc<str>) -> Result<u64, Failure> {
    let client = context.client();
    let partitions: Vec<i32> = (0..client.topic(topic).await?.partition_count()).collect();
    let isolation = Isolation::ReadUncommitted;
    let starts = client.list_offsets(topic, &partitions, Position::Beginning, isolation).await?;
    let ends = client.list_offsets(topic, &partitions, Position::End, isolation).await?;
    let records = starts.iter().zip(&ends).map(|(start, end)| {
        let (start, end) = (start.offset.unwrap_or_default(), end.offset.unwrap_or_default());
        u64::try_from(end.0 - start.0).unwrap_or_default()
    });
    Ok(records.sum())
}

async fn reader(
    client: &Client,
    topic: &Arc<str>,
    position: Position,
) -> Result<Consumer, Failure> {
    let fetch = FetchOptions { partition_bytes_max: 4 << 20, ..FetchOptions::default() };
    let config = ConsumerConfig { fetch, ..ConsumerConfig::default() };
    let mut consumer = Consumer::new(client.clone(), config);
    for partition in 0..client.topic(topic).await?.partition_count() {
        consumer.assign(topic, partition, position);
    }
    Ok(consumer)
}

/// Looks at every record, as a consumer does.
fn each_value(batches: &PartitionBatches, mut look: impl FnMut(&[u8])) -> Result<u64, Failure> {
    let mut records = 0;
    for batch in &batches.batches {
        let malformed = |error: &dyn std::fmt::Display| {
            Failure::new(format!("batch at offset {}: {error}", batch.header().base_offset()))
        };
        let bytes = match batch.header().codec() {
            Codec::None => batch.records().clone(),
            _ => batch.uncompressed(1 << 30).map_err(|error| malformed(&error))?,
        };
        for record in batch::Records::new(&bytes, batch.header().record_count()) {
            let record = record.map_err(|error| malformed(&error))?;
            if batch.offset_of(&record) >= batches.from {
                look(record.value.unwrap_or_default());
                records += 1;
            }
        }
    }
    Ok(records)
}

pub(super) async fn consume(
    context: &Context,
    args: &BenchArgs,
    topic: &Arc<str>,
) -> Result<Report, Failure> {
    let client = context.client();
    let mut consumer = reader(&client, topic, Position::Beginning).await?;
    let count = AtomicU64::new(0);
    let start = context.clock.now().monotonic;
    let mut bytes = 0;
    let work = async {
        let mut heard = start;
        while count.load(Ordering::Relaxed) < args.records {
            let now = context.clock.now().monotonic;
            match consumer.poll(Duration::from_secs(1)).await? {
                Some(batches) => {
                    let records = each_value(&batches, |value| bytes += value.len() as u64)?;
                    count.fetch_add(records, Ordering::Relaxed);
                    heard = now;
                }
                None if now.saturating_since(heard) > SILENCE_MAX => return Err(silence()),
                None => {}
            }
        }
        Ok(context.clock.now().monotonic)
    };
    let end: Instant = tokio::select! {
        biased;
        outcome = work => outcome?,
        failure = show(context, "consuming", &count, args.records) => return Err(failure),
    };
    let records = count.load(Ordering::Relaxed);
    Ok(Report::new("consume", records, bytes, end.saturating_since(start)))
}

fn silence() -> Failure {
    Failure::new("no record came for 30 seconds")
}

/// The rate of an end-to-end run that names none: latency at saturation says nothing.
const RATE: u64 = 1000;

pub(super) async fn end_to_end(
    context: &Context,
    args: &BenchArgs,
    topic: &Arc<str>,
) -> Result<Report, Failure> {
    let client = context.client();
    let ends = Position::Offset(Offset::ZERO);
    let position = if args.topic.is_some() { Position::End } else { ends };
    let consumer = reader(&context.client(), topic, position).await?;
    let producer = client.producer(producer_config(args)?)?;
    let total = args.warmup + args.records;
    let start = context.clock.now().monotonic + Duration::from_millis(500);
    let pace = Pace { start, rate: Some(args.rate.unwrap_or(RATE)) };
    let stamped = send_stamped(context, &producer, topic, (args.size, total), pace);
    let count = AtomicU64::new(0);
    let work = async {
        let ((), latencies) =
            tokio::try_join!(stamped, receive(context, consumer, (args.warmup, total), &count))?;
        Ok::<_, Failure>(latencies)
    };
    let latencies = tokio::select! {
        biased;
        outcome = work => outcome?,
        failure = show(context, "measuring", &count, total) => return Err(failure),
    };
    producer.close().await;
    let took = context.clock.now().monotonic.saturating_since(start);
    Ok(Report::new("end-to-end", total, total * args.size, took).latencies(&latencies))
}

/// Each value begins with the instant at which it was due, and its number.
async fn send_stamped(
    context: &Context,
    producer: &Producer,
    topic: &Arc<str>,
    (size, total): (u64, u64),
    pace: Pace,
) -> Result<(), Failure> {
    let filling = values(size);
    for (record, filling) in (0..total).zip(filling.iter().cycle()) {
        let due = pace.wait(&context.clock, record).await;
        let mut value = BytesMut::with_capacity(filling.len());
        value.put_u64(u64::try_from(due.as_duration().as_nanos()).unwrap_or_default());
        value.put_u64(record);
        value.put_slice(&filling[16..]);
        let value = Some(value.freeze());
        let message = Message { topic: Arc::clone(topic), value, ..Message::default() };
        producer.send(message).await?;
    }
    Ok(())
}

async fn receive(
    context: &Context,
    mut consumer: Consumer,
    (warmup, total): (u64, u64),
    count: &AtomicU64,
) -> Result<Histogram<u64>, Failure> {
    let mut latencies = histogram();
    let mut heard = context.clock.now().monotonic;
    while count.load(Ordering::Relaxed) < total {
        let polled = consumer.poll(Duration::from_secs(1)).await?;
        let now = context.clock.now().monotonic;
        let Some(batches) = polled else {
            if now.saturating_since(heard) > SILENCE_MAX {
                return Err(silence());
            }
            continue;
        };
        heard = now;
        let records = each_value(&batches, |value| {
            let word = |at: usize| value.get(at..at + 8).and_then(|word| word.first_chunk::<8>());
            let (Some(due), Some(record)) = (word(0), word(8)) else { return };
            let due = Instant::since_start(Duration::from_nanos(u64::from_be_bytes(*due)));
            if u64::from_be_bytes(*record) >= warmup {
                latencies.saturating_record(micros(now.saturating_since(due)));
            }
        })?;
        count.fetch_add(records, Ordering::Relaxed);
    }
    Ok(latencies)
}
