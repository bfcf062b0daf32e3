//! Nodes in several racks: readers go to the replica in theirs, and what is acknowledged stands in
//! as many racks as was asked for.

use std::time::Duration;

use bytes::Bytes;
use quorate_core::id::NodeId;
use quorate_net::client::{Message, NewTopic, ProducerConfig, SendError};
use quorate_net::clock::Clock;
use quorate_net::kafka::Response;
use quorate_net::kafka::messages::FetchRequest;
use quorate_net::kafka::messages::fetch::{FetchPartition, FetchTopic, PartitionData};
use quorate_node::clock::OsClock;
use quorate_node::node::RunningNode;

use crate::quorum::ask;
use crate::trio::{Place, client, places, soon, start, until_told};

const TOPIC: &str = "orders";

/// Nodes 1 and 2 stand in rack a, node 3 in rack b; all have a copy.
async fn start_in_two_racks(configs: &[(&str, &str)]) -> (Vec<Place>, Vec<RunningNode>) {
    let mut places = Vec::from(places());
    for (place, rack) in places.iter_mut().zip(["a", "a", "b"]) {
        place.config.set("node.rack", rack).unwrap();
    }
    let nodes = start(&mut places).await;
    let given = configs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let topic = NewTopic {
        name: TOPIC.to_owned(),
        partitions: Some(1),
        replication_factor: Some(3),
        configs: given.collect(),
    };
    client(&nodes[0]).create_topic(&topic).await.unwrap();
    until_in_sync(&nodes[0], 3).await;
    (places, nodes)
}

/// Who leads, once so many are in sync.
async fn until_in_sync(of: &RunningNode, count: usize) -> NodeId {
    let is_there = |told: &quorate_net::client::Metadata| {
        let first = told.topics.get(TOPIC)?.partitions.first()?;
        first.leader.filter(|_| first.in_sync.len() == count)
    };
    let told = until_told(of, |told| is_there(told).is_some()).await;
    is_there(&told).expect("it was told")
}

async fn produce(at: &RunningNode, value: &'static str) -> Result<(), SendError> {
    let config =
        ProducerConfig { delivery_timeout: Duration::from_secs(3), ..ProducerConfig::default() };
    let producer = client(at).producer(config).unwrap();
    let message = Message {
        topic: TOPIC.into(),
        partition: Some(0),
        value: Some(Bytes::from_static(value.as_bytes())),
        ..Message::default()
    };
    producer.send(message).await?.await.map(|_| ())
}

/// What node `at` answers to a reader in `rack`.
async fn fetch(at: &RunningNode, rack: &str) -> PartitionData {
    let request = FetchRequest {
        max_wait_ms: 100,
        min_bytes: 1,
        topics: vec![FetchTopic {
            topic: TOPIC.into(),
            partitions: vec![FetchPartition {
                partition: 0,
                partition_max_bytes: 1 << 20,
                ..FetchPartition::default()
            }],
            ..FetchTopic::default()
        }],
        rack_id: rack.into(),
        ..FetchRequest::default()
    };
    match soon(ask(at, 12, request)).await {
        Response::Fetch(mut answer) => answer.responses.remove(0).partitions.remove(0),
        other => panic!("{other:?}"),
    }
}

fn bytes(data: &PartitionData) -> usize {
    data.records.as_ref().map_or(0, |records| records.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_goes_to_the_replica_in_its_rack() {
    let (_places, nodes) = start_in_two_racks(&[]).await;
    produce(&nodes[0], "far and near").await.unwrap();
    let leader = until_in_sync(&nodes[0], 3).await;
    let at = |id: NodeId| nodes.iter().find(|node| node.id() == id).expect("a node");
    let (own, other) = if leader == NodeId(3) { ("b", "a") } else { ("a", "b") };
    let home = fetch(at(leader), own).await;
    assert_eq!((home.error_code, home.preferred_read_replica), (0, -1));
    assert!(bytes(&home) > 0);
    let sent = fetch(at(leader), other).await;
    assert_eq!((sent.error_code, bytes(&sent)), (0, 0), "it is sent away with nothing");
    let near = NodeId(sent.preferred_read_replica);
    assert!(near != leader && (near == NodeId(3)) == (other == "b"), "{near}");
    // It hears a moment later what is committed.
    soon(async {
        loop {
            let found = fetch(at(near), other).await;
            assert_eq!((found.error_code, found.preferred_read_replica), (0, -1));
            if bytes(&found) > 0 {
                assert_eq!(bytes(&found), bytes(&home), "the same records");
                return;
            }
            OsClock::new().sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let nowhere = fetch(at(leader), "c").await;
    assert!(bytes(&nowhere) > 0 && nowhere.preferred_read_replica == -1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_acknowledged_that_stands_in_one_rack() {
    let configs = [("quorate.min.insync.racks", "2")];
    let (mut places, mut nodes) = start_in_two_racks(&configs).await;
    produce(&nodes[0], "in both").await.unwrap();
    // Rack b is gone: two of three copies, in one rack.
    drop(nodes.pop());
    until_in_sync(&nodes[0], 2).await;
    let refused = produce(&nodes[0], "in one").await.expect_err("one rack is not enough");
    assert!(refused.to_string().contains("NOT_ENOUGH_REPLICAS"), "{refused}");
    let back = soon(places[2].start()).await.unwrap();
    until_in_sync(&back, 3).await;
    produce(&nodes[0], "in both again").await.unwrap();
}
