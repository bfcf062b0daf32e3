//! What clients are given by a cluster: topics with copies, leaders that go and come back, copies
//! that move, groups whose coordinator dies.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::group::placement::partition_of;
use quorate_core::id::{NodeId, Offset, TopicId};
use quorate_net::client::{
    Client, ConfigurationChange, Consumer, ConsumerConfig, Election, GroupConfig, GroupConsumer,
    Message, NewTopic, OnReset, Partition, PartitionName, Polled, Position, ProducerConfig,
    Resource,
};
use quorate_net::clock::Clock;
use quorate_node::clock::OsClock;
use quorate_node::node::RunningNode;

use crate::trio::{Place, client, places, soon, start, until_told};

const TOPIC: &str = "orders";

async fn create(client: &Client, partitions: i32, replicas: i16) {
    let topic = NewTopic {
        name: TOPIC.to_owned(),
        partitions: Some(partitions),
        replication_factor: Some(replicas),
        configs: Vec::new(),
    };
    client.create_topic(&topic).await.unwrap();
}

fn value(number: usize) -> Bytes {
    Bytes::from(format!("value {number}"))
}

/// Each is on all that are in sync when this returns.
async fn produce(client: &Client, partition: i32, numbers: Range<usize>) {
    let producer = client.producer(ProducerConfig::default()).unwrap();
    let mut sent = Vec::new();
    for number in numbers {
        let message = Message {
            topic: TOPIC.into(),
            partition: Some(partition),
            value: Some(value(number)),
            ..Message::default()
        };
        sent.push(producer.send(message).await.unwrap());
    }
    for delivery in sent {
        delivery.await.unwrap();
    }
}

async fn consume(client: &Client, partition: i32, count: usize) {
    let mut consumer = Consumer::new(client.clone(), ConsumerConfig::default());
    consumer.assign(&TOPIC.into(), partition, Position::Beginning);
    let mut next = 0;
    while next < count {
        let some = consumer.poll(Duration::from_secs(20)).await.unwrap().expect("records in time");
        for record in some.records().unwrap() {
            assert_eq!(record.value, Some(value(next)));
            next += 1;
        }
    }
}

/// Partition 0, once `holds` is true of it at node `of`.
async fn until_partition(of: &RunningNode, holds: impl Fn(&Partition) -> bool) -> Partition {
    let first = |told: &quorate_net::client::Metadata| {
        told.topics.get(TOPIC).and_then(|topic| topic.partitions.first().cloned())
    };
    let told = until_told(of, |told| first(told).is_some_and(|found| holds(&found))).await;
    first(&told).expect("it holds")
}

fn set(nodes: &[NodeId]) -> BTreeSet<i32> {
    nodes.iter().map(|node| node.0).collect()
}

fn place_of(node: NodeId) -> usize {
    usize::try_from(node.0 - 1).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_node_takes_requests_and_says_who_leads() {
    let mut places = places();
    let nodes = start(&mut places).await;
    create(&client(&nodes[0]), 3, 3).await;
    for (number, node) in nodes.iter().enumerate() {
        let client = client(node);
        let partition = i32::try_from(number).unwrap();
        soon(produce(&client, partition, 0..100)).await;
    }
    for node in &nodes {
        for partition in 0..3 {
            soon(consume(&client(node), partition, 100)).await;
        }
        let told = until_told(node, |told| told.topics.contains_key(TOPIC)).await;
        let leaders: BTreeSet<NodeId> =
            told.topics[TOPIC].partitions.iter().filter_map(|found| found.leader).collect();
        assert_eq!(leaders.len(), 3, "leaderships are spread");
    }
    // Whoever is asked, the controller decides.
    client(&nodes[2]).add_partitions(TOPIC, 4).await.unwrap();
    until_told(&nodes[0], |told| told.topics[TOPIC].partitions.len() == 4).await;
    client(&nodes[1]).delete_topic(TOPIC).await.unwrap();
    until_told(&nodes[0], |told| !told.topics.contains_key(TOPIC)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_is_followed_by_another_and_comes_back_in_sync() {
    let mut places = places();
    let mut nodes: Vec<Option<RunningNode>> =
        start(&mut places).await.into_iter().map(Some).collect();
    create(&client(nodes[0].as_ref().unwrap()), 1, 3).await;
    let any = nodes[0].as_ref().unwrap();
    let found = until_partition(any, |found| found.in_sync.len() == 3).await;
    let leader = found.leader.unwrap();
    soon(produce(&client(any), 0, 0..100)).await;
    drop(nodes[place_of(leader)].take());
    let left = nodes.iter().flatten().next().unwrap();
    let found = until_partition(left, |found| {
        found.leader.is_some_and(|now| now != leader) && found.in_sync.len() == 2
    })
    .await;
    assert!(!found.in_sync.contains(&leader) && found.offline == [leader], "{found:?}");
    soon(produce(&client(left), 0, 100..200)).await;
    let again = soon(places[place_of(leader)].start()).await.unwrap();
    soon(again.unfenced()).await;
    until_partition(left, |found| found.in_sync.len() == 3).await;
    soon(produce(&client(&again), 0, 200..300)).await;
    soon(consume(&client(&again), 0, 300)).await;
    // It leads again when that is asked for.
    let name = PartitionName { topic: TOPIC.to_owned(), partition: 0 };
    let done = client(left).elect_leaders(Election::Preferred, Some(&[name])).await.unwrap();
    assert!(done.iter().all(|(_, done)| done.is_ok()), "{done:?}");
    until_partition(&again, |found| found.leader == Some(leader)).await;
    soon(consume(&client(left), 0, 300)).await;
}

/// Bytes of the topic on a node's disk; `None` where it keeps no copy.
async fn bytes_on(node: &RunningNode) -> Option<u64> {
    let directories = client(node).log_directories().await.unwrap();
    let partitions = directories.into_iter().flat_map(|directory| directory.partitions);
    partitions.filter(|found| found.topic == TOPIC).map(|found| found.bytes).reduce(|a, b| a + b)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_moves_and_leaves_nothing_behind() {
    let mut places = places();
    let nodes = start(&mut places).await;
    let any = client(&nodes[0]);
    create(&any, 1, 1).await;
    let found = until_partition(&nodes[0], |found| found.leader.is_some()).await;
    let from = found.leader.unwrap();
    soon(produce(&any, 0, 0..500)).await;
    let to = NodeId(from.0 % 3 + 1);
    let name = PartitionName { topic: TOPIC.to_owned(), partition: 0 };
    let done = any.reassign(&[(name.clone(), Some(vec![to]))]).await.unwrap();
    assert!(done[0].1.is_ok(), "{done:?}");
    for node in &nodes {
        until_partition(node, |found| found.replicas == [to] && found.leader == Some(to)).await;
    }
    soon(consume(&any, 0, 500)).await;
    soon(async {
        while bytes_on(&nodes[place_of(from)]).await.is_some() {
            OsClock::new().sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(bytes_on(&nodes[place_of(to)]).await.is_some_and(|bytes| bytes > 0));
    assert_eq!(any.reassignments().await.unwrap(), []);
    // And back, where files of the first stay may still be going.
    any.reassign(&[(name, Some(vec![from]))]).await.unwrap();
    until_partition(&nodes[0], |found| found.replicas == [from]).await;
    soon(produce(&any, 0, 500..600)).await;
    soon(consume(&any, 0, 600)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_to_leave_keeps_nothing_in_the_end() {
    let mut places = places();
    let nodes = start(&mut places).await;
    let any = client(&nodes[0]);
    create(&any, 6, 2).await;
    soon(produce(&any, 0, 0..100)).await;
    let leave = ConfigurationChange::Set("quorate.duty".to_owned(), "leave".to_owned());
    any.alter_configs(&Resource::Broker(3), &[leave]).await.unwrap();
    // Another node hears of it when it has read that far.
    let other = client(&nodes[1]);
    soon(async {
        while other.node_config(NodeId(3), "quorate.duty").await.unwrap().as_deref()
            != Some("leave")
        {
            OsClock::new().sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let told = until_told(&nodes[1], |told| {
        let mut partitions = told.topics[TOPIC].partitions.iter();
        partitions.all(|found| found.replicas.len() == 2 && !found.replicas.contains(&NodeId(3)))
    })
    .await;
    for found in &told.topics[TOPIC].partitions {
        assert_eq!(set(&found.in_sync), BTreeSet::from([1, 2]), "{found:?}");
    }
    soon(consume(&any, 0, 100)).await;
}

/// Reads as a member of group `g` until `count` values have come, commits, and leaves.
async fn consume_in_group(client: &Client, numbers: Range<usize>) {
    // That a member has left may die with the coordinator: then the others wait for its session.
    let session = Duration::from_secs(6);
    let config = GroupConfig {
        on_reset: OnReset::Beginning,
        session_timeout: session,
        rebalance_timeout: session,
        ..GroupConfig::new("g", &[TOPIC])
    };
    let mut group = GroupConsumer::new(client, config);
    let (mut values, mut next) = (Vec::new(), Offset::ZERO);
    while values.len() < numbers.len() {
        if let Polled::Batches(some) = group.poll(Duration::from_secs(10)).await.unwrap() {
            values.extend(some.records().unwrap().into_iter().filter_map(|one| one.value));
            next = some.next();
        }
    }
    let expected: Vec<Bytes> = numbers.map(value).collect();
    assert_eq!(values, expected);
    group.commit(&[(TOPIC.into(), 0, next)]).await.unwrap();
    group.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_goes_on_where_it_was_when_its_coordinator_dies() {
    let mut places = places();
    let mut nodes: Vec<Option<RunningNode>> =
        start(&mut places).await.into_iter().map(Some).collect();
    create(&client(nodes[0].as_ref().unwrap()), 1, 3).await;
    for round in 0..3 {
        let any = nodes.iter().flatten().next().unwrap();
        soon(produce(&client(any), 0, round * 50..(round + 1) * 50)).await;
        soon(consume_in_group(&client(any), round * 50..(round + 1) * 50)).await;
        let offsets = |told: &quorate_net::client::Metadata| {
            let topic = told.topics.get("__consumer_offsets")?;
            let found = &topic.partitions[usize::try_from(partition_of("g", 3)).ok()?];
            found.leader.filter(|_| found.in_sync.len() == 3)
        };
        let told = until_told(any, |told| offsets(told).is_some()).await;
        let coordinator = place_of(offsets(&told).unwrap());
        drop(nodes[coordinator].take());
        let again = soon(places[coordinator].start()).await.unwrap();
        soon(again.unfenced()).await;
        nodes[coordinator] = Some(again);
    }
}

/// The segments of the log that `node` keeps of the topic's one partition are gone from its disk.
async fn lose_segments(place: &Place, topic: TopicId) {
    let (disk, logs) = (&place.disk, place.config.node.data.join("logs"));
    for name in disk.list(&logs).await.unwrap() {
        let name = name.to_str().unwrap().to_owned();
        if !name.starts_with(&topic.to_string()) {
            continue;
        }
        for file in disk.list(&logs.join(&name)).await.unwrap() {
            let path = logs.join(&name).join(&file);
            if path.extension().is_some_and(|extension| extension == "segment") {
                disk.remove(&path).await.unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_rotten_leads_nothing_and_is_in_sync_with_nothing() {
    let mut places = places();
    let mut nodes: Vec<Option<RunningNode>> =
        start(&mut places).await.into_iter().map(Some).collect();
    let any = nodes[0].as_ref().unwrap();
    create(&client(any), 1, 3).await;
    let found = until_partition(any, |found| found.in_sync.len() == 3).await;
    soon(produce(&client(any), 0, 0..100)).await;
    let told = until_told(any, |told| told.topics.contains_key(TOPIC)).await;
    let (leader, topic) = (found.leader.unwrap(), told.topics[TOPIC].id);
    nodes[place_of(leader)].take().unwrap().shutdown().await.unwrap();
    lose_segments(&places[place_of(leader)], topic).await;
    let again = soon(places[place_of(leader)].start()).await.unwrap();
    soon(again.unfenced()).await;
    let left = nodes.iter().flatten().next().unwrap();
    let found = until_partition(left, |found| found.leader.is_some()).await;
    assert!(found.leader != Some(leader) && !found.in_sync.contains(&leader), "{found:?}");
    // It says so itself, and the others serve.
    until_partition(&again, |found| found.offline == [leader]).await;
    soon(produce(&client(&again), 0, 100..200)).await;
    soon(consume(&client(&again), 0, 200)).await;
}
