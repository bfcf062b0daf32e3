//! Which of Kafka's errors stands for which refusal of the core.

use quorate_core::batch::BatchError;
use quorate_core::batch::validate::{Invalid, InvalidKind};
use quorate_core::controller::interface::ProblemKind;
use quorate_core::group::interface::Refusal as GroupRefusal;
use quorate_core::partition::interface::Refusal as PartitionRefusal;
use quorate_core::quorum::interface::Refusal as QuorumRefusal;
use quorate_core::transaction::interface::Refusal as TransactionRefusal;

use super::Code;

impl From<&PartitionRefusal> for Code {
    fn from(refusal: &PartitionRefusal) -> Self {
        match refusal {
            PartitionRefusal::NotLeader => Self::NotLeaderOrFollower,
            PartitionRefusal::OutOfOrderSequence { .. } => Self::OutOfOrderSequenceNumber,
            PartitionRefusal::StaleProducerEpoch { .. } => Self::InvalidProducerEpoch,
            PartitionRefusal::InvalidTransactionState { .. } => Self::InvalidTxnState,
            PartitionRefusal::CoordinatorFenced { .. } => Self::TransactionCoordinatorFenced,
            PartitionRefusal::OffsetOutOfRange { .. } => Self::OffsetOutOfRange,
            PartitionRefusal::TimedOut => Self::RequestTimedOut,
            PartitionRefusal::NotEnoughReplicas => Self::NotEnoughReplicas,
            PartitionRefusal::NotEnoughReplicasAfterAppend => Self::NotEnoughReplicasAfterAppend,
            PartitionRefusal::NotYetKnown => Self::OffsetNotAvailable,
            // Kafka has no word for "busy" in a produce response; this one is tried again
            // without a look at the metadata.
            PartitionRefusal::Busy => Self::ThrottlingQuotaExceeded,
            PartitionRefusal::NotDeletable => Self::PolicyViolation,
            PartitionRefusal::Storage => Self::KafkaStorageError,
        }
    }
}

impl From<ProblemKind> for Code {
    fn from(kind: ProblemKind) -> Self {
        match kind {
            ProblemKind::Loading | ProblemKind::NotAvailable => Self::NotController,
            ProblemKind::Busy => Self::ThrottlingQuotaExceeded,
            ProblemKind::InvalidTopic => Self::InvalidTopicException,
            ProblemKind::TopicExists => Self::TopicAlreadyExists,
            ProblemKind::UnknownTopic => Self::UnknownTopicOrPartition,
            ProblemKind::UnknownTopicId => Self::UnknownTopicId,
            ProblemKind::InvalidPartitions => Self::InvalidPartitions,
            ProblemKind::InvalidReplication => Self::InvalidReplicationFactor,
            ProblemKind::InvalidAssignment => Self::InvalidReplicaAssignment,
            ProblemKind::InvalidConfig => Self::InvalidConfig,
            ProblemKind::InvalidRequest => Self::InvalidRequest,
            ProblemKind::Policy => Self::PolicyViolation,
            ProblemKind::OtherCluster => Self::InconsistentClusterId,
            ProblemKind::DuplicateNode => Self::DuplicateBrokerRegistration,
            ProblemKind::StaleNodeEpoch => Self::StaleBrokerEpoch,
            ProblemKind::UnknownNode => Self::BrokerIdNotRegistered,
            ProblemKind::UnsupportedFeature => Self::UnsupportedVersion,
            ProblemKind::NoReassignment => Self::NoReassignmentInProgress,
            ProblemKind::ElectionNotNeeded => Self::ElectionNotNeeded,
            ProblemKind::PreferredLeaderNotAvailable => Self::PreferredLeaderNotAvailable,
            ProblemKind::EligibleLeadersNotAvailable => Self::EligibleLeadersNotAvailable,
            ProblemKind::FeatureUpdateFailed => Self::FeatureUpdateFailed,
        }
    }
}

impl From<&QuorumRefusal> for Code {
    fn from(refusal: &QuorumRefusal) -> Self {
        match refusal {
            QuorumRefusal::NotLeader { .. }
            | QuorumRefusal::NotInCharge
            | QuorumRefusal::Transferring
            | QuorumRefusal::Busy => Self::NotController,
            QuorumRefusal::Unknown
            | QuorumRefusal::ChangePending
            | QuorumRefusal::NotCaughtUp { .. }
            | QuorumRefusal::TransferFailed => Self::RequestTimedOut,
            QuorumRefusal::NotObserved | QuorumRefusal::NotVoter => Self::VoterNotFound,
            QuorumRefusal::AlreadyVoter => Self::DuplicateVoter,
            QuorumRefusal::LastVoter | QuorumRefusal::TooLarge { .. } => Self::InvalidRequest,
            QuorumRefusal::Storage => Self::KafkaStorageError,
        }
    }
}

impl From<&GroupRefusal> for Code {
    fn from(refusal: &GroupRefusal) -> Self {
        match refusal {
            GroupRefusal::Loading => Self::CoordinatorLoadInProgress,
            GroupRefusal::NotCoordinator => Self::NotCoordinator,
            GroupRefusal::NotAvailable => Self::CoordinatorNotAvailable,
            GroupRefusal::InvalidGroup => Self::InvalidGroupId,
            GroupRefusal::UnknownGroup => Self::GroupIdNotFound,
            GroupRefusal::NotEmpty => Self::NonEmptyGroup,
            GroupRefusal::Subscribed => Self::GroupSubscribedToTopic,
            GroupRefusal::UnknownMember => Self::UnknownMemberId,
            GroupRefusal::MemberIdRequired { .. } => Self::MemberIdRequired,
            GroupRefusal::FencedInstance => Self::FencedInstanceId,
            GroupRefusal::IllegalGeneration => Self::IllegalGeneration,
            GroupRefusal::RebalanceInProgress => Self::RebalanceInProgress,
            GroupRefusal::InconsistentProtocol => Self::InconsistentGroupProtocol,
            GroupRefusal::InvalidSessionTimeout => Self::InvalidSessionTimeout,
            GroupRefusal::Full => Self::GroupMaxSizeReached,
            GroupRefusal::Unstable => Self::UnstableOffsetCommit,
            GroupRefusal::OffsetMetadataTooLarge => Self::OffsetMetadataTooLarge,
            GroupRefusal::CommitTooLarge => Self::InvalidCommitOffsetSize,
            GroupRefusal::InvalidHeartbeat { .. } => Self::InvalidRequest,
            GroupRefusal::FencedMemberEpoch => Self::FencedMemberEpoch,
            GroupRefusal::StaleMemberEpoch => Self::StaleMemberEpoch,
            GroupRefusal::UnreleasedInstance => Self::UnreleasedInstanceId,
            GroupRefusal::UnsupportedAssignor => Self::UnsupportedAssignor,
            GroupRefusal::InvalidRegex => Self::InvalidRegularExpression,
            GroupRefusal::TooOld => Self::UnsupportedVersion,
        }
    }
}

impl From<&TransactionRefusal> for Code {
    fn from(refusal: &TransactionRefusal) -> Self {
        match refusal {
            TransactionRefusal::NotCoordinator => Self::NotCoordinator,
            TransactionRefusal::Loading => Self::CoordinatorLoadInProgress,
            TransactionRefusal::NotAvailable => Self::CoordinatorNotAvailable,
            TransactionRefusal::ConcurrentTransactions => Self::ConcurrentTransactions,
            TransactionRefusal::ProducerFenced => Self::ProducerFenced,
            TransactionRefusal::InvalidProducerIdMapping => Self::InvalidProducerIdMapping,
            TransactionRefusal::InvalidState => Self::InvalidTxnState,
            TransactionRefusal::InvalidTimeout => Self::InvalidTransactionTimeout,
            TransactionRefusal::InvalidRequest => Self::InvalidRequest,
            // Trying again would not help, and clients show this one to their users.
            TransactionRefusal::Full => Self::PolicyViolation,
            TransactionRefusal::UnknownId => Self::TransactionalIdNotFound,
            TransactionRefusal::InvalidPattern => Self::InvalidRegularExpression,
        }
    }
}

impl From<&Invalid> for Code {
    fn from(invalid: &Invalid) -> Self {
        match invalid.kind {
            InvalidKind::Corrupt => Self::CorruptMessage,
            InvalidKind::TooLarge => Self::MessageTooLarge,
            InvalidKind::Record => Self::InvalidRecord,
            InvalidKind::Timestamp => Self::InvalidTimestamp,
            InvalidKind::Compression => Self::UnsupportedCompressionType,
        }
    }
}

impl From<&BatchError> for Code {
    /// Bytes that were damaged are worth sending again, bytes that were made so are not: as in
    /// Kafka, a batch that is cut short is of the second kind.
    fn from(error: &BatchError) -> Self {
        match error {
            BatchError::Checksum { .. } => Self::CorruptMessage,
            BatchError::Codec { .. } => Self::UnsupportedCompressionType,
            BatchError::Short { .. }
            | BatchError::Length { .. }
            | BatchError::Trailing { .. }
            | BatchError::Magic { .. }
            | BatchError::Count { .. }
            | BatchError::Offsets { .. } => Self::InvalidRecord,
        }
    }
}
