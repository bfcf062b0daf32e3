//! What the transaction coordinator of one partition of `__transaction_state` is told, and what it
//! asks for: the closed lists of its inputs, effects and outcomes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use super::state::{Phase, TopicPartition, TransactionVersion};
use crate::batch::control::Ending;
use crate::id::{LeaderEpoch, ProducerEpoch, ProducerId, RequestId};
use crate::own_log;
use crate::partition::retention::WallClock;
use crate::time::Timestamp;

/// Bounds and habits of the coordinator, in Kafka's names. Checked by the node at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionLimits {
    /// `transaction.max.timeout.ms`: no producer may ask for longer transactions.
    pub timeout_max: Duration,
    /// `transactional.id.expiration.ms`: an id without a transaction is forgotten after so long.
    pub id_expiration: Duration,
    /// Transactional ids of one coordinator.
    pub ids_max: usize,
    /// Partitions of one transaction.
    pub partitions_max: usize,
    /// Requests that wait for the log, of one coordinator.
    pub waiting_max: usize,
    /// How soon a marker that its partition could not take is sent again; up to 64 times as long
    /// while it fails.
    pub marker_retry: Duration,
    /// A marker of which nothing was heard for so long is sent again.
    pub marker_patience: Duration,
    /// How soon a record that the log refused is written again, where nobody waits for it.
    pub append_retry: Duration,
    /// What is known of the wall clock at the start of the node's life.
    pub wall_clock: WallClock,
}

impl Default for TransactionLimits {
    fn default() -> Self {
        Self {
            timeout_max: Duration::from_secs(15 * 60),
            id_expiration: Duration::from_secs(7 * 24 * 3600),
            ids_max: 100_000,
            partitions_max: 10_000,
            waiting_max: 100_000,
            marker_retry: Duration::from_millis(20),
            marker_patience: Duration::from_secs(30),
            append_retry: Duration::from_millis(500),
            wall_clock: WallClock::default(),
        }
    }
}

impl TransactionLimits {
    /// Panics unless a coordinator can keep to these: a wait of zero would be over at once.
    pub fn check(&self) {
        let waits = [self.marker_retry, self.marker_patience, self.append_retry];
        assert!(waits.iter().all(|wait| !wait.is_zero()), "{self:?}");
        assert!(!self.timeout_max.is_zero() && !self.id_expiration.is_zero(), "{self:?}");
        assert!(self.ids_max > 0 && self.partitions_max > 0 && self.waiting_max > 0, "{self:?}");
    }
}

/// Who a producer says that it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub transactional_id: String,
    pub producer: ProducerId,
    pub epoch: ProducerEpoch,
}

/// Names one marker on its way. Never used twice by a machine, whatever leaderships it has. One
/// that is new on its node begins with the same names, in a later leadership.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MarkerId(pub u64);

/// A marker that the leader of `partition` is to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    pub id: MarkerId,
    pub transactional_id: String,
    pub partition: TopicPartition,
    pub producer: ProducerId,
    pub epoch: ProducerEpoch,
    pub ending: Ending,
    /// The leadership of `__transaction_state` that decided.
    pub coordinator_epoch: LeaderEpoch,
    /// By which rules the partition judges the epoch. KIP-890, KIP-1228.
    pub version: TransactionVersion,
}

/// What became of a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkerResult {
    /// It is committed in its partition, or was before.
    Done,
    /// The partition's topic is deleted: there is nothing to end.
    Gone,
    /// It is not known to be written: the leader is elsewhere, or not there.
    Failed,
    /// The partition has heard of a newer coordinator, so this one leads no more.
    CoordinatorFenced,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// What becomes of the partition of `__transaction_state`, and of what was appended to it.
    Log(own_log::Input),
    InitProducer(InitProducer),
    AddPartitions(AddPartitions),
    /// Are these partitions in the transaction that is under way? KIP-890 part 1.
    Verify {
        request: RequestId,
        claim: Claim,
        partitions: Vec<TopicPartition>,
    },
    End(End),
    /// What became of a marker; late answers, and those to another leadership, do no harm.
    MarkerAnswered {
        marker: Marker,
        result: MarkerResult,
    },
    List(List),
    Describe {
        request: RequestId,
        transactional_id: String,
    },
    /// Nobody waits for `request` any more.
    Cancelled {
        request: RequestId,
    },
    Tick,
}

/// A producer begins, or goes on after an error. Kafka's `InitProducerId`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitProducer {
    pub request: RequestId,
    pub transactional_id: String,
    pub timeout: Duration,
    /// Who it was, if it goes on. KIP-360.
    pub current: Option<(ProducerId, ProducerEpoch)>,
    /// A producer id that was never given to anybody. Where one is needed and none is handed over,
    /// the outcome is `NeedsProducerId`.
    pub fresh: Option<ProducerId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddPartitions {
    pub request: RequestId,
    pub claim: Claim,
    pub partitions: Vec<TopicPartition>,
    /// What the client speaks.
    pub version: TransactionVersion,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    pub request: RequestId,
    pub claim: Claim,
    pub ending: Ending,
    /// What the client speaks.
    pub version: TransactionVersion,
    /// As in `InitProducer`.
    pub fresh: Option<ProducerId>,
}

/// Which transactional ids are asked for; an empty filter lets all through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    pub request: RequestId,
    pub phases: Vec<Phase>,
    pub producers: Vec<ProducerId>,
    /// Only transactions that have run longer. KIP-994.
    pub longer_than: Option<Duration>,
    /// A regular expression for the whole id. KIP-1152.
    pub pattern: Option<String>,
}

impl Input {
    /// Who waits for an answer to this input.
    pub fn request(&self) -> Option<RequestId> {
        match self {
            Self::InitProducer(init) => Some(init.request),
            Self::AddPartitions(add) => Some(add.request),
            Self::End(end) => Some(end.request),
            Self::List(list) => Some(list.request),
            Self::Verify { request, .. } | Self::Describe { request, .. } => Some(*request),
            Self::Log(_) | Self::MarkerAnswered { .. } | Self::Cancelled { .. } | Self::Tick => {
                None
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Log(own_log::Effect),
    /// The one answer to a request.
    Reply {
        request: RequestId,
        outcome: Outcome,
    },
    /// Have the leader of the partition write this; answer with `MarkerAnswered`. May be lost.
    SendMarker(Marker),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Who the producer is from now on.
    Initialized {
        producer: ProducerId,
        epoch: ProducerEpoch,
    },
    Added,
    /// In the order of the question: whether each is in the transaction.
    Verified(Vec<bool>),
    /// The end is decided and cannot change. Who the producer is in its next transaction.
    Ended {
        producer: ProducerId,
        epoch: ProducerEpoch,
    },
    Listed(Vec<Listed>),
    Described(Described),
    /// Nothing was done: ask again with a fresh producer id.
    NeedsProducerId,
    Refused(Refusal),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub transactional_id: String,
    pub producer: ProducerId,
    pub phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    pub producer: ProducerId,
    pub epoch: ProducerEpoch,
    pub phase: Phase,
    pub timeout: Duration,
    /// When the transaction began; `Timestamp::NONE` if there is none.
    pub started: Timestamp,
    /// Those of the transaction; once its end is decided, those that have no marker yet.
    pub partitions: Vec<TopicPartition>,
}

/// Why a request is not granted; the node has Kafka's code for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// Another node leads the partition.
    NotCoordinator,
    /// The log is being replayed: try again.
    Loading,
    /// The log did not take it: nothing was done, try again.
    NotAvailable,
    /// The last transaction is not completed yet: try again.
    ConcurrentTransactions,
    /// There is a newer producer of this transactional id.
    ProducerFenced,
    /// This coordinator knows the transactional id with another producer id, or not at all.
    InvalidProducerIdMapping,
    /// What is asked does not fit the state, or contradicts what was decided.
    InvalidState,
    /// Not positive, or longer than `timeout_max`.
    InvalidTimeout,
    /// A transactional id is empty, or too long for its record.
    InvalidRequest,
    /// As many ids, partitions or requests as may be are known here.
    Full,
    /// Nobody has used this transactional id, or it has expired.
    UnknownId,
    /// No regular expression, or one that would take too much memory.
    InvalidPattern,
}
