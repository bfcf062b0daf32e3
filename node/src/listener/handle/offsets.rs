//! OffsetCommit, OffsetFetch and OffsetDelete: how far groups have come, kept by their
//! coordinators.

use std::collections::BTreeMap;

use quorate_core::group::interface::{
    CommitOffsets, CommittedOffset, FetchOffsets, Input, MemberClaim, Outcome, Refusal,
    TopicPartition,
};
use quorate_core::id::{LeaderEpoch, Offset, RequestId, TopicId};
use quorate_core::{mutant, reached};
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::offset_commit::{
    OffsetCommitRequestTopic, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use quorate_net::kafka::messages::offset_delete::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use quorate_net::kafka::messages::offset_fetch::{
    OffsetFetchRequestGroup, OffsetFetchResponseGroup, OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions, OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use quorate_net::kafka::messages::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse,
    OffsetFetchRequest, OffsetFetchResponse,
};
use quorate_net::wire::Text;

use super::groups::{ask, texts};
use super::repeated::once;
use crate::driver::ask::Stopped;
use crate::node::Node;

/// The version from which OffsetFetch asks for many groups at once. KIP-709.
const MANY_GROUPS: i16 = 8;
/// The version from which topics go by their ids in both requests. KIP-848.
const TOPIC_IDS: i16 = 10;
/// The version from which OffsetCommit speaks of a member's epoch. KIP-848.
const MEMBER_EPOCHS: i16 = 9;
/// The first version with one error for the whole answer.
const ERROR_ON_TOP: i16 = 2;

pub(super) async fn commit(
    node: &Node,
    version: i16,
    request: OffsetCommitRequest,
) -> Result<OffsetCommitResponse, Stopped> {
    let mut topics: Vec<OffsetCommitResponseTopic> = Vec::with_capacity(request.topics.len());
    let mut offsets = Vec::new();
    // Where in `topics` the answer to each offset goes.
    let mut places = Vec::new();
    for topic in request.topics {
        let OffsetCommitRequestTopic { mut name, topic_id, partitions } = topic;
        let known = if version >= TOPIC_IDS {
            node.catalog.topic(topic_id)
        } else {
            node.catalog.topic_named(&name)
        };
        let unknown = if version >= TOPIC_IDS && known.is_none() {
            Code::UnknownTopicId
        } else {
            Code::UnknownTopicOrPartition
        };
        if version >= TOPIC_IDS {
            name = known.as_ref().map(|topic| topic.name.as_str().into()).unwrap_or_default();
        }
        let mut rows = Vec::with_capacity(partitions.len());
        for asked in partitions {
            let partition = asked.partition_index;
            let there = known.as_ref().is_some_and(|topic| topic.partition(partition).is_some());
            let code = if there { Code::None } else { unknown };
            if there {
                places.push((topics.len(), rows.len()));
                let committed = CommittedOffset {
                    offset: Offset(asked.committed_offset),
                    leader_epoch: LeaderEpoch(asked.committed_leader_epoch),
                    metadata: asked.committed_metadata.as_ref().map(texts).unwrap_or_default(),
                    topic: known.as_ref().map_or(TopicId::NONE, |topic| topic.id),
                };
                offsets.push((TopicPartition { topic: texts(&name), partition }, committed));
            }
            rows.push(OffsetCommitResponsePartition {
                partition_index: partition,
                error_code: code.code(),
            });
        }
        topics.push(OffsetCommitResponseTopic { name, topic_id, partitions: rows });
    }
    let member = MemberClaim {
        group: texts(&request.group_id),
        member: texts(&request.member_id),
        instance: request.group_instance_id.as_ref().map(texts),
        generation: request.generation_id_or_member_epoch,
    };
    let knows_epochs = version >= MEMBER_EPOCHS;
    if !offsets.is_empty() {
        let commit = CommitOffsets { request: RequestId(0), member, knows_epochs, offsets };
        let input = |request| Input::CommitOffsets(CommitOffsets { request, ..commit });
        let refusals: Vec<Option<Refusal>> = match ask(node, &request.group_id, input).await? {
            Outcome::OffsetsCommitted { partitions } => {
                partitions.into_iter().map(|(_, refusal)| refusal).collect()
            }
            Outcome::Refused(refusal) => vec![Some(refusal); places.len()],
            other => unreachable!("offsets are committed, not {other:?}"),
        };
        for ((topic, row), refusal) in places.into_iter().zip(refusals) {
            let code = refusal.as_ref().map_or(Code::None, Code::from);
            topics[topic].partitions[row].error_code = code.code();
        }
    }
    Ok(OffsetCommitResponse { topics, ..OffsetCommitResponse::default() })
}

/// Forgets offsets of topics that no member reads. KIP-496.
pub(super) async fn delete(
    node: &Node,
    request: OffsetDeleteRequest,
) -> Result<OffsetDeleteResponse, Stopped> {
    let mut topics: Vec<OffsetDeleteResponseTopic> = Vec::with_capacity(request.topics.len());
    let mut wanted = Vec::new();
    // Where in `topics` the answer to each goes.
    let mut places = Vec::new();
    for topic in once(request.topics, |topic| topic.name.clone()) {
        let known = node.catalog.topic_named(&topic.name);
        let mut rows = Vec::with_capacity(topic.partitions.len());
        for asked in once(topic.partitions, |asked| asked.partition_index) {
            let partition_index = asked.partition_index;
            let there =
                known.as_ref().is_some_and(|topic| topic.partition(partition_index).is_some());
            let code = if there { Code::None } else { Code::UnknownTopicOrPartition };
            if there {
                places.push((topics.len(), rows.len()));
                let topic = texts(&topic.name);
                wanted.push(TopicPartition { topic, partition: partition_index });
            }
            rows.push(OffsetDeleteResponsePartition { partition_index, error_code: code.code() });
        }
        topics.push(OffsetDeleteResponseTopic { name: topic.name, partitions: rows });
    }
    let group = texts(&request.group_id);
    let input = |request| Input::DeleteOffsets { request, group, partitions: wanted };
    match ask(node, &request.group_id, input).await? {
        Outcome::OffsetsDeleted { partitions } => {
            for ((topic, row), (_, refusal)) in places.into_iter().zip(partitions) {
                let code = refusal.as_ref().map_or(Code::None, Code::from);
                topics[topic].partitions[row].error_code = code.code();
            }
            Ok(OffsetDeleteResponse { topics, ..OffsetDeleteResponse::default() })
        }
        // Kafka names no topics where the group itself is refused.
        Outcome::Refused(refusal) => Ok(OffsetDeleteResponse {
            error_code: Code::from(&refusal).code(),
            ..OffsetDeleteResponse::default()
        }),
        other => unreachable!("offsets are deleted, not {other:?}"),
    }
}

/// What one group has of one topic, in the order of the request.
struct Rows {
    name: Text,
    rows: Vec<(i32, Result<Option<CommittedOffset>, Refusal>)>,
}

pub(super) async fn fetch(
    node: &Node,
    version: i16,
    request: OffsetFetchRequest,
) -> Result<OffsetFetchResponse, Stopped> {
    if version >= MANY_GROUPS {
        let mut groups = Vec::with_capacity(request.groups.len());
        for asked in once(request.groups, |group| group.group_id.clone()) {
            groups.push(one_of_many(node, version, asked, request.require_stable).await?);
        }
        return Ok(OffsetFetchResponse { groups, ..OffsetFetchResponse::default() });
    }
    let wanted = request.topics.as_ref().map(|topics| {
        let each = topics.iter().map(|topic| Asked {
            name: &topic.name,
            id: id_of(node, &topic.name),
            partitions: &topic.partition_indexes,
        });
        each.collect()
    });
    let (found, code) =
        one(node, (&request.group_id, None), wanted, request.require_stable).await?;
    let each = if version < ERROR_ON_TOP { code } else { Code::None };
    Ok(OffsetFetchResponse {
        topics: found.into_iter().map(|rows| topic_row(rows, each)).collect(),
        error_code: code.code(),
        ..OffsetFetchResponse::default()
    })
}

async fn one_of_many(
    node: &Node,
    version: i16,
    mut asked: OffsetFetchRequestGroup,
    require_stable: bool,
) -> Result<OffsetFetchResponseGroup, Stopped> {
    let mut unknown = Vec::new();
    if version >= TOPIC_IDS
        && let Some(topics) = &mut asked.topics
    {
        topics.retain_mut(|topic| match node.catalog.topic(topic.topic_id) {
            Some(known) => {
                topic.name = known.name.as_str().into();
                true
            }
            None => {
                unknown.push((topic.topic_id, std::mem::take(&mut topic.partition_indexes)));
                false
            }
        });
    }
    let by_id = version >= TOPIC_IDS;
    let wanted: Wanted<'_> = asked.topics.as_ref().map(|topics| {
        let each = topics.iter().map(|topic| Asked {
            name: &topic.name,
            id: if by_id { topic.topic_id } else { id_of(node, &topic.name) },
            partitions: &topic.partition_indexes,
        });
        each.collect()
    });
    let member = asked.member_id.as_ref().map(|member| (texts(member), asked.member_epoch));
    let (found, code) = one(node, (&asked.group_id, member), wanted, require_stable).await?;
    let mut topics: Vec<_> = found.into_iter().map(topics_row).collect();
    if asked.with_times && asked.topics.is_none() {
        add_times(node, &asked.group_id, &mut topics).await?;
    }
    if by_id {
        for topic in &mut topics {
            let mut named = asked.topics.iter().flatten();
            let said = named.find(|said| said.name == topic.name).map(|said| said.topic_id);
            topic.topic_id = said.unwrap_or_else(|| id_of(node, &topic.name));
        }
        topics.extend(unknown.into_iter().map(|(topic_id, indexes)| {
            let rows = indexes.into_iter().map(|partition_index| OffsetFetchResponsePartitions {
                partition_index,
                committed_offset: -1,
                committed_leader_epoch: -1,
                metadata: Some(Text::default()),
                error_code: Code::UnknownTopicId.code(),
                ..OffsetFetchResponsePartitions::default()
            });
            OffsetFetchResponseTopics {
                topic_id,
                partitions: rows.collect(),
                ..OffsetFetchResponseTopics::default()
            }
        }));
    }
    Ok(OffsetFetchResponseGroup { group_id: asked.group_id, topics, error_code: code.code() })
}

/// Says when each offset was committed, as far as it is still the group's.
async fn add_times(
    node: &Node,
    group: &Text,
    topics: &mut [OffsetFetchResponseTopics],
) -> Result<(), Stopped> {
    let name = Some(texts(group));
    let input = |request| Input::Survey { request, group: name };
    let Outcome::Surveyed { groups } = ask(node, group, input).await? else { return Ok(()) };
    let offsets = groups.iter().flat_map(|group| &group.offsets);
    let times: BTreeMap<(&str, i32, i64), i64> = offsets
        .map(|found| {
            let TopicPartition { topic, partition } = &found.partition;
            ((topic.as_str(), *partition, found.offset.0), found.at.millis())
        })
        .collect();
    for topic in topics {
        for row in &mut topic.partitions {
            let found = (topic.name.as_str(), row.partition_index, row.committed_offset);
            row.committed_at = times.get(&found).copied().unwrap_or(-1);
        }
    }
    Ok(())
}

/// A topic of which the offsets are asked for.
struct Asked<'a> {
    name: &'a Text,
    /// Which topic is meant by the name; `TopicId::NONE` where that is not known here.
    id: TopicId,
    partitions: &'a [i32],
}

/// `None` for all that the group has.
type Wanted<'a> = Option<Vec<Asked<'a>>>;

/// The topic that has the name, as far as is known here.
fn id_of(node: &Node, name: &str) -> TopicId {
    node.catalog.topic_named(name).map_or(TopicId::NONE, |topic| topic.id)
}

/// Leaves out what was committed for another topic of the same name: one that was deleted, and
/// whose offsets are not forgotten yet, or never were, since its coordinator fell at that moment.
/// KAFKA-19154.
fn of_these_topics(
    node: &Node,
    wanted: &Wanted<'_>,
    mut partitions: Vec<(TopicPartition, Result<Option<CommittedOffset>, Refusal>)>,
) -> Vec<(TopicPartition, Result<Option<CommittedOffset>, Refusal>)> {
    if mutant!("offsets-outlive-topic") || mutant!("offsets-go-by-name") {
        return partitions;
    }
    let asked: Option<BTreeMap<&str, TopicId>> = wanted
        .as_ref()
        .map(|topics| topics.iter().map(|asked| (asked.name.as_str(), asked.id)).collect());
    let is_anothers = |partition: &TopicPartition, committed: &CommittedOffset| {
        let name = partition.topic.as_str();
        let meant = asked.as_ref().and_then(|asked| asked.get(name).copied());
        let meant = meant.unwrap_or_else(|| id_of(node, name));
        let is_known = meant != TopicId::NONE && committed.topic != TopicId::NONE;
        is_known && committed.topic != meant
    };
    partitions.retain_mut(|(partition, found)| match found {
        Ok(Some(committed)) if is_anothers(partition, committed) => {
            reached!("offset-of-another-topic-of-the-name");
            *found = Ok(None);
            wanted.is_some()
        }
        _ => true,
    });
    partitions
}

/// Of one group, asked for by nobody in particular, or by a member with its epoch.
async fn one(
    node: &Node,
    (group, member): (&Text, Option<(String, i32)>),
    wanted: Wanted<'_>,
    require_stable: bool,
) -> Result<(Vec<Rows>, Code), Stopped> {
    let partitions = wanted.as_ref().map(|topics| {
        let each = topics.iter().flat_map(|asked| {
            let topic = || texts(asked.name);
            let rows = asked.partitions.iter();
            rows.map(move |partition| TopicPartition { topic: topic(), partition: *partition })
        });
        each.collect::<Vec<_>>()
    });
    let (request, group_id) = (RequestId(0), texts(group));
    let fetch = FetchOffsets { request, group: group_id, member, partitions, require_stable };
    let input = |request| Input::FetchOffsets(FetchOffsets { request, ..fetch });
    match ask(node, group, input).await? {
        Outcome::OffsetsFetched { partitions } => {
            Ok((by_topic(of_these_topics(node, &wanted, partitions)), Code::None))
        }
        Outcome::Refused(refusal) => {
            let rows = wanted.unwrap_or_default().into_iter().map(|asked| Rows {
                name: asked.name.clone(),
                rows: asked.partitions.iter().map(|index| (*index, Ok(None))).collect(),
            });
            Ok((rows.collect(), Code::from(&refusal)))
        }
        other => unreachable!("offsets are fetched, not {other:?}"),
    }
}

fn by_topic(
    partitions: Vec<(TopicPartition, Result<Option<CommittedOffset>, Refusal>)>,
) -> Vec<Rows> {
    let mut topics: Vec<Rows> = Vec::new();
    for (partition, found) in partitions {
        let row = (partition.partition, found);
        match topics.last_mut() {
            Some(last) if last.name == partition.topic.as_str() => last.rows.push(row),
            _ => topics.push(Rows { name: partition.topic.into(), rows: vec![row] }),
        }
    }
    topics
}

/// Offset, epoch and metadata, as the wire says "none" of them; and why there are none.
fn parts(found: Result<Option<CommittedOffset>, Refusal>) -> ((i64, i32, Option<Text>), Code) {
    let code = found.as_ref().err().map_or(Code::None, Code::from);
    let found = found.ok().flatten();
    let parts = found.map_or((-1, -1, Some(Text::default())), |found| {
        (found.offset.0, found.leader_epoch.0, Some(found.metadata.into()))
    });
    (parts, code)
}

fn topic_row(Rows { name, rows }: Rows, code: Code) -> OffsetFetchResponseTopic {
    let partitions = rows.into_iter().map(|(partition_index, found)| {
        let ((committed_offset, committed_leader_epoch, metadata), own) = parts(found);
        let code = if code == Code::None { own } else { code };
        OffsetFetchResponsePartition {
            partition_index,
            committed_offset,
            committed_leader_epoch,
            metadata,
            error_code: code.code(),
        }
    });
    OffsetFetchResponseTopic { name, partitions: partitions.collect() }
}

fn topics_row(Rows { name, rows }: Rows) -> OffsetFetchResponseTopics {
    let partitions = rows.into_iter().map(|(partition_index, found)| {
        let ((committed_offset, committed_leader_epoch, metadata), code) = parts(found);
        OffsetFetchResponsePartitions {
            partition_index,
            committed_offset,
            committed_leader_epoch,
            metadata,
            error_code: code.code(),
            ..OffsetFetchResponsePartitions::default()
        }
    });
    OffsetFetchResponseTopics {
        name,
        partitions: partitions.collect(),
        ..OffsetFetchResponseTopics::default()
    }
}
