//! The bytes on the wire: only this crate knows how Kafka's requests and responses look, and how
//! nodes greet each other. It never names the runtime it is simulated in.

pub mod client;
pub mod clock;
pub mod connection;
pub mod kafka;
pub mod peer;
pub mod transport;
pub mod wire;
