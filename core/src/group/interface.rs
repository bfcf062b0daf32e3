//! What the group coordinator of one offsets partition is told, and what it asks for: the closed
//! lists of its inputs, effects and outcomes.

use std::time::Duration;

use bytes::Bytes;

use crate::id::{LeaderEpoch, Offset, RequestId};
use crate::own_log;
use crate::partition::retention::WallClock;

/// Bounds and habits of the coordinator, in Kafka's names. Checked by the node at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// `group.min.session.timeout.ms`.
    pub session_timeout_min: Duration,
    /// `group.max.session.timeout.ms`.
    pub session_timeout_max: Duration,
    /// `group.initial.rebalance.delay.ms`: how long the first member of an empty group waits for
    /// others to join.
    pub initial_rebalance_delay: Duration,
    /// `group.max.size`: members of one group.
    pub group_members_max: usize,
    /// Groups of one coordinator, those that only hold offsets included.
    pub groups_max: usize,
    /// Partitions with an offset, of one group.
    pub group_offsets_max: usize,
    /// Partitions with an offset, of all groups of one coordinator.
    pub offsets_max: usize,
    /// Bytes of what one group's members subscribe to, and of what they are assigned.
    pub metadata_bytes_max: usize,
    /// `offset.metadata.max.bytes`: of the words that go with an offset.
    pub offset_metadata_bytes_max: usize,
    /// `offsets.retention.minutes`: how long the offsets of an empty group are kept.
    pub offsets_retention: Duration,
    /// Requests that wait for the log or for other members.
    pub waiting_max: usize,
    /// What is known of the wall clock at the start of the node's life.
    pub wall_clock: WallClock,
}

impl Default for GroupLimits {
    fn default() -> Self {
        Self {
            session_timeout_min: Duration::from_secs(6),
            session_timeout_max: Duration::from_secs(1800),
            initial_rebalance_delay: Duration::from_secs(3),
            group_members_max: 1000,
            groups_max: 10_000,
            group_offsets_max: 100_000,
            offsets_max: 1_000_000,
            metadata_bytes_max: 4 << 20,
            offset_metadata_bytes_max: 4096,
            offsets_retention: Duration::from_secs(7 * 24 * 3600),
            waiting_max: 100_000,
            wall_clock: WallClock::default(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// What becomes of the offsets partition, and of what was appended to it.
    Log(own_log::Input),
    Join(Join),
    Sync(Sync),
    Heartbeat {
        request: RequestId,
        member: MemberClaim,
    },
    Leave {
        request: RequestId,
        group: String,
        members: Vec<Leaving>,
    },
    CommitOffsets(CommitOffsets),
    FetchOffsets(FetchOffsets),
    /// All groups, or those of the given states (`Empty`, `Stable`, ...) only.
    List {
        request: RequestId,
        states: Vec<String>,
    },
    Describe {
        request: RequestId,
        group: String,
    },
    /// Forgets a group without members, and its offsets.
    Delete {
        request: RequestId,
        group: String,
    },
    /// Forgets offsets of topics that no member is subscribed to. KIP-496.
    DeleteOffsets {
        request: RequestId,
        group: String,
        partitions: Vec<TopicPartition>,
    },
    /// Topics of these names are gone: so are their offsets. To be told of every deletion, and
    /// at a start of those in the metadata log, since the last life may not have got so far.
    TopicsDeleted {
        topics: Vec<String>,
    },
    /// Nobody waits for `request` any more.
    Cancelled {
        request: RequestId,
    },
    Tick,
}

impl Input {
    /// Who waits for an answer to this input.
    pub fn request(&self) -> Option<RequestId> {
        match self {
            Self::Join(join) => Some(join.request),
            Self::Sync(sync) => Some(sync.request),
            Self::CommitOffsets(commit) => Some(commit.request),
            Self::FetchOffsets(fetch) => Some(fetch.request),
            Self::Heartbeat { request, .. }
            | Self::Leave { request, .. }
            | Self::List { request, .. }
            | Self::Describe { request, .. }
            | Self::Delete { request, .. }
            | Self::DeleteOffsets { request, .. } => Some(*request),
            Self::Log(_) | Self::TopicsDeleted { .. } | Self::Cancelled { .. } | Self::Tick => None,
        }
    }
}

/// The classic JoinGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    pub request: RequestId,
    pub group: String,
    /// Empty: a member that has no id yet.
    pub member: String,
    /// Static membership, KIP-345.
    pub instance: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub session_timeout: Duration,
    /// In version 0 the session timeout.
    pub rebalance_timeout: Duration,
    pub protocol_type: String,
    /// In the member's order of preference.
    pub protocols: Vec<Protocol>,
    /// The client understands `MemberIdRequired`: version 4 and up, KIP-394.
    pub member_id_required: bool,
    /// The client understands `skip_assignment`: version 9 and up, KIP-814.
    pub skip_assignment: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    pub name: String,
    pub metadata: Bytes,
}

/// The classic SyncGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sync {
    pub request: RequestId,
    pub member: MemberClaim,
    /// Named since version 5; checked where given.
    pub protocol_type: Option<String>,
    pub protocol: Option<String>,
    /// From the leader only: what each member gets.
    pub assignments: Vec<(String, Bytes)>,
}

/// Who a member says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberClaim {
    pub group: String,
    pub member: String,
    pub instance: Option<String>,
    pub generation: i32,
}

/// One member in a LeaveGroup; up to version 2 there is exactly one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// May be empty where the instance is given.
    pub member: String,
    pub instance: Option<String>,
}

/// Topics go by name here, as in Kafka's `__consumer_offsets`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopicPartition {
    pub topic: String,
    pub partition: i32,
}

/// OffsetCommit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitOffsets {
    pub request: RequestId,
    /// A negative generation and an empty member: a consumer without group membership.
    pub member: MemberClaim,
    pub offsets: Vec<(TopicPartition, CommittedOffset)>,
}

/// How far a group has come in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next record to read.
    pub offset: Offset,
    /// -1 for none.
    pub leader_epoch: LeaderEpoch,
    pub metadata: String,
}

/// OffsetFetch, for one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchOffsets {
    pub request: RequestId,
    pub group: String,
    /// `None`: all that the group has.
    pub partitions: Option<Vec<TopicPartition>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The offsets partition is to be read, or to be written.
    Log(own_log::Effect),
    /// The one answer to a request.
    Reply { request: RequestId, outcome: Outcome },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Joined(Joined),
    Synced {
        protocol_type: String,
        protocol: String,
        assignment: Bytes,
    },
    /// The heartbeat was heard; go on.
    Alive,
    Left {
        members: Vec<(Leaving, Option<Refusal>)>,
    },
    /// In the order of the request.
    OffsetsCommitted {
        partitions: Vec<(TopicPartition, Option<Refusal>)>,
    },
    /// In the order of the request; `None` where the group has no offset.
    OffsetsFetched {
        partitions: Vec<(TopicPartition, Option<CommittedOffset>)>,
    },
    Listed {
        groups: Vec<Listed>,
    },
    Described(Described),
    Deleted,
    OffsetsDeleted {
        partitions: Vec<(TopicPartition, Option<Refusal>)>,
    },
    Refused(Refusal),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    pub generation: i32,
    pub protocol_type: String,
    pub protocol: String,
    pub leader: String,
    pub member: String,
    /// The leader must not assign anew: it returned as a static member. KIP-814.
    pub skip_assignment: bool,
    /// For the leader; empty for everybody else.
    pub members: Vec<JoinedMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedMember {
    pub member: String,
    pub instance: Option<String>,
    pub metadata: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub group: String,
    pub protocol_type: String,
    /// Kafka's name of the state.
    pub state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    pub group: String,
    /// Kafka's name of the state; `Dead` where there is no such group.
    pub state: &'static str,
    pub protocol_type: String,
    pub protocol: String,
    pub members: Vec<DescribedMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedMember {
    pub member: String,
    pub instance: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub metadata: Bytes,
    pub assignment: Bytes,
}

/// Why not. `net` maps each to Kafka's error code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `COORDINATOR_LOAD_IN_PROGRESS`: the log is being replayed.
    Loading,
    /// `NOT_COORDINATOR`: this node does not lead the group's offsets partition.
    NotCoordinator,
    /// `COORDINATOR_NOT_AVAILABLE`: the log did not take what had to be written; try again.
    NotAvailable,
    /// `INVALID_GROUP_ID`: empty where it may not be.
    InvalidGroup,
    /// `GROUP_ID_NOT_FOUND`.
    UnknownGroup,
    /// `NON_EMPTY_GROUP`.
    NotEmpty,
    /// `GROUP_SUBSCRIBED_TO_TOPIC`.
    Subscribed,
    /// `UNKNOWN_MEMBER_ID`.
    UnknownMember,
    /// `MEMBER_ID_REQUIRED`: join again with this id.
    MemberIdRequired { member: String },
    /// `FENCED_INSTANCE_ID`: another member has this instance now.
    FencedInstance,
    /// `ILLEGAL_GENERATION`.
    IllegalGeneration,
    /// `REBALANCE_IN_PROGRESS`: join again.
    RebalanceInProgress,
    /// `INCONSISTENT_GROUP_PROTOCOL`.
    InconsistentProtocol,
    /// `INVALID_SESSION_TIMEOUT`.
    InvalidSessionTimeout,
    /// `GROUP_MAX_SIZE_REACHED`: of members, of groups, of what they subscribe to, or of offsets.
    Full,
    /// `OFFSET_METADATA_TOO_LARGE`.
    OffsetMetadataTooLarge,
    /// `INVALID_COMMIT_OFFSET_SIZE`: more than one append may hold.
    CommitTooLarge,
}
