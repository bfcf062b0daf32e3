//! The storm: plans, faults, workloads and checkers, and the simulated worlds that run them.
//!
//! The plain half (everything but `world`) is compiled always and serves the test suites that
//! drive real processes too. `world` runs the shipping node under a deterministic runtime.

pub mod campaign;
pub mod chance;
pub mod check;
pub mod cores;
pub mod coverage;
pub mod fault;
pub mod history;
pub mod log;
pub mod medium;
pub mod plan;
pub mod quorum;
pub mod replay;
pub mod run;
pub mod shadow;
pub mod shrink;
pub mod spec;
pub mod symptom;
pub mod timeline;
pub mod told;
pub mod tool;
pub mod trace;
pub mod waiting;
pub mod workload;
pub mod zoo;

#[cfg(not(madsim))]
mod rerun;
#[cfg(madsim)]
pub mod world;

#[cfg(not(madsim))]
pub use rerun::main;
#[cfg(madsim)]
pub use tool::main;
