//! What a shard is told, and what it asks for: the inputs, effects and outcomes of the machines in
//! it, each with the name of its machine.

use crate::batch::Batch;
use crate::group::interface::GroupLimits;
use crate::id::{NodeEpoch, NodeId, Offset, PartitionId, RequestId, WriteId};
use crate::metadata::Record;
use crate::partition::Recovered;
use crate::partition::interface::{
    Assignment, Clean, Flush, HaltReason, InSyncChange, LogOp, Message, PartitionConfig, ReadView,
};
use crate::quorum::interface::ClusterId;
use crate::segment::cleaned::Cleaned;
use crate::transaction::interface::TransactionLimits;
use crate::{controller, group, partition, quorum, transaction};

/// Request ids from here on are the shard's own; those of drivers stay below.
pub const INTERNAL_REQUESTS: u64 = 1 << 63;

/// Bounds of the machines in a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub partition: partition::interface::Limits,
    pub group: GroupLimits,
    pub transaction: TransactionLimits,
    pub controller: controller::interface::Limits,
}

/// What else lives where a partition lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Records of users, nothing else.
    #[default]
    Data,
    /// A partition of `__consumer_offsets`: the groups whose truth it holds are here, named by the
    /// partition's index. `Effect::Replay` follows.
    Offsets,
    /// A partition of `__transaction_state`: likewise with the transactional ids whose truth it
    /// holds.
    Transactions,
}

#[derive(Clone, Debug)]
pub enum Input {
    /// Storage opened the log: the partition is served from here on.
    Open(Box<Open>),
    /// The topic is deleted: who waits for its partition is refused, then the machine is gone.
    /// Writes of it that complete later are ignored.
    Drop {
        partition: PartitionId,
    },
    /// Completions of writes come this way too. Refused with `NotLeader` where the partition is
    /// not open.
    Partition {
        partition: PartitionId,
        input: partition::interface::Input,
    },
    /// Batches of a log whose `Replay` was asked for, in order.
    Replayed {
        partition: PartitionId,
        batch: Batch,
    },
    /// All of them, up to the log's end at the time of `Replay`, were delivered.
    ReplayEnded {
        partition: PartitionId,
    },
    /// `coordinator` is the index of the group's partition of `__consumer_offsets`.
    Group {
        coordinator: i32,
        input: group::interface::Input,
    },
    /// `coordinator` is the index of the transactional id's partition of `__transaction_state`.
    Transaction {
        coordinator: i32,
        input: transaction::interface::Input,
    },
    /// What has changed among the topics of the cluster; first of all, all that there are. The
    /// coordinators here that have consumer groups are told.
    Topics(group::interface::TopicsNews),
    /// This node takes its seat in the quorum that keeps the metadata: once, in the shard whose
    /// `PartitionId::METADATA` it is. Its log then takes `Written`, `WriteFailed` and `Close`.
    OpenSeat(Box<OpenSeat>),
    /// What other nodes say, and what is asked of the quorum: `Received`, `Read`, `Change`,
    /// `Transfer`, `Resign` and `Cancelled`. Refused with `NotLeader` where there is no seat.
    Quorum(quorum::interface::Input),
    /// Refused with `NotAvailable` where this node does not lead the quorum.
    Controller(controller::interface::Input),
    /// The node is registered: every partition here, and each opened later, is told.
    Registered {
        node_epoch: NodeEpoch,
    },
    /// There is a new connection to `peer`, or from it: every partition here that it replicates
    /// is told, since what was sent before may be lost.
    Connected {
        peer: NodeId,
    },
    /// The controller counts `peer` as there again: every partition here that it replicates is
    /// told.
    Unfenced {
        peer: NodeId,
    },
    Tick,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    pub partition: PartitionId,
    pub role: Role,
    pub recovered: Recovered,
    pub config: PartitionConfig,
    pub assignment: Assignment,
}

/// A seat in the quorum, as it was left when the node last stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSeat {
    pub setup: quorum::interface::Setup,
    /// The metadata log as storage recovered it.
    pub log: Recovered,
    /// What its batches add up to: `quorum_log::Fold`.
    pub recovered: quorum::interface::Recovered,
    pub limits: quorum::interface::Limits,
    /// A segment of the metadata log is closed before it grows larger.
    pub segment_bytes_max: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Do this to the partition's log; tell it `Written` or `WriteFailed`.
    Write { partition: PartitionId, write: WriteId, op: LogOp, flush: Flush },
    /// The one answer to a request.
    Reply { request: RequestId, outcome: Outcome },
    /// What readers of the partition may see has changed.
    Publish { partition: PartitionId, view: ReadView },
    /// These records of the metadata are true from now on, in this order: a majority has them on
    /// its disks, and this node on its own. They follow those of the last `Committed` or
    /// `Restored`; the first ones of a shard's life are the first of all.
    Committed(Vec<Record>),
    /// The metadata is what these records add up to, whatever was said before.
    Restored(Vec<Record>),
    /// To the seat of node `to`. May be lost.
    SendQuorum { to: NodeId, message: quorum::interface::Message },
    /// What this node is in the quorum, whenever that changes; and whose quorum it is, once
    /// there is a cluster. What it was `Committed` before it leads comes before. With a leader,
    /// the cluster is this node's for good: before it holds anything of the log, none is named.
    QuorumRole { role: quorum::interface::Role, cluster: Option<ClusterId> },
    /// Read the log from its start to its end and feed it as `Replayed`, then `ReplayEnded`.
    Replay { partition: PartitionId },
    /// This node must not go on: its disk lies.
    Halt { partition: PartitionId, reason: HaltReason },
    /// To the partition's replica on node `to`. May be lost.
    Send { partition: PartitionId, to: NodeId, message: Message },
    /// Read the partition's log for the follower `to`, as
    /// `partition::interface::Effect::ReadLog` says; answered by its `LogRead`.
    ReadLog { partition: PartitionId, to: NodeId, from: Offset, up_to: Offset, bytes_max: usize },
    /// Compact the partition's log, as `partition::interface::Effect::Clean` says; answered by its
    /// `Cleaned`.
    Clean { partition: PartitionId, clean: Clean },
    /// What a pass over the partition's log has made is not wanted.
    Discard { partition: PartitionId, cleaned: Box<Cleaned> },
    /// Have the leader of the marker's partition write it, here or elsewhere; what becomes of it is
    /// `transaction::interface::Input::MarkerAnswered` for this coordinator. May be lost.
    SendMarker { coordinator: i32, marker: transaction::interface::Marker },
    /// Ask the controller to change the partition's in-sync set.
    Propose { partition: PartitionId, change: InSyncChange },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Partition(partition::interface::Outcome),
    Group(group::interface::Outcome),
    Transaction(transaction::interface::Outcome),
    Controller(controller::interface::Outcome),
    Quorum(quorum::interface::Outcome),
}
