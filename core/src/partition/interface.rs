//! What a partition's replica is told, and what it asks for: the closed lists of its inputs,
//! effects and outcomes.

mod limits;
mod transactions;

use std::time::Duration;

use bytes::Bytes;

pub use self::limits::{Limits, ReplicationLimits};
pub use self::transactions::{EPOCH_A_TRANSACTION, EndTransaction, Ending, ProducerStatus, Verify};
pub use super::aborted::Aborted;
pub use super::message::{
    Confirm, Confirmed, Follow, InSyncChange, Lead, Message, ProposalProblem, Replicate, Replicated,
};
pub use super::racks::Racks;
use super::recovered::Recovered;
use crate::batch::{Batch, Levels};
use crate::compaction::Rules;
use crate::id::{
    CoordinatorEpoch, LeaderEpoch, NodeEpoch, NodeId, Offset, PartitionEpoch, ProducerEpoch,
    ProducerId, RequestId, VerificationGuard, WriteId,
};
use crate::segment::cleaned::Cleaned;
use crate::time::{Instant, Timestamp};

/// The controller's word on who leads and who replicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    pub leader_epoch: LeaderEpoch,
    /// Rises with each change of any field here, an election included.
    pub partition_epoch: PartitionEpoch,
    /// `None`: no replica that surely has all committed records can be reached.
    pub leader: Option<NodeId>,
    /// All that keep a copy, the preferred leader first: while a reassignment runs, those that are
    /// to stay, then those that are to go.
    pub replicas: Vec<NodeId>,
    /// Those whose copies a commit waits for. Empty only while there is no leader.
    pub in_sync: Vec<NodeId>,
    /// Not in sync any more, yet sure to have every committed record: nothing was committed since
    /// they left. Only while fewer than `min.insync.replicas` are in sync. KIP-966.
    pub eligible: Vec<NodeId>,
    /// Those of `replicas` that a reassignment adds.
    pub adding: Vec<NodeId>,
    /// Those of `replicas` that go as soon as all others are in sync. One that is in `adding`, too,
    /// was added in vain and goes once it is not needed (docs/decisions/0089).
    pub removing: Vec<NodeId>,
}

/// The part of a topic's configuration that its replicas act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionConfig {
    /// `retention.ms`; `None` keeps for ever.
    pub retention_time: Option<Duration>,
    /// `retention.bytes`; `None` keeps all.
    pub retention_bytes: Option<u64>,
    /// Whether `cleanup.policy` has `delete`.
    pub delete: bool,
    /// Whether `cleanup.policy` has `compact`: records without a key are refused.
    pub compact: bool,
    /// `min.cleanable.dirty.ratio` in millionths (`cleaning::SHARE_WHOLE`).
    pub cleanable_share: u64,
    /// `min.compaction.lag.ms`: how long a record at least stays uncompacted.
    pub compaction_lag_min: Duration,
    /// `max.compaction.lag.ms`: how long at most, counted from the youngest record of its segment;
    /// `None` is no bound.
    pub compaction_lag_max: Option<Duration>,
    /// `delete.retention.ms`: how long a tombstone stays after it was compacted first.
    pub tombstone_time: Duration,
    /// `segment.bytes`: a segment is closed before a batch would make it larger.
    pub segment_bytes_max: u64,
    /// `segment.ms`: a segment whose first append is older is closed at the next append.
    pub segment_time_max: Duration,
    /// `message.timestamp.type` is `LogAppendTime`.
    pub log_append_time: bool,
    /// What an acknowledgement waits for.
    pub flush: Flush,
    /// `min.insync.replicas`: with fewer in sync, acks=all is refused before anything is written.
    pub in_sync_min: u16,
    /// `quorate.min.insync.racks`, with the racks of the replicas.
    pub racks: Racks,
}

impl Default for PartitionConfig {
    /// A topic on which nothing was configured, on one node.
    fn default() -> Self {
        Self {
            retention_time: Some(Duration::from_secs(7 * 24 * 3600)),
            retention_bytes: None,
            delete: true,
            compact: false,
            cleanable_share: 500_000,
            compaction_lag_min: Duration::ZERO,
            compaction_lag_max: None,
            tombstone_time: Duration::from_secs(24 * 3600),
            segment_bytes_max: 1 << 30,
            segment_time_max: Duration::from_secs(7 * 24 * 3600),
            log_append_time: false,
            flush: Flush::Durable,
            in_sync_min: 1,
            racks: Racks::default(),
        }
    }
}

/// `quorate.flush`: what an acknowledgement means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flush {
    /// On the disk of every in-sync replica.
    #[default]
    Durable,
    /// In the memory of every in-sync replica; a power loss of all may lose it. Kafka's meaning.
    Replicated,
}

/// Whose word a producer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// No answer is wanted, and the client is given none. The machine answers as for `Leader`, so
    /// that a batch counts against what its connection may have under way until it is written;
    /// where it is refused, the connection is closed, as Kafka does, so that the client looks again
    /// who leads.
    None,
    /// The leader's copy suffices.
    Leader,
    /// Every in-sync replica, and at least `min.insync.replicas`.
    All,
    /// As `All`, and at least this many copies (librdkafka's acks above 1).
    AtLeast(u16),
}

/// Which records a reader may see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Up to the high watermark.
    #[default]
    ReadUncommitted,
    /// Up to the last stable offset.
    ReadCommitted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Who leads, from now on.
    Assigned(Assignment),
    /// The configuration changed.
    ///
    /// A human did this, so the wall clock counts as right again if it had jumped.
    Configured(PartitionConfig),
    /// A batch that `batch::validate` accepted, to be appended.
    Produce(Produce),
    /// Whether a producer's coordinator is to be asked before its batch is appended.
    Verify(Verify),
    /// A transaction has ended: its marker goes into the log. Answered when that is committed.
    EndTransaction(EndTransaction),
    /// Which aborted transactions reach into `from` to below `to`? Asked after what stands there
    /// was read, by who reads committed records only.
    Aborted {
        request: RequestId,
        from: Offset,
        to: Offset,
    },
    /// Which producers are known? KIP-664.
    DescribeProducers {
        request: RequestId,
    },
    /// Answer once records beyond what the reader has seen are readable, or at `until`.
    Wait(Wait),
    /// Raise the log start: records below `before` are gone. `None` means the high watermark.
    /// Answered once whoever may lead has deleted them, or at `until`.
    DeleteRecords {
        request: RequestId,
        before: Option<Offset>,
        until: Instant,
    },
    /// Where did `epoch` end? KIP-101, KIP-279.
    EpochEnd {
        request: RequestId,
        epoch: LeaderEpoch,
    },
    /// Does this replica still lead? Answered once whoever might have taken its place has said
    /// that it has not, or at `until`.
    StillLeads {
        request: RequestId,
        until: Instant,
    },
    /// Nobody waits for `request` any more.
    Cancelled {
        request: RequestId,
    },
    /// All writes up to `through` are as durable as their log promises.
    Written {
        through: WriteId,
    },
    /// A write or its sync failed. The log's state on disk is unknown from here on.
    WriteFailed {
        write: WriteId,
    },
    /// Write down what a fast start needs; answer `Outcome::Closed` when it is written.
    Close {
        request: RequestId,
    },
    /// The node is registered, and has applied all that the controller decided before. Until then
    /// a replica of several neither leads nor follows: the assignment it knows may be of an
    /// earlier life, in whose epoch it has written what this life does not remember.
    Registered {
        node_epoch: NodeEpoch,
    },
    /// From the replica on node `from`. The batches in it have passed `Batch::verify`.
    Message {
        from: NodeId,
        message: Message,
    },
    /// There is a new connection to `peer`: what was sent before may be lost.
    Connected {
        peer: NodeId,
    },
    /// The controller counts `peer` as there again: who was not wanted in sync because it did not
    /// may be proposed at once.
    Unfenced {
        peer: NodeId,
    },
    /// The answer to `Effect::ReadLog`: whole batches in order, the first one that which holds
    /// `from`, or what comes behind it. None at all: it could not be read now.
    LogRead {
        to: NodeId,
        from: Offset,
        entries: Vec<(Batch, Levels)>,
    },
    /// The answer to `TruncateTo` or `ResetTo`, in place of `Written`: all writes up to `write`
    /// are done, and this is what the log is now.
    Truncated {
        write: WriteId,
        recovered: Box<Recovered>,
    },
    /// What became of `Effect::Clean`: always, unless the replica is gone.
    Cleaned {
        pass: u64,
        result: Result<Box<Cleaned>, CleanProblem>,
    },
    /// The controller did not change the in-sync set as was proposed for `partition_epoch`.
    ProposalRefused {
        partition_epoch: PartitionEpoch,
        problem: ProposalProblem,
    },
    Tick,
}

impl Input {
    /// Who waits for an answer to this input.
    pub fn request(&self) -> Option<RequestId> {
        match self {
            Self::Produce(produce) => Some(produce.request),
            Self::Wait(wait) => Some(wait.request),
            Self::Verify(verify) => Some(verify.request),
            Self::EndTransaction(end) => Some(end.request),
            Self::Aborted { request, .. }
            | Self::DescribeProducers { request }
            | Self::DeleteRecords { request, .. }
            | Self::EpochEnd { request, .. }
            | Self::StillLeads { request, .. }
            | Self::Close { request } => Some(*request),
            Self::Assigned(_)
            | Self::Configured(_)
            | Self::Cancelled { .. }
            | Self::Written { .. }
            | Self::WriteFailed { .. }
            | Self::Registered { .. }
            | Self::Message { .. }
            | Self::Connected { .. }
            | Self::Unfenced { .. }
            | Self::LogRead { .. }
            | Self::Truncated { .. }
            | Self::Cleaned { .. }
            | Self::ProposalRefused { .. }
            | Self::Tick => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Produce {
    pub request: RequestId,
    pub batch: Batch,
    /// Which priority levels stand in the batch (docs/decisions: indexed from the first version).
    pub levels: Levels,
    pub acks: Acks,
    /// When the producer stops waiting for replicas.
    pub until: Instant,
    /// What `Verify` gave for it, once the coordinator has agreed. A transactional batch needs one
    /// where no transaction of its producer is open.
    pub guard: Option<VerificationGuard>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    pub request: RequestId,
    /// The reader has seen everything below this.
    pub beyond: Offset,
    /// Answer when at least so many bytes beyond are readable; at least 1.
    pub bytes_min: u64,
    pub isolation: Isolation,
    pub until: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Do this to the log. Writes of one log complete in the order of their ids.
    Write { write: WriteId, op: LogOp, flush: Flush },
    /// The one answer to a request.
    Reply { request: RequestId, outcome: Outcome },
    /// What readers may see has changed.
    Publish(ReadView),
    /// This node must not go on: its disk lies.
    Halt { reason: HaltReason },
    /// To the replica on node `to`. May be lost.
    Send { to: NodeId, message: Message },
    /// Read batches of this log from the one that holds `from` on, those that end at or below
    /// `up_to`, `bytes_max` of them but one at least, for the follower `to`. Answered by
    /// `LogRead`, always; behind everything that hastens.
    ReadLog { to: NodeId, from: Offset, up_to: Offset, bytes_max: usize },
    /// Compact the log beside everything else, and change nothing: answered by `Cleaned`, whose
    /// segments are synced, and count only once `LogOp::Replace` says so.
    Clean(Clean),
    /// The result of a pass is not wanted: its segments may go.
    Discard(Box<Cleaned>),
    /// Ask the controller to change the in-sync set. Answered by a newer `Assigned` or by
    /// `ProposalRefused`; proposed again if neither comes.
    Propose(InSyncChange),
    /// The marker of a producer's transaction is committed: for the machine whose log this is.
    /// Leaders say so, in the order of the log; after a new election perhaps again.
    TransactionEnded { producer: ProducerId, ending: Ending },
}

/// One change of a log. Storage obeys; it decides nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogOp {
    /// The batch carries its final offset, leader epoch and timestamps.
    Append { batch: Batch, levels: Levels },
    /// Close the active segment; the next one begins at `base`. `snapshot` is the replica's
    /// `Recovered` state at `base`, for a start that need not read older segments.
    Roll { base: Offset, snapshot: Bytes },
    /// The log now starts at `offset`; segments wholly below it may go. The new start is durable
    /// before the write completes, and before any file is unlinked.
    DeleteBefore { offset: Offset },
    /// `snapshot` is the state at the end of the log, for a start that need not read what stands
    /// before. It may be lost: the next start is slower then. The last one before a clean close is
    /// kept with it.
    Checkpoint { snapshot: Bytes },
    /// Batches that reach beyond `offset` are cut off, after they were set aside where a human
    /// finds them (set aside, sync, cut; the same again after a crash in between changes nothing).
    /// Snapshots of what is cut go too. Answered by `Truncated` with the rebuilt state.
    TruncateTo { offset: Offset, reason: Parted },
    /// These segments take the place of all below `until`. Durable before the write completes;
    /// readers of a replaced segment go on with it.
    Replace(Box<Cleaned>),
    /// Everything goes, files and snapshots; the log is empty and both starts and ends at
    /// `offset`. What parted from the leader's log was cut off before. Answered by `Truncated`.
    ResetTo { offset: Offset },
}

/// One pass of compaction over all segments below `until`, which are closed and committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clean {
    /// Tells it from others of this replica.
    pub pass: u64,
    /// Below it the log is compacted already: keys are gathered from here on, as far as memory
    /// reaches.
    pub dirty: Offset,
    pub until: Offset,
    /// `segment.bytes`: small segments become one, up to this.
    pub segment_bytes_max: u64,
    pub rules: Rules,
}

/// Why a pass did not come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanProblem {
    /// A segment could not be read, or a new one not be written. Nothing is changed.
    Failed,
}

/// Why a log's end is cut off: another leader's log parts from it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parted {
    pub leader: NodeId,
    pub leader_epoch: LeaderEpoch,
    /// Where the log ended before.
    pub end: Offset,
}

/// What a reader may see, published by the machine, read without asking it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadView {
    pub leader_epoch: LeaderEpoch,
    pub is_leader: bool,
    /// The first offset that is there. It is durable: a crash does not bring records below back.
    pub log_start: Offset,
    /// The leader epoch of the record there; of an empty log, that of whoever would write it.
    pub start_epoch: LeaderEpoch,
    pub high_watermark: Offset,
    /// Below it, all transactions have ended, and that is committed: at most the high watermark.
    pub last_stable: Offset,
    /// Behind the last aborted transaction of the log, whether that is committed or not: who reads
    /// from there on need not ask for `Aborted`.
    pub aborted_end: Offset,
    /// Counts what has taken records out of the log otherwise than by raising its start, in this
    /// life. If it has changed since, an answer to `Aborted` does not speak of what was read.
    pub removals: u64,
    /// Where the next batch goes.
    pub end: Offset,
    /// Larger than every timestamp below it would be wrong to trust across deletion; it is the
    /// largest ever appended, `Timestamp::NONE` if none.
    pub max_timestamp: Timestamp,
    /// A new leader that does not know yet how far its predecessor had committed: an answer that
    /// depends on the high watermark is `OFFSET_NOT_AVAILABLE`. KIP-207.
    pub is_settling: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// `append_time` is set for LogAppendTime topics only.
    Produced {
        base: Offset,
        append_time: Option<Timestamp>,
        log_start: Offset,
    },
    /// Enough is readable, or the time is up: read again.
    Advanced,
    /// Everything below is gone for good, whoever leads next.
    RecordsDeleted {
        log_start: Offset,
    },
    /// `None`: the epoch is newer than any this log has.
    EpochEnd {
        end: Option<(LeaderEpoch, Offset)>,
    },
    /// `None`: the producer's transaction is open here, its batch may be appended at once.
    Verified(Option<VerificationGuard>),
    /// The marker is committed.
    TransactionEnded,
    /// Ascending by first record. `view` is what readers may see now.
    Aborted {
        view: ReadView,
        transactions: Vec<Aborted>,
    },
    /// Ascending by id.
    Producers(Vec<ProducerStatus>),
    /// When it was asked, nobody led in a newer epoch.
    Leads,
    Closed,
    Refused(Refusal),
}

/// Why not. `net` maps each to Kafka's error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `NOT_LEADER_OR_FOLLOWER`.
    NotLeader,
    /// `OUT_OF_ORDER_SEQUENCE_NUMBER`: a batch before this one is missing.
    OutOfOrderSequence { producer: ProducerId, expected: i32, found: i32 },
    /// `INVALID_PRODUCER_EPOCH`: a newer incarnation has written.
    StaleProducerEpoch { producer: ProducerId, current: ProducerEpoch },
    /// `INVALID_TXN_STATE`, or `TRANSACTION_ABORTABLE` where the client knows it: the producer has
    /// no open transaction here and nobody has verified that it may begin one; or the batch is not
    /// of the transaction that is open.
    InvalidTransactionState { producer: ProducerId },
    /// `TRANSACTION_COORDINATOR_FENCED`: a newer leadership of the coordinator has spoken.
    CoordinatorFenced { producer: ProducerId, current: CoordinatorEpoch },
    /// `OFFSET_OUT_OF_RANGE`.
    OffsetOutOfRange { start: Offset, high_watermark: Offset },
    /// `REQUEST_TIMED_OUT`: appended or deleted, but not on every in-sync replica in time.
    TimedOut,
    /// `NOT_ENOUGH_REPLICAS`.
    NotEnoughReplicas,
    /// `NOT_ENOUGH_REPLICAS_AFTER_APPEND`: committed, but by fewer copies than were asked for.
    NotEnoughReplicasAfterAppend,
    /// `OFFSET_NOT_AVAILABLE`: a new leader does not know yet what is committed. KIP-207.
    NotYetKnown,
    /// `THROTTLING_QUOTA_EXCEEDED`: a table is at its limit. Nothing was written.
    Busy,
    /// `POLICY_VIOLATION`: records of a topic that is only compacted cannot be deleted by offset.
    NotDeletable,
    /// `KAFKA_STORAGE_ERROR`: a write failed.
    Storage,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HaltReason {
    WriteFailed {
        write: WriteId,
    },
    /// The metadata log holds what this build cannot read: it would miss a decision.
    MetadataUnreadable {
        reason: String,
    },
}
