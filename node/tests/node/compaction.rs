//! A node compacts its logs by itself: readers see the last of each key, and a coordinator finds
//! its groups in what is left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::id::Offset;
use quorate_net::client::{
    Client, ConfigurationChange, Consumer, ConsumerConfig, GroupConfig, GroupConsumer, Message,
    OnReset, Polled, Position, ProducerConfig, Resource,
};
use quorate_node::disk::memory::MemoryDisk;
use quorate_node::disk::os::OsDisk;
use quorate_node::node::{RunningNode, run};

use crate::house::{client as connect, config, pause, produce, soon, until, world};
use crate::requests::create;

const KEYS: usize = 7;

async fn start(directory: &std::path::Path, seed: u64) -> RunningNode {
    let settings = [("storage.clean_check_interval", "20ms"), ("group.offsets_partitions", "1")];
    let mut config = config(&settings);
    config.node.data = directory.to_path_buf();
    run(config, world(Arc::new(OsDisk::start().unwrap()), seed)).await.unwrap()
}

async fn send(client: &Client, topic: &str, numbers: std::ops::Range<usize>) {
    let producer = client.producer(ProducerConfig::default()).unwrap();
    for number in numbers {
        let message = Message {
            topic: topic.into(),
            partition: Some(0),
            key: Some(Bytes::from(format!("key {}", number % KEYS))),
            value: Some(Bytes::from(format!("value {number}"))),
            ..Message::default()
        };
        producer.send(message).await.unwrap().await.unwrap();
    }
}

/// Reads up to the record that was sent last: offsets of all, and the last value of each key.
async fn read(client: &Client, topic: &str, last: usize) -> (Vec<i64>, BTreeMap<Bytes, Bytes>) {
    let mut consumer = Consumer::new(client.clone(), ConsumerConfig::default());
    consumer.assign(&topic.into(), 0, Position::Beginning);
    let (mut offsets, mut values) = (Vec::new(), BTreeMap::new());
    let end = Bytes::from(format!("value {last}"));
    soon(async {
        loop {
            let some = consumer.poll(Duration::from_secs(10)).await.unwrap().expect("in time");
            for record in some.records().unwrap() {
                offsets.push(record.offset.0);
                let (key, value) = (record.key.unwrap(), record.value.unwrap());
                values.insert(key, value.clone());
                if value == end {
                    return;
                }
            }
        }
    })
    .await;
    (offsets, values)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_see_the_last_of_each_key() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(directory.path(), 1).await;
    let client = connect(&node);
    let compacted = [("cleanup.policy", "compact"), ("segment.bytes", "1024")];
    create(&client, "orders", 1, &compacted).await;
    send(&client, "orders", 0..200).await;
    until(|| node.metrics().passes_made.value() > 0).await;
    send(&client, "orders", 200..260).await;
    // A pass may come while they are being sent, and no other after it.
    let (offsets, values) = soon(async {
        loop {
            let found = read(&client, "orders", 259).await;
            if found.0.len() < 100 {
                break found;
            }
            pause(20).await;
        }
    })
    .await;
    assert_eq!(node.metrics().passes_failed.value(), 0);
    assert!(offsets.is_sorted());
    let expected = (260 - KEYS..260).map(|number| {
        (Bytes::from(format!("key {}", number % KEYS)), Bytes::from(format!("value {number}")))
    });
    assert_eq!(values, expected.collect());
    // Offsets do not move, and the log goes on where it was, over a start as well.
    node.shutdown().await.unwrap();
    let node = start(directory.path(), 2).await;
    let client = connect(&node);
    send(&client, "orders", 260..261).await;
    let (offsets, _) = read(&client, "orders", 260).await;
    assert_eq!(offsets.last(), Some(&260));
}

/// Below `storage.min_free` producers wait; consumers and deletions do not, and these make room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_nearly_full_recovers_by_itself() {
    let settings = [("storage.min_free", "24MiB"), ("storage.checkpoint_bytes", "1MiB")];
    let disk = Arc::new(MemoryDisk::ephemeral(48 << 20));
    let node = run(config(&settings), world(disk, 1)).await.unwrap();
    let client = connect(&node);
    create(&client, "small", 1, &[]).await;
    produce(&client, "small", 0..10).await;
    let producer = client.producer(ProducerConfig::default()).unwrap();
    let large = |number: u64| Message {
        topic: "large".into(),
        partition: Some(0),
        value: Some(Bytes::from(vec![number as u8; 900_000])),
        ..Message::default()
    };
    create(&client, "large", 1, &[]).await;
    let refused = node.metrics().batches_refused.value();
    let mut waiting = Vec::new();
    for number in 0..40 {
        waiting.push(producer.send(large(number)).await.unwrap());
        if node.metrics().batches_refused.value() > refused {
            break;
        }
        pause(100).await;
    }
    until(|| node.metrics().batches_refused.value() > refused).await;
    assert_eq!(crate::house::consume(&client, "small", 10).await.len(), 10);
    client.delete_topic("large").await.unwrap();
    // A topic that is gone is made anew by whoever writes to it; what waited may be lost with it.
    soon(produce(&client, "small", 10..20)).await;
    drop(waiting);
}

async fn join(client: &Client) -> GroupConsumer {
    let config = GroupConfig { on_reset: OnReset::Beginning, ..GroupConfig::new("g", &["orders"]) };
    let mut member = GroupConsumer::new(client, config);
    soon(async {
        while !matches!(member.poll(Duration::from_secs(1)).await, Ok(Polled::Assigned(_))) {}
    })
    .await;
    member
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_finds_its_groups_in_what_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(directory.path(), 1).await;
    let client = connect(&node);
    create(&client, "orders", 1, &[]).await;
    produce(&client, "orders", 0..100).await;
    let mut member = join(&client).await;
    let small = ConfigurationChange::Set("segment.bytes".to_owned(), "1024".to_owned());
    let offsets = Resource::Topic("__consumer_offsets".to_owned());
    client.alter_configs(&offsets, &[small]).await.unwrap();
    for next in 1..=80 {
        member.commit(&[("orders".into(), 0, Offset(next))]).await.unwrap();
    }
    until(|| node.metrics().passes_made.value() > 0).await;
    pause(100).await;
    let bytes = node.metrics();
    assert!(bytes.bytes_left_by_cleaning.value() < bytes.bytes_cleaned.value());
    member.close().await.unwrap();
    node.shutdown().await.unwrap();
    let node = start(directory.path(), 2).await;
    let client = connect(&node);
    let mut member = join(&client).await;
    let polled = soon(async {
        loop {
            if let Polled::Batches(batches) = member.poll(Duration::from_secs(1)).await.unwrap() {
                return batches.records().unwrap();
            }
        }
    })
    .await;
    assert_eq!(polled.first().map(|record| record.offset), Some(Offset(80)));
}
