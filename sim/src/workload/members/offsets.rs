//! What is asked of a coordinator in every protocol: to commit, and what is committed.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::offset_commit::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use quorate_net::kafka::messages::offset_fetch::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use quorate_net::kafka::messages::{OffsetCommitRequest, OffsetFetchRequest};
use quorate_net::wire::Text;

use super::{Environment, LOOK, code_of, group_name};
use crate::history::Partition;
use crate::history::groups::{Claim, Committed, GroupCall, GroupEnd};

/// The versions that all members ask in: the newest that name topics.
const COMMIT: i16 = 9;
const FETCH: i16 = 9;

fn topic_name(topic: u32) -> Text {
    Text::from(format!("t{topic}"))
}

/// A refusal by which nothing was done. Others may come after the log was written to.
const fn is_verdict(code: Code) -> bool {
    matches!(
        code,
        Code::IllegalGeneration
            | Code::UnknownMemberId
            | Code::FencedInstanceId
            | Code::StaleMemberEpoch
            | Code::RebalanceInProgress
            | Code::CoordinatorLoadInProgress
    )
}

/// A code that says that the coordinator is elsewhere.
pub(super) fn heed<W: Environment>(world: &mut W, code: Code) {
    if matches!(code, Code::NotCoordinator | Code::CoordinatorNotAvailable) {
        world.forget_coordinator();
    }
}

/// Commits; what the first was told that was refused, if any was.
pub(super) async fn commit<W: Environment>(
    world: &mut W,
    who: &Claim,
    offsets: Vec<(Partition, Committed)>,
) -> Option<Code> {
    let mut topics: BTreeMap<u32, OffsetCommitRequestTopic> = BTreeMap::new();
    for (partition, at) in &offsets {
        let topic = topics.entry(partition.topic).or_insert_with(|| OffsetCommitRequestTopic {
            name: topic_name(partition.topic),
            ..Default::default()
        });
        topic.partitions.push(OffsetCommitRequestPartition {
            partition_index: partition.index as i32,
            committed_offset: at.offset,
            committed_leader_epoch: at.leader_epoch,
            committed_metadata: Some(Text::from(at.metadata.as_str())),
        });
    }
    let request = OffsetCommitRequest {
        group_id: group_name(who.group),
        generation_id_or_member_epoch: who.generation,
        member_id: Text::from(who.member.as_str()),
        group_instance_id: who.instance.as_deref().map(Text::from),
        topics: topics.into_values().collect(),
        ..Default::default()
    };
    let (count, now) = (offsets.len(), world.now());
    let call = GroupCall::Commit { offsets };
    let id = world.with_history(|history| history.invoke_in_group(who.clone(), now, call));
    let answer = world.ask(who, (COMMIT, Duration::ZERO), &request).await;
    let Some(response) = answer else { return Some(Code::NetworkException) };
    let rows = response.topics.iter().flat_map(|topic| &topic.partitions);
    let codes: Vec<Option<Code>> = rows.map(|row| code_of(row.error_code)).collect();
    let refused = codes.iter().flatten().next().copied();
    let end = match refused {
        _ if codes.len() != count => GroupEnd::Unknown,
        None => GroupEnd::Committed,
        Some(code) if is_verdict(code) && codes.iter().all(|code| code.is_some()) => {
            GroupEnd::Refused(code)
        }
        Some(_) => GroupEnd::Unknown,
    };
    if end != GroupEnd::Unknown {
        let now = world.now();
        world.with_history(|history| history.complete_in_group(id, now, end));
    }
    if let Some(code) = refused {
        heed(world, code);
        world.note(who.client, format!("commits, and is told {code}"));
    }
    refused
}

/// The group's offsets of some partitions; `None` without an answer.
pub(super) async fn fetch<W: Environment>(
    world: &mut W,
    who: &Claim,
    partitions: &[Partition],
) -> Result<Vec<Option<Committed>>, Option<Code>> {
    let mut topics: BTreeMap<u32, OffsetFetchRequestTopics> = BTreeMap::new();
    for partition in partitions {
        let topic = topics.entry(partition.topic).or_insert_with(|| OffsetFetchRequestTopics {
            name: topic_name(partition.topic),
            ..Default::default()
        });
        topic.partition_indexes.push(partition.index as i32);
    }
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: group_name(who.group),
            topics: Some(topics.into_values().collect()),
            ..Default::default()
        }],
        ..Default::default()
    };
    let (call, now) = (GroupCall::Fetch { partitions: partitions.to_vec() }, world.now());
    let id = world.with_history(|history| history.invoke_in_group(who.clone(), now, call));
    let answer = world.ask(who, (FETCH, Duration::ZERO), &request).await;
    let Some(response) = answer else { return Err(None) };
    let Some(group) = response.groups.first() else { return Err(None) };
    let rows = || {
        group.topics.iter().flat_map(|topic| {
            let name = topic.name.as_str().strip_prefix('t').and_then(|name| name.parse().ok());
            topic.partitions.iter().map(move |row| (name, row))
        })
    };
    let codes = [group.error_code].into_iter().chain(rows().map(|(_, row)| row.error_code));
    let now = world.now();
    if let Some(code) = codes.filter_map(code_of).next() {
        heed(world, code);
        let end = GroupEnd::Refused(code);
        world.with_history(|history| history.complete_in_group(id, now, end));
        return Err(Some(code));
    }
    let mut found: BTreeMap<Partition, Committed> = BTreeMap::new();
    for (topic, row) in rows() {
        let Some(topic) = topic.filter(|_| row.committed_offset >= 0) else { continue };
        let partition = Partition { topic, index: row.partition_index as u32 };
        let metadata = row.metadata.as_ref().map_or_else(String::new, Text::to_string);
        let (offset, leader_epoch) = (row.committed_offset, row.committed_leader_epoch);
        found.insert(partition, Committed { offset, leader_epoch, metadata });
    }
    let offsets: Vec<_> =
        partitions.iter().map(|partition| found.get(partition).cloned()).collect();
    let end = GroupEnd::Fetched { offsets: offsets.clone() };
    world.with_history(|history| history.complete_in_group(id, now, end));
    Ok(offsets)
}

/// The last word of a group on its offsets, once everything else is over.
pub(crate) async fn last<W: Environment>(
    world: &mut W,
    client: u32,
    group: u32,
    partitions: &[Partition],
) {
    let who = Claim {
        group,
        client,
        by_epoch: false,
        member: String::new(),
        instance: None,
        generation: -1,
    };
    world.forget_coordinator();
    while let Err(error) = fetch(world, &who, partitions).await {
        world.note(client, format!("gets no offsets of g{group}: {error:?}"));
        world.sleep(LOOK).await;
    }
}
