//! `quorate txn`, `consume --isolation` and `bench produce --transactional` against a node.

#[path = "started/node.rs"]
#[allow(dead_code)]
mod node;

use std::sync::Arc;

use bytes::Bytes;
use node::Node;
use quorate_net::client::{
    Client, ClientConfig, Message, PartitionName, TransactionConfig, TransactionalProducer,
};
use quorate_net::transport::os::OsNetwork;
use quorate_node::clock::OsClock;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn client(node: &Node) -> Client {
    let config = ClientConfig::new(&node.address);
    Client::new(Arc::new(OsNetwork), Arc::new(OsClock::new()), config)
}

async fn producer(client: &Client) -> TransactionalProducer {
    client.transactional(TransactionConfig::new("transfers")).await.expect("a producer")
}

/// Records of an open transaction, all of them stored.
async fn open(producer: &mut TransactionalProducer, values: &[&'static str]) {
    producer.begin().expect("none is open");
    for value in values {
        let value = Some(Bytes::from_static(value.as_bytes()));
        let message = Message { topic: Arc::from("orders"), value, ..Message::default() };
        producer.send(message).await.expect("it is accepted").await.expect("it is stored");
    }
}

fn committed(node: &Node) -> String {
    node.ok(&["consume", "orders", "-e", "--isolation", "committed"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_is_shown_from_its_begin_to_its_end() {
    let node = Node::in_memory();
    node.ok(&["topic", "create", "orders"]);
    assert_eq!(json(&node.ok(&["txn", "list", "--json"])), Value::Array(Vec::new()));
    let client = client(&node);
    let mut producer = producer(&client).await;
    open(&mut producer, &["a", "b"]).await;

    let listed = json(&node.ok(&["txn", "list", "--state", "Ongoing", "--json"]));
    assert_eq!(listed[0]["transactional_id"], "transfers", "{listed}");
    let told = &json(&node.ok(&["txn", "describe", "transfers", "--json"]))[0];
    assert_eq!((&told["state"], &told["partitions"][0]), (&"Ongoing".into(), &"orders:0".into()));
    let shown = node.ok(&["txn", "describe", "transfers"]);
    assert!(shown.contains("waits for its producer to commit or abort it"), "{shown}");
    assert_eq!(committed(&node), "", "nothing is decided");
    assert_eq!(node.ok(&["consume", "orders", "-e"]), "a\nb\n");
    let refused = node.run(&["txn", "abort", "orders:0", "--start-offset", "0", "--yes"]);
    assert!(refused.exit == 1 && refused.err.contains("it is transfers's"), "{}", refused.err);
    let hanging = node.run(&["txn", "list", "--hanging"]);
    assert!(hanging.exit == 0 && hanging.err.contains("no transaction hangs"), "{}", hanging.err);

    producer.commit().await.expect("it is committed");
    assert_eq!(committed(&node), "a\nb\n");
    open(&mut producer, &["c"]).await;
    producer.abort().await.expect("it is aborted");
    open(&mut producer, &["d"]).await;
    producer.commit().await.expect("it is committed");
    assert_eq!(committed(&node), "a\nb\nd\n");
    assert_eq!(node.ok(&["consume", "orders", "-e"]), "a\nb\nc\nd\n");
    let merged = ["consume", "orders", "-e", "--isolation", "committed", "--merge", "time"];
    assert_eq!(node.ok(&merged), "a\nb\nd\n");
    let shown = node.ok(&["txn", "describe", "transfers"]);
    assert!(shown.contains("Nothing is open"), "{shown}");
    let wrong = node.run(&["txn", "describe", "transfer"]);
    assert!(wrong.exit == 1 && wrong.err.contains("did you mean transfers?"), "{}", wrong.err);
    let none = node.run(&["txn", "abort", "orders:0", "--start-offset", "0", "--yes"]);
    assert!(none.exit == 1 && none.err.contains("none is open there"), "{}", none.err);
}

/// What `txn abort` sends once nobody knows of a transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_marker_ends_what_is_open_in_a_partition() {
    let node = Node::in_memory();
    node.ok(&["topic", "create", "orders"]);
    let client = client(&node);
    let mut producer = producer(&client).await;
    open(&mut producer, &["a"]).await;
    node.ok_with("b\n", &["produce", "orders"]);
    assert_eq!(committed(&node), "", "what is behind an open transaction waits");
    let name = PartitionName { topic: "orders".to_owned(), partition: 0 };
    let producers = client.describe_producers("orders", 0).await.expect("its leader answers");
    let it = producers.iter().find(|it| it.open_since.is_some()).expect("one is open");
    client.write_abort_marker(&name, it).await.expect("the marker is written");
    assert_eq!(committed(&node), "b\n");
}

#[test]
fn a_bench_in_transactions_commits_all_of_it() {
    let node = Node::in_memory();
    node.ok(&["topic", "create", "orders"]);
    let bench = ["bench", "produce", "--topic", "orders", "-n", "200", "--size", "10", "--json"];
    let report = json(&node.ok(&[&bench[..], &["--transactional=5ms"]].concat()));
    assert_eq!(report["records"], 200, "{report}");
    let phases = &report["transactions"];
    assert!(phases["committed"].as_u64().expect("a number") > 0, "{report}");
    for phase in ["first_us", "fill_us", "flush_us", "commit_us"] {
        assert!(phases[phase]["p50"].as_u64().expect("a number") > 0, "{phase}: {report}");
    }
    assert_eq!(committed(&node).lines().count(), 200);
}

/// A coordinator that has lost its log: the transaction is open in its partition and in nobody's
/// books, and will be for ever unless a human ends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_nobody_will_end_is_found_and_aborted() {
    let folder = tempfile::tempdir().expect("a directory");
    let node = Node::on_disk(folder.path());
    node.ok(&["topic", "create", "orders"]);
    {
        let client = client(&node);
        let mut producer = producer(&client).await;
        open(&mut producer, &["a"]).await;
    }
    let told = node.ok(&["topic", "describe", "__transaction_state", "--json"]);
    let id = json(&told)["id"].as_str().expect("a topic has an id").to_owned();
    assert_eq!(node.stop().0, 0);
    let logs = std::fs::read_dir(folder.path().join("logs")).expect("there are logs");
    let lost: Vec<_> = logs
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(&id)))
        .collect();
    assert_eq!(lost.len(), 1, "one coordinator was asked: {lost:?}");
    std::fs::remove_dir_all(&lost[0]).expect("it can be removed");

    let node = Node::on_disk(folder.path());
    node.ok_with("b\n", &["produce", "orders"]);
    assert_eq!(committed(&node), "", "what is behind an open transaction waits");
    let hanging = json(&node.ok(&["txn", "list", "--hanging", "--json", "--timeout", "1s"]));
    assert_eq!(
        (&hanging[0]["partition"], &hanging[0]["start_offset"]),
        (&"orders:0".into(), &0.into())
    );
    assert_eq!(hanging.as_array().map(Vec::len), Some(1), "{hanging}");
    // Its coordinator's partition is on no disk any more, and the row says that it might know.
    let shown = node.run(&["txn", "list", "--hanging", "--timeout", "1s"]);
    assert!(shown.out.contains("orders:0"), "{}", shown.out);
    assert!(shown.err.contains("has no leader now, and may know of these"), "{}", shown.err);
    let abort = ["txn", "abort", "orders:0", "--start-offset", "0", "--yes"];
    let refused = node.run(&abort);
    assert!(refused.err.contains("may have decided to commit it"), "{}", refused.err);
    assert_eq!(committed(&node), "", "nothing was ended");
    node.ok(&[&abort[..], &["--coordinator-is-lost"]].concat());
    assert_eq!(committed(&node), "b\n", "the last stable offset moves on");
    let none = node.run(&["txn", "list", "--hanging", "--timeout", "1s"]);
    assert!(none.err.contains("no transaction hangs"), "{}", none.err);
    assert!(!none.err.contains("may know of these"), "a warning without a row: {}", none.err);
}
