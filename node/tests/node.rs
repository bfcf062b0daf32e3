//! A node on loopback, asked through our own client: what a first user does.

#[path = "node/clocks.rs"]
mod clocks;
#[path = "node/compaction.rs"]
mod compaction;
#[path = "node/connections.rs"]
mod connections;
#[path = "node/house.rs"]
mod house;
#[path = "node/monitors.rs"]
mod monitors;
#[path = "node/pressure.rs"]
mod pressure;
#[path = "node/requests.rs"]
mod requests;
#[path = "node/scrub.rs"]
mod scrub;
#[path = "node/still.rs"]
mod still;
#[path = "node/stopping.rs"]
mod stopping;
#[path = "node/transactions.rs"]
mod transactions;
#[path = "node/turns.rs"]
mod turns;
#[path = "storage/watched.rs"]
mod watched;

use std::sync::Arc;

use house::{assert_values, client, config, consume, in_directory, in_memory, produce, world};
use quorate_node::disk::memory::MemoryDisk;
use quorate_node::node::run;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_produced_is_consumed() {
    let node = in_memory(&[]).await;
    let client = client(&node);
    let receipts = produce(&client, "orders", 0..500).await;
    assert_eq!(receipts.last().unwrap().offset.map(|offset| offset.0), Some(499));
    let records = consume(&client, "orders", 500).await;
    assert_eq!(records.len(), 500);
    assert_values(&records);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_keeps_what_was_answered() {
    let directory = tempfile::tempdir().unwrap();
    let mut cluster = None;
    for life in 0..3 {
        let node = in_directory(directory.path(), life).await;
        let client = client(&node);
        let from = life as usize * 100;
        produce(&client, "orders", from..from + 100).await;
        let records = consume(&client, "orders", from + 100).await;
        assert_values(&records);
        assert_eq!(cluster.get_or_insert_with(|| node.cluster().to_owned()), node.cluster());
        assert!(node.report().clean, "life {life} began after a clean stop");
        if life < 2 {
            node.shutdown().await.unwrap();
        }
    }
}

/// The metadata log is summed up every few decisions: a start reads the sum and what follows it,
/// whether the stop before was a clean one or none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_reads_the_snapshot_and_what_follows() {
    let mut disk = MemoryDisk::tracked(64 * house::MIB);
    let small = config(&[("quorum.snapshot_bytes", "1KiB")]);
    for life in 0..4 {
        let node = run(small.clone(), world(Arc::new(disk.clone()), life)).await.unwrap();
        let client = client(&node);
        for topic in 0..10 {
            produce(&client, &format!("topic-{life}-{topic}"), 0..1).await;
        }
        let known = client.cluster().await.unwrap().topics.len();
        assert_eq!(known as u64, (life + 1) * 10, "life {life}");
        if life % 2 == 0 {
            node.shutdown().await.unwrap();
        } else {
            drop(node);
        }
        disk = disk.after_kill();
    }
}
