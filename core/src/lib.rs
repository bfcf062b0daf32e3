//! No I/O, no clock, no global randomness: a machine is a function of its inputs.

pub mod batch;
pub mod codec;
pub mod compaction;
pub mod controller;
pub mod group;
pub mod id;
pub mod machine;
pub mod mark;
pub mod metadata;
pub mod mutant;
pub mod own_log;
pub mod partition;
pub mod quorum;
pub mod quorum_log;
pub mod rng;
pub mod segment;
pub mod shard;
pub mod time;
pub mod transaction;
