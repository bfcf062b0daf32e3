//! Consumer groups: which coordinator a group has, and what is asked of it. The coordinator is a
//! machine of the core beside the log that holds its truth.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::group::interface::{
    Described, Input, Join, Joined, Leaving, Listed, MemberClaim, Outcome, Protocol, Refusal, Sync,
};
use quorate_core::group::placement::partition_of;
use quorate_core::id::RequestId;
use quorate_core::metadata;
use quorate_core::shard::interface::{Input as ShardInput, Outcome as ShardOutcome};
use quorate_net::kafka::Request;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::header::RequestHeader;
use quorate_net::kafka::messages::delete_groups::DeletableGroupResult;
use quorate_net::kafka::messages::describe_groups::{DescribedGroup, DescribedGroupMember};
use quorate_net::kafka::messages::find_coordinator::Coordinator;
use quorate_net::kafka::messages::join_group::JoinGroupResponseMember;
use quorate_net::kafka::messages::leave_group::MemberResponse;
use quorate_net::kafka::messages::list_groups::ListedGroup;
use quorate_net::kafka::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
    FindCoordinatorRequest, FindCoordinatorResponse, HeartbeatRequest, HeartbeatResponse,
    JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse, ListGroupsRequest,
    ListGroupsResponse, SyncGroupRequest, SyncGroupResponse,
};
use quorate_net::wire::Text;

use super::repeated::once;
use super::{answer, consumers, offsets, topics};
use crate::catalog::log::LogHandle;
use crate::catalog::{Log, OFFSETS_TOPIC, State, TRANSACTIONS_TOPIC, Topic};
use crate::driver::ask::{Stopped, Withdrawal};
use crate::listener::session::{Client, Starting};
use crate::node::Node;

/// Why there is no coordinator, where there will be one soon.
const NOT_YET: (Code, &str) = (Code::CoordinatorNotAvailable, "not yet: try again");
/// The kinds of keys that FindCoordinator knows.
const GROUP_KEY: i8 = 0;
const TRANSACTION_KEY: i8 = 1;
/// The version from which FindCoordinator asks for many keys at once. KIP-699.
const MANY_KEYS: i16 = 4;
/// The version from which a new member must come back with its id. KIP-394.
const MEMBER_ID_REQUIRED: i16 = 4;
/// The version from which a returning static leader is told to leave the assignment. KIP-814.
const SKIP_ASSIGNMENT: i16 = 9;
/// The version from which LeaveGroup names many members. KIP-345.
const MANY_LEAVE: i16 = 3;
/// The version from which describing an unknown group is an error. KIP-1043.
const UNKNOWN_IS_ERROR: i16 = 6;
/// Kafka's set of operations on a group: READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS.
pub(super) const GROUP_OPERATIONS: i32 = 0b1101_0100_1000;

pub(crate) fn begin(
    node: Arc<Node>,
    client: &Arc<Client>,
    header: &RequestHeader,
    request: Request,
) -> Starting {
    let version = header.version;
    match request {
        Request::FindCoordinator(request) => {
            answer(async move { find_coordinator(&node, version, request).await })
        }
        Request::JoinGroup(request) => {
            let client_id = header.client_id.as_deref().unwrap_or_default().to_owned();
            let client_host = format!("/{}", client.host);
            answer(async move { join(&node, version, request, client_id, client_host).await })
        }
        Request::SyncGroup(request) => answer(async move { sync(&node, request).await }),
        Request::Heartbeat(request) => answer(async move { heartbeat(&node, request).await }),
        Request::LeaveGroup(request) => answer(async move { leave(&node, version, request).await }),
        Request::ConsumerGroupHeartbeat(request) => {
            let client_id = header.client_id.as_deref().unwrap_or_default().to_owned();
            let client_host = format!("/{}", client.host);
            answer(async move {
                consumers::heartbeat(&node, version, request, client_id, client_host).await
            })
        }
        Request::ConsumerGroupDescribe(request) => {
            answer(async move { consumers::describe(&node, request).await })
        }
        Request::ListGroups(request) => answer(async move { list(&node, request).await }),
        Request::DescribeGroups(request) => {
            answer(async move { describe(&node, version, request).await })
        }
        Request::DeleteGroups(request) => answer(async move { delete(&node, request).await }),
        Request::OffsetCommit(request) => {
            answer(async move { offsets::commit(&node, version, request).await })
        }
        Request::OffsetFetch(request) => {
            answer(async move { offsets::fetch(&node, version, request).await })
        }
        Request::OffsetDelete(request) => {
            answer(async move { offsets::delete(&node, request).await })
        }
        other => unreachable!("{} is no request of groups", other.key()),
    }
}

/// The log beside which the coordinator of `group` lives, if that is here.
pub(super) fn coordinator_log(node: &Node, group: &str) -> Option<Arc<LogHandle>> {
    let topic = node.catalog.topic_named(OFFSETS_TOPIC)?;
    let partitions = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
    match &topic.partition(partition_of(group, partitions.max(1)))?.log {
        Log::Open(log) => Some(Arc::clone(log)),
        Log::Offline | Log::Elsewhere => None,
    }
}

/// Asks the coordinator of `group`.
pub(super) async fn ask(
    node: &Node,
    group: &str,
    input: impl FnOnce(RequestId) -> Input,
) -> Result<Outcome, Stopped> {
    let Some(log) = coordinator_log(node, group) else {
        return Ok(Outcome::Refused(Refusal::NotCoordinator));
    };
    let coordinator = log.partition.index;
    let input = |request| ShardInput::Group { coordinator, input: input(request) };
    let asked = log.shard.ask(Withdrawal::Group { coordinator }, input).await?;
    match asked.await? {
        ShardOutcome::Group(outcome) => Ok(outcome),
        other => unreachable!("a coordinator answers as one, not with {other:?}"),
    }
}

pub(super) fn texts(text: &Text) -> String {
    text.to_string()
}

pub(super) fn optional(text: Option<&Text>) -> Option<String> {
    text.map(texts)
}

async fn find_coordinator(
    node: &Arc<Node>,
    version: i16,
    request: FindCoordinatorRequest,
) -> Result<FindCoordinatorResponse, Stopped> {
    let kept_in = match request.key_type {
        GROUP_KEY => Ok(OFFSETS_TOPIC),
        TRANSACTION_KEY => Ok(TRANSACTIONS_TOPIC),
        _ => Err((Code::InvalidRequest, "no coordinator is of this kind")),
    };
    let known = match kept_in {
        Ok(name) => match node.catalog.topic_named(name) {
            Some(topic) => Ok(topic),
            None => topics::create_one(node, name).await?.map_err(|_| NOT_YET),
        },
        Err(why) => Err(why),
    };
    let state = node.catalog.read();
    let one = |key: Text| {
        let found = match &known {
            Ok(topic) => coordinator(&state, topic, &key).ok_or(NOT_YET),
            Err(why) => Err(*why),
        };
        match found {
            Ok(node) => Coordinator {
                key,
                node_id: node.id.0,
                host: node.address.host.as_str().into(),
                port: i32::from(node.address.port),
                ..Coordinator::default()
            },
            Err((code, why)) => Coordinator {
                key,
                node_id: -1,
                port: -1,
                error_code: code.code(),
                error_message: Some(why.into()),
                ..Coordinator::default()
            },
        }
    };
    if version >= MANY_KEYS {
        let coordinators = request.coordinator_keys.into_iter().map(one).collect();
        return Ok(FindCoordinatorResponse { coordinators, ..FindCoordinatorResponse::default() });
    }
    let Coordinator { node_id, host, port, error_code, error_message, .. } = one(request.key);
    Ok(FindCoordinatorResponse {
        error_code,
        error_message,
        node_id,
        host,
        port,
        ..FindCoordinatorResponse::default()
    })
}

/// The node that leads the partition in which the truth of a group, or of a transactional id,
/// stands.
pub(crate) fn coordinator<'a>(
    state: &'a State,
    kept_in: &Topic,
    key: &str,
) -> Option<&'a metadata::Node> {
    // As it is known now: the topic that was found may have been created just before.
    let topic = state.topic(kept_in.id)?;
    let partitions = i32::try_from(topic.partitions.len()).ok().filter(|count| *count > 0)?;
    let leader = topic.partition(partition_of(key, partitions))?.assignment.leader?;
    state.image.node(leader).filter(|node| node.is_live())
}

pub(super) fn millis(millis: i32) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

async fn join(
    node: &Node,
    version: i16,
    request: JoinGroupRequest,
    client_id: String,
    client_host: String,
) -> Result<JoinGroupResponse, Stopped> {
    let session_timeout = millis(request.session_timeout_ms);
    let rebalance_timeout =
        if version >= 1 { millis(request.rebalance_timeout_ms) } else { session_timeout };
    let protocols = request.protocols.iter().map(|protocol| Protocol {
        name: texts(&protocol.name),
        metadata: bytes::Bytes::copy_from_slice(&protocol.metadata),
    });
    let join = Join {
        request: RequestId(0),
        group: texts(&request.group_id),
        member: texts(&request.member_id),
        instance: optional(request.group_instance_id.as_ref()),
        client_id,
        client_host,
        session_timeout,
        rebalance_timeout,
        protocol_type: texts(&request.protocol_type),
        protocols: protocols.collect(),
        member_id_required: version >= MEMBER_ID_REQUIRED,
        skip_assignment: version >= SKIP_ASSIGNMENT,
    };
    let input = |request| Input::Join(Join { request, ..join });
    let (error, member_id) = match ask(node, &request.group_id, input).await? {
        Outcome::Joined(joined) => return Ok(joined_response(joined)),
        Outcome::Refused(Refusal::MemberIdRequired { member }) => {
            (Code::MemberIdRequired, member.into())
        }
        Outcome::Refused(refusal) => (Code::from(&refusal), request.member_id),
        other => unreachable!("a group is joined, not {other:?}"),
    };
    Ok(JoinGroupResponse {
        error_code: error.code(),
        protocol_name: (version < 7).then(Text::default),
        member_id,
        ..JoinGroupResponse::default()
    })
}

fn joined_response(joined: Joined) -> JoinGroupResponse {
    let members = joined.members.into_iter().map(|member| JoinGroupResponseMember {
        member_id: member.member.into(),
        group_instance_id: member.instance.map(Text::from),
        metadata: member.metadata,
    });
    JoinGroupResponse {
        error_code: Code::None.code(),
        generation_id: joined.generation,
        protocol_type: Some(joined.protocol_type.into()),
        protocol_name: Some(joined.protocol.into()),
        leader: joined.leader.into(),
        skip_assignment: joined.skip_assignment,
        member_id: joined.member.into(),
        members: members.collect(),
        ..JoinGroupResponse::default()
    }
}

async fn sync(node: &Node, request: SyncGroupRequest) -> Result<SyncGroupResponse, Stopped> {
    let member = MemberClaim {
        group: texts(&request.group_id),
        member: texts(&request.member_id),
        instance: optional(request.group_instance_id.as_ref()),
        generation: request.generation_id,
    };
    let assignments = request.assignments.iter().map(|assigned| {
        (texts(&assigned.member_id), bytes::Bytes::copy_from_slice(&assigned.assignment))
    });
    let sync = Sync {
        request: RequestId(0),
        member,
        protocol_type: optional(request.protocol_type.as_ref()),
        protocol: optional(request.protocol_name.as_ref()),
        assignments: assignments.collect(),
    };
    let input = |request| Input::Sync(Sync { request, ..sync });
    Ok(match ask(node, &request.group_id, input).await? {
        Outcome::Synced { protocol_type, protocol, assignment } => SyncGroupResponse {
            protocol_type: Some(protocol_type.into()),
            protocol_name: Some(protocol.into()),
            assignment,
            ..SyncGroupResponse::default()
        },
        Outcome::Refused(refusal) => SyncGroupResponse {
            error_code: Code::from(&refusal).code(),
            ..SyncGroupResponse::default()
        },
        other => unreachable!("a group is synced, not {other:?}"),
    })
}

async fn heartbeat(node: &Node, request: HeartbeatRequest) -> Result<HeartbeatResponse, Stopped> {
    let member = MemberClaim {
        group: texts(&request.group_id),
        member: texts(&request.member_id),
        instance: optional(request.group_instance_id.as_ref()),
        generation: request.generation_id,
    };
    let input = |request| Input::Heartbeat { request, member };
    let code = match ask(node, &request.group_id, input).await? {
        Outcome::Alive => Code::None,
        Outcome::Refused(refusal) => Code::from(&refusal),
        other => unreachable!("a heartbeat is heard, not {other:?}"),
    };
    Ok(HeartbeatResponse { error_code: code.code(), ..HeartbeatResponse::default() })
}

async fn leave(
    node: &Node,
    version: i16,
    request: LeaveGroupRequest,
) -> Result<LeaveGroupResponse, Stopped> {
    let members = if version >= MANY_LEAVE {
        let all = request.members.iter().map(|member| Leaving {
            member: texts(&member.member_id),
            instance: optional(member.group_instance_id.as_ref()),
        });
        all.collect()
    } else {
        vec![Leaving { member: texts(&request.member_id), instance: None }]
    };
    let group = texts(&request.group_id);
    let input = |request| Input::Leave { request, group, members };
    let code = |refusal: Option<&Refusal>| refusal.map_or(Code::None, Code::from).code();
    Ok(match ask(node, &request.group_id, input).await? {
        Outcome::Left { members } => LeaveGroupResponse {
            // Before, the one member's error is the whole answer's.
            error_code: if version >= MANY_LEAVE {
                Code::None.code()
            } else {
                code(members.first().and_then(|(_, refusal)| refusal.as_ref()))
            },
            members: members
                .into_iter()
                .map(|(leaving, refusal)| MemberResponse {
                    member_id: leaving.member.into(),
                    group_instance_id: leaving.instance.map(Text::from),
                    error_code: code(refusal.as_ref()),
                })
                .collect(),
            ..LeaveGroupResponse::default()
        },
        // No such group: then none of them is a member of it.
        Outcome::Refused(Refusal::UnknownMember) if version >= MANY_LEAVE => {
            let members = request.members.into_iter().map(|member| MemberResponse {
                member_id: member.member_id,
                group_instance_id: member.group_instance_id,
                error_code: Code::UnknownMemberId.code(),
            });
            LeaveGroupResponse { members: members.collect(), ..LeaveGroupResponse::default() }
        }
        Outcome::Refused(refusal) => {
            LeaveGroupResponse { error_code: code(Some(&refusal)), ..LeaveGroupResponse::default() }
        }
        other => unreachable!("a group is left, not {other:?}"),
    })
}

async fn list(node: &Node, request: ListGroupsRequest) -> Result<ListGroupsResponse, Stopped> {
    let types: Vec<String> = request.types_filter.iter().map(texts).collect();
    let states: Vec<String> = request.states_filter.iter().map(texts).collect();
    let mut response = ListGroupsResponse::default();
    let Some(topic) = node.catalog.topic_named(OFFSETS_TOPIC) else {
        return Ok(response);
    };
    for partition in &topic.partitions {
        let Log::Open(log) = &partition.log else { continue };
        let coordinator = log.partition.index;
        let (states, types) = (states.clone(), types.clone());
        let input = |request| ShardInput::Group {
            coordinator,
            input: Input::List { request, states, types },
        };
        let asked = log.shard.ask(Withdrawal::Group { coordinator }, input).await?;
        match asked.await? {
            ShardOutcome::Group(Outcome::Listed { groups }) => {
                response.groups.extend(groups.into_iter().map(listed));
            }
            // Those groups are listed by the node that leads the partition.
            ShardOutcome::Group(Outcome::Refused(Refusal::NotCoordinator)) => {}
            ShardOutcome::Group(Outcome::Refused(refusal)) => {
                response.error_code = Code::from(&refusal).code();
            }
            other => unreachable!("groups are listed, not {other:?}"),
        }
    }
    Ok(response)
}

fn listed(group: Listed) -> ListedGroup {
    ListedGroup {
        group_id: group.group.into(),
        protocol_type: group.protocol_type.into(),
        group_state: group.state.into(),
        group_type: group.kind.into(),
    }
}

async fn describe(
    node: &Node,
    version: i16,
    request: DescribeGroupsRequest,
) -> Result<DescribeGroupsResponse, Stopped> {
    let mut groups = Vec::with_capacity(request.groups.len());
    for group_id in once(request.groups, Text::clone) {
        let group = texts(&group_id);
        let outcome = ask(node, &group_id, |request| Input::Describe { request, group }).await?;
        let mut row = match outcome {
            Outcome::Described(described) => described_group(described),
            Outcome::Refused(refusal) => DescribedGroup {
                error_code: Code::from(&refusal).code(),
                group_id,
                ..DescribedGroup::default()
            },
            other => unreachable!("a group is described, not {other:?}"),
        };
        if version >= UNKNOWN_IS_ERROR && row.group_state == "Dead" {
            row.error_code = Code::GroupIdNotFound.code();
            row.error_message = Some("there is no such group".into());
        }
        if request.include_authorized_operations {
            row.authorized_operations = GROUP_OPERATIONS;
        }
        groups.push(row);
    }
    Ok(DescribeGroupsResponse { groups, ..DescribeGroupsResponse::default() })
}

fn described_group(group: Described) -> DescribedGroup {
    let members = group.members.into_iter().map(|member| DescribedGroupMember {
        member_id: member.member.into(),
        group_instance_id: member.instance.map(Text::from),
        client_id: member.client_id.into(),
        client_host: member.client_host.into(),
        member_metadata: member.metadata,
        member_assignment: member.assignment,
    });
    DescribedGroup {
        group_id: group.group.into(),
        group_state: group.state.into(),
        protocol_type: group.protocol_type.into(),
        protocol_data: group.protocol.into(),
        members: members.collect(),
        ..DescribedGroup::default()
    }
}

async fn delete(
    node: &Node,
    request: DeleteGroupsRequest,
) -> Result<DeleteGroupsResponse, Stopped> {
    let mut results = Vec::with_capacity(request.groups_names.len());
    for group_id in once(request.groups_names, Text::clone) {
        let group = texts(&group_id);
        let refusal = match ask(node, &group_id, |request| Input::Delete { request, group }).await?
        {
            Outcome::Deleted => None,
            Outcome::Refused(refusal) => Some(refusal),
            other => unreachable!("a group is deleted, not {other:?}"),
        };
        let error_message = match refusal {
            Some(Refusal::NotEmpty) => Some("the group has members: stop them first"),
            Some(Refusal::UnknownGroup) => Some("there is no such group"),
            _ => None,
        };
        results.push(DeletableGroupResult {
            group_id,
            error_code: refusal.as_ref().map_or(Code::None, Code::from).code(),
            error_message: error_message.map(Text::from),
        });
    }
    Ok(DeleteGroupsResponse { results, ..DeleteGroupsResponse::default() })
}
