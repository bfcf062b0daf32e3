//! Groups as an administrator asks for them: which there are, who is in them, how far they have
//! come; and their offsets set, forgotten, or the whole group deleted.

mod members;

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::id::{LeaderEpoch, NodeId, Offset};
use quorate_core::time::Timestamp;

pub use self::members::{GroupDescription, GroupMember};
use super::admin::accepted;
use super::coordinator::Coordinated;
use super::metadata::{partition_named, refusal};
use super::route::Lane;
use super::{Client, Error, PartitionName, PerPartition};
use crate::kafka::Call;
use crate::kafka::error::Code;
use crate::kafka::messages as m;
use crate::wire::Text;

/// A group in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedGroup {
    pub group: String,
    /// Empty for a group that only holds offsets.
    pub protocol_type: String,
    /// Kafka's name of it; empty from brokers before KIP-518.
    pub state: String,
    /// `classic` or `consumer`; empty from brokers before KIP-848.
    pub kind: String,
    /// Who coordinates it.
    pub coordinator: NodeId,
}

/// How far a group has come in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOffset {
    /// The next record to be consumed.
    pub offset: Offset,
    pub leader_epoch: Option<LeaderEpoch>,
    pub metadata: String,
    /// When it was committed; only Quorate's nodes tell.
    pub at: Option<Timestamp>,
}

/// A group's offsets.
pub type GroupOffsets = BTreeMap<PartitionName, GroupOffset>;

fn group_named(group: &str) -> String {
    format!("group {group}")
}

/// The error that stands for a code that concerns the group, in words where a code alone says
/// little.
fn refused(group: &str, code: Code, message: Option<&Text>) -> Error {
    let words = match code {
        Code::NonEmptyGroup => Some("it has members: stop them first"),
        Code::GroupIdNotFound => Some("there is no such group"),
        Code::GroupSubscribedToTopic => {
            Some("a member of the group reads the topic: stop it first")
        }
        // What a coordinator says of a commit from outside to a group with members.
        Code::UnknownMemberId => Some("it has members: only they may commit; stop them first"),
        _ => None,
    };
    let message = words.or_else(|| message.map(Text::as_str));
    Error::refused(group_named(group), code, message)
}

/// Topics with something about each partition, from partitions in any order.
fn by_topic<'a, T>(
    partitions: impl Iterator<Item = (&'a PartitionName, T)>,
) -> BTreeMap<&'a str, Vec<T>> {
    let mut topics: BTreeMap<&str, Vec<T>> = BTreeMap::new();
    for (name, about) in partitions {
        topics.entry(&name.topic).or_default().push(about);
    }
    topics
}

impl Client {
    /// All groups, by name. Each node lists those that it coordinates, so all are asked; with
    /// those that did not answer, and why.
    ///
    /// # Errors
    ///
    /// If the cluster cannot be asked, or none of its nodes answers.
    pub async fn list_groups(&self) -> Result<(Vec<ListedGroup>, Vec<(NodeId, Error)>), Error> {
        let request = m::ListGroupsRequest::default();
        let (mut groups, mut silent) = (Vec::new(), Vec::new());
        let brokers = self.cluster().await?.brokers;
        for (&id, broker) in &brokers {
            let attempt = || async {
                let routes = &self.inner.routes;
                let call = routes.call(&broker.address, Lane::Ask, &request, Duration::ZERO);
                let response = call.await?;
                accepted(&format!("the groups of node {id}"), response.error_code, None)?;
                Ok(response)
            };
            match self.retry(&format!("listing the groups of node {id}"), attempt).await {
                Ok(response) => groups.extend(response.groups.iter().map(|group| ListedGroup {
                    group: group.group_id.to_string(),
                    protocol_type: group.protocol_type.to_string(),
                    state: group.group_state.to_string(),
                    kind: group.group_type.to_string(),
                    coordinator: id,
                })),
                Err(error) => silent.push((id, error)),
            }
        }
        if silent.len() == brokers.len()
            && let Some((_, error)) = silent.pop()
        {
            return Err(error);
        }
        groups.sort_by(|a, b| a.group.cmp(&b.group));
        groups.dedup_by(|a, b| a.group == b.group);
        Ok((groups, silent))
    }

    /// Asks the group's coordinator, with retries while there is none, or it is another.
    pub(super) async fn ask_group<R: Call>(
        &self,
        group: &str,
        request: &R,
        verdict: impl Fn(&R::Response) -> Result<(), Error>,
    ) -> Result<(NodeId, R::Response), Error> {
        let attempt = || async {
            let (node, address) = self.coordinator_once(Coordinated::Group, group).await?;
            let routes = &self.inner.routes;
            let response = routes.call(&address, Lane::Ask, request, Duration::ZERO).await?;
            verdict(&response)?;
            Ok((node, response))
        };
        self.retry(&group_named(group), attempt).await
    }

    /// How far a group has come, in all partitions of which it has an offset. Nothing for a group
    /// that does not exist.
    ///
    /// # Errors
    ///
    /// If its coordinator does not answer in time.
    pub async fn group_offsets(&self, group: &str) -> Result<GroupOffsets, Error> {
        self.offsets_of(group, false).await
    }

    /// As `group_offsets`, once no transaction is about to commit any of them. KIP-447.
    ///
    /// # Errors
    ///
    /// If its coordinator does not answer in time, or a transaction stays open for longer.
    pub async fn stable_group_offsets(&self, group: &str) -> Result<GroupOffsets, Error> {
        self.offsets_of(group, true).await
    }

    async fn offsets_of(&self, group: &str, require_stable: bool) -> Result<GroupOffsets, Error> {
        let request = m::OffsetFetchRequest {
            group_id: Text::from(group),
            topics: None,
            groups: vec![m::offset_fetch::OffsetFetchRequestGroup {
                group_id: Text::from(group),
                topics: None,
                with_times: true,
                ..Default::default()
            }],
            require_stable,
        };
        let verdict = |response: &m::OffsetFetchResponse| {
            let of_group = response.groups.first().map_or(0, |group| group.error_code);
            let codes = [response.error_code, of_group, unstable(response)];
            let code = codes.into_iter().find_map(refusal);
            code.map_or(Ok(()), |code| Err(refused(group, code, None)))
        };
        let (_, response) = self.ask_group(group, &request, verdict).await?;
        self.learn_names(&response).await?;
        let mut offsets = GroupOffsets::new();
        let mut take = |topic: String, row: (i32, i64, i32, Option<&Text>), at: i64| {
            let (partition, offset, epoch, metadata) = row;
            if offset >= 0 {
                let committed = GroupOffset {
                    offset: Offset(offset),
                    leader_epoch: Some(LeaderEpoch(epoch)).filter(|epoch| epoch.0 >= 0),
                    metadata: metadata.map(|text| text.to_string()).unwrap_or_default(),
                    at: Some(Timestamp(at)).filter(|at| at.0 >= 0),
                };
                offsets.insert(PartitionName { topic, partition }, committed);
            }
        };
        for topic in &response.topics {
            for row in &topic.partitions {
                let metadata = row.metadata.as_ref();
                let epoch = row.committed_leader_epoch;
                let row = (row.partition_index, row.committed_offset, epoch, metadata);
                take(topic.name.to_string(), row, -1);
            }
        }
        for topic in response.groups.iter().flat_map(|group| &group.topics) {
            let name = self.name_told(&topic.name, topic.topic_id);
            for row in &topic.partitions {
                let metadata = row.metadata.as_ref();
                let epoch = row.committed_leader_epoch;
                let found = row.committed_at;
                let row = (row.partition_index, row.committed_offset, epoch, metadata);
                take(name.clone(), row, found);
            }
        }
        Ok(offsets)
    }

    /// Answers that tell topics by id are read with the names of all topics.
    async fn learn_names(&self, response: &m::OffsetFetchResponse) -> Result<(), Error> {
        let mut topics = response.groups.iter().flat_map(|group| &group.topics);
        if topics.any(|topic| topic.name.is_empty()) {
            self.cluster().await?;
        }
        Ok(())
    }

    /// Sets offsets of a group from outside, which a coordinator allows while it has no members.
    /// What was refused of single partitions stands with them.
    ///
    /// # Errors
    ///
    /// If the group as a whole is refused, or its coordinator does not answer in time.
    pub async fn set_group_offsets(
        &self,
        group: &str,
        offsets: &BTreeMap<PartitionName, Offset>,
    ) -> Result<PerPartition, Error> {
        let topics = by_topic(offsets.iter().map(|(name, offset)| {
            let partition = m::offset_commit::OffsetCommitRequestPartition {
                partition_index: name.partition,
                committed_offset: offset.0,
                // Kafka's own tool sends no null here.
                committed_metadata: Some(Text::from_static("")),
                ..Default::default()
            };
            (name, partition)
        }));
        let topics = self.with_ids(topics).await?.into_iter();
        let topics = topics.map(|(name, topic_id, partitions)| {
            m::offset_commit::OffsetCommitRequestTopic { name, topic_id, partitions }
        });
        let request = m::OffsetCommitRequest {
            group_id: Text::from(group),
            topics: topics.collect(),
            ..Default::default()
        };
        // What concerns the group as a whole stands at each partition.
        let verdict = |response: &m::OffsetCommitResponse| {
            let rows = response.topics.iter().flat_map(|topic| &topic.partitions);
            let codes = rows.filter_map(|row| refusal(row.error_code));
            let of_group =
                |code: &Code| !matches!(code, Code::UnknownTopicOrPartition | Code::UnknownTopicId);
            codes.into_iter().find(of_group).map_or(Ok(()), |code| Err(refused(group, code, None)))
        };
        let (_, response) = self.ask_group(group, &request, verdict).await?;
        let rows = response.topics.into_iter().flat_map(|topic| {
            let name = self.name_told(&topic.name, topic.topic_id);
            topic.partitions.into_iter().map(move |row| (name.clone(), row))
        });
        let rows =
            rows.map(|(topic, row)| outcome(group, topic, row.partition_index, row.error_code));
        Ok(rows.collect())
    }

    /// Forgets offsets of a group, of topics that none of its members reads. What was refused of
    /// single partitions stands with them. KIP-496.
    ///
    /// # Errors
    ///
    /// If the group as a whole is refused, or its coordinator does not answer in time.
    pub async fn delete_group_offsets(
        &self,
        group: &str,
        partitions: &[PartitionName],
    ) -> Result<PerPartition, Error> {
        let topics = by_topic(partitions.iter().map(|name| {
            let partition_index = name.partition;
            (name, m::offset_delete::OffsetDeleteRequestPartition { partition_index })
        }));
        let topics = topics.into_iter().map(|(name, partitions)| {
            m::offset_delete::OffsetDeleteRequestTopic { name: Text::from(name), partitions }
        });
        let request =
            m::OffsetDeleteRequest { group_id: Text::from(group), topics: topics.collect() };
        let verdict = |response: &m::OffsetDeleteResponse| {
            let code = refusal(response.error_code);
            code.map_or(Ok(()), |code| Err(refused(group, code, None)))
        };
        let (_, response) = self.ask_group(group, &request, verdict).await?;
        let rows = response.topics.into_iter().flat_map(|topic| {
            let name = topic.name.to_string();
            topic.partitions.into_iter().map(move |row| (name.clone(), row))
        });
        let rows =
            rows.map(|(topic, row)| outcome(group, topic, row.partition_index, row.error_code));
        Ok(rows.collect())
    }

    /// Deletes a group that has no members, with all its offsets.
    ///
    /// # Errors
    ///
    /// Why not; `GROUP_ID_NOT_FOUND` also after a first attempt of which no answer came.
    pub async fn delete_group(&self, group: &str) -> Result<(), Error> {
        let request = m::DeleteGroupsRequest { groups_names: vec![Text::from(group)] };
        let verdict = |response: &m::DeleteGroupsResponse| {
            let result = response.results.first();
            let code = result.and_then(|result| refusal(result.error_code));
            let message = result.and_then(|result| result.error_message.as_ref());
            code.map_or(Ok(()), |code| Err(refused(group, code, message)))
        };
        self.ask_group(group, &request, verdict).await?;
        Ok(())
    }
}

/// The code of a partition whose offset a transaction is about to commit; 0 for none.
fn unstable(response: &m::OffsetFetchResponse) -> i16 {
    let wanted = Code::UnstableOffsetCommit.code();
    let old = response.topics.iter().flat_map(|topic| &topic.partitions);
    let topics = response.groups.iter().flat_map(|group| &group.topics);
    let new = topics.flat_map(|topic| &topic.partitions);
    let mut codes = old.map(|row| row.error_code).chain(new.map(|row| row.error_code));
    codes.find(|code| *code == wanted).unwrap_or_default()
}

fn outcome(
    group: &str,
    topic: String,
    partition: i32,
    code: i16,
) -> (PartitionName, Result<(), Error>) {
    let result = refusal(code).map_or(Ok(()), |code| match code {
        Code::UnknownTopicOrPartition | Code::UnknownTopicId => {
            Err(Error::refused(partition_named(&topic, partition), code, None))
        }
        code => Err(refused(group, code, None)),
    });
    (PartitionName { topic, partition }, result)
}
