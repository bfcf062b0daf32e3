//! How fast the storage engine takes appends on this machine's disk: durable and replicated, one
//! partition and many. Prints a table and asserts nothing; the numbers in docs/decisions/003x were
//! made with it.
//!
//! `cargo run --release -p quorate-node --example storage_throughput -- [directory] [MiB a run]`

#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::batch::{Batch, BatchBuilder, Codec, Levels};
use quorate_core::id::{LeaderEpoch, NodeId, Offset, PartitionId, TopicId, WriteId};
use quorate_core::partition::Recovered;
use quorate_core::partition::interface::{Flush, LogOp};
use quorate_core::time::{Instant, Timestamp};
use quorate_net::clock::Clock;
use quorate_node::clock::OsClock;
use quorate_node::disk::os::OsDisk;
use quorate_node::storage::{Completions, Identity, Storage, StorageConfig, WriteRequest};
use tokio::sync::mpsc;

/// Writes of one partition that are not complete: what five requests in flight make.
const WINDOW: u64 = 5;

struct Lane {
    done: mpsc::UnboundedSender<Vec<(PartitionId, WriteId)>>,
}

impl Completions for Lane {
    fn written(&self, written: &[(PartitionId, WriteId)]) {
        let _ = self.done.send(written.to_vec());
    }

    fn truncated(&self, partition: PartitionId, _: WriteId, _: Box<Recovered>) {
        panic!("nobody cuts {partition}");
    }

    fn write_failed(&self, partition: PartitionId, write: WriteId) {
        panic!("write {} of {partition} failed", write.0);
    }
}

#[derive(Clone, Copy)]
struct Run {
    name: &'static str,
    partitions: u16,
    batch_bytes: usize,
    flush: Flush,
}

struct Outcome {
    rate: u64,
    p50: Duration,
    p99: Duration,
}

fn batch(bytes: usize) -> Batch {
    let mut builder = BatchBuilder::new(Codec::None);
    let value = vec![b'x'; 1024.min(bytes)];
    while builder.bytes() < bytes {
        builder.append(Timestamp(1), None, Some(&value), []);
    }
    builder.build()
}

/// Keeps `WINDOW` appends of each partition under way until `bytes` are complete.
async fn run(run: Run, directory: PathBuf, bytes: u64, clock: &OsClock) -> Outcome {
    let identity = Identity { node: NodeId(1), directory: [2; 16] };
    let (done, mut completions) = mpsc::unbounded_channel();
    let disk = Arc::new(OsDisk::start().expect("threads"));
    let config = StorageConfig::new(directory, identity);
    let opened = Storage::open(disk, config, Arc::new(Lane { done })).await;
    let (storage, _) = opened.expect("the directory opens");
    let queue = storage.writer();
    let stamped = batch(run.batch_bytes);
    let mut ends: BTreeMap<PartitionId, (u64, i64, Vec<Instant>)> = BTreeMap::new();
    for index in 0..i32::from(run.partitions) {
        let partition = PartitionId { topic: TopicId([3; 16]), index };
        storage.open_log(partition).await.expect("a new log");
        ends.insert(partition, (0, 0, Vec::new()));
    }
    let began = clock.now().monotonic;
    let mut latencies = Vec::new();
    let mut complete = 0;
    let mut news: Vec<_> = ends.keys().map(|&partition| (partition, WriteId(0))).collect();
    while complete < bytes {
        let now = clock.now().monotonic;
        for (partition, through) in news.drain(..) {
            let Some((sent, end, times)) = ends.get_mut(&partition) else { continue };
            let finished = times.len() as u64 - (*sent - through.0);
            for time in times.drain(..finished as usize) {
                latencies.push(now.saturating_since(time));
                complete += stamped.len() as u64;
            }
            while *sent < through.0 + WINDOW {
                let mut batch = stamped.clone();
                batch.stamp(Offset(*end), LeaderEpoch(0));
                *end = batch.header().next_offset().0;
                *sent += 1;
                times.push(now);
                let op = LogOp::Append { batch, levels: Levels::DEFAULT };
                let write = WriteId(*sent);
                let request = WriteRequest { partition, write, op, flush: run.flush };
                queue.send(request).await.expect("the engine runs");
            }
        }
        news = completions.recv().await.expect("the engine runs");
    }
    let took = clock.now().monotonic.saturating_since(began);
    storage.close().await.expect("closes");
    latencies.sort_unstable();
    let at = |percent: usize| latencies[(latencies.len() - 1) * percent / 100];
    let rate = complete * 1_000_000 / u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
    Outcome { rate, p50: at(50), p99: at(99) }
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let base = PathBuf::from(arguments.next().unwrap_or_else(|| "target/storage".to_owned()));
    let bytes = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(512_u64) << 20;
    let clock = OsClock::default();
    let flushes = [("durable", Flush::Durable), ("replicated", Flush::Replicated)];
    let mut runs = Vec::new();
    for (name, flush) in flushes {
        for batch_bytes in [1 << 10, 16 << 10, 256 << 10, 1 << 20] {
            runs.push(Run { name, partitions: 1, batch_bytes, flush });
        }
        for partitions in [10, 100, 1000] {
            runs.push(Run { name, partitions, batch_bytes: 16 << 10, flush });
        }
        runs.push(Run { name, partitions: 1000, batch_bytes: 1 << 10, flush });
    }
    println!(
        "{:<11} {:>10} {:>9} {:>8} {:>9} {:>9}",
        "flush", "partitions", "batch", "MB/s", "p50", "p99"
    );
    let only = arguments.next();
    let mut rates = BTreeMap::new();
    for (number, this) in runs.into_iter().enumerate() {
        if only.as_ref().is_some_and(|only| *only != number.to_string() && only != this.name) {
            continue;
        }
        let directory = base.join(format!("{number}"));
        let share = if this.batch_bytes == 1 << 10 { bytes / 8 } else { bytes };
        let outcome = run(this, directory.clone(), share, &clock).await;
        rates.insert((this.name, this.partitions, this.batch_bytes), outcome.rate);
        println!(
            "{:<11} {:>10} {:>9} {:>8} {:>9} {:>9}",
            this.name,
            this.partitions,
            this.batch_bytes,
            outcome.rate / 1_000_000,
            format!("{:.1?}", outcome.p50),
            format!("{:.1?}", outcome.p99),
        );
        let _ = std::fs::remove_dir_all(directory);
    }
    for batch_bytes in [1 << 10, 16 << 10] {
        let of = |partitions| rates.get(&("durable", partitions, batch_bytes));
        if let (Some(one), Some(many)) = (of(1), of(1000)) {
            println!(
                "durable, {batch_bytes} B: 1000 partitions reach {}/100 of one partition's rate",
                many * 100 / one
            );
        }
    }
}
