//! What a partition is told of transactions, and what it says of them. KIP-98, KIP-890.

pub use crate::batch::control::Ending;
use crate::id::{CoordinatorEpoch, Offset, ProducerEpoch, ProducerId, RequestId};
use crate::time::{Instant, Timestamp};

/// From this `transaction.version` on, each transaction of a producer has an epoch of its own.
/// KIP-890, part 2.
pub const EPOCH_A_TRANSACTION: i16 = 2;

/// May this producer write in a transaction? KIP-890, part 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verify {
    pub request: RequestId,
    pub producer: ProducerId,
    pub epoch: ProducerEpoch,
    /// The first sequence number of the batch that is to be appended; -1 for a batch without.
    pub sequence: i32,
    /// The `transaction.version` that the producer goes by: 2 from Produce version 12 on.
    pub transaction_version: i16,
}

/// The coordinator's word on how a transaction ended, to be put into the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndTransaction {
    pub request: RequestId,
    pub producer: ProducerId,
    /// The epoch of the marker: from version 2 on, that of the producer's next transaction.
    pub epoch: ProducerEpoch,
    pub ending: Ending,
    /// Which leadership of `__transaction_state` speaks.
    pub coordinator_epoch: CoordinatorEpoch,
    /// The `transaction.version` that the transaction went by. KIP-1228; 0 where nobody says.
    pub transaction_version: i16,
    /// When nobody waits for the answer any more.
    pub until: Instant,
}

/// A producer as its partition knows it. Kafka's `DescribeProducersResponse.ProducerState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerStatus {
    pub producer: ProducerId,
    pub epoch: ProducerEpoch,
    /// -1 if no batch of this epoch has sequence numbers.
    pub last_sequence: i32,
    /// When the leader last appended for it; `Timestamp::NONE` if nobody knows.
    pub seen: Timestamp,
    /// `NONE` if there is no marker of it.
    pub coordinator_epoch: CoordinatorEpoch,
    /// Where its open transaction begins.
    pub transaction: Option<Offset>,
}
