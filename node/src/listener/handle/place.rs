//! Where a partition is, for a request that wants something of it: in a log that is open here, or
//! with whom to ask instead.

use std::sync::Arc;

use quorate_core::id::PartitionId;
use quorate_core::partition::interface::{Assignment, ReadView};
use quorate_net::kafka::error::Code;

use crate::catalog::log::LogHandle;
use crate::catalog::{Log, Partition, State, Topic};

/// The log of a topic's partition, led here or not.
///
/// # Errors
///
/// Why there is none, as clients are told.
pub(crate) fn find(topic: Option<&Topic>, index: i32) -> Result<&Arc<LogHandle>, Code> {
    let partition = topic.and_then(|topic| topic.partition(index));
    open(partition.ok_or(Code::UnknownTopicOrPartition)?)
}

pub(crate) fn open(partition: &Partition) -> Result<&Arc<LogHandle>, Code> {
    match &partition.log {
        Log::Open(log) => Ok(log),
        Log::Offline => Err(Code::KafkaStorageError),
        Log::Elsewhere => Err(Code::NotLeaderOrFollower),
    }
}

/// Whether the client speaks of the leadership that this node knows. KIP-320.
pub(crate) fn epoch_code(asked: i32, view: &ReadView) -> Option<Code> {
    if asked < 0 || asked == view.leader_epoch.0 {
        None
    } else if asked < view.leader_epoch.0 {
        Some(Code::FencedLeaderEpoch)
    } else {
        Some(Code::UnknownLeaderEpoch)
    }
}

/// As `epoch_code`, for what only the leader may answer.
pub(crate) fn leader_code(asked: i32, view: &ReadView) -> Option<Code> {
    epoch_code(asked, view).or_else(|| (!view.is_leader).then_some(Code::NotLeaderOrFollower))
}

/// Whether the answer says who leads, so that the client need not ask. KIP-951.
pub(crate) const fn names_leader(code: Code) -> bool {
    matches!(code, Code::NotLeaderOrFollower | Code::FencedLeaderEpoch)
}

/// Who leads, as this node knows it at this moment.
pub(crate) fn assignment(state: &State, partition: PartitionId) -> Option<&Arc<Assignment>> {
    Some(&state.topic(partition.topic)?.partition(partition.index)?.assignment)
}
