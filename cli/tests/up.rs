//! `quorate up`: one line to paste, data that stay, a stop that is clean.

#[path = "started/node.rs"]
#[allow(dead_code)]
mod node;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use node::{Node, quorate, run};

// A stopwatch is real time.
#[allow(clippy::disallowed_methods)]
#[test]
fn a_node_says_one_line_and_stops_when_asked() {
    let start = Instant::now();
    let node = Node::in_memory();
    // A second is for the release build; here the machine is busy and the build is not fast.
    assert!(start.elapsed() < Duration::from_secs(10));
    assert!(node.said.starts_with("bootstrap.servers=127.0.0.1:"));
    let started = node.ok(&["topic", "list", "--json"]);
    assert_eq!(started.trim(), "[]");
    let (exit, rest) = node.stop();
    assert_eq!((exit, rest.as_str()), (0, ""));
}

#[test]
fn records_outlive_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::on_disk(folder.path());
    node.ok_with("one\ntwo\n", &["produce", "kept"]);
    assert_eq!(node.stop().0, 0);

    let node = Node::on_disk(folder.path());
    assert_eq!(node.ok(&["consume", "kept", "-e"]), "one\ntwo\n");
    node.ok_with("three\n", &["produce", "kept"]);
    // No goodbye: what was acknowledged is there all the same.
    drop(node);

    let node = Node::on_disk(folder.path());
    assert_eq!(node.ok(&["consume", "kept", "-e"]), "one\ntwo\nthree\n");
}

/// Kills the node twice while records flow, each time to be started again at the same address.
#[test]
fn a_killed_node_neither_loses_nor_doubles() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let mut node = Node::on_disk(folder.path());
    let address = node.address.clone();
    node.ok(&["topic", "create", "orders", "-p", "3"]);
    let mut producer = quorate()
        .args(["produce", "orders", "--bootstrap", &address, "--timeout", "60s", "--receipts"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = producer.stdin.take().unwrap();
    let mut receipts = BufReader::new(producer.stdout.take().unwrap()).lines().map(Result::unwrap);
    for round in 0..30 {
        let lines: String = (0..100).map(|line| format!("{}\n", round * 100 + line)).collect();
        input.write_all(lines.as_bytes()).unwrap();
        // The first of them is acknowledged: the others are on their way.
        let behind = if round == 0 { 0 } else { 99 };
        assert_eq!(receipts.by_ref().take(behind + 1).count(), behind + 1);
        if round % 10 == 5 {
            drop(node);
            node = Node::spawn(&["up", "--data", data, "--listen", &address]);
        }
    }
    drop(input);
    assert_eq!(receipts.count(), 99);
    assert!(producer.wait().unwrap().success());
    let mut all: Vec<u32> = Vec::new();
    for partition in ["0", "1", "2"] {
        let read = node.ok(&["consume", "orders", "-e", "-p", partition]);
        let read: Vec<u32> = read.lines().map(|line| line.parse().unwrap()).collect();
        assert!(read.is_sorted(), "partition {partition} is in the order of its input");
        all.extend(read);
    }
    all.sort_unstable();
    assert_eq!(all, (0..3000).collect::<Vec<u32>>());
}

#[test]
fn a_node_serves_as_its_file_says() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    let data = folder.path().join("data");
    let text = format!(
        "[node]\nid = 7\ndata = \"{}\"\n[network]\nlisten = \"127.0.0.1:0\"\n\
         [topic]\npartitions = 3\n",
        data.display()
    );
    fs::write(&file, text).unwrap();
    let serve = ["serve", "--config", file.to_str().unwrap()];
    let node = Node::spawn(&serve);
    node.ok(&["topic", "create", "orders"]);
    let described = node.ok(&["topic", "describe", "orders", "--json"]);
    let described: serde_json::Value = serde_json::from_str(&described).unwrap();
    assert_eq!(described["partitions"].as_array().unwrap().len(), 3);
    assert_eq!(described["partitions"][0]["leader"], 7);
    assert!(data.join("logs").is_dir());
    assert_eq!(node.stop().0, 0);
}

#[test]
fn a_directory_belongs_to_one_node() {
    let folder = tempfile::tempdir().unwrap();
    let _node = Node::on_disk(folder.path());
    let second = run(&["up", "--listen", "127.0.0.1:0", "--data", folder.path().to_str().unwrap()]);
    assert_eq!(second.exit, 1, "{}", second.err);
    assert!(second.out.is_empty());
}

#[test]
fn an_address_in_use_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let done = run(&["up", "--ephemeral", "--listen", &address]);
    assert_eq!(done.exit, 1);
    assert!(done.err.contains(&address) && done.err.contains("help:"), "{}", done.err);
}

#[test]
fn traces_are_lines_or_objects_with_the_wall_clocks_time() {
    let folder = tempfile::tempdir().unwrap();
    let traced = |form: &[&str]| {
        let path = folder.path().join("traces");
        let file = fs::File::create(&path).unwrap();
        let start = ["up", "--ephemeral", "--listen", "127.0.0.1:0", "--log", "node::node=info"];
        let node = Node::tracing_to(file.into(), &[&start[..], form].concat());
        let address = node.address.clone();
        assert_eq!(node.stop().0, 0);
        (address, fs::read_to_string(path).unwrap())
    };
    // 2026-11-29T17:38:35.123456Z
    let is_time = |text: &str| text.len() == 27 && text.ends_with('Z');

    let (address, text) = traced(&[]);
    let line = text.lines().find(|line| line.contains("the node serves")).unwrap();
    let (time, rest) = line.split_once(' ').unwrap();
    assert!(is_time(time), "{line}");
    assert!(rest.starts_with("INFO  node::node::start: the node serves id=1 "), "{line}");
    assert!(rest.contains(&format!(" address={address} ")), "{line}");

    let (address, text) = traced(&["--log-format", "json"]);
    let objects = text.lines().filter(|line| line.starts_with('{'));
    let objects: Vec<serde_json::Value> =
        objects.map(|line| serde_json::from_str(line).unwrap()).collect();
    let serves = objects.iter().find(|object| object["message"] == "the node serves").unwrap();
    assert!(is_time(serves["time"].as_str().unwrap()), "{serves}");
    assert_eq!(
        (&serves["level"], &serves["target"]),
        (&"INFO".into(), &"node::node::start".into())
    );
    assert_eq!(serves["fields"]["address"], *address);
}

#[test]
fn three_nodes_are_one_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let start = ["--nodes", "3", "--data", data];
    let cluster = Node::start(&start);
    assert_eq!(cluster.address.split(',').count(), 3);
    cluster.ok(&["topic", "create", "orders", "-p", "6"]);
    let told = cluster.ok(&["topic", "describe", "orders", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["partitions"][0]["replicas"].as_array().unwrap().len(), 3, "{told}");
    cluster.ok_with("one\ntwo\n", &["produce", "orders"]);
    assert_eq!(cluster.ok(&["consume", "orders", "-e"]).lines().count(), 2);
    assert_eq!(cluster.stop().0, 0);
    for node in ["node-1", "node-2", "node-3"] {
        assert!(folder.path().join(node).join("identity").exists(), "{node}");
    }
    let cluster = Node::start(&start);
    assert_eq!(cluster.ok(&["consume", "orders", "-e"]).lines().count(), 2);
}
