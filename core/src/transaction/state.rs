//! What a coordinator knows of one transactional id: the value that its record in
//! `__transaction_state` has. Kafka's `TransactionMetadata`.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::batch::control::Ending;
use crate::id::{ProducerEpoch, ProducerId};
use crate::time::Timestamp;

/// The highest epoch that a producer is given: the next one is the coordinator's own, for the
/// markers that end the last transaction of this producer id.
pub(super) const EPOCH_MAX: ProducerEpoch = ProducerEpoch(i16::MAX - 1);

/// A partition by its topic's name, as Kafka's record has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopicPartition {
    pub topic: String,
    pub partition: i32,
}

/// Which rules a client keeps to, Kafka's `transaction.version`: 0 and 1 alike for the
/// coordinator, 2 with an epoch of its own for every transaction (KIP-890).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionVersion(pub i16);

impl TransactionVersion {
    pub const V0: Self = Self(0);
    pub const V1: Self = Self(1);
    pub const V2: Self = Self(2);

    pub const fn bumps_epoch(self) -> bool {
        self.0 >= 2
    }
}

/// Where a transactional id stands. Kafka's `TransactionState`; it has `Dead` as a record without
/// value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// No transaction, and none before with this epoch.
    #[default]
    Empty,
    Ongoing,
    /// The commit is decided, and markers are on their way.
    PrepareCommit,
    PrepareAbort,
    /// All partitions have their marker.
    CompleteCommit,
    CompleteAbort,
}

impl Phase {
    pub const ALL: [Self; 6] = [
        Self::Empty,
        Self::Ongoing,
        Self::PrepareCommit,
        Self::PrepareAbort,
        Self::CompleteCommit,
        Self::CompleteAbort,
    ];

    /// Kafka's name, for tools.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Ongoing => "Ongoing",
            Self::PrepareCommit => "PrepareCommit",
            Self::PrepareAbort => "PrepareAbort",
            Self::CompleteCommit => "CompleteCommit",
            Self::CompleteAbort => "CompleteAbort",
        }
    }

    pub(super) const fn prepare(ending: Ending) -> Self {
        match ending {
            Ending::Committed => Self::PrepareCommit,
            Ending::Aborted => Self::PrepareAbort,
        }
    }

    /// How the transaction ends whose markers are on their way.
    pub const fn prepared(self) -> Option<Ending> {
        match self {
            Self::PrepareCommit => Some(Ending::Committed),
            Self::PrepareAbort => Some(Ending::Aborted),
            Self::Empty | Self::Ongoing | Self::CompleteCommit | Self::CompleteAbort => None,
        }
    }

    /// How the last transaction ended, if there was one.
    pub const fn completed(self) -> Option<Ending> {
        match self {
            Self::CompleteCommit => Some(Ending::Committed),
            Self::CompleteAbort => Some(Ending::Aborted),
            Self::Empty | Self::Ongoing | Self::PrepareCommit | Self::PrepareAbort => None,
        }
    }

    /// Whether there is no transaction at all.
    pub const fn is_idle(self) -> bool {
        matches!(self, Self::Empty | Self::CompleteCommit | Self::CompleteAbort)
    }
}

/// The value of one record. It is changed by replacing it with the next one, once that is in the
/// log: there is no state that the log may refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub producer: ProducerId,
    /// While `phase` is prepared by a client of version 2, already that of the next transaction.
    pub epoch: ProducerEpoch,
    /// The producer id before this one: a retry may still come from it. `NONE`: none.
    pub previous_producer: ProducerId,
    /// While the transaction is prepared: the id of the next one, whose epoch is 0, because this
    /// one's epochs are used up. `NONE`: none.
    pub next_producer: ProducerId,
    /// The epoch before the last bump, if its producer may go on: it asked for the bump and may not
    /// have heard the answer, or its transaction took too long. So its retry is told from that of
    /// a zombie. KIP-360. Kafka keeps it in memory; here it has a tag of its own in the record
    /// (docs/decisions/0132). `None` if a successor has bumped.
    pub last_epoch: Option<ProducerEpoch>,
    pub timeout: Duration,
    pub phase: Phase,
    pub partitions: BTreeSet<TopicPartition>,
    pub updated: Timestamp,
    /// When the transaction began. `NONE`: none has.
    pub started: Timestamp,
    /// What the client of the last transaction spoke.
    pub version: TransactionVersion,
}

impl State {
    /// No more transactions for this producer id.
    pub(super) fn is_exhausted(&self) -> bool {
        self.epoch >= EPOCH_MAX
    }

    /// Its last transaction was fenced with the epoch that no producer is given, not even one that
    /// may go on: it needs another producer id.
    pub(super) fn is_fenced_for_good(&self) -> bool {
        self.epoch > EPOCH_MAX
    }

    /// Who the producer is once what is prepared is completed.
    pub(super) fn after(&self) -> (ProducerId, ProducerEpoch) {
        if self.next_producer.is_some() {
            (self.next_producer, ProducerEpoch(0))
        } else {
            (self.producer, self.epoch)
        }
    }

    /// Panics if no history leads here.
    pub(super) fn check(&self) {
        assert!(self.producer.is_some() && self.epoch.0 >= 0, "{self:?}");
        let in_transaction = !self.phase.is_idle();
        assert!(in_transaction || self.partitions.is_empty(), "nothing is left over: {self:?}");
        if self.phase == Phase::Ongoing {
            assert!(!self.partitions.is_empty(), "a transaction begins with a partition: {self:?}");
            assert!(self.epoch <= EPOCH_MAX, "{self:?}");
        }
        let next = self.next_producer.is_some();
        assert!(!next || self.phase.prepared().is_some(), "{self:?}");
    }
}
