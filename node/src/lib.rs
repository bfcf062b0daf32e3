//! The machine room: storage, drivers and the listener of one node. It never names the runtime it
//! is simulated in; disk, network and clock come to it as a world.

pub mod clock;
pub mod config;
pub mod disk;
pub mod metrics;
pub mod node;
pub mod storage;
pub mod trace;
pub mod witness;
pub mod world;

mod catalog;
mod cleaner;
mod controller_client;
mod driver;
mod halt;
mod http;
mod lag;
mod listener;
mod membership;
mod peers;
mod quorum_cell;
mod scrubber;
mod space;
mod timekeeper;
mod transactions;
