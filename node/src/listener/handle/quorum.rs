//! DescribeQuorum, AddRaftVoter, RemoveRaftVoter: who votes on the metadata. Whoever leads is
//! asked, and where nobody does, this node's own seat says what it knows.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::id::NodeId;
use quorate_core::metadata::topic::METADATA_TOPIC;
use quorate_core::quorum::interface::{
    Change, DirectoryId, Index, Input, Member, Outcome, Question, Refusal, Status,
};
use quorate_core::shard::interface::{Input as ShardInput, Outcome as ShardOutcome};
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::describe_quorum::{
    Listener, Node as QuorumNode, PartitionData, ReplicaState, TopicData,
};
use quorate_net::kafka::messages::{
    AddRaftVoterRequest, AddRaftVoterResponse, DescribeQuorumRequest, DescribeQuorumResponse,
    RemoveRaftVoterRequest, RemoveRaftVoterResponse,
};
use quorate_net::wire::Text;

use crate::driver::ask::{Stopped, Withdrawal};
use crate::node::Node;

/// What Kafka calls the listener of its controllers; ours is that of the nodes.
const LISTENER: &str = "CONTROLLER";
/// How long to look for a leader before this node says what it knows itself.
const LEADER_PATIENCE: Duration = Duration::from_secs(1);
/// RemoveRaftVoter does not say how long it waits.
const REMOVAL_PATIENCE_MS: i32 = 10_000;

async fn ask(node: &Node, input: impl FnOnce(quorate_core::id::RequestId) -> Input) -> Asked {
    let asked = node.shards[0].ask(Withdrawal::Never, |request| ShardInput::Quorum(input(request)));
    match asked.await?.await? {
        ShardOutcome::Quorum(outcome) => Ok(outcome),
        other => unreachable!("the quorum answers as itself, not with {other:?}"),
    }
}

type Asked = Result<Outcome, Stopped>;

pub(crate) async fn describe(
    node: &Arc<Node>,
    request: DescribeQuorumRequest,
) -> Result<DescribeQuorumResponse, Stopped> {
    let until = node.clock.now().monotonic + LEADER_PATIENCE;
    let mut found = node.controller.ask_quorum(until, Question::Describe).await?;
    if let Outcome::Refused(Refusal::NotLeader { .. }) = found {
        found = ask(node, |request| Input::Describe { request }).await?;
    }
    let status = match found {
        Outcome::Described(status) => status,
        Outcome::Refused(refusal) => {
            return Ok(DescribeQuorumResponse {
                error_code: Code::from(&refusal).code(),
                error_message: Some(sentence(&refusal).into()),
                ..DescribeQuorumResponse::default()
            });
        }
        other => unreachable!("the quorum is described, not {other:?}"),
    };
    let now = node.clock.now().wall.millis();
    let topics = request.topics.into_iter().map(|topic| {
        let is_ours = topic.topic_name == METADATA_TOPIC;
        let partitions = topic.partitions.into_iter().map(|asked| match asked.partition_index {
            0 if is_ours => described(&status, now),
            partition_index => PartitionData {
                partition_index,
                error_code: Code::UnknownTopicOrPartition.code(),
                leader_id: -1,
                leader_epoch: -1,
                high_watermark: -1,
                ..PartitionData::default()
            },
        });
        TopicData { partitions: partitions.collect(), topic_name: topic.topic_name }
    });
    let state = node.catalog.read();
    let nodes = state.image.nodes().map(|found| QuorumNode {
        node_id: found.id.0,
        listeners: vec![Listener {
            name: LISTENER.into(),
            host: found.peer.host.as_str().into(),
            port: found.peer.port,
        }],
    });
    Ok(DescribeQuorumResponse {
        topics: topics.collect(),
        nodes: nodes.collect(),
        ..DescribeQuorumResponse::default()
    })
}

/// As offsets, entries count from 0.
fn offset(Index(index): Index) -> i64 {
    i64::try_from(index).unwrap_or(i64::MAX)
}

fn described(status: &Status, now: i64) -> PartitionData {
    let replica = |member: Member| {
        let known = status.replicas.iter().find(|known| known.member == member);
        let is_heard = known.is_some_and(|known| known.is_heard) || member == status.me;
        let end = match known {
            Some(known) => offset(known.matched),
            None if member == status.me => offset(status.last.index),
            // Only the leader knows.
            None => -1,
        };
        ReplicaState {
            replica_id: member.node.0,
            replica_directory_id: member.directory.0,
            log_end_offset: end,
            last_fetch_timestamp: if is_heard { now } else { -1 },
            last_caught_up_timestamp: if end >= offset(status.committed) { now } else { -1 },
        }
    };
    let observers = status.replicas.iter().filter(|known| !known.is_voter);
    PartitionData {
        partition_index: 0,
        leader_id: status.leader.map_or(-1, |leader| leader.0),
        leader_epoch: status.term.leader_epoch().0,
        high_watermark: offset(status.committed),
        current_voters: status.configuration.voters.iter().map(|voter| replica(*voter)).collect(),
        observers: observers.map(|known| replica(known.member)).collect(),
        ..PartitionData::default()
    }
}

pub(crate) async fn add(
    node: &Arc<Node>,
    request: AddRaftVoterRequest,
) -> Result<AddRaftVoterResponse, Stopped> {
    let member = member(request.voter_id, request.voter_directory_id);
    let change = Change::AddVoter(member);
    let AddRaftVoterRequest { cluster_id, timeout_ms, .. } = request;
    let (error_code, error_message) = change_voters(node, cluster_id, timeout_ms, change).await?;
    Ok(AddRaftVoterResponse { error_code, error_message, ..AddRaftVoterResponse::default() })
}

pub(crate) async fn remove(
    node: &Arc<Node>,
    request: RemoveRaftVoterRequest,
) -> Result<RemoveRaftVoterResponse, Stopped> {
    let member = member(request.voter_id, request.voter_directory_id);
    let change = Change::RemoveVoter(member);
    let patience = REMOVAL_PATIENCE_MS;
    let (error_code, error_message) =
        change_voters(node, request.cluster_id, patience, change).await?;
    Ok(RemoveRaftVoterResponse { error_code, error_message, ..RemoveRaftVoterResponse::default() })
}

const fn member(node: i32, directory: [u8; 16]) -> Member {
    Member { node: NodeId(node), directory: DirectoryId(directory) }
}

async fn change_voters(
    node: &Node,
    cluster: Option<Text>,
    timeout_ms: i32,
    change: Change,
) -> Result<(i16, Option<Text>), Stopped> {
    if cluster.is_some_and(|cluster| cluster != node.cluster()) {
        let why = format!("this is cluster {}", node.cluster());
        return Ok((Code::InconsistentClusterId.code(), Some(why.into())));
    }
    let until = node.until(timeout_ms).max(node.clock.now().monotonic + LEADER_PATIENCE);
    match node.controller.ask_quorum(until, Question::Change(change)).await? {
        Outcome::Committed { .. } => Ok((Code::None.code(), None)),
        Outcome::Refused(refusal) => {
            Ok((Code::from(&refusal).code(), Some(sentence(&refusal).into())))
        }
        other => unreachable!("voters are changed, not {other:?}"),
    }
}

fn sentence(refusal: &Refusal) -> String {
    match refusal {
        Refusal::NotLeader { leader: Some(leader) } => {
            format!("node {leader} leads the quorum: ask there")
        }
        Refusal::NotLeader { leader: None } => "no leader of the quorum is known here".to_owned(),
        Refusal::NotObserved => {
            "no node with this id and this directory follows the metadata: start it first, and \
             name the directory that it tells"
                .to_owned()
        }
        Refusal::NotCaughtUp { behind } => {
            format!("it lacks {behind} entries of the metadata: try again in a moment")
        }
        Refusal::ChangePending => "the change before this one is not decided yet".to_owned(),
        Refusal::AlreadyVoter => "it votes already".to_owned(),
        Refusal::NotVoter => "it does not vote".to_owned(),
        Refusal::LastVoter => "it is the last voter, and a quorum needs one".to_owned(),
        Refusal::Unknown => {
            "the leadership ended first: it may have happened or not; look before you ask again"
                .to_owned()
        }
        other => format!("{other:?}"),
    }
}
