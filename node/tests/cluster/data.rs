//! Records in a cluster: replicated, and there when a node is not.

use std::time::Duration;

use bytes::Bytes;
use quorate_core::id::NodeId;
use quorate_net::client::{
    Client, Consumer, ConsumerConfig, Message, Metadata, NewTopic, Position, ProducerConfig,
};
use quorate_net::clock::Clock;
use quorate_node::clock::OsClock;
use quorate_node::node::RunningNode;

use crate::trio::{Place, client, places, soon, start, until_told};

const TOPIC: &str = "orders";
const PARTITIONS: i32 = 6;

fn is_whole(told: &Metadata, replicas: usize) -> bool {
    told.topics.get(TOPIC).is_some_and(|topic| {
        topic.partitions.len() == PARTITIONS as usize
            && topic
                .partitions
                .iter()
                .all(|partition| partition.leader.is_some() && partition.in_sync.len() == replicas)
    })
}

fn leaders(told: &Metadata) -> Vec<NodeId> {
    let mut leaders: Vec<NodeId> =
        told.topics[TOPIC].partitions.iter().filter_map(|partition| partition.leader).collect();
    leaders.sort_unstable();
    leaders.dedup();
    leaders
}

async fn create(client: &Client) {
    let topic = NewTopic {
        name: TOPIC.to_owned(),
        partitions: Some(PARTITIONS),
        replication_factor: Some(3),
        ..NewTopic::default()
    };
    let created = client.create_topic(&topic).await.unwrap();
    assert_eq!(created.replication_factor, Some(3));
}

/// Sends the numbers, spread over the partitions, and waits until all are acknowledged.
async fn produce(client: &Client, numbers: std::ops::Range<u32>) {
    let producer = client.producer(ProducerConfig::default()).unwrap();
    let mut deliveries = Vec::new();
    for number in numbers {
        let message = Message {
            topic: TOPIC.into(),
            partition: Some(number as i32 % PARTITIONS),
            value: Some(Bytes::from(number.to_string())),
            ..Message::default()
        };
        deliveries.push(producer.send(message).await.unwrap());
    }
    for delivery in deliveries {
        soon(delivery).await.unwrap();
    }
}

/// All numbers below `count`, read from all partitions, each once.
async fn assert_there(client: &Client, count: u32) {
    let mut consumer = Consumer::new(client.clone(), ConsumerConfig::default());
    for partition in 0..PARTITIONS {
        consumer.assign(&TOPIC.into(), partition, Position::Beginning);
    }
    let mut found = Vec::new();
    soon(async {
        while found.len() < count as usize {
            let Some(some) = consumer.poll(Duration::from_secs(5)).await.unwrap() else { continue };
            for record in some.records().unwrap() {
                let text = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
                found.push(text.parse::<u32>().unwrap());
            }
        }
    })
    .await;
    found.sort_unstable();
    assert_eq!(found, (0..count).collect::<Vec<u32>>());
}

/// The nodes by their ids, which count from 1.
fn take(nodes: &mut Vec<RunningNode>, id: NodeId) -> RunningNode {
    let at = nodes.iter().position(|node| node.id() == id).expect("a node that runs");
    nodes.remove(at)
}

async fn back(places: &mut [Place], id: NodeId) -> RunningNode {
    let node = soon(places[id.0 as usize - 1].start()).await.unwrap();
    soon(node.unfenced()).await;
    node
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_is_followed_and_comes_back() {
    let mut places = places();
    let mut nodes = start(&mut places).await;
    create(&client(&nodes[1])).await;
    let told = until_told(&nodes[2], |told| is_whole(told, 3)).await;
    assert_eq!(leaders(&told).len(), 3, "leaders are spread");
    produce(&client(&nodes[0]), 0..300).await;
    assert_there(&client(&nodes[2]), 300).await;
    for round in 0..3 {
        let killed = told.topics[TOPIC].partitions[round].leader.expect("a leader");
        let from = 300 + 300 * round as u32;
        let clock = OsClock::new();
        let began = clock.now().monotonic;
        drop(take(&mut nodes, killed));
        produce(&client(&nodes[0]), from..from + 300).await;
        let took = clock.now().monotonic.saturating_since(began);
        assert!(took < Duration::from_secs(15), "it took {took:?} to replace node {killed}");
        until_told(&nodes[0], |told| is_whole(told, 2)).await;
        nodes.push(back(&mut places, killed).await);
        until_told(&nodes[0], |told| is_whole(told, 3)).await;
        assert_there(&client(&nodes[1]), from + 300).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_gives_its_leaderships_away_first() {
    let mut places = places();
    let mut nodes = start(&mut places).await;
    create(&client(&nodes[0])).await;
    until_told(&nodes[0], |told| is_whole(told, 3)).await;
    produce(&client(&nodes[0]), 0..60).await;
    let stopped = take(&mut nodes, NodeId(1));
    soon(stopped.shutdown()).await.unwrap();
    let told = until_told(&nodes[0], |told| is_whole(told, 2)).await;
    assert!(!leaders(&told).contains(&NodeId(1)));
    produce(&client(&nodes[1]), 60..120).await;
    nodes.push(back(&mut places, NodeId(1)).await);
    until_told(&nodes[0], |told| is_whole(told, 3)).await;
    assert_there(&client(&nodes[2]), 120).await;
    for node in nodes {
        soon(node.shutdown()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_killed_at_once_come_back_whole() {
    let mut places = places();
    let nodes = start(&mut places).await;
    create(&client(&nodes[0])).await;
    until_told(&nodes[0], |told| is_whole(told, 3)).await;
    produce(&client(&nodes[0]), 0..120).await;
    drop(nodes);
    let nodes = start(&mut places).await;
    until_told(&nodes[0], |told| is_whole(told, 3)).await;
    assert_there(&client(&nodes[1]), 120).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_its_disk_has_its_copies_again() {
    let mut places = places();
    let mut nodes = start(&mut places).await;
    create(&client(&nodes[0])).await;
    until_told(&nodes[0], |told| is_whole(told, 3)).await;
    produce(&client(&nodes[0]), 0..120).await;
    drop(take(&mut nodes, NodeId(3)));
    places[2].wipe();
    nodes.push(back(&mut places, NodeId(3)).await);
    until_told(&nodes[0], |told| is_whole(told, 3)).await;
    assert_there(&client(&nodes[1]), 120).await;
}
