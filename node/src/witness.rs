//! Somebody who watches what a node does to its logs and never takes part: the simulator, which
//! checks that a state rebuilt from the disk is the state that was lived. Product nodes have none.

use std::fmt;

use quorate_core::id::{PartitionId, WriteId};
use quorate_core::partition::Recovered;
use quorate_core::partition::interface::{Flush, LogOp};
use quorate_core::shard::Shard;
use quorate_core::shard::seat::Seat;

/// Told in the order in which things happen to a log. Must not wait.
pub trait Witness: Send + Sync {
    /// The log is served from here on, as storage has recovered it.
    fn opened(&self, partition: PartitionId, recovered: &Recovered);

    /// A machine wants this; storage has not heard of it yet.
    fn wants(&self, partition: PartitionId, write: WriteId, op: &LogOp, flush: Flush);

    /// All writes up to `through` are done, and the machine is about to be told.
    fn written(&self, partition: PartitionId, through: WriteId);

    /// The log was cut, or begun anew, as `write` wanted; this is what it is now, and the machine
    /// is about to be told. All writes before are done.
    fn truncated(&self, partition: PartitionId, write: WriteId, recovered: &Recovered);

    /// The log is deleted with its topic, or went elsewhere; it may never have been served here.
    fn dropped(&self, partition: PartitionId);

    /// The seat's image is a newer one, and the node is about to be told.
    fn decided(&self, seat: &Seat);

    /// A round of steps of this shard is over, and what they asked for is under way.
    fn stepped(&self, shard: &Shard);
}

impl fmt::Debug for dyn Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Witness")
    }
}
