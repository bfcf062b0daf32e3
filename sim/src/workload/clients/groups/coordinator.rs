//! A member's way to its coordinator: finding it, asking it, and what is asked in every protocol:
//! commits and committed offsets.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;
use std::time::Duration;

use quorate_net::kafka::Call;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::offset_commit::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use quorate_net::kafka::messages::offset_fetch::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use quorate_net::kafka::messages::{
    FindCoordinatorRequest, OffsetCommitRequest, OffsetFetchRequest,
};
use quorate_net::wire::Text;

use super::super::super::client::{Link, within};
use super::super::{Scene, topic_name};
use super::group_name;
use crate::history::Partition;
use crate::history::groups::{Claim, Committed, GroupCall, GroupEnd};

/// The versions that all members ask in: the newest that name topics.
const FIND: i16 = 4;
const COMMIT: i16 = 9;
const FETCH: i16 = 9;

/// The connection to a group's coordinator, while there is one. The lock is never waited for: it
/// lets a member be lent while it waits for something else.
#[derive(Default)]
pub(super) struct Coordinator {
    link: Mutex<Option<Link>>,
}

/// The code of an answer; an unknown number is an unknown error.
pub(in super::super) fn code_of(number: i16) -> Option<Code> {
    (number != 0).then(|| Code::from_code(number).unwrap_or(Code::UnknownServerError))
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

impl Coordinator {
    pub(super) fn forget(&mut self) {
        self.link = Mutex::default();
    }

    /// Asks, and waits for the answer so much longer than usual. Without one, the next question
    /// finds the coordinator anew.
    pub(super) async fn ask<R: Call>(
        &mut self,
        scene: &Scene,
        who: &Claim,
        (version, patience): (i16, Duration),
        request: &R,
    ) -> io::Result<R::Response> {
        let known = self.link.get_mut().expect("one thread").take();
        let mut link = match known {
            Some(link) => link,
            None => find(scene, who).await?,
        };
        let most = scene.timeout() + patience;
        let response = within(&*scene.clock, most, link.call(version, request)).await?;
        self.link = Mutex::new(Some(link));
        Ok(response)
    }

    /// A code that says that the coordinator is elsewhere.
    pub(super) fn heed(&mut self, code: Code) {
        if matches!(code, Code::NotCoordinator | Code::CoordinatorNotAvailable) {
            self.forget();
        }
    }

    /// Commits; whether all of it was accepted.
    pub(super) async fn commit(
        &mut self,
        scene: &Scene,
        who: &Claim,
        offsets: Vec<(Partition, Committed)>,
    ) -> Option<Code> {
        let mut topics: BTreeMap<u32, OffsetCommitRequestTopic> = BTreeMap::new();
        for (partition, at) in &offsets {
            let topic = topics.entry(partition.topic).or_insert_with(|| OffsetCommitRequestTopic {
                name: topic_name(*partition),
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
        let count = offsets.len();
        let call = GroupCall::Commit { offsets };
        let id = scene.history().invoke_in_group(who.clone(), scene.now().monotonic, call);
        let answer = self.ask(scene, who, (COMMIT, Duration::ZERO), &request).await;
        let Ok(response) = answer else { return Some(Code::NetworkException) };
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
            scene.history().complete_in_group(id, scene.now().monotonic, end);
        }
        if let Some(code) = refused {
            self.heed(code);
            scene.stage.note(who.client, format!("commits, and is told {code}"));
        }
        refused
    }

    /// The group's offsets of some partitions; `None` without an answer.
    pub(super) async fn fetch(
        &mut self,
        scene: &Scene,
        who: &Claim,
        partitions: &[Partition],
    ) -> Result<Vec<Option<Committed>>, Option<Code>> {
        let mut topics: BTreeMap<u32, OffsetFetchRequestTopics> = BTreeMap::new();
        for partition in partitions {
            let topic = topics.entry(partition.topic).or_insert_with(|| OffsetFetchRequestTopics {
                name: topic_name(*partition),
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
        let call = GroupCall::Fetch { partitions: partitions.to_vec() };
        let id = scene.history().invoke_in_group(who.clone(), scene.now().monotonic, call);
        let answer = self.ask(scene, who, (FETCH, Duration::ZERO), &request).await;
        let Ok(response) = answer else { return Err(None) };
        let Some(group) = response.groups.first() else { return Err(None) };
        let rows = || {
            group.topics.iter().flat_map(|topic| {
                let name = topic.name.as_str().strip_prefix('t').and_then(|name| name.parse().ok());
                topic.partitions.iter().map(move |row| (name, row))
            })
        };
        let codes = [group.error_code].into_iter().chain(rows().map(|(_, row)| row.error_code));
        if let Some(code) = codes.filter_map(code_of).next() {
            self.heed(code);
            let end = GroupEnd::Refused(code);
            scene.history().complete_in_group(id, scene.now().monotonic, end);
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
        scene.history().complete_in_group(id, scene.now().monotonic, end);
        Ok(offsets)
    }
}

/// A connection to the coordinator of the member's group.
async fn find(scene: &Scene, who: &Claim) -> io::Result<Link> {
    let nowhere = || io::Error::other("no node answers");
    let mut link = scene.connect(who.client).await.ok_or_else(nowhere)?;
    let name = group_name(who.group);
    let request =
        FindCoordinatorRequest { key: name.clone(), key_type: 0, coordinator_keys: vec![name] };
    let answer = within(&*scene.clock, scene.timeout(), link.call(FIND, &request)).await?;
    let found = answer.coordinators.first().ok_or_else(|| io::Error::other("an empty response"))?;
    if let Some(code) = code_of(found.error_code) {
        scene.stage.note(who.client, format!("finds no coordinator of g{}: {code}", who.group));
        return Err(io::Error::other(code.name()));
    }
    let address = format!("{}:{}", found.host.as_str(), found.port);
    scene.connect_to(who.client, &address).await.ok_or_else(nowhere)
}
