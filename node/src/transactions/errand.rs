//! What one node asks of another for the sake of a transaction, and how it looks as bytes.

use quorate_core::batch::control::Ending;
use quorate_core::id::{PartitionId, ProducerEpoch, ProducerId};
use quorate_core::transaction::interface::Refusal;
use serde::{Deserialize, Serialize};

/// Markers in one errand.
pub(crate) const MARKS_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Errand {
    /// Write these markers: each partition's leader is believed to be there.
    Mark(Vec<Mark>),
    /// Ask a coordinator that is believed to be there.
    Join(Join),
}

/// A marker for a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) partition: PartitionId,
    pub(crate) producer: ProducerId,
    pub(crate) epoch: ProducerEpoch,
    pub(crate) committed: bool,
    pub(crate) coordinator_epoch: i32,
    pub(crate) version: i16,
}

impl Mark {
    pub(crate) const fn ending(&self) -> Ending {
        if self.committed { Ending::Committed } else { Ending::Aborted }
    }
}

/// Are these partitions in the producer's transaction, once they are added, or as it is?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Join {
    /// Of `__transaction_state`.
    pub(crate) coordinator: PartitionId,
    pub(crate) transactional_id: String,
    pub(crate) producer: ProducerId,
    pub(crate) epoch: ProducerEpoch,
    pub(crate) partitions: Vec<(String, i32)>,
    pub(crate) version: i16,
    pub(crate) add: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Done {
    /// In the order of the marks.
    Marked(Vec<Marked>),
    /// In the order of the partitions.
    Joined(Result<Vec<bool>, Refusal>),
}

/// What became of a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Marked {
    /// It is committed, or was before.
    Done,
    CoordinatorFenced,
    /// The partition has seen a newer epoch of the producer.
    ProducerFenced,
    NotLeader,
    /// For now.
    Failed,
}
