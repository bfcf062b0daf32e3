//! The command itself, so that a plain `cargo test` simulates a few lives in both worlds.
#![cfg(not(madsim))]

use std::process::Command;

/// What it printed to standard error.
fn passes(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_quorate-sim")).args(arguments).output();
    let output = output.expect("the simulator runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}\n{text}\n{errors}");
    errors.into_owned()
}

#[test]
fn a_few_lives_in_both_worlds() {
    passes(&["campaign", "--seeds", "0..20", "--world", "cores"]);
    passes(&["campaign", "--seeds", "0..20"]);
    passes(&["run", "--seed", "7", "--twice"]);
    passes(&["corpus"]);
    let said = passes(&["run", "--seed", "7", "-vv"]);
    let line = said.lines().find(|line| line.contains("n1  INFO  node::node::start: the node"));
    assert!(line.is_some_and(|line| line.starts_with("[  ")), "{said}");
    assert_eq!(said, passes(&["run", "--seed", "7", "-vv"]), "the node says the same twice");
}
