//! What the controller is told, and what it asks for: the closed lists of its inputs, effects and
//! outcomes.

mod limits;
mod nodes;
mod partitions;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::limits::Limits;
pub use self::nodes::{
    FeatureUpdate, Heartbeat, NodeStatus, RegisterNode, Retreat, SetDuty, Standing,
};
pub use self::partitions::{
    ChangeInSync, ElectLeaders, Election, InSyncChange, InSyncRefusal, PartitionName, Reassign,
    Reassignment,
};
use crate::id::{NodeEpoch, NodeId, PartitionEpoch, PartitionId, ProducerId};
use crate::id::{RequestId, TopicId};
use crate::metadata::Record;
use crate::own_log;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// A node says that it is there, before it serves anything.
    RegisterNode(RegisterNode),
    /// A node is still there.
    Heartbeat(Heartbeat),
    /// A leader wants other replicas in sync. Kafka's AlterPartition.
    ChangeInSync(ChangeInSync),
    /// AlterPartitionReassignments. KIP-455.
    Reassign {
        request: RequestId,
        /// Whether a partition's number of replicas may change.
        replication_changes: bool,
        partitions: Vec<Reassign>,
    },
    /// ListPartitionReassignments; `None` for all.
    ListReassignments {
        request: RequestId,
        partitions: Option<Vec<PartitionName>>,
    },
    ElectLeaders(ElectLeaders),
    /// Maintenance, decommission, and back.
    SetDuty(SetDuty),
    /// How the nodes stand, and what is left to do on them.
    DescribeNodes {
        request: RequestId,
    },
    /// The node is gone for good and keeps nothing. KIP-631's UnregisterBroker.
    UnregisterNode {
        request: RequestId,
        node: NodeId,
    },
    UpdateFeatures {
        request: RequestId,
        updates: Vec<FeatureUpdate>,
        validate_only: bool,
    },
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
    /// The metadata log, which holds its truth. Never forwarded, so it stands behind all that is.
    #[serde(skip)]
    Log(own_log::Input),
    /// Nobody listens any more where this life of the node did, so its process is gone: there is
    /// no need to wait until the session is over. If that was wrong, the next heartbeat says so.
    /// Never forwarded.
    #[serde(skip)]
    Gone {
        node: NodeId,
        node_epoch: NodeEpoch,
    },
}

impl Input {
    /// Who waits for an answer to this input.
    pub fn request(&self) -> Option<RequestId> {
        match self {
            Self::RegisterNode(register) => Some(register.request),
            Self::Heartbeat(heartbeat) => Some(heartbeat.request),
            Self::ChangeInSync(change) => Some(change.request),
            Self::ElectLeaders(elect) => Some(elect.request),
            Self::SetDuty(set) => Some(set.request),
            Self::Reassign { request, .. }
            | Self::ListReassignments { request, .. }
            | Self::DescribeNodes { request }
            | Self::UnregisterNode { request, .. }
            | Self::UpdateFeatures { request, .. }
            | Self::CreateTopics { request, .. }
            | Self::DeleteTopics { request, .. }
            | Self::CreatePartitions { request, .. }
            | Self::AlterConfigs { request, .. }
            | Self::AllocateProducerIds { request, .. } => Some(*request),
            Self::Log(_) | Self::Gone { .. } | Self::Cancelled { .. } | Self::Tick => None,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TopicName {
    Name(String),
    Id(TopicId),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MorePartitions {
    pub topic: String,
    /// How many there shall be in all.
    pub count: i32,
    /// Replicas of each new partition; empty leaves it to the cluster.
    pub assignments: Vec<Vec<NodeId>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlterConfig {
    pub resource: Resource,
    pub change: ConfigChange,
}

/// What clients can configure.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Resource {
    Topic(String),
    /// `None`: all nodes.
    Node(Option<NodeId>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConfigChange {
    /// AlterConfigs: these and nothing else.
    Replace(Vec<(String, Option<String>)>),
    /// IncrementalAlterConfigs. KIP-339.
    Edit(Vec<(String, ConfigOp)>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// To the metadata log; one append at a time.
    Log(own_log::Effect),
    /// These records are true from now on. After a `Replay` they begin with the first of the log.
    Committed(Vec<Record>),
    /// The one answer to a request.
    Reply { request: RequestId, outcome: Outcome },
    /// This build cannot read the log: the node must not go on.
    Halt { reason: String },
}

/// Answers stand in the order of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    NodeRegistered {
        node_epoch: NodeEpoch,
    },
    Heartbeat(Standing),
    /// The partition's epoch from now on, or why not.
    InSyncChanged(Vec<(PartitionId, Result<PartitionEpoch, InSyncRefusal>)>),
    Reassigned(Vec<(PartitionName, Result<(), Problem>)>),
    Reassignments(Vec<Reassignment>),
    LeadersElected(Vec<(PartitionName, Result<(), Problem>)>),
    DutySet,
    Nodes(Vec<NodeStatus>),
    NodeUnregistered,
    FeaturesUpdated(Vec<(String, Result<(), Problem>)>),
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedTopic {
    /// `TopicId::NONE` where the request only asked whether it would work.
    pub id: TopicId,
    pub partitions: i32,
    pub replication: i16,
    /// What was configured.
    pub configs: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedTopic {
    pub id: TopicId,
    pub name: String,
}

/// Why not, with a sentence for the human. `net` maps the kind to Kafka's error code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    pub kind: ProblemKind,
    pub message: String,
}

impl Problem {
    pub(crate) fn new(kind: ProblemKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
    /// `DUPLICATE_BROKER_REGISTRATION`.
    DuplicateNode,
    /// `STALE_BROKER_EPOCH`: that life of the node is over.
    StaleNodeEpoch,
    /// `BROKER_ID_NOT_REGISTERED`.
    UnknownNode,
    /// `UNSUPPORTED_VERSION`: the node's build does not know what the cluster uses.
    UnsupportedFeature,
    /// `NO_REASSIGNMENT_IN_PROGRESS`.
    NoReassignment,
    /// `ELECTION_NOT_NEEDED`.
    ElectionNotNeeded,
    /// `PREFERRED_LEADER_NOT_AVAILABLE`.
    PreferredLeaderNotAvailable,
    /// `ELIGIBLE_LEADERS_NOT_AVAILABLE`.
    EligibleLeadersNotAvailable,
    /// `FEATURE_UPDATE_FAILED`.
    FeatureUpdateFailed,
}
