//! The groups of one partition of `__consumer_offsets`: who is a member, and how far they have
//! come. Their truth is the partition's log; this machine folds it.

pub mod interface;
