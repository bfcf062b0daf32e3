//! Many machines and the routing between them: one driver drives them all.

pub mod interface;
