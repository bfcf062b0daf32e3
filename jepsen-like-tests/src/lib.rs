//! The world of processes: the released binary on real sockets, disks and clocks, driven by other
//! people's clients and by faults that only a kernel can give.
//!
//! What fails here and passes in simulation is a hole in the simulator, and counts as a second bug.

pub mod alerts;
pub mod clients;
pub mod exactly_once;
pub mod java_load;
pub mod kill_nine;
pub mod many;
pub mod namespaces;
pub mod probe;
pub mod process;
pub mod robustness;
pub mod rounds;
pub mod stopwatch;
pub mod trio;
pub mod wire;
