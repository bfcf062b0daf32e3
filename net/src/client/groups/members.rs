//! A group with its members, whichever protocol they speak: asked for as a consumer group first,
//! as Kafka's own tools do, then as a classic one.

use std::collections::BTreeMap;

use quorate_core::id::NodeId;

use super::{group_named, refused};
use crate::client::group::assign;
use crate::client::metadata::refusal;
use crate::client::{Client, Error};
use crate::kafka::error::Code;
use crate::kafka::messages as m;
use crate::wire::Text;

/// A group, and who is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    pub group: String,
    /// Kafka's name of it; `Dead` where there is no such group.
    pub state: String,
    /// `classic` or `consumer`.
    pub kind: &'static str,
    /// What its members are; `consumer` for consumers.
    pub protocol_type: String,
    /// The assignor; empty while there is none.
    pub assignor: String,
    /// Of a consumer group; `None` for a classic one.
    pub epoch: Option<i32>,
    /// For which epoch the targets were computed last.
    pub target_epoch: Option<i32>,
    pub coordinator: NodeId,
    pub members: Vec<GroupMember>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMember {
    pub id: String,
    /// A static member's name. KIP-345.
    pub instance: Option<String>,
    pub client_id: String,
    /// As the coordinator saw it, a slash before an address.
    pub host: String,
    /// Of a consumer group's member.
    pub epoch: Option<i32>,
    /// Topics that it reads.
    pub subscribed: Vec<String>,
    /// Partitions by topic that it has.
    pub assigned: BTreeMap<String, Vec<i32>>,
    /// What a consumer group's member is to have; `None` for a classic one.
    pub target: Option<BTreeMap<String, Vec<i32>>>,
}

impl GroupDescription {
    /// Whether the group is known to its coordinator.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.state != "Dead"
    }
}

impl Client {
    /// A group and its members. One that does not exist is `Dead` and has none, as Kafka has it.
    ///
    /// # Errors
    ///
    /// If its coordinator does not answer in time.
    pub async fn describe_group(&self, group: &str) -> Result<GroupDescription, Error> {
        match self.describe_consumer_group(group).await {
            Ok(description) => Ok(description),
            // No such consumer group, or a broker that knows of none.
            Err(Error::Unsupported { .. }) => self.describe_classic_group(group).await,
            Err(error) if error.code() == Some(Code::GroupIdNotFound) => {
                self.describe_classic_group(group).await
            }
            Err(error) => Err(error),
        }
    }

    async fn describe_consumer_group(&self, group: &str) -> Result<GroupDescription, Error> {
        let request = m::ConsumerGroupDescribeRequest {
            group_ids: vec![Text::from(group)],
            include_authorized_operations: false,
        };
        let verdict = |response: &m::ConsumerGroupDescribeResponse| {
            let code = response.groups.first().and_then(|group| refusal(group.error_code));
            code.map_or(Ok(()), |code| Err(refused(group, code, None)))
        };
        let (coordinator, response) = self.ask_group(group, &request, verdict).await?;
        let found = only(response.groups, group)?;
        let members = found.members.iter().map(|member| GroupMember {
            id: member.member_id.to_string(),
            instance: member.instance_id.as_ref().map(|text| text.to_string()),
            client_id: member.client_id.to_string(),
            host: member.client_host.to_string(),
            epoch: Some(member.member_epoch),
            subscribed: member.subscribed_topic_names.iter().map(Text::to_string).collect(),
            assigned: named(&member.assignment),
            target: Some(named(&member.target_assignment)),
        });
        Ok(GroupDescription {
            group: group.to_owned(),
            state: found.group_state.to_string(),
            kind: "consumer",
            protocol_type: "consumer".to_owned(),
            assignor: found.assignor_name.to_string(),
            epoch: Some(found.group_epoch),
            target_epoch: Some(found.assignment_epoch),
            coordinator,
            members: members.collect(),
        })
    }

    async fn describe_classic_group(&self, group: &str) -> Result<GroupDescription, Error> {
        let request = m::DescribeGroupsRequest {
            groups: vec![Text::from(group)],
            include_authorized_operations: false,
        };
        let verdict = |response: &m::DescribeGroupsResponse| {
            let code = response.groups.first().and_then(|group| refusal(group.error_code));
            // From version 6 on an unknown group is an error; before, it is `Dead`.
            let code = code.filter(|code| *code != Code::GroupIdNotFound);
            code.map_or(Ok(()), |code| Err(refused(group, code, None)))
        };
        let (coordinator, response) = self.ask_group(group, &request, verdict).await?;
        let found = only(response.groups, group)?;
        let members = found.members.iter().map(|member| GroupMember {
            id: member.member_id.to_string(),
            instance: member.group_instance_id.as_ref().map(|text| text.to_string()),
            client_id: member.client_id.to_string(),
            host: member.client_host.to_string(),
            epoch: None,
            // The words of members that are no consumers are their own.
            subscribed: assign::decode_subscription(&member.member_metadata).unwrap_or_default(),
            assigned: assign::decode_assignment(&member.member_assignment).unwrap_or_default(),
            target: None,
        });
        let state = if found.group_state.is_empty() { "Dead" } else { &found.group_state };
        Ok(GroupDescription {
            group: group.to_owned(),
            state: state.to_owned(),
            kind: "classic",
            protocol_type: found.protocol_type.to_string(),
            assignor: found.protocol_data.to_string(),
            epoch: None,
            target_epoch: None,
            coordinator,
            members: members.collect(),
        })
    }
}

fn only<T>(groups: Vec<T>, group: &str) -> Result<T, Error> {
    groups.into_iter().next().ok_or_else(|| Error::Malformed {
        address: "the coordinator".to_owned(),
        reason: format!("nothing about {}", group_named(group)),
    })
}

fn named(assignment: &m::consumer_group_describe::Assignment) -> BTreeMap<String, Vec<i32>> {
    let topics = assignment.topic_partitions.iter();
    topics.map(|topic| (topic.topic_name.to_string(), topic.partitions.clone())).collect()
}
