//! The `quorate` command: one binary that is a node, a client and a set of tools.

fn main() {}
