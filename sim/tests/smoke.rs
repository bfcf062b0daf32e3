//! The command itself, so that a plain `cargo test` simulates a few lives in both worlds.
#![cfg(not(madsim))]

use std::process::Command;

/// What it printed to standard output and to standard error.
fn prints(arguments: &[&str]) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_quorate-sim")).args(arguments).output();
    let output = output.expect("the simulator runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}\n{text}\n{errors}");
    (text.into_owned(), errors.into_owned())
}

fn passes(arguments: &[&str]) -> String {
    prints(arguments).1
}

#[test]
fn a_few_lives_in_both_worlds() {
    passes(&["campaign", "--seeds", "0..20", "--world", "cores"]);
    let (said, _) = prints(&["campaign", "--seeds", "0..20"]);
    // Our own client library is among those who write and read.
    for mark in ["the-library-appends", "the-library-reads", "the-library-does-not-know"] {
        assert!(said.contains(mark), "{mark}\n{said}");
    }
    passes(&["run", "--seed", "7", "--twice"]);
    passes(&["corpus"]);
    let said = passes(&["run", "--seed", "7", "-vv"]);
    let line = said.lines().find(|line| line.contains("n1  INFO  node::node::start: the node"));
    assert!(line.is_some_and(|line| line.starts_with("[  ")), "{said}");
    assert_eq!(said, passes(&["run", "--seed", "7", "-vv"]), "the node says the same twice");
}
