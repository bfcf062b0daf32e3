//! `quorate topic` against a node.

#[path = "started/node.rs"]
#[allow(dead_code)]
mod node;

use node::Node;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_topic_lives_and_dies() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::on_disk(folder.path());
    let create = ["topic", "create", "orders", "-p", "3", "-c", "retention.ms=7d"];
    assert_eq!(node.ok(&create), "created topic orders: 3 partitions, 1 replica\n");
    let again = node.run(&create);
    assert!(again.exit == 1 && again.err.contains("TOPIC_ALREADY_EXISTS"), "{}", again.err);
    node.ok(&["topic", "create", "orders", "--if-not-exists"]);

    let listed = node.ok(&["topic", "list"]);
    assert!(listed.lines().next().unwrap().starts_with("TOPIC"), "{listed}");
    assert!(listed.lines().nth(1).unwrap().starts_with("orders"), "{listed}");

    let described = json(&node.ok(&["topic", "describe", "orders", "--json"]));
    assert_eq!(described["config"]["retention.ms"], "604800000");
    assert_eq!(described["partitions"].as_array().unwrap().len(), 3);
    assert_eq!(described["partitions"][2]["leader"], 1);
    let promise = described["acknowledgement"].as_str().unwrap();
    assert!(promise.contains("on the disk of the one node"), "{promise}");
    let shown = node.ok(&["topic", "describe", "orders"]);
    assert!(shown.contains("not the loss of that disk") && shown.contains("7d"), "{shown}");

    let unsure = node.run(&["topic", "delete", "orders"]);
    assert!(unsure.exit == 2 && unsure.err.contains("--yes"), "{}", unsure.err);
    assert_eq!(node.ok(&["topic", "delete", "orders", "--yes"]), "deleted topic orders\n");
    assert_eq!(node.run(&["topic", "describe", "orders"]).exit, 1);
}

#[test]
fn a_configuration_changes_and_says_what_it_means() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::on_disk(folder.path());
    node.ok(&["topic", "create", "orders"]);
    node.ok(&["topic", "alter", "orders", "--set", "quorate.flush=replicated"]);
    let shown = node.ok(&["topic", "describe", "orders"]);
    assert!(shown.contains("not a power loss"), "{shown}");
    node.ok(&["topic", "alter", "orders", "--unset", "quorate.flush"]);
    let shown = node.ok(&["topic", "describe", "orders"]);
    assert!(shown.contains("not the loss of that disk"), "{shown}");
    assert_eq!(node.run(&["topic", "alter", "orders"]).exit, 2);
}

#[test]
fn a_node_that_keeps_nothing_says_so() {
    let node = Node::in_memory();
    node.ok(&["topic", "create", "orders"]);
    let shown = node.ok(&["topic", "describe", "orders"]);
    assert!(shown.contains("gone when it stops"), "{shown}");
}

#[test]
fn a_mistyped_name_has_a_neighbour() {
    let node = Node::in_memory();
    node.ok(&["topic", "create", "orders"]);
    let near = node.run(&["topic", "describe", "ordesr"]);
    assert!(near.exit == 1 && near.err.contains("did you mean orders?"), "{}", near.err);
    let near = node.run(&["topic", "alter", "orders", "--set", "retension.ms=7d"]);
    assert!(near.exit == 1 && near.err.contains("retention.ms"), "{}", near.err);
    let near = node.run(&["topic", "create", "x", "--config", "clean.policy=compact"]);
    assert!(near.exit == 1 && near.err.contains("cleanup.policy"), "{}", near.err);
    let wrong = node.run(&["consume", "orders", "-p", "7"]);
    assert!(wrong.exit == 1 && wrong.err.contains("no partition 7"), "{}", wrong.err);
}

#[test]
fn partitions_are_added_with_a_warning() {
    let node = Node::in_memory();
    node.ok(&["topic", "create", "orders", "-p", "2"]);
    let fewer = node.run(&["topic", "add-partitions", "orders", "--total", "1", "--yes"]);
    assert!(fewer.exit == 1 && fewer.err.contains("cannot go down"), "{}", fewer.err);
    let added = node.run(&["topic", "add-partitions", "orders", "--total", "4", "--yes"]);
    assert_eq!((added.exit, added.out.as_str()), (0, "topic orders has 4 partitions now\n"));
    assert!(added.err.contains("keys move"), "{}", added.err);
}

#[test]
fn old_records_are_deleted() {
    let node = Node::in_memory();
    node.ok(&["topic", "create", "orders"]);
    node.ok_with("a\nb\nc\nd\n", &["produce", "orders"]);
    let delete = ["topic", "delete-records", "orders", "--yes", "--before"];
    let deleted = node.ok(&[&delete[..], &["3", "--json"]].concat());
    assert_eq!(json(&deleted)[0]["start"], 3);
    assert_eq!(node.ok(&["consume", "orders", "-e"]), "d\n");
    node.ok(&[&delete[..], &["end"]].concat());
    assert_eq!(node.ok(&["consume", "orders", "-e"]), "");
}

#[test]
fn topics_complete_in_bash() {
    let node = Node::in_memory();
    for name in ["orders", "order-lines", "customers"] {
        node.ok(&["topic", "create", name]);
    }
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_quorate"));
    let script = "eval \"$(quorate generate completion bash)\"; COMP_CWORD=2; \
                  COMP_WORDS=(quorate consume ord); _quorate_topics quorate ord consume; \
                  echo \"${COMPREPLY[@]}\"";
    let path = std::env::var("PATH").unwrap_or_default();
    let folder = binary.parent().unwrap().display();
    let done = std::process::Command::new("bash")
        .args(["-c", script])
        .env("PATH", format!("{folder}:{path}"))
        .env("QUORATE_BOOTSTRAP", &node.address)
        .output()
        .unwrap();
    let completed = String::from_utf8_lossy(&done.stdout);
    assert_eq!(completed.trim(), "order-lines orders", "{}", String::from_utf8_lossy(&done.stderr));
}
