//! What the nodes of a simulated life say: who, when by the simulated clock, and the same twice.
#![cfg(madsim)]

use quorate_sim::log::{Form, Kept, Log};
use quorate_sim::plan::draw::draw;
use quorate_sim::run::{self, Options, World};

const SEED: u64 = 7;

/// The node's lines, and the hash of the run's trace.
fn said(filter: &str, form: Form) -> (String, u64) {
    let kept = Kept::default();
    let log = Log { filter: filter.to_owned(), form, kept: Some(kept.clone()) };
    let options = Options { log: Some(log), ..Options::default() };
    let report = run::run(&draw(SEED), World::Nodes, options);
    (kept.text(), report.trace.hash)
}

#[test]
fn two_runs_of_a_seed_say_the_same_and_silence_changes_nothing() {
    let (one, hash) = said("trace", Form::Text);
    let (other, _) = said("trace", Form::Text);
    assert!(one.lines().count() > 3, "{one}");
    assert_eq!(one, other);
    let silent = run::run(&draw(SEED), World::Nodes, Options::default());
    assert_eq!(silent.trace.hash, hash, "looking changes nothing");
}

#[test]
fn a_line_has_the_simulated_time_and_the_node() {
    let (text, _) = said("info", Form::Text);
    let line = text.lines().find(|line| line.contains("the node serves")).expect("it starts");
    // [  0.013207s #41    ] n1  INFO  node::node::start: the node serves id=1 ...
    let (stamp, rest) = line.split_once("] ").expect("a stamp");
    let (seconds, ordinal) = stamp.trim_start_matches('[').split_once("s #").expect("a time");
    assert!(seconds.trim().parse::<f64>().is_ok_and(|seconds| seconds < 60.0), "{line}");
    assert!(ordinal.trim().parse::<u64>().is_ok_and(|ordinal| ordinal > 0), "{line}");
    assert!(rest.starts_with("n1  INFO  node::node::start: the node serves id=1 "), "{line}");
    // Nobody asked for what the runtime says.
    assert!(text.lines().all(|line| !line.contains("madsim")), "{text}");
}

#[test]
fn an_object_has_them_too() {
    let (text, _) = said("node::node=info", Form::Json);
    for line in text.lines() {
        let object: serde_json::Value = serde_json::from_str(line).expect("an object a line");
        assert!(object["time"].as_f64().is_some_and(|time| time < 1000.0), "{line}");
        assert_eq!(object["node"], "n1", "{line}");
    }
    assert!(text.contains("the node serves"), "{text}");
}
