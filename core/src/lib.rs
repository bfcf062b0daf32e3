//! No I/O, no clock, no global randomness: a machine is a function of its inputs.

pub mod batch;
pub mod group;
pub mod id;
pub mod machine;
pub mod mark;
pub mod mutant;
pub mod partition;
pub mod segment;
pub mod time;
