//! A partition's replica.

pub mod interface;
