//! `quorate group` against a node.

#[path = "started/node.rs"]
#[allow(dead_code)]
mod node;

use std::process::Stdio;

use node::{Node, quorate};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A topic of two partitions with twenty records each, of which a group has consumed ten.
fn half_consumed() -> Node {
    let node = Node::in_memory();
    node.ok(&["topic", "create", "orders", "-p", "2"]);
    let records: String = (0..20).map(|n| format!("record {n}\n")).collect();
    for partition in ["0", "1"] {
        node.ok_with(&records, &["produce", "orders", "-p", partition]);
    }
    for partition in ["0", "1"] {
        let place = format!("orders:{partition}");
        let to = ["group", "reset-offsets", "billing", "-t", &place, "--to-offset", "10"];
        node.ok(&[&to[..], &["--execute"]].concat());
    }
    node
}

fn offsets(node: &Node, group: &str) -> Vec<Option<i64>> {
    let told = json(&node.ok(&["group", "describe", group, "--json"]));
    let partitions = told[0]["partitions"].as_array().expect("a list").clone();
    partitions.iter().map(|partition| partition["committed"].as_i64()).collect()
}

#[test]
fn a_group_is_listed_described_and_deleted() {
    let node = half_consumed();
    let listed = json(&node.ok(&["group", "list", "--json"]));
    assert_eq!((&listed[0]["group"], &listed[0]["state"]), (&"billing".into(), &"Empty".into()));
    assert!(!node.ok(&["group", "list", "--state", "empty", "--type", "classic"]).is_empty());
    assert_eq!(node.ok(&["group", "list", "--state", "stable"]), "");

    let told = &json(&node.ok(&["group", "describe", "billing", "--json"]))[0];
    assert_eq!(told["lag"]["records"], 20);
    assert!(told["lag"]["bytes"].as_u64().expect("bytes") >= 20, "{told}");
    let seconds = told["lag"]["seconds"].as_f64().expect("seconds");
    assert!((0.0..60.0).contains(&seconds), "{told}");
    assert!(told["partitions"][0]["committed_at"].as_i64().expect("a time") > 0, "{told}");
    let shown = node.ok(&["group", "describe", "billing"]);
    assert!(shown.contains("Nobody consumes: the group has no members"), "{shown}");
    let columns = "GROUP    TOPIC   PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID";
    assert!(shown.contains(columns), "{shown}");
    let row = shown.lines().last().expect("a row");
    let cells: Vec<&str> = row.split_whitespace().take(6).collect();
    assert_eq!(cells, ["billing", "orders", "1", "10", "20", "10"]);

    let wrong = node.run(&["group", "describe", "biling"]);
    assert!(wrong.exit == 1 && wrong.err.contains("did you mean billing?"), "{}", wrong.err);
    let unsure = node.run(&["group", "delete", "billing"]);
    assert!(unsure.exit == 2 && unsure.err.contains("--yes"), "{}", unsure.err);
    assert_eq!(node.ok(&["group", "delete", "billing", "--yes"]), "deleted group billing\n");
    assert_eq!(node.run(&["group", "describe", "billing"]).exit, 1);
}

#[test]
fn offsets_move_only_when_told_to() {
    let node = half_consumed();
    let reset = |how: &[&str]| {
        let all = [&["group", "reset-offsets", "billing", "--all-topics"], how].concat();
        let before = offsets(&node, "billing");
        let shown = node.ok(&[&all[..], &["--json"]].concat());
        assert_eq!(offsets(&node, "billing"), before, "a dry run: {shown}");
        node.ok(&[&all[..], &["--execute"]].concat());
        let after = offsets(&node, "billing");
        let told = json(&shown)["offsets"].as_array().expect("a list").clone();
        let told: Vec<_> = told.iter().map(|moved| moved["new"].as_i64()).collect();
        assert_eq!(told, after, "it does what it showed");
        after
    };
    assert_eq!(reset(&["--shift-by", "-3"]), [Some(7), Some(7)]);
    assert_eq!(reset(&["--shift-by", "100"]), [Some(20), Some(20)], "not beyond the end");
    assert_eq!(reset(&["--to-earliest"]), [Some(0), Some(0)]);
    assert_eq!(reset(&["--to-latest"]), [Some(20), Some(20)]);
    assert_eq!(reset(&["--to-offset", "4"]), [Some(4), Some(4)]);
    assert_eq!(reset(&["--to-current"]), [Some(4), Some(4)]);
    assert_eq!(reset(&["--by-duration", "1h"]), [Some(0), Some(0)], "all are younger");
    assert_eq!(reset(&["--to-datetime", "2100-01-01"]), [Some(20), Some(20)], "all are older");
    assert_eq!(reset(&["--to-datetime", "@0"]), [Some(0), Some(0)]);

    let one = ["group", "reset-offsets", "copy", "-t", "orders:1", "--to-group", "billing"];
    node.ok(&[&one[..], &["--execute"]].concat());
    assert_eq!(offsets(&node, "copy"), [Some(0)], "the one partition that was named");
    for (wrong, exit) in [
        (vec!["-t", "orders"], 2),
        (vec!["--to-latest"], 2),
        (vec!["-t", "orders", "--to-latest", "--to-earliest"], 2),
        (vec!["-t", "orders:7", "--to-latest"], 1),
        (vec!["-t", "ordres", "--to-latest"], 1),
        (vec!["-t", "orders", "--to-group", "nobody"], 1),
        (vec!["-t", "orders", "--to-datetime", "soon"], 2),
    ] {
        let done = node.run(&[&["group", "reset-offsets", "billing"], &wrong[..]].concat());
        assert_eq!(done.exit, exit, "{wrong:?}: {}", done.err);
    }
    node.ok(&["group", "delete-offsets", "billing", "-t", "orders:0", "--yes"]);
    assert_eq!(offsets(&node, "billing"), [Some(0)]);
}

#[test]
fn nothing_is_moved_under_members() {
    let node = half_consumed();
    let mut member = quorate()
        .args(["consume", "orders", "--group", "billing", "--bootstrap", &node.address])
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary starts");
    // It has joined once it has committed.
    while offsets(&node, "billing") != [Some(20), Some(20)] {}
    let reset = ["group", "reset-offsets", "billing", "-t", "orders", "--to-earliest"];
    let refused = node.run(&[&reset[..], &["--execute"]].concat());
    assert!(refused.exit == 1 && refused.err.contains("it has members"), "{}", refused.err);
    let refused = node.run(&["group", "delete", "billing", "--yes"]);
    assert!(refused.exit == 1 && refused.err.contains("it has members"), "{}", refused.err);
    let refused = node.run(&["group", "delete-offsets", "billing", "-t", "orders", "--yes"]);
    assert!(refused.err.contains("GROUP_SUBSCRIBED_TO_TOPIC"), "{}", refused.err);
    let shown = node.ok(&["group", "describe", "billing"]);
    assert!(shown.contains("has consumed all that there is"), "{shown}");
    assert!(shown.contains("/127.0.0.1"), "{shown}");
    let members = node.ok(&["group", "describe", "billing", "--members"]);
    assert!(members.contains("orders:0,1"), "{members}");
    assert_eq!(offsets(&node, "billing"), [Some(20), Some(20)]);
    member.kill().expect("it runs");
    member.wait().expect("it ends");
}
