//! The simulator as a command.

fn main() {}
