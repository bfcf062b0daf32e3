//! What the group coordinator of one offsets partition is told, and what it asks for: the closed
//! lists of its inputs, effects and outcomes.

use std::time::Duration;

use bytes::Bytes;

pub use super::assignment::Assignment;
use crate::batch::Batch;
use crate::batch::control::Ending;
use crate::id::{
    LeaderEpoch, Offset, ProducerEpoch, ProducerId, RequestId, TopicId, VerificationGuard,
};
use crate::own_log::{self, AppendId};
use crate::partition::retention::WallClock;
use crate::time::Timestamp;

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
    /// `offsets.retention.check.interval.ms`: how often offsets are looked through for those whose
    /// time has passed.
    pub offsets_check_interval: Duration,
    /// Requests that wait for the log or for other members.
    pub waiting_max: usize,
    /// `group.consumer.session.timeout.ms`: of the members of consumer groups, KIP-848.
    pub consumer_session_timeout: Duration,
    /// `group.consumer.heartbeat.interval.ms`: of members that have all they are to have.
    pub consumer_heartbeat_interval: Duration,
    /// Of members that do not: how soon a partition that one gave up is taken by the next.
    pub consumer_unsettled_interval: Duration,
    /// `group.consumer.assignment.interval.ms`: so often at most are targets computed; all that
    /// changes meanwhile costs one rebalance.
    pub consumer_assignment_interval: Duration,
    /// `group.consumer.migration.policy`.
    pub migration: Migration,
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
            offsets_check_interval: Duration::from_secs(600),
            waiting_max: 100_000,
            consumer_session_timeout: Duration::from_secs(45),
            consumer_heartbeat_interval: Duration::from_secs(5),
            consumer_unsettled_interval: Duration::from_millis(500),
            consumer_assignment_interval: Duration::from_secs(1),
            migration: Migration::Bidirectional,
            wall_clock: WallClock::default(),
        }
    }
}

/// Whether a group with members may change its protocol under them.
/// `group.consumer.migration.policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    Disabled,
    /// From classic to consumer.
    Upgrade,
    /// From consumer to classic, once the last consumer is gone.
    Downgrade,
    Bidirectional,
}

impl Migration {
    pub const fn upgrades(self) -> bool {
        matches!(self, Self::Upgrade | Self::Bidirectional)
    }

    pub const fn downgrades(self) -> bool {
        matches!(self, Self::Downgrade | Self::Bidirectional)
    }
}

/// What there is of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicInfo {
    pub id: TopicId,
    pub partitions: i32,
}

/// What has changed among the topics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicsNews {
    /// These are all that there are.
    pub is_all: bool,
    /// `None` for a topic that is gone.
    pub topics: Vec<(String, Option<TopicInfo>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// What becomes of the offsets partition, and of what was appended to it.
    Log(own_log::Input),
    Join(Join),
    /// KIP-848: the one request by which a member joins, lives, reconciles and leaves.
    ConsumerHeartbeat(ConsumerHeartbeat),
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
    /// TxnOffsetCommit: offsets that count once the producer's transaction is committed. KIP-98.
    CommitTransactional(CommitTransactional),
    /// A marker of the producer's transaction is committed in the offsets partition.
    TransactionEnded {
        producer: ProducerId,
        ending: Ending,
    },
    FetchOffsets(FetchOffsets),
    /// All groups, or those of the given states (`Empty`, `Stable`, ...) and types (`classic`,
    /// `consumer`) only; their case does not matter.
    List {
        request: RequestId,
        states: Vec<String>,
        types: Vec<String>,
    },
    Describe {
        request: RequestId,
        group: String,
    },
    /// As a consumer group.
    DescribeConsumer {
        request: RequestId,
        group: String,
    },
    /// All groups, or the one named, with how far they have come and when they said so: for who
    /// measures them. Nothing for a group that is not there.
    Survey {
        request: RequestId,
        group: Option<String>,
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
    /// Told of all that there are before the first consumer group's heartbeat, and of every
    /// change from then on.
    Topics(TopicsNews),
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
            Self::ConsumerHeartbeat(heartbeat) => Some(heartbeat.request),
            Self::Sync(sync) => Some(sync.request),
            Self::CommitOffsets(commit) => Some(commit.request),
            Self::CommitTransactional(it) => Some(it.commit.request),
            Self::FetchOffsets(fetch) => Some(fetch.request),
            Self::Heartbeat { request, .. }
            | Self::Leave { request, .. }
            | Self::List { request, .. }
            | Self::Describe { request, .. }
            | Self::DescribeConsumer { request, .. }
            | Self::Survey { request, .. }
            | Self::Delete { request, .. }
            | Self::DeleteOffsets { request, .. } => Some(*request),
            Self::Log(_)
            | Self::TransactionEnded { .. }
            | Self::TopicsDeleted { .. }
            | Self::Topics(_)
            | Self::Cancelled { .. }
            | Self::Tick => None,
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

/// ConsumerGroupHeartbeat. What is `None` has not changed since the member last said it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerHeartbeat {
    pub request: RequestId,
    pub group: String,
    /// Empty: a member of version 0 that has no id yet.
    pub member: String,
    /// 0 joins, -1 leaves, -2 leaves for a while (static members); else the member's epoch.
    pub epoch: i32,
    pub instance: Option<String>,
    pub rack: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub rebalance_timeout: Option<Duration>,
    pub topics: Option<Vec<String>>,
    /// Empty for none any more.
    pub regex: Option<String>,
    pub assignor: Option<String>,
    /// What the member has.
    pub owned: Option<Assignment>,
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
    /// Whether the request can speak of a member's epoch (OffsetCommit from version 9 on, KIP-848);
    /// without, no member of a consumer group commits by it. A transaction's always can.
    pub knows_epochs: bool,
    pub offsets: Vec<(TopicPartition, CommittedOffset)>,
}

/// TxnOffsetCommit. Its member is checked like that of an OffsetCommit where it says who it is; a
/// client of version 2 or less does not, and is fenced by its producer epoch alone. KIP-447.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitTransactional {
    pub commit: CommitOffsets,
    pub producer: ProducerId,
    pub epoch: ProducerEpoch,
    /// What the offsets partition gave for it (`partition::interface::Verify`), once the
    /// coordinator has agreed.
    pub guard: Option<VerificationGuard>,
}

/// How far a group has come in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next record to read.
    pub offset: Offset,
    /// -1 for none.
    pub leader_epoch: LeaderEpoch,
    pub metadata: String,
    /// The topic that the name meant when this was committed; `TopicId::NONE` where that is not
    /// known. Another topic of the name begins without an offset. KAFKA-19141.
    pub topic: TopicId,
}

/// OffsetFetch, for one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchOffsets {
    pub request: RequestId,
    pub group: String,
    /// Who asks, where it says so: its id and epoch are checked.
    pub member: Option<(String, i32)>,
    /// `None`: all that the group has.
    pub partitions: Option<Vec<TopicPartition>>,
    /// A partition with an offset whose transaction is open is refused. KIP-447.
    pub require_stable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The offsets partition is to be read, or to be written.
    Log(own_log::Effect),
    /// As an `Append` to the log, in a transaction, with what the log's partition wants for that.
    AppendTransactional { append: AppendId, batch: Batch, guard: Option<VerificationGuard> },
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
    ConsumerAlive(ConsumerAlive),
    Left {
        members: Vec<(Leaving, Option<Refusal>)>,
    },
    /// In the order of the request.
    OffsetsCommitted {
        partitions: Vec<(TopicPartition, Option<Refusal>)>,
    },
    /// In the order of the request; `None` where the group has no offset.
    OffsetsFetched {
        partitions: Vec<(TopicPartition, Result<Option<CommittedOffset>, Refusal>)>,
    },
    Listed {
        groups: Vec<Listed>,
    },
    Described(Described),
    ConsumerDescribed(ConsumerDescribed),
    Surveyed {
        groups: Vec<Surveyed>,
    },
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

/// The answer to a member's ConsumerGroupHeartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerAlive {
    pub member: String,
    pub epoch: i32,
    /// When the member is to be heard next.
    pub interval: Duration,
    /// What the member is to have; `None` where it has said that it has just that.
    pub assignment: Option<Assignment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerDescribed {
    pub group: String,
    /// Kafka's name of the state.
    pub state: &'static str,
    pub epoch: i32,
    pub target_epoch: i32,
    pub assignor: &'static str,
    pub members: Vec<ConsumerMemberDescribed>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerMemberDescribed {
    pub id: String,
    pub epoch: i32,
    pub member: super::record::ConsumerMember,
    pub assigned: NamedAssignment,
    pub target: NamedAssignment,
}

/// Partitions by topic, with the topic's name.
pub type NamedAssignment = Vec<(TopicId, String, Vec<i32>)>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub group: String,
    pub protocol_type: String,
    /// `classic` or `consumer`.
    pub kind: &'static str,
    /// Kafka's name of the state.
    pub state: &'static str,
}

/// A group as somebody sees it who measures groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surveyed {
    pub group: String,
    /// `classic` or `consumer`.
    pub kind: &'static str,
    /// Kafka's name of the state.
    pub state: &'static str,
    pub members: usize,
    pub offsets: Vec<SurveyedOffset>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurveyedOffset {
    pub partition: TopicPartition,
    /// As `CommittedOffset::topic`.
    pub topic: TopicId,
    /// The next record to be consumed.
    pub offset: Offset,
    /// When that was committed, by the wall clock of whoever coordinated the group then.
    pub at: Timestamp,
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
    /// `UNSTABLE_OFFSET_COMMIT`: a transaction that writes this offset is open.
    Unstable,
    /// `OFFSET_METADATA_TOO_LARGE`.
    OffsetMetadataTooLarge,
    /// `INVALID_COMMIT_OFFSET_SIZE`: more than one append may hold.
    CommitTooLarge,
    /// `INVALID_REQUEST`: a heartbeat that lacks what its epoch demands; and what that is.
    InvalidHeartbeat { why: &'static str },
    /// `FENCED_MEMBER_EPOCH`: give everything up and join again.
    FencedMemberEpoch,
    /// `STALE_MEMBER_EPOCH`: try again with the epoch of the next heartbeat.
    StaleMemberEpoch,
    /// `UNRELEASED_INSTANCE_ID`: a member that is still there has this instance.
    UnreleasedInstance,
    /// `UNSUPPORTED_ASSIGNOR`.
    UnsupportedAssignor,
    /// `INVALID_REGULAR_EXPRESSION`.
    InvalidRegex,
    /// `UNSUPPORTED_VERSION`: the member's protocol is younger than the request.
    TooOld,
}

impl Refusal {
    /// Whether a member that is told so gives up what it has: final at once, and true only if the
    /// log here lacks nothing that a successor has written.
    pub const fn puts_out(&self) -> bool {
        matches!(
            self,
            Self::UnknownMember
                | Self::FencedInstance
                | Self::IllegalGeneration
                | Self::FencedMemberEpoch
                | Self::UnreleasedInstance
        )
    }
}
