//! What monitors ask by HTTP: health, metrics, and how far groups are behind. Each series over a
//! cluster comes from one node.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use quorate_core::id::Offset;
use quorate_net::client::{Client, PartitionName};
use quorate_net::transport::Network;
use quorate_net::transport::os::OsNetwork;
use quorate_node::node::RunningNode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::house::{client as connect, in_memory, pause, produce, soon};

const SETTINGS: &[(&str, &str)] = &[
    ("http.listen", "127.0.0.1:0"),
    ("http.lag_interval", "20ms"),
    ("group.offsets_partitions", "1"),
];

/// Status and body.
async fn ask(address: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = OsNetwork.connect(&address.to_string()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head ends");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let is_head = request.starts_with("HEAD");
    assert!(is_head || length.and_then(|length| length.parse().ok()) == Some(body.len()), "{head}");
    (status.expect("a status"), body.to_owned())
}

async fn get(node: &RunningNode, path: &str) -> (u16, String) {
    let address = node.http_address().expect("it answers monitors");
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).await
}

/// The samples of `/metrics`, each series once.
async fn metrics(node: &RunningNode) -> BTreeMap<String, f64> {
    let (status, body) = get(node, "/metrics").await;
    assert_eq!(status, 200);
    let mut samples = BTreeMap::new();
    for line in body.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').expect("a sample");
        let before = samples.insert(series.to_owned(), value.parse().expect("a number"));
        assert_eq!(before, None, "{series} stands there once");
    }
    samples
}

async fn commit(client: &Client, group: &str, offset: i64) {
    let name = PartitionName { topic: "orders".to_owned(), partition: 0 };
    let offsets = BTreeMap::from([(name, Offset(offset))]);
    client.set_group_offsets(group, &offsets).await.unwrap();
}

/// Looks until a sample is as expected.
async fn until_sample(node: &RunningNode, series: &str, holds: impl Fn(f64) -> bool) {
    soon(async {
        while !metrics(node).await.get(series).is_some_and(|value| holds(*value)) {
            pause(10).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_groups_lag_is_measured() {
    let node = in_memory(SETTINGS).await;
    let client = connect(&node);
    produce(&client, "orders", 0..100).await;
    commit(&client, "g \"1\"", 40).await;
    let of = |name: &str| {
        format!("{name}{{consumergroup=\"g \\\"1\\\"\",topic=\"orders\",partition=\"0\"}}")
    };
    until_sample(&node, &of("kafka_consumergroup_lag"), |lag| lag == 60.0).await;
    let samples = metrics(&node).await;
    assert_eq!(samples[&of("kafka_consumergroup_current_offset")], 40.0);
    assert!(samples[&of("quorate_consumergroup_lag_bytes")] > 0.0);
    let first = samples[&of("quorate_consumergroup_lag_seconds")];
    assert!((0.0..60.0).contains(&first), "{first}");
    until_sample(&node, &of("quorate_consumergroup_lag_seconds"), |age| age > first).await;
    assert_eq!(
        samples["kafka_topic_partition_current_offset{topic=\"orders\",partition=\"0\"}"],
        100.0
    );
    assert_eq!(samples["kafka_brokers"], 1.0);
    assert_eq!(samples["kafka_topic_partitions{topic=\"orders\"}"], 1.0);

    let (status, told) = get(&node, "/lag/g%20%221%22").await;
    assert!(status == 200 && told.contains("\"lag_records\": 60"), "{told}");
    assert!(get(&node, "/lag").await.1.contains("\"state\": \"Empty\""));
    assert_eq!(get(&node, "/lag/nobody").await.0, 404);

    commit(&client, "g \"1\"", 100).await;
    until_sample(&node, &of("quorate_consumergroup_lag_seconds"), |age| age == 0.0).await;
    assert_eq!(metrics(&node).await[&of("kafka_consumergroup_lag")], 0.0);
    client.delete_group("g \"1\"").await.unwrap();
    soon(async {
        while metrics(&node).await.contains_key(&of("kafka_consumergroup_lag")) {
            pause(10).await;
        }
    })
    .await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_says_how_it_is() {
    let node = in_memory(SETTINGS).await;
    let client = connect(&node);
    assert_eq!(get(&node, "/livez").await.0, 200);
    assert_eq!(get(&node, "/readyz").await.0, 200);
    assert_eq!(get(&node, "/safe-to-stop").await.0, 200, "there is nothing to be missed");
    produce(&client, "orders", 0..1).await;
    let (status, why) = get(&node, "/safe-to-stop").await;
    assert!(status == 503 && why.contains("orders-0"), "{why}");
    assert_eq!(metrics(&node).await["quorate_ready"], 1.0);
    assert_eq!(get(&node, "/nowhere").await.0, 404);
    let address = node.http_address().unwrap();
    assert_eq!(ask(address, "HEAD /livez HTTP/1.1\r\n\r\n").await, (200, String::new()));
    assert_eq!(ask(address, "POST /livez HTTP/1.1\r\n\r\n").await.0, 405);
    assert_eq!(ask(address, "what?\r\n\r\n").await.0, 400);
    assert_eq!(ask(address, &format!("GET / {}", "x".repeat(9000))).await.0, 431);
    // Somebody who says nothing holds nobody up.
    let silent = OsNetwork.connect(&address.to_string()).await.unwrap();
    assert_eq!(get(&node, "/livez").await.0, 200);
    node.shutdown().await.unwrap();
    drop(silent);
}
