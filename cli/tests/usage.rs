//! What needs no node: usage, exit codes, generated files, a configuration that is only checked.

#[path = "started/node.rs"]
#[allow(dead_code)]
mod node;

use std::fs;

use node::run;

#[test]
fn exit_codes_tell_usage_from_absence() {
    assert_eq!(run(&["topic", "destroy", "x"]).exit, 2);
    assert_eq!(run(&["--version"]).exit, 0);
    let absent = run(&["topic", "list", "--bootstrap", "127.0.0.1:1"]);
    assert_eq!(absent.exit, 3);
    assert!(absent.err.contains("cannot reach 127.0.0.1:1"), "{}", absent.err);
    assert!(absent.err.contains("quorate up"), "{}", absent.err);
}

#[test]
fn errors_are_json_where_json_was_asked_for() {
    let absent = run(&["topic", "list", "--json", "--bootstrap", "127.0.0.1:1"]);
    let error: serde_json::Value = serde_json::from_str(&absent.err).unwrap();
    assert!(error["error"].as_str().unwrap().contains("127.0.0.1:1"));
    assert!(error["hint"].is_string() && absent.out.is_empty());
}

#[test]
fn a_cluster_has_at_least_a_node() {
    for nodes in ["0", "33"] {
        let done = run(&["up", "--nodes", nodes]);
        assert_eq!(done.exit, 2);
        assert!(done.err.contains("1..=32"), "{}", done.err);
    }
}

#[test]
fn a_transaction_to_abort_is_named_exactly() {
    for wrong in [
        &["txn", "abort", "orders:0"][..],
        &["txn", "abort", "orders", "--start-offset", "3"],
        &["txn", "abort", "orders:0", "--start-offset", "3", "--producer", "1"],
        &["txn", "list", "--hanging", "--state", "Ongoing"],
        &["txn", "describe"],
        &["bench", "consume", "--transactional"],
        &["bench", "produce", "--transactional", "--idempotent", "false"],
    ] {
        assert_eq!(run(wrong).exit, 2, "{wrong:?}");
    }
}

#[test]
fn the_documented_node_is_a_valid_one() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/node.toml");
    let done = run(&["serve", "--config", file, "--check"]);
    assert!(done.exit == 0 && done.out.contains("is valid"), "{}", done.err);
}

#[test]
fn completions_and_manual_are_generated() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["generate", "completion", shell]);
        assert!(script.exit == 0 && script.out.contains("quorate"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("man");
    assert_eq!(run(&["generate", "man", directory.to_str().unwrap()]).exit, 0);
    let page = fs::read_to_string(directory.join("quorate-topic-create.1")).unwrap();
    assert!(page.contains("partitions"));
}

#[test]
fn a_configuration_is_checked_without_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.toml");
    let check = |text: &str| {
        fs::write(&path, text).unwrap();
        run(&["serve", "--check", "--config", path.to_str().unwrap()])
    };
    assert_eq!(check("[network]\nlisten = \"127.0.0.1:0\"\n").exit, 0);
    let wrong = check("[network]\nlisen = \"127.0.0.1:0\"\n");
    assert_eq!(wrong.exit, 2);
    assert!(wrong.err.contains("network.listen"), "{}", wrong.err);
    assert_eq!(check("[topic]\npartitions = 0\n").exit, 2);
    let absent = run(&["serve", "--config", "/nowhere/node.toml"]);
    assert!(absent.exit == 1 && absent.err.contains("/nowhere/node.toml"));
}

#[test]
fn a_segment_has_a_name() {
    let done = run(&["log", "inspect", "Cargo.toml"]);
    assert_eq!(done.exit, 2);
    assert!(done.err.contains("no segment"), "{}", done.err);
    assert_eq!(run(&["log", "verify", "/nowhere"]).exit, 2);
}

#[test]
fn a_filter_that_cannot_be_read_is_explained() {
    let done = run(&["topic", "list", "--log", "net=loud"]);
    assert_eq!(done.exit, 2, "{}", done.err);
    assert!(done.err.contains("node::storage=debug"), "{}", done.err);
}
