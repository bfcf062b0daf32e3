//! What the controller is told, and what it asks for: the closed lists of its inputs, effects and
//! outcomes.

use std::collections::BTreeMap;

use crate::batch::Batch;
use crate::id::{LeaderEpoch, NodeId, ProducerId, RequestId, TopicId};
use crate::metadata::{Address, Record};

/// Bounds and defaults of the controller; see `Limits::check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub topics_max: usize,
    /// Partitions of all topics together.
    pub partitions_max: usize,
    /// Partitions of one topic; its creation is one record in one batch.
    pub topic_partitions_max: usize,
    /// Bytes of one configuration's value.
    pub config_bytes_max: usize,
    /// Requests that wait for the log.
    pub waiting_max: usize,
    /// Bytes of records that go into one append.
    pub append_bytes_max: usize,
    /// `num.partitions`: where a request leaves the number to the cluster.
    pub partitions_default: i32,
    /// `default.replication.factor`: replicas where a request leaves the number to the cluster.
    /// `None`: as many as there are nodes, at most 3.
    pub replication_default: Option<i16>,
    /// Producer ids handed to a node at a time.
    pub producer_ids_block: i64,
}

impl Limits {
    /// Panics unless a controller can keep to these.
    pub fn check(&self) {
        assert!(self.producer_ids_block > 0 && self.partitions_default > 0, "{self:?}");
        assert!(self.replication_default.is_none_or(|replicas| replicas > 0), "{self:?}");
        assert!(self.waiting_max > 0 && self.topic_partitions_max > 0, "{self:?}");
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            topics_max: 100_000,
            partitions_max: 200_000,
            topic_partitions_max: 10_000,
            config_bytes_max: 16 << 10,
            waiting_max: 10_000,
            append_bytes_max: 1 << 20,
            partitions_default: 1,
            replication_default: None,
            producer_ids_block: 1000,
        }
    }
}

/// Names one append. Rises in the life of a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppendId(pub u64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// This node leads the metadata log from now on. `Replay` is asked for; until `ReplayEnded`,
    /// requests are refused with `Loading`.
    Elected {
        leader_epoch: LeaderEpoch,
    },
    /// It leads no more: what is known is forgotten, who waits is refused.
    Resigned,
    /// The next batch of the metadata log, in order.
    Replayed {
        batch: Batch,
    },
    ReplayEnded,
    /// What this append wrote is committed.
    Appended {
        append: AppendId,
    },
    /// What this append would have written is not, and never will be.
    AppendRefused {
        append: AppendId,
    },
    /// A node says that it is there, before it serves anything.
    RegisterNode(RegisterNode),
    CreateTopics {
        request: RequestId,
        topics: Vec<NewTopic>,
        /// Only say whether it would work.
        validate_only: bool,
    },
    DeleteTopics {
        request: RequestId,
        topics: Vec<TopicName>,
    },
    CreatePartitions {
        request: RequestId,
        topics: Vec<MorePartitions>,
        validate_only: bool,
    },
    AlterConfigs {
        request: RequestId,
        resources: Vec<AlterConfig>,
        validate_only: bool,
    },
    /// The next block of producer ids for `node`.
    AllocateProducerIds {
        request: RequestId,
        node: NodeId,
    },
    /// Nobody waits for `request` any more. What it asked for may happen all the same.
    Cancelled {
        request: RequestId,
    },
    Tick,
}

impl Input {
    /// Who waits for an answer to this input.
    pub fn request(&self) -> Option<RequestId> {
        match self {
            Self::RegisterNode(register) => Some(register.request),
            Self::CreateTopics { request, .. }
            | Self::DeleteTopics { request, .. }
            | Self::CreatePartitions { request, .. }
            | Self::AlterConfigs { request, .. }
            | Self::AllocateProducerIds { request, .. } => Some(*request),
            Self::Elected { .. }
            | Self::Resigned
            | Self::Replayed { .. }
            | Self::ReplayEnded
            | Self::Appended { .. }
            | Self::AppendRefused { .. }
            | Self::Cancelled { .. }
            | Self::Tick => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterNode {
    pub request: RequestId,
    pub node: NodeId,
    /// Drawn at each start of the node.
    pub incarnation: u64,
    /// What the data directory says; names the cluster if it has no name yet.
    pub cluster: String,
    pub address: Address,
    pub rack: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewTopic {
    pub name: String,
    /// `None` (Kafka's -1) for the default.
    pub partitions: Option<i32>,
    /// `None` (Kafka's -1) for the default.
    pub replication: Option<i16>,
    /// Replicas by partition, the leader first. If not empty, the two numbers must be `None`.
    pub assignments: BTreeMap<i32, Vec<NodeId>>,
    /// A value of `None` is refused, as Kafka does.
    pub configs: Vec<(String, Option<String>)>,
}

/// Kafka names topics both ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicName {
    Name(String),
    Id(TopicId),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MorePartitions {
    pub topic: String,
    /// How many there shall be in all.
    pub count: i32,
    /// Replicas of each new partition; empty leaves it to the cluster.
    pub assignments: Vec<Vec<NodeId>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterConfig {
    pub resource: Resource,
    pub change: ConfigChange,
}

/// What clients can configure.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    Topic(String),
    /// `None`: all nodes.
    Node(Option<NodeId>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigChange {
    /// AlterConfigs: these and nothing else.
    Replace(Vec<(String, Option<String>)>),
    /// IncrementalAlterConfigs. KIP-339.
    Edit(Vec<(String, ConfigOp)>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigOp {
    Set(Option<String>),
    Delete,
    /// To a list.
    Append(Option<String>),
    /// From a list.
    Subtract(Option<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Read the metadata log from its start and feed it as `Replayed`, then `ReplayEnded`.
    Replay,
    /// Produce this batch to the metadata log with acks=all; answer with `Appended` or
    /// `AppendRefused`. One at a time.
    Append { append: AppendId, batch: Batch },
    /// These records are true from now on. After a `Replay` they begin with the first of the log.
    Committed(Vec<Record>),
    /// The one answer to a request.
    Reply { request: RequestId, outcome: Outcome },
    /// This build cannot read the log: the node must not go on.
    Halt { reason: String },
}

/// Answers stand in the order of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    NodeRegistered,
    TopicsCreated(Vec<(String, Result<CreatedTopic, Problem>)>),
    TopicsDeleted(Vec<(TopicName, Result<DeletedTopic, Problem>)>),
    PartitionsCreated(Vec<(String, Result<(), Problem>)>),
    ConfigsAltered(Vec<(Resource, Result<(), Problem>)>),
    /// Ids from `first` on, up to, not including, `end`: the caller's alone, for all time.
    ProducerIds {
        first: ProducerId,
        end: ProducerId,
    },
    Refused(Problem),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedTopic {
    /// `TopicId::NONE` where the request only asked whether it would work.
    pub id: TopicId,
    pub partitions: i32,
    pub replication: i16,
    /// What was configured.
    pub configs: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedTopic {
    pub id: TopicId,
    pub name: String,
}

/// Why not, with a sentence for the human. `net` maps the kind to Kafka's error code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub kind: ProblemKind,
    pub message: String,
}

impl Problem {
    pub(crate) fn new(kind: ProblemKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    /// `COORDINATOR_LOAD_IN_PROGRESS`-like; to admin clients `NOT_CONTROLLER`: try again.
    Loading,
    /// `NOT_CONTROLLER`: the log did not take the records; try again.
    NotAvailable,
    /// `THROTTLING_QUOTA_EXCEEDED`: a table is at its limit.
    Busy,
    /// `INVALID_TOPIC_EXCEPTION`.
    InvalidTopic,
    /// `TOPIC_ALREADY_EXISTS`.
    TopicExists,
    /// `UNKNOWN_TOPIC_OR_PARTITION`.
    UnknownTopic,
    /// `UNKNOWN_TOPIC_ID`.
    UnknownTopicId,
    /// `INVALID_PARTITIONS`.
    InvalidPartitions,
    /// `INVALID_REPLICATION_FACTOR`.
    InvalidReplication,
    /// `INVALID_REPLICA_ASSIGNMENT`.
    InvalidAssignment,
    /// `INVALID_CONFIG`.
    InvalidConfig,
    /// `INVALID_REQUEST`.
    InvalidRequest,
    /// `POLICY_VIOLATION`: a limit of this cluster.
    Policy,
    /// `INCONSISTENT_CLUSTER_ID`.
    OtherCluster,
}
