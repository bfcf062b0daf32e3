//! `quorate cluster` and `quorate check` against one node: what a cluster of one says of itself.

#[path = "started/node.rs"]
#[allow(dead_code)]
mod node;

use node::Node;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn status_health_and_check_of_a_node_that_is_well() {
    let node = Node::in_memory();
    node.ok(&["topic", "create", "orders", "--partitions", "3"]);
    let status = node.ok(&["cluster", "status"]);
    assert!(status.contains("all partitions are led and fully replicated"), "{status}");
    assert!(status.contains("serving, controller"), "{status}");
    let status = json(&node.ok(&["cluster", "status", "--json"]));
    assert_eq!(status["healthy"], true);
    assert_eq!((&status["partitions"], &status["under_replicated"]), (&3.into(), &0.into()));
    assert_eq!(status["nodes"][0]["leads"], 3);
    assert_eq!(status["repairs"].as_array().map(Vec::len), Some(0));
    let health = node.ok(&["cluster", "health"]);
    assert!(health.contains("all is well") && health.contains("node 1"), "{health}");
    let leaders = json(&node.ok(&["cluster", "leaders", "--json"]));
    assert_eq!(leaders["nodes"][0]["leads"], 3);
    let moves = json(&node.ok(&["cluster", "reassign", "--json"]));
    assert_eq!(moves.as_array().map(Vec::len), Some(0));
    assert!(node.ok(&["check"]).starts_with("OK: 1 of 1 nodes, 3 partitions"));
    assert!(node.ok(&["check", "--form", "nagios"]).starts_with("QUORATE OK - "));
    let metrics = node.ok(&["check", "--form", "prometheus"]);
    assert!(metrics.contains("quorate_check_partitions_without_leader 0\n"), "{metrics}");
}

#[test]
fn what_cannot_be_is_refused_in_a_sentence() {
    let node = Node::in_memory();
    node.ok(&["topic", "create", "orders"]);
    let moved = node.run(&["cluster", "reassign", "orders", "--to", "7", "--yes"]);
    assert_eq!(moved.exit, 1);
    assert!(moved.err.contains("there is no node 7"), "{}", moved.err);
    let unnamed = node.run(&["cluster", "reassign", "--to", "1", "--yes"]);
    assert_eq!(unnamed.exit, 2, "{}", unnamed.err);
    let absent = node.run(&["cluster", "leaders", "orders:4", "--preferred"]);
    assert!(absent.err.contains("no partition 4"), "{}", absent.err);
    let nobody = node.run(&["cluster", "decommission", "9", "--yes"]);
    assert!(nobody.err.contains("there is no node 9"), "{}", nobody.err);
    let there = node.run(&["cluster", "decommission", "1", "--forget", "--yes"]);
    assert!(there.exit == 1 && there.err.contains("node 1 is there"), "{}", there.err);
}

#[test]
fn a_nodes_duty_is_set_and_shown() {
    let node = Node::in_memory();
    let set = node.ok(&["cluster", "maintenance", "1"]);
    assert!(set.contains("in maintenance"), "{set}");
    let status = node.ok(&["cluster", "status"]);
    assert!(status.contains("in maintenance"), "{status}");
    node.ok(&["cluster", "maintenance", "1", "--end"]);
    let status = node.ok(&["cluster", "status"]);
    assert!(status.contains("serving"), "{status}");
}

#[test]
fn a_quorum_of_one_says_what_it_bears() {
    let node = Node::in_memory();
    let quorum = node.ok(&["cluster", "quorum"]);
    assert!(quorum.starts_with("node 1 leads in term"), "{quorum}");
    assert!(quorum.contains("the loss of any one of them stops all decisions"), "{quorum}");
    let quorum = json(&node.ok(&["cluster", "quorum", "--json"]));
    assert_eq!(quorum["voters"][0]["lacks"], 0);
    assert_eq!(quorum["voters"][0]["directory"].as_str().map(str::len), Some(32));
    assert!(quorum["decided"].as_i64() > Some(0));
    let last = node.run(&["cluster", "quorum", "--remove", "1", "--yes"]);
    assert!(last.exit == 1 && last.err.contains("last voter"), "{}", last.err);
    let absent = node.run(&["cluster", "quorum", "--add", "2"]);
    assert!(absent.err.contains("no such member 2"), "{}", absent.err);
}
