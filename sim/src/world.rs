//! The world of nodes: the shipping node under a deterministic runtime, with a disk, a network and
//! a clock of ours. Only this half knows the runtime (`cfg(madsim)`).

pub mod clock;
pub mod disk;
pub mod network;
