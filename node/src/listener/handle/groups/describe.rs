//! ListGroups, DescribeGroups and DeleteGroups: what tools ask about groups.

use quorate_core::group::interface::{Described, Input, Outcome};
use quorate_core::id::PartitionId;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::delete_groups::DeletableGroupResult;
use quorate_net::kafka::messages::describe_groups::{DescribedGroup, DescribedGroupMember};
use quorate_net::kafka::messages::list_groups::ListedGroup;
use quorate_net::kafka::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
    ListGroupsRequest, ListGroupsResponse,
};
use quorate_net::wire::Text;

use crate::catalog::OFFSETS_TOPIC;
use crate::driver::ask::Stopped;
use crate::node::Node;

/// Since this version a group that does not exist is an error rather than `Dead`. KIP-1043.
const UNKNOWN_IS_AN_ERROR: i16 = 6;
/// The one type of groups there is so far, as Kafka spells it.
const CLASSIC: &str = "classic";

pub(super) async fn list(
    node: &Node,
    request: ListGroupsRequest,
) -> Result<ListGroupsResponse, Stopped> {
    let types = &request.types_filter;
    if !types.is_empty() && !types.iter().any(|one| one.eq_ignore_ascii_case(CLASSIC)) {
        return Ok(ListGroupsResponse::default());
    }
    let states: Vec<String> = request.states_filter.iter().map(ToString::to_string).collect();
    let partitions: Vec<PartitionId> = match node.catalog.topic_named(OFFSETS_TOPIC) {
        Some(topic) => {
            let indexes = 0..i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
            indexes.map(|index| PartitionId { topic: topic.id, index }).collect()
        }
        None => Vec::new(),
    };
    let mut response = ListGroupsResponse::default();
    for partition in partitions {
        let states = states.clone();
        let outcome = node
            .ask_coordinator(partition, |request| Input::List { request, states })
            .await?;
        match outcome {
            Outcome::Listed { groups } => {
                response.groups.extend(groups.into_iter().map(|group| ListedGroup {
                    group_id: group.group.into(),
                    protocol_type: group.protocol_type.into(),
                    group_state: Text::from_static(group.state),
                    group_type: Text::from_static(CLASSIC),
                }));
            }
            // What could be listed is, and the client knows that it is not all.
            Outcome::Refused(refusal) => response.error_code = Code::from(&refusal).code(),
            other => unreachable!("groups were to be listed: {other:?}"),
        }
    }
    Ok(response)
}

pub(super) async fn describe(
    node: &Node,
    version: i16,
    request: DescribeGroupsRequest,
) -> Result<DescribeGroupsResponse, Stopped> {
    let mut groups = Vec::with_capacity(request.groups.len());
    for name in request.groups {
        let group = name.to_string();
        let outcome =
            node.ask_group(&name, |request| Input::Describe { request, group }).await?;
        groups.push(match outcome {
            Outcome::Described(described) => described_group(version, described),
            Outcome::Refused(refusal) => DescribedGroup {
                error_code: Code::from(&refusal).code(),
                group_id: name,
                ..Default::default()
            },
            other => unreachable!("a group was to be described: {other:?}"),
        });
    }
    Ok(DescribeGroupsResponse { groups, ..Default::default() })
}

fn described_group(version: i16, group: Described) -> DescribedGroup {
    let unknown = version >= UNKNOWN_IS_AN_ERROR && group.state == "Dead";
    let members = group.members.into_iter().map(|member| DescribedGroupMember {
        member_id: member.member.into(),
        group_instance_id: member.instance.map(Text::from),
        client_id: member.client_id.into(),
        client_host: member.client_host.into(),
        member_metadata: member.metadata,
        member_assignment: member.assignment,
    });
    DescribedGroup {
        error_code: if unknown { Code::GroupIdNotFound.code() } else { Code::None.code() },
        error_message: unknown.then(|| format!("There is no group {}.", group.group).into()),
        members: members.collect(),
        group_id: group.group.into(),
        group_state: Text::from_static(group.state),
        protocol_type: group.protocol_type.into(),
        protocol_data: group.protocol.into(),
        ..Default::default()
    }
}

pub(super) async fn delete(
    node: &Node,
    request: DeleteGroupsRequest,
) -> Result<DeleteGroupsResponse, Stopped> {
    let mut results = Vec::with_capacity(request.groups_names.len());
    for name in request.groups_names {
        let group = name.to_string();
        let outcome = node.ask_group(&name, |request| Input::Delete { request, group }).await?;
        let error_code = match outcome {
            Outcome::Deleted => Code::None.code(),
            Outcome::Refused(refusal) => Code::from(&refusal).code(),
            other => unreachable!("a group was to be deleted: {other:?}"),
        };
        results.push(DeletableGroupResult { group_id: name, error_code });
    }
    Ok(DeleteGroupsResponse { results, ..Default::default() })
}
