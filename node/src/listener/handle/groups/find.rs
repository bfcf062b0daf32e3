//! FindCoordinator: which node coordinates a group. The first question makes the topic in which
//! groups keep what they have committed.

use quorate_core::controller::interface::{Input, NewTopic, Outcome, ProblemKind};
use quorate_core::group::placement::partition_of;
use quorate_core::metadata::Address;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::find_coordinator::Coordinator;
use quorate_net::kafka::messages::{FindCoordinatorRequest, FindCoordinatorResponse};
use quorate_net::wire::Text;

use crate::catalog::OFFSETS_TOPIC;
use crate::driver::ask::Stopped;
use crate::node::Node;

/// Since this version one request asks for several. KIP-699.
const MANY: i16 = 4;
/// The kind of key that names a group.
const GROUP: i8 = 0;

struct Found {
    node: i32,
    address: Address,
}

struct Missing {
    code: Code,
    message: String,
}

pub(super) async fn find_coordinator(
    node: &Node,
    version: i16,
    request: FindCoordinatorRequest,
) -> Result<FindCoordinatorResponse, Stopped> {
    if version < MANY {
        let found = find(node, &request.key, request.key_type).await?;
        let one = coordinator(request.key, found);
        return Ok(FindCoordinatorResponse {
            error_code: one.error_code,
            error_message: one.error_message,
            node_id: one.node_id,
            host: one.host,
            port: one.port,
            ..Default::default()
        });
    }
    let mut coordinators = Vec::with_capacity(request.coordinator_keys.len());
    for key in request.coordinator_keys {
        let found = find(node, &key, request.key_type).await?;
        coordinators.push(coordinator(key, found));
    }
    Ok(FindCoordinatorResponse { coordinators, ..Default::default() })
}

fn coordinator(key: Text, found: Result<Found, Missing>) -> Coordinator {
    match found {
        Ok(found) => Coordinator {
            key,
            node_id: found.node,
            host: found.address.host.into(),
            port: i32::from(found.address.port),
            ..Default::default()
        },
        Err(missing) => Coordinator {
            key,
            node_id: -1,
            port: -1,
            error_code: missing.code.code(),
            error_message: Some(missing.message.into()),
            ..Default::default()
        },
    }
}

async fn find(node: &Node, key: &str, kind: i8) -> Result<Result<Found, Missing>, Stopped> {
    let missing = |code, message: &str| Ok(Err(Missing { code, message: message.to_owned() }));
    if kind != GROUP {
        return missing(Code::InvalidRequest, "transactions and share groups are not there yet");
    }
    if key.is_empty() {
        return missing(Code::InvalidGroupId, "a group has a name");
    }
    if let Err(problem) = make_offsets_topic(node).await? {
        return Ok(Err(problem));
    }
    let state = node.catalog.read();
    let leader = state.topic_named(OFFSETS_TOPIC).and_then(|topic| {
        let partitions = i32::try_from(topic.partitions.len()).ok()?;
        topic.partition(partition_of(key, partitions))?.assignment.leader
    });
    let found = leader.and_then(|leader| {
        let address = state.image.node(leader)?.address.clone();
        Some(Found { node: leader.0, address })
    });
    match found {
        Some(found) => Ok(Ok(found)),
        None => missing(Code::CoordinatorNotAvailable, "the group's partition has no leader"),
    }
}

async fn make_offsets_topic(node: &Node) -> Result<Result<(), Missing>, Stopped> {
    if node.catalog.topic_named(OFFSETS_TOPIC).is_some() {
        return Ok(Ok(()));
    }
    let topic = NewTopic {
        name: OFFSETS_TOPIC.to_owned(),
        partitions: Some(node.config.group.offsets_partitions),
        configs: [("cleanup.policy", "compact"), ("segment.bytes", "104857600")]
            .map(|(name, value)| (name.to_owned(), Some(value.to_owned())))
            .into(),
        ..Default::default()
    };
    let outcome = node
        .ask_controller(|request| Input::CreateTopics {
            request,
            topics: vec![topic],
            validate_only: false,
        })
        .await?;
    let problem = match outcome {
        Outcome::TopicsCreated(results) => {
            results.into_iter().next().and_then(|(_, result)| result.err())
        }
        Outcome::Refused(problem) => Some(problem),
        other => unreachable!("a topic was to be created: {other:?}"),
    };
    match problem {
        // Another connection asked at the same time.
        Some(problem) if problem.kind != ProblemKind::TopicExists => {
            Ok(Err(Missing { code: Code::CoordinatorNotAvailable, message: problem.message }))
        }
        _ => {
            node.catalog.until(|state| state.topic_named(OFFSETS_TOPIC).is_some()).await;
            Ok(Ok(()))
        }
    }
}
