//! `quorate bench produce --transactional`: a transaction after the other, each committed after a
//! time. A record's latency counts to the commit, from which on a reader of committed records may
//! see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use quorate_core::time::Instant;
use quorate_net::client::{Client, Message, TransactionConfig, TransactionalProducer};
use quorate_net::clock::Clock;

use super::Pace;
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
}

/// Gives the latencies, and when the last transaction was committed.
pub(super) async fn send(
    (client, index): (Client, u64),
    clock: Arc<dyn Clock>,
    args: BenchArgs,
    topic: Arc<str>,
    share: Share,
    count: Arc<AtomicU64>,
) -> Result<(Histogram<u64>, Instant), Failure> {
    let config = TransactionConfig {
        producer: producer_config(&args)?,
        ..TransactionConfig::new(&format!("{topic}-{}-{index}", std::process::id()))
    };
    let mut producer = client.transactional(config).await?;
    let mut latencies = histogram();
    let mut last = Instant::ZERO;
    let mut dues: Vec<Instant> = Vec::new();
    let values = values(args.size);
    let mut begun = Instant::ZERO;
    for (record, value) in (0..share.count).zip(values.iter().cycle()) {
        let due = share.pace.wait(&clock, record).await;
        if dues.is_empty() {
            producer.begin()?;
            begun = clock.now().monotonic;
        }
        let message =
            Message { topic: Arc::clone(&topic), value: Some(value.clone()), ..Message::default() };
        producer.send(message).await?;
        dues.push(due);
        if clock.now().monotonic.saturating_since(begun) >= share.duration {
            last = commit(&mut producer, &clock, &mut dues, &mut latencies, &count).await?;
        }
    }
    if !dues.is_empty() {
        last = commit(&mut producer, &clock, &mut dues, &mut latencies, &count).await?;
    }
    producer.close().await?;
    Ok((latencies, last))
}

async fn commit(
    producer: &mut TransactionalProducer,
    clock: &Arc<dyn Clock>,
    dues: &mut Vec<Instant>,
    latencies: &mut Histogram<u64>,
    count: &AtomicU64,
) -> Result<Instant, Failure> {
    producer.commit().await?;
    let committed = clock.now().monotonic;
    count.fetch_add(dues.len() as u64, Ordering::Relaxed);
    for due in dues.drain(..) {
        latencies.saturating_record(micros(committed.saturating_since(due)));
    }
    Ok(committed)
}
