//! AlterPartitionReassignments, ListPartitionReassignments, ElectLeaders: where replicas are to be,
//! and who is to lead them. The controller decides; any node passes it on.

use std::collections::BTreeMap;
use std::sync::Arc;

use quorate_core::controller::interface::{
    ElectLeaders, Election, Input, Outcome, PartitionName, Problem, ProblemKind, Reassign,
};
use quorate_core::id::{NodeId, RequestId};
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::alter_partition_reassignments::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use quorate_net::kafka::messages::elect_leaders::{PartitionResult, ReplicaElectionResult};
use quorate_net::kafka::messages::list_partition_reassignments::{
    OngoingPartitionReassignment, OngoingTopicReassignment,
};
use quorate_net::kafka::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, ElectLeadersRequest,
    ElectLeadersResponse, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};
use quorate_net::wire::Text;

use super::repeated::once;
use crate::driver::ask::Stopped;
use crate::node::Node;

/// ElectLeaders has no error of its own for the whole in its first version.
const ELECT_ERROR_ON_TOP: i16 = 1;
const PREFERRED: i8 = 0;
const UNCLEAN: i8 = 1;

type Rows = Vec<(PartitionName, Result<(), Problem>)>;

pub(crate) async fn reassign(
    node: &Arc<Node>,
    request: AlterPartitionReassignmentsRequest,
) -> Result<AlterPartitionReassignmentsResponse, Stopped> {
    let until = node.until(request.timeout_ms);
    let replication_changes = request.allow_replication_factor_change;
    let partitions = request.topics.into_iter().flat_map(|topic| {
        let name = topic.name.to_string();
        topic.partitions.into_iter().map(move |asked| Reassign {
            partition: PartitionName { topic: name.clone(), index: asked.partition_index },
            target: asked.replicas.map(|nodes| nodes.into_iter().map(NodeId).collect()),
        })
    });
    let partitions: Vec<Reassign> =
        once(partitions.collect(), |asked| asked.partition.clone()).collect();
    let input = |request| {
        let partitions = partitions.clone();
        Input::Reassign { request, replication_changes, partitions }
    };
    let (rows, problem) = match node.controller.ask(until, input).await? {
        Outcome::Reassigned(rows) => (rows, None),
        Outcome::Refused(problem) => (Vec::new(), Some(problem)),
        other => unreachable!("partitions are reassigned, not {other:?}"),
    };
    let responses = by_topic(rows, |partition_index, done| {
        let (error_code, error_message) = told(done);
        ReassignablePartitionResponse { partition_index, error_code, error_message }
    });
    let responses = responses
        .into_iter()
        .map(|(name, partitions)| ReassignableTopicResponse { name: name.into(), partitions });
    let (error_code, error_message) = told(problem.map_or(Ok(()), Err));
    Ok(AlterPartitionReassignmentsResponse {
        allow_replication_factor_change: replication_changes,
        error_code,
        error_message,
        responses: responses.collect(),
        ..AlterPartitionReassignmentsResponse::default()
    })
}

pub(crate) async fn list(
    node: &Arc<Node>,
    request: ListPartitionReassignmentsRequest,
) -> Result<ListPartitionReassignmentsResponse, Stopped> {
    let until = node.until(request.timeout_ms);
    let partitions = request.topics.map(|topics| {
        let named = topics.into_iter().map(|topic| (topic.name, topic.partition_indexes));
        names(named)
    });
    let input = |request| Input::ListReassignments { request, partitions: partitions.clone() };
    let (moves, problem) = match node.controller.ask(until, input).await? {
        Outcome::Reassignments(moves) => (moves, None),
        Outcome::Refused(problem) => (Vec::new(), Some(problem)),
        other => unreachable!("reassignments are listed, not {other:?}"),
    };
    let mut topics: BTreeMap<String, Vec<OngoingPartitionReassignment>> = BTreeMap::new();
    for found in moves {
        topics.entry(found.partition.topic).or_default().push(OngoingPartitionReassignment {
            partition_index: found.partition.index,
            replicas: ids(found.replicas),
            adding_replicas: ids(found.adding),
            removing_replicas: ids(found.removing),
        });
    }
    let topics = topics
        .into_iter()
        .map(|(name, partitions)| OngoingTopicReassignment { name: name.into(), partitions });
    let (error_code, error_message) = told(problem.map_or(Ok(()), Err));
    Ok(ListPartitionReassignmentsResponse {
        error_code,
        error_message,
        topics: topics.collect(),
        ..ListPartitionReassignmentsResponse::default()
    })
}

pub(crate) async fn elect(
    node: &Arc<Node>,
    version: i16,
    request: ElectLeadersRequest,
) -> Result<ElectLeadersResponse, Stopped> {
    let until = node.until(request.timeout_ms);
    let election = match request.election_type {
        PREFERRED => Election::Preferred,
        UNCLEAN => Election::Unclean,
        _ => {
            let error_code = Code::InvalidRequest.code();
            return Ok(ElectLeadersResponse { error_code, ..ElectLeadersResponse::default() });
        }
    };
    let all = request.topic_partitions.is_none();
    let partitions = request.topic_partitions.map(|topics| {
        let named = topics.into_iter().map(|topic| (topic.topic, topic.partitions));
        names(named)
    });
    let input = |request: RequestId| {
        let partitions = partitions.clone();
        Input::ElectLeaders(ElectLeaders { request, election, partitions })
    };
    let mut error_code = Code::None.code();
    let rows = match node.controller.ask(until, input).await? {
        Outcome::LeadersElected(rows) => rows,
        Outcome::Refused(problem) => {
            error_code = Code::from(problem.kind).code();
            let each = partitions.unwrap_or_default().into_iter();
            let each = each.map(|partition| (partition, Err(problem.clone())));
            if version < ELECT_ERROR_ON_TOP { each.collect() } else { Vec::new() }
        }
        other => unreachable!("leaders are elected, not {other:?}"),
    };
    // Who asks for all is told only of those where something was to do.
    let needed = |done: &Result<(), Problem>| {
        !all || done.as_ref().err().is_none_or(|why| why.kind != ProblemKind::ElectionNotNeeded)
    };
    let rows = rows.into_iter().filter(|(_, done)| needed(done)).collect();
    let results = by_topic(rows, |partition_id, done| {
        let (error_code, error_message) = told(done);
        PartitionResult { partition_id, error_code, error_message }
    });
    let replica_election_results = results.into_iter().map(|(topic, partition_result)| {
        ReplicaElectionResult { topic: topic.into(), partition_result }
    });
    Ok(ElectLeadersResponse {
        error_code,
        replica_election_results: replica_election_results.collect(),
        ..ElectLeadersResponse::default()
    })
}

fn names(topics: impl Iterator<Item = (Text, Vec<i32>)>) -> Vec<PartitionName> {
    let all = topics.flat_map(|(topic, indexes)| {
        let topic = topic.to_string();
        indexes.into_iter().map(move |index| PartitionName { topic: topic.clone(), index })
    });
    once(all.collect(), Clone::clone).collect()
}

fn by_topic<R>(
    rows: Rows,
    row: impl Fn(i32, Result<(), Problem>) -> R,
) -> BTreeMap<String, Vec<R>> {
    let mut topics: BTreeMap<String, Vec<R>> = BTreeMap::new();
    for (PartitionName { topic, index }, done) in rows {
        topics.entry(topic).or_default().push(row(index, done));
    }
    topics
}

fn ids(nodes: Vec<NodeId>) -> Vec<i32> {
    nodes.into_iter().map(|node| node.0).collect()
}

/// Code and sentence of what became of something.
pub(super) fn told(done: Result<(), Problem>) -> (i16, Option<Text>) {
    match done {
        Ok(()) => (Code::None.code(), None),
        Err(problem) => (Code::from(problem.kind).code(), Some(problem.message.into())),
    }
}
