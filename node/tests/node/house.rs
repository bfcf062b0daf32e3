//! A node to test against: in memory or in a directory, on a free port of loopback.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use quorate_core::id::Offset;
use quorate_net::client::{
    Client, ClientConfig, ConsumedRecord, Consumer, ConsumerConfig, Message, Position,
    ProducerConfig, Receipt,
};
use quorate_net::clock::Clock;
use quorate_net::transport::os::OsNetwork;
use quorate_node::clock::OsClock;
use quorate_node::config::NodeConfig;
use quorate_node::disk::Disk;
use quorate_node::disk::memory::MemoryDisk;
use quorate_node::disk::os::OsDisk;
use quorate_node::node::{RunningNode, run};
use quorate_node::world::World;

pub(crate) const MIB: u64 = 1 << 20;

/// Small enough for a test, otherwise as delivered.
pub(crate) fn config(settings: &[(&str, &str)]) -> NodeConfig {
    let mut config = NodeConfig::default();
    let small = [
        ("network.listen", "127.0.0.1:0"),
        ("node.shards", "2"),
        ("storage.journal_file_bytes", "1MiB"),
        ("storage.min_free", "0"),
        ("group.initial_rebalance_delay", "0"),
        ("node.stop_timeout", "5s"),
    ];
    for (key, value) in small.iter().chain(settings) {
        config.set(key, value).unwrap();
    }
    config
}

pub(crate) fn world(disk: Arc<dyn Disk>, seed: u64) -> World {
    let clock = Arc::new(OsClock::new());
    World { disk, network: Arc::new(OsNetwork), clock, seed }
}

pub(crate) async fn in_memory(settings: &[(&str, &str)]) -> RunningNode {
    run(config(settings), world(Arc::new(MemoryDisk::ephemeral(512 * MIB)), 1)).await.unwrap()
}

pub(crate) async fn in_directory(directory: &Path, seed: u64) -> RunningNode {
    let mut config = config(&[]);
    config.node.data = directory.to_path_buf();
    run(config, world(Arc::new(OsDisk::start().unwrap()), seed)).await.unwrap()
}

pub(crate) fn client(node: &RunningNode) -> Client {
    let mut config = ClientConfig::new(&node.address().to_string());
    config.operation_timeout = Duration::from_secs(10);
    Client::new(Arc::new(OsNetwork), Arc::new(OsClock::new()), config)
}

/// Waits for what should come soon.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    let patience = OsClock::new().sleep(Duration::from_secs(10));
    match select(Box::pin(what), patience).await {
        Either::Left((done, _)) => done,
        Either::Right(_) => panic!("it did not come in ten seconds"),
    }
}

/// Looks again and again until `holds`, for not too long.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    soon(async {
        while !holds() {
            pause(5).await;
        }
    })
    .await;
}

pub(crate) async fn pause(millis: u64) {
    OsClock::new().sleep(Duration::from_millis(millis)).await;
}

pub(crate) fn value(number: usize) -> Bytes {
    Bytes::from(format!("value {number}"))
}

/// Sends `value(from..to)` to partition 0 and returns where each stands.
pub(crate) async fn produce(
    client: &Client,
    topic: &str,
    numbers: std::ops::Range<usize>,
) -> Vec<Receipt> {
    let producer = client.producer(ProducerConfig::default()).unwrap();
    let mut deliveries = Vec::new();
    for number in numbers {
        let message = Message {
            topic: topic.into(),
            partition: Some(0),
            value: Some(value(number)),
            ..Message::default()
        };
        deliveries.push(producer.send(message).await.unwrap());
    }
    let mut receipts = Vec::new();
    for delivery in deliveries {
        receipts.push(delivery.await.unwrap());
    }
    receipts
}

/// Reads partition 0 from its beginning until `count` records have come.
pub(crate) async fn consume(client: &Client, topic: &str, count: usize) -> Vec<ConsumedRecord> {
    let mut consumer = Consumer::new(client.clone(), ConsumerConfig::default());
    consumer.assign(&topic.into(), 0, Position::Beginning);
    let mut records = Vec::new();
    while records.len() < count {
        let some = consumer.poll(Duration::from_secs(10)).await.unwrap().expect("records in time");
        records.extend(some.records().unwrap());
    }
    records
}

pub(crate) fn assert_values(records: &[ConsumedRecord]) {
    for (number, record) in records.iter().enumerate() {
        assert_eq!(record.offset, Offset(number as i64));
        assert_eq!(record.value, Some(value(number)));
    }
}
