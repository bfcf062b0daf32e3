//! The log that a machine keeps its truth in: what such a machine is told of it, and what it asks
//! of it. The controller has the metadata log, a coordinator its partition of `__consumer_offsets`.

use crate::batch::Batch;
use crate::id::LeaderEpoch;

/// Names one append. Rises in the life of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppendId(pub u64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// This node leads the log from now on. `Replay` is asked for; until `ReplayEnded`, requests
    /// are refused with `Loading`.
    Elected { leader_epoch: LeaderEpoch },
    /// It leads no more: what is known is forgotten, who waits is refused.
    Resigned,
    /// The next batch of the log, in order.
    Replayed { batch: Batch },
    /// All of the log up to its end at the election has been replayed.
    ReplayEnded,
    /// What this append wrote is committed.
    Appended { append: AppendId },
    /// What this append would have written is not, and never will be.
    AppendRefused { append: AppendId },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Read the log from its start and feed it as `Replayed`, then `ReplayEnded`.
    Replay,
    /// Produce this batch to the log with acks=all; answer with `Appended` or `AppendRefused`.
    /// Appends are committed in the order in which they are asked for.
    Append { append: AppendId, batch: Batch },
}
