//! A partition's replica.

pub mod interface;
pub mod leader_epochs;
pub mod producers;
pub mod recovered;

pub use self::recovered::{Recovered, SegmentInfo};
