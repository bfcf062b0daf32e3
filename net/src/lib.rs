//! Kafka's bytes, and nothing else: only this crate knows how requests and responses look on the
//! wire. It never names the runtime it is simulated in.

pub mod client;
pub mod clock;
pub mod connection;
pub mod kafka;
pub mod transport;
pub mod wire;
