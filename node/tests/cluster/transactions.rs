//! Transactions in a cluster: whole or not at all, whichever node dies while they are made.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use quorate_core::id::NodeId;
use quorate_core::partition::interface::Isolation;
use quorate_net::client::{
    Client, Consumer, ConsumerConfig, Message, Metadata, NewTopic, Position, TransactionConfig,
    TransactionalProducer,
};
use quorate_net::clock::Clock;
use quorate_node::clock::OsClock;
use quorate_node::node::RunningNode;

use crate::trio::{Place, client, places, soon, start, until_told};

const TOPIC: &str = "orders";
const PARTITIONS: i32 = 6;

async fn begun() -> ([Place; 3], Vec<RunningNode>) {
    let mut places = places();
    for place in &mut places {
        place.config.set("transaction.state_partitions", "3").unwrap();
    }
    let nodes = start(&mut places).await;
    let topic = NewTopic {
        name: TOPIC.to_owned(),
        partitions: Some(PARTITIONS),
        replication_factor: Some(3),
        ..NewTopic::default()
    };
    client(&nodes[0]).create_topic(&topic).await.unwrap();
    until_told(&nodes[0], |told| is_whole(told, 3)).await;
    (places, nodes)
}

fn is_whole(told: &Metadata, replicas: usize) -> bool {
    told.topics.get(TOPIC).is_some_and(|topic| {
        topic.partitions.len() == PARTITIONS as usize
            && topic
                .partitions
                .iter()
                .all(|partition| partition.leader.is_some() && partition.in_sync.len() == replicas)
    })
}

/// One record to every partition, in the open transaction.
async fn send(producer: &mut TransactionalProducer, number: u32) {
    for partition in 0..PARTITIONS {
        let message = Message {
            topic: TOPIC.into(),
            partition: Some(partition),
            value: Some(Bytes::from(number.to_string())),
            ..Message::default()
        };
        // What became of it, the end tells.
        drop(producer.send(message).await);
    }
}

/// What readers of committed records find of each transaction.
async fn read(client: &Client) -> BTreeMap<u32, i32> {
    let mut config = ConsumerConfig::default();
    config.fetch.isolation = Isolation::ReadCommitted;
    let mut consumer = Consumer::new(client.clone(), config);
    for partition in 0..PARTITIONS {
        consumer.assign(&TOPIC.into(), partition, Position::Beginning);
    }
    let mut found = BTreeMap::new();
    soon(async {
        while !consumer.is_at_end() {
            let Some(some) = consumer.poll(Duration::from_secs(5)).await.unwrap() else { continue };
            for record in some.records().unwrap() {
                let text = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
                *found.entry(text.parse::<u32>().unwrap()).or_default() += 1;
            }
        }
    })
    .await;
    found
}

/// Completes once nothing is open: readers of committed records see up to the end.
async fn until_stable(client: &Client) {
    let every: Vec<i32> = (0..PARTITIONS).collect();
    soon(async {
        loop {
            let ends = |isolation| client.list_offsets(TOPIC, &every, Position::End, isolation);
            let all = ends(Isolation::ReadUncommitted).await.unwrap();
            let stable = ends(Isolation::ReadCommitted).await.unwrap();
            if all.iter().map(|end| end.offset).eq(stable.iter().map(|end| end.offset)) {
                return;
            }
            OsClock::new().sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

fn take(nodes: &mut Vec<RunningNode>, id: NodeId) -> RunningNode {
    let at = nodes.iter().position(|node| node.id() == id).expect("a node that runs");
    nodes.remove(at)
}

/// Each transaction in turn commits while a node dies before, within or at its end. What was
/// acknowledged is there, and what was not is there whole, or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_is_whole_whoever_dies() {
    let (mut places, mut nodes) = begun().await;
    let config = TransactionConfig::new("whoever");
    let mut producer = client(&nodes[0]).transactional(config.clone()).await.unwrap();
    let mut acknowledged = BTreeSet::new();
    for number in 0..9_u32 {
        let described = client(&nodes[0]).describe_transaction("whoever").await.unwrap();
        let victim = match number % 3 {
            0 => described.coordinator,
            other => NodeId(i32::try_from(other).unwrap()),
        };
        if producer.is_adrift() {
            soon(producer.init()).await.unwrap();
        }
        producer.begin().unwrap();
        if number % 3 == 2 {
            drop(take(&mut nodes, victim));
            send(&mut producer, number).await;
        } else {
            send(&mut producer, number).await;
            producer.flush().await;
            drop(take(&mut nodes, victim));
        }
        // Whoever is asked lives; the producer finds the others.
        match soon(producer.commit()).await {
            Ok(()) => drop(acknowledged.insert(number)),
            Err(_) if producer.is_adrift() => {}
            Err(_) => drop(soon(producer.abort()).await),
        }
        let back = soon(places[victim.0 as usize - 1].start()).await.unwrap();
        soon(back.unfenced()).await;
        nodes.push(back);
        until_told(&nodes[0], |told| is_whole(told, 3)).await;
    }
    if producer.is_adrift() {
        soon(producer.init()).await.unwrap();
    }
    until_stable(&client(&nodes[0])).await;
    let found = read(&client(&nodes[0])).await;
    let torn: Vec<_> = found.iter().filter(|(_, copies)| **copies != PARTITIONS).collect();
    assert!(torn.is_empty(), "torn: {torn:?}");
    let there: BTreeSet<u32> = found.into_keys().collect();
    assert!(there.is_superset(&acknowledged), "{acknowledged:?} of which are there {there:?}");
    assert!(acknowledged.len() >= 5, "clients ride out most deaths: {acknowledged:?}");
}

/// A producer that is gone leaves its transaction open until its time is over, or until its
/// successor comes; then it is aborted, and readers go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_open_is_aborted() {
    let (_places, nodes) = begun().await;
    let here = client(&nodes[0]);
    let mut config = TransactionConfig::new("left");
    config.timeout = Duration::from_secs(2);
    let mut producer = here.transactional(config.clone()).await.unwrap();
    producer.begin().unwrap();
    send(&mut producer, 1).await;
    producer.flush().await;
    let clock = OsClock::new();
    let before = clock.now().monotonic;
    until_stable(&here).await;
    let took = clock.now().monotonic.saturating_since(before);
    assert!(took > Duration::from_millis(1500), "it had two seconds, and was given {took:?}");
    assert!(producer.commit().await.is_err(), "it is told so");
    // A successor does not wait for that long.
    config.timeout = Duration::from_secs(600);
    let mut first = here.transactional(config.clone()).await.unwrap();
    first.begin().unwrap();
    send(&mut first, 2).await;
    first.flush().await;
    let mut second = soon(here.transactional(config)).await.unwrap();
    second.begin().unwrap();
    send(&mut second, 3).await;
    second.commit().await.unwrap();
    assert!(first.commit().await.is_err(), "a zombie commits nothing");
    until_stable(&here).await;
    assert_eq!(read(&here).await, BTreeMap::from([(3, PARTITIONS)]));
}
