//! Consumer groups, KIP-848: the heartbeat of their members, and what they look like.

use quorate_core::group::interface::{
    Assignment, ConsumerDescribed, ConsumerHeartbeat, ConsumerMemberDescribed, Input,
    NamedAssignment, Outcome, Refusal,
};
use quorate_core::id::RequestId;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::consumer_group_describe::{
    Assignment as DescribedAssignment, DescribedGroup, Member, TopicPartitions as NamedPartitions,
};
use quorate_net::kafka::messages::consumer_group_heartbeat::{
    Assignment as ToldAssignment, TopicPartitions,
};
use quorate_net::kafka::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
};
use quorate_net::wire::Text;

use super::groups::{GROUP_OPERATIONS, ask, millis, optional, texts};
use super::repeated::once;
use crate::driver::ask::Stopped;
use crate::node::Node;

/// Kafka's numbers for members of the two protocols.
const CLASSIC_MEMBER: i8 = 0;
const CONSUMER_MEMBER: i8 = 1;

/// The version from which members draw their ids themselves. KIP-1082.
const MEMBERS_DRAW: i16 = 1;

pub(super) async fn heartbeat(
    node: &Node,
    version: i16,
    request: ConsumerGroupHeartbeatRequest,
    client_id: String,
    client_host: String,
) -> Result<ConsumerGroupHeartbeatResponse, Stopped> {
    if version >= MEMBERS_DRAW && request.member_id.is_empty() {
        return Ok(unheard(&Refusal::InvalidHeartbeat { why: "the member id is empty" }));
    }
    let owned = request.topic_partitions.map(|topics| -> Assignment {
        let each = topics.iter().flat_map(|topic| {
            topic.partitions.iter().map(|partition| (topic.topic_id, *partition))
        });
        each.collect()
    });
    let topics = request.subscribed_topic_names.as_ref();
    let heartbeat = ConsumerHeartbeat {
        request: RequestId(0),
        group: texts(&request.group_id),
        member: texts(&request.member_id),
        epoch: request.member_epoch,
        instance: optional(request.instance_id.as_ref()),
        rack: optional(request.rack_id.as_ref()),
        client_id,
        client_host,
        rebalance_timeout: (request.rebalance_timeout_ms >= 0)
            .then(|| millis(request.rebalance_timeout_ms)),
        topics: topics.map(|topics| topics.iter().map(texts).collect()),
        regex: optional(request.subscribed_topic_regex.as_ref()),
        assignor: optional(request.server_assignor.as_ref()),
        owned,
    };
    let input = |request| Input::ConsumerHeartbeat(ConsumerHeartbeat { request, ..heartbeat });
    Ok(match ask(node, &request.group_id, input).await? {
        Outcome::ConsumerAlive(alive) => ConsumerGroupHeartbeatResponse {
            member_id: Some(alive.member.into()),
            member_epoch: alive.epoch,
            heartbeat_interval_ms: i32::try_from(alive.interval.as_millis()).unwrap_or(i32::MAX),
            assignment: alive.assignment.map(|assignment| told(&assignment)),
            ..ConsumerGroupHeartbeatResponse::default()
        },
        Outcome::Refused(refusal) => unheard(&refusal),
        other => unreachable!("a heartbeat is heard, not {other:?}"),
    })
}

fn unheard(refusal: &Refusal) -> ConsumerGroupHeartbeatResponse {
    ConsumerGroupHeartbeatResponse {
        error_code: Code::from(refusal).code(),
        error_message: Some(why(refusal).into()),
        ..ConsumerGroupHeartbeatResponse::default()
    }
}

fn told(assignment: &Assignment) -> ToldAssignment {
    let topics = assignment.topics().map(|(topic_id, partitions)| TopicPartitions {
        topic_id,
        partitions: partitions.iter().copied().collect(),
    });
    ToldAssignment { topic_partitions: topics.collect() }
}

/// For a human.
fn why(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::InvalidHeartbeat { why } => why,
        Refusal::FencedMemberEpoch => "the member's epoch is not the one it has: join again",
        Refusal::UnknownMember => "the group has no such member: join again",
        Refusal::UnreleasedInstance => "a member that is still there has this instance id",
        Refusal::FencedInstance => "another member has this instance id now",
        Refusal::UnsupportedAssignor => "the assignors here are uniform and range",
        Refusal::InvalidRegex => "this is no regular expression, or too large a one",
        Refusal::InconsistentProtocol => "the group has members of the classic protocol",
        Refusal::Full => "the group has as many members, or subscriptions, as it may have",
        Refusal::Loading => "the coordinator reads its log: try again",
        Refusal::NotAvailable => "the log did not take what had to be written: try again",
        _ => "the coordinator refuses",
    }
}

pub(super) async fn describe(
    node: &Node,
    request: ConsumerGroupDescribeRequest,
) -> Result<ConsumerGroupDescribeResponse, Stopped> {
    let mut groups = Vec::with_capacity(request.group_ids.len());
    for group_id in once(request.group_ids, Text::clone) {
        let group = texts(&group_id);
        let input = |request| Input::DescribeConsumer { request, group };
        let mut row = match ask(node, &group_id, input).await? {
            Outcome::ConsumerDescribed(described) => described_group(described),
            Outcome::Refused(refusal) => DescribedGroup {
                error_code: Code::from(&refusal).code(),
                error_message: (refusal == Refusal::UnknownGroup)
                    .then(|| "there is no such consumer group".into()),
                group_id,
                ..DescribedGroup::default()
            },
            other => unreachable!("a group is described, not {other:?}"),
        };
        if request.include_authorized_operations {
            row.authorized_operations = GROUP_OPERATIONS;
        }
        groups.push(row);
    }
    Ok(ConsumerGroupDescribeResponse { groups, ..ConsumerGroupDescribeResponse::default() })
}

fn described_group(group: ConsumerDescribed) -> DescribedGroup {
    DescribedGroup {
        group_id: group.group.into(),
        group_state: group.state.into(),
        group_epoch: group.epoch,
        assignment_epoch: group.target_epoch,
        assignor_name: group.assignor.into(),
        members: group.members.into_iter().map(described_member).collect(),
        ..DescribedGroup::default()
    }
}

fn described_member(described: ConsumerMemberDescribed) -> Member {
    let ConsumerMemberDescribed { id, epoch, member, assigned, target } = described;
    Member {
        member_id: id.into(),
        instance_id: member.instance.map(Text::from),
        rack_id: member.rack.map(Text::from),
        member_epoch: epoch,
        client_id: member.client_id.into(),
        client_host: member.client_host.into(),
        subscribed_topic_names: member.topics.into_iter().map(Text::from).collect(),
        subscribed_topic_regex: member.regex.map(Text::from),
        assignment: named(assigned),
        target_assignment: named(target),
        member_type: if member.classic.is_some() { CLASSIC_MEMBER } else { CONSUMER_MEMBER },
    }
}

fn named(assignment: NamedAssignment) -> DescribedAssignment {
    let topics = assignment.into_iter().map(|(topic_id, name, partitions)| NamedPartitions {
        topic_id,
        topic_name: name.into(),
        partitions,
    });
    DescribedAssignment { topic_partitions: topics.collect() }
}
