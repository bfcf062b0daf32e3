//! What such a client asks of its coordinator, and of whoever may be one: commits and what was
//! committed.

use std::io;

use quorate_core::reached;
use quorate_net::kafka::Call;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::offset_commit::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use quorate_net::kafka::messages::offset_fetch::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponsePartitions,
};
use quorate_net::kafka::messages::{
    FindCoordinatorRequest, OffsetCommitRequest, OffsetFetchRequest, OffsetFetchResponse,
};
use quorate_net::wire::Text;

use super::super::super::client::{Link, within};
use super::super::groups::code_of;
use super::{AGAIN, Committer};
use crate::history::offsets::{Event, Fate, Found, Number};

const FIND: i16 = 4;
/// The versions of commits and fetches in which topics have names, and ids.
const BY_NAME: i16 = 9;
const BY_ID: i16 = 10;

/// A refusal by which nothing was done, nor will be.
pub(crate) const fn is_verdict(code: Code) -> bool {
    matches!(
        code,
        Code::IllegalGeneration
            | Code::UnknownMemberId
            | Code::FencedInstanceId
            | Code::RebalanceInProgress
            | Code::CoordinatorLoadInProgress
            | Code::UnknownTopicId
            | Code::UnknownTopicOrPartition
    )
}

impl Committer {
    pub(super) fn group(&self) -> Text {
        Text::from(format!("og{}", self.place))
    }

    /// Asks the coordinator; without an answer it is looked for again.
    pub(super) async fn ask<R: Call>(
        &mut self,
        (version, patience): (i16, std::time::Duration),
        request: &R,
    ) -> io::Result<R::Response> {
        let mut link = match self.link.take() {
            Some(link) => link,
            None => self.find().await?,
        };
        let most = self.scene.timeout() + patience;
        let response = within(&*self.scene.clock, most, link.call(version, request)).await?;
        self.link = Some(link);
        Ok(response)
    }

    /// Heeds that the coordinator is elsewhere.
    pub(super) fn heed(&mut self, code: Code) {
        self.note(format!("is told {code}"));
        if matches!(code, Code::NotCoordinator | Code::CoordinatorNotAvailable) {
            self.link = None;
        }
    }

    /// A connection to the coordinator, which has heard of the newest topic.
    async fn find(&mut self) -> io::Result<Link> {
        let nowhere = || io::Error::other("no node answers");
        let mut link = self.scene.connect(self.client).await.ok_or_else(nowhere)?;
        let name = self.group();
        let request =
            FindCoordinatorRequest { key: name.clone(), key_type: 0, coordinator_keys: vec![name] };
        let timeout = self.scene.timeout();
        let answer = within(&*self.scene.clock, timeout, link.call(FIND, &request)).await?;
        let found = answer.coordinators.first();
        let found = found.ok_or_else(|| io::Error::other("an empty response"))?;
        if let Some(code) = code_of(found.error_code) {
            self.note(format!("finds no coordinator: {code}"));
            return Err(io::Error::other(code.name()));
        }
        let address = format!("{}:{}", found.host.as_str(), found.port);
        let mut link = self.scene.connect_to(self.client, &address).await.ok_or_else(nowhere)?;
        if self.coordinator.as_ref() != Some(&address) {
            self.former = self.coordinator.replace(address);
            self.has_moved = self.former.is_some();
        }
        let until = self.now() + timeout;
        while self.named(&mut link).await? != self.topic {
            if self.now() >= until {
                self.note("finds a coordinator that does not know its topic");
                return Err(io::Error::other("the coordinator does not know the topic"));
            }
            self.scene.clock.sleep(AGAIN).await;
        }
        Ok(link)
    }

    /// The number of the commit, if it was accepted.
    pub(super) async fn commit(&mut self, partition: u32, by_name: bool) -> Option<Number> {
        self.commits += 1;
        let number = self.commits;
        let row = OffsetCommitRequestPartition {
            partition_index: partition as i32,
            committed_offset: number,
            committed_leader_epoch: -1,
            committed_metadata: Some(Text::from(format!("{}:{number}", self.topics))),
        };
        let topic = if by_name {
            let name = self.topic_name();
            OffsetCommitRequestTopic { name, partitions: vec![row], ..Default::default() }
        } else {
            let topic_id = self.topic;
            OffsetCommitRequestTopic { topic_id, partitions: vec![row], ..Default::default() }
        };
        let (member_id, group_instance_id, generation) = self.claim();
        let request = OffsetCommitRequest {
            group_id: self.group(),
            generation_id_or_member_epoch: generation,
            member_id,
            group_instance_id,
            topics: vec![topic],
            ..Default::default()
        };
        let (invoked, version) = (self.now(), if by_name { BY_NAME } else { BY_ID });
        let answer = self.ask((version, std::time::Duration::ZERO), &request).await;
        let rows = answer.iter().flat_map(|answer| &answer.topics);
        let code = rows.flat_map(|topic| &topic.partitions).map(|row| row.error_code).next();
        let fate = match code.map(code_of) {
            Some(None) => Fate::Accepted,
            Some(Some(code)) if is_verdict(code) => Fate::Refused,
            Some(Some(_)) | None => Fate::Unknown,
        };
        self.tell(invoked, Event::Commit { partition, number, by_name, fate });
        if let Some(Some(code)) = code.map(code_of) {
            self.heed(code);
            self.learn(invoked, code);
        } else if fate == Fate::Accepted && generation >= 0 {
            self.heard(invoked, true);
        }
        (fate == Fate::Accepted).then_some(number)
    }

    fn question(&self, by_name: bool) -> OffsetFetchRequest {
        let partition_indexes = (0..self.spec.partitions as i32).collect();
        let topic = if by_name {
            let name = self.topic_name();
            OffsetFetchRequestTopics { name, partition_indexes, ..Default::default() }
        } else {
            let topic_id = self.topic;
            OffsetFetchRequestTopics { topic_id, partition_indexes, ..Default::default() }
        };
        OffsetFetchRequest {
            groups: vec![OffsetFetchRequestGroup {
                group_id: self.group(),
                topics: Some(vec![topic]),
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    /// What is committed in the first partition, if that is told.
    pub(super) async fn read(&mut self, by_name: bool) -> Option<Option<Found>> {
        let request = self.question(by_name);
        let (invoked, version) = (self.now(), if by_name { BY_NAME } else { BY_ID });
        let asking = (version, std::time::Duration::ZERO);
        match self.ask(asking, &request).await {
            Ok(answer) => self.take(invoked, &answer),
            Err(error) => {
                self.note(format!("gets no offsets: {error}"));
                None
            }
        }
    }

    /// Asks any node, as one that was told of a coordinator a while ago, or just now.
    pub(super) async fn read_anywhere(&mut self) {
        let Some(link) = self.scene.connect(self.client).await else { return };
        self.read_by(link).await;
    }

    /// Asks the coordinator of before, as one that was told of it a while ago.
    pub(super) async fn read_at_the_former(&mut self) {
        let Some(address) = self.former.clone() else { return };
        let Some(link) = self.scene.connect_to(self.client, &address).await else { return };
        reached!("a-coordinator-of-before-is-asked");
        self.read_by(link).await;
    }

    async fn read_by(&mut self, mut link: Link) {
        let request = self.question(false);
        for _ in 0..1 + self.chance.below(4) {
            let (invoked, timeout) = (self.now(), self.scene.timeout());
            let answer = within(&*self.scene.clock, timeout, link.call(BY_ID, &request)).await;
            let Ok(answer) = answer else { return };
            if self.take(invoked, &answer).is_some() {
                reached!("offsets-are-read-at-a-node-that-nobody-named");
            }
            self.pause(std::time::Duration::from_millis(1)).await;
        }
    }

    /// Takes down what is told; what it is of the first partition.
    fn take(
        &mut self,
        invoked: quorate_core::time::Instant,
        answer: &OffsetFetchResponse,
    ) -> Option<Option<Found>> {
        let group = answer.groups.first()?;
        if let Some(code) = code_of(group.error_code) {
            self.heed(code);
            return None;
        }
        let mut first = None;
        for row in group.topics.iter().flat_map(|topic| &topic.partitions) {
            if let Some(code) = code_of(row.error_code) {
                self.heed(code);
                continue;
            }
            let partition = row.partition_index as u32;
            match found(row) {
                Ok(found) => {
                    self.tell(invoked, Event::Read { partition, found });
                    if partition == 0 {
                        first = Some(found);
                    }
                }
                Err(what) => self.tell(invoked, Event::Garbled { partition, what }),
            }
        }
        first
    }
}

/// The commit that a row tells of.
fn found(row: &OffsetFetchResponsePartitions) -> Result<Option<Found>, String> {
    if row.committed_offset < 0 {
        return Ok(None);
    }
    let text = row.metadata.as_ref().map_or("", Text::as_str);
    let said = text.split_once(':').and_then(|(topic, number)| {
        Some(Found { topic: topic.parse().ok()?, number: number.parse().ok()? })
    });
    let said = said.filter(|said| said.number == row.committed_offset);
    said.map(Some).ok_or_else(|| format!("{} with {text:?}", row.committed_offset))
}
