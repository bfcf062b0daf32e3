//! `quorate bench produce --transactional`: a transaction after the other, each committed after a
//! time. A record's latency counts to the commit, from which on a reader of committed records may
//! see it.
//!
//! Acknowledgements are awaited one by one beside the producer, as they are without transactions:
//! what a record costs the client is the same, and so the difference is the transactions'.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::{AdditionError, Histogram};
use quorate_core::time::Instant;
use quorate_net::client::{Client, Delivery, Message, TransactionConfig, TransactionalProducer};
use quorate_net::clock::Clock;
use tokio::sync::mpsc;

use super::{Found, Pace};
use crate::args::BenchArgs;
use crate::command::bench::report::{histogram, micros};
use crate::command::bench::{producer_config, values};
use crate::failure::Failure;

/// What one producer does.
pub(super) struct Share {
    pub count: u64,
    pub pace: Pace,
    /// From the begin of a transaction to its commit.
    pub duration: Duration,
    /// The same of the first one: producers that begin together need not commit together for ever.
    pub first: Duration,
}

/// What a producer has done.
pub(super) enum Done {
    /// A record was accepted; it was due then.
    Sent(Instant, Delivery),
    Committed(Course),
}

/// When a transaction came how far.
pub(super) struct Course {
    begun: Instant,
    /// Its last record was accepted.
    filled: Instant,
    /// All its records were acknowledged.
    flushed: Instant,
    committed: Instant,
}

pub(super) async fn send(
    (client, index): (Client, u64),
    clock: Arc<dyn Clock>,
    args: BenchArgs,
    topic: Arc<str>,
    share: Share,
    sender: mpsc::Sender<Done>,
) -> Result<(), Failure> {
    let config = TransactionConfig {
        producer: producer_config(&args)?,
        ..TransactionConfig::new(&format!("{topic}-{}-{index}", std::process::id()))
    };
    let mut producer = client.transactional(config).await?;
    let values = values(args.size);
    let mut duration = share.first;
    let mut begun: Option<Instant> = None;
    for (record, value) in (0..share.count).zip(values.iter().cycle()) {
        let due = share.pace.wait(&clock, record).await;
        let since = match begun {
            Some(since) => since,
            None => {
                producer.begin()?;
                *begun.insert(clock.now().monotonic)
            }
        };
        let message =
            Message { topic: Arc::clone(&topic), value: Some(value.clone()), ..Message::default() };
        let delivery = producer.send(message).await?;
        if sender.send(Done::Sent(due, delivery)).await.is_err() {
            // Who collects met a failure, and tells it.
            return Ok(());
        }
        // Where none is late, its record was due just now: the clock is not asked again.
        let now = if share.pace.rate.is_none() { due } else { clock.now().monotonic };
        if now.saturating_since(since) >= duration {
            commit(&mut producer, &clock, since, &sender).await?;
            (begun, duration) = (None, share.duration);
        }
    }
    if let Some(since) = begun {
        commit(&mut producer, &clock, since, &sender).await?;
    }
    producer.close().await?;
    Ok(())
}

async fn commit(
    producer: &mut TransactionalProducer,
    clock: &Arc<dyn Clock>,
    begun: Instant,
    sender: &mpsc::Sender<Done>,
) -> Result<(), Failure> {
    let filled = clock.now().monotonic;
    producer.flush().await;
    let flushed = clock.now().monotonic;
    producer.commit().await?;
    let committed = clock.now().monotonic;
    let course = Course { begun, filled, flushed, committed };
    // Who collects met a failure, and tells it.
    let _ = sender.send(Done::Committed(course)).await;
    Ok(())
}

/// Awaits what was sent, and tells what each record and each transaction took.
pub(super) async fn collect(
    mut receiver: mpsc::Receiver<Done>,
    count: Arc<AtomicU64>,
) -> Result<Found, Failure> {
    let mut found = Found::new();
    let mut dues: Vec<Instant> = Vec::new();
    let mut first = Instant::ZERO;
    while let Some(done) = receiver.recv().await {
        match done {
            Done::Sent(due, delivery) => {
                let receipt = delivery.await?;
                if dues.is_empty() {
                    first = receipt.acknowledged;
                }
                dues.push(due);
            }
            Done::Committed(Course { begun, filled, flushed, committed }) => {
                count.fetch_add(dues.len() as u64, Ordering::Relaxed);
                for due in dues.drain(..) {
                    let latency = committed.saturating_since(due);
                    found.latencies.saturating_record(micros(latency));
                }
                let phases = found.phases.get_or_insert_with(Phases::new);
                let note = |to: &mut Histogram<u64>, from: Instant, at: Instant| {
                    to.saturating_record(micros(at.saturating_since(from)));
                };
                note(&mut phases.first, begun, first);
                note(&mut phases.fill, begun, filled);
                note(&mut phases.flush, filled, flushed);
                note(&mut phases.commit, flushed, committed);
                found.last = committed;
            }
        }
    }
    Ok(found)
}

/// Where the time of transactions goes, in microseconds.
pub(in crate::command::bench) struct Phases {
    /// From the begin to the first acknowledgement, which waits for the last end.
    pub first: Histogram<u64>,
    /// From the begin to the last record.
    pub fill: Histogram<u64>,
    /// From there until all records are acknowledged.
    pub flush: Histogram<u64>,
    /// From there until the commit is decided.
    pub commit: Histogram<u64>,
}

impl Phases {
    fn new() -> Self {
        Self { first: histogram(), fill: histogram(), flush: histogram(), commit: histogram() }
    }

    /// Those of another producer, too.
    ///
    /// # Errors
    ///
    /// None, as all histograms have the same bounds.
    pub(super) fn add(&mut self, other: &Self) -> Result<(), AdditionError> {
        self.first.add(&other.first)?;
        self.fill.add(&other.fill)?;
        self.flush.add(&other.flush)?;
        self.commit.add(&other.commit)
    }
}
