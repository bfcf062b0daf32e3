//! Consuming as a member of a classic group: join, share out, heartbeat, commit, leave. Who is in
//! the group is the coordinator's word; what a member reads and commits is the caller's.

pub(super) mod assign;
mod member;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::id::{Offset, TopicId};
use quorate_core::partition::interface::Isolation;

use self::member::{Member, Membership};
use super::metadata::{partition_named, refusal};
use super::{
    Client, Consumer, ConsumerConfig, Error, FetchOptions, OnReset, PartitionBatches, Position,
};
use crate::kafka::error::Code;
use crate::kafka::messages as m;
use crate::wire::Text;

/// How a member behaves. Times are told to the coordinator.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    pub group: String,
    pub topics: Vec<String>,
    /// A static member keeps its partitions over a restart (KIP-345).
    pub instance: Option<String>,
    /// A member that is silent for longer is out.
    pub session_timeout: Duration,
    /// How long the others wait for a member in a rebalance.
    pub rebalance_timeout: Duration,
    pub heartbeat_interval: Duration,
    pub fetch: FetchOptions,
    /// Where to begin without a committed offset.
    pub on_reset: OnReset,
}

impl GroupConfig {
    /// Kafka's usual times.
    #[must_use]
    pub fn new(group: &str, topics: &[&str]) -> Self {
        Self {
            group: group.to_owned(),
            topics: topics.iter().map(|&topic| topic.to_owned()).collect(),
            instance: None,
            session_timeout: Duration::from_secs(45),
            rebalance_timeout: Duration::from_secs(300),
            heartbeat_interval: Duration::from_secs(3),
            fetch: FetchOptions::default(),
            on_reset: OnReset::End,
        }
    }
}

/// A topic and one of its partitions.
pub type TopicPartition = (Arc<str>, i32);

/// What a member meets next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Polled {
    Batches(PartitionBatches),
    /// These are the member's from now on, beginning at the group's offsets.
    Assigned(Vec<TopicPartition>),
    /// These are about to be shared out anew: the last chance to commit what was consumed. If
    /// `lost`, it is too late: another member may have them already.
    Revoked {
        partitions: Vec<TopicPartition>,
        lost: bool,
    },
    /// Nothing within the time.
    Nothing,
}

/// A member of a group. Dropping it stops its heartbeats; `close` tells the others at once.
pub struct GroupConsumer {
    client: Client,
    config: GroupConfig,
    consumer: Consumer,
    member: Member,
    membership: Option<Membership>,
    assigned: Vec<TopicPartition>,
}

impl GroupConsumer {
    /// Joins with the first `poll`.
    #[must_use]
    pub fn new(client: &Client, config: GroupConfig) -> Self {
        Self {
            client: client.clone(),
            consumer: Consumer::new(client.clone(), consumer_config(&config)),
            member: Member::new(client.clone(), config.clone()),
            config,
            membership: None,
            assigned: Vec::new(),
        }
    }

    /// The member's id, as the coordinator gave it.
    #[must_use]
    pub fn member_id(&self) -> &str {
        self.member.id()
    }

    /// The group's generation, once joined.
    #[must_use]
    pub fn generation(&self) -> Option<i32> {
        self.membership.as_ref().map(|membership| membership.generation)
    }

    /// Waits for the next thing, at most `wait` unless it joins.
    ///
    /// # Errors
    ///
    /// What cannot be put right by joining again: a refused group or session timeout, a fenced
    /// static member, an error of `Consumer::poll`.
    pub async fn poll(&mut self, wait: Duration) -> Result<Polled, Error> {
        if let Some(code) = self.membership.as_ref().and_then(Membership::verdict) {
            self.membership = None;
            return self.on_verdict(code);
        }
        if self.membership.is_none() {
            return self.join().await;
        }
        // A rebalance is noticed between two polls, so one poll must not last.
        let step = wait.min(self.config.heartbeat_interval);
        Ok(self.consumer.poll(step).await?.map_or(Polled::Nothing, Polled::Batches))
    }

    fn on_verdict(&mut self, code: Code) -> Result<Polled, Error> {
        let lost = match code {
            Code::RebalanceInProgress => false,
            Code::IllegalGeneration => true,
            Code::UnknownMemberId => {
                self.member.forget_id();
                true
            }
            code => return Err(Error::refused(self.what(), code, None)),
        };
        let partitions = std::mem::take(&mut self.assigned);
        for (topic, partition) in &partitions {
            self.consumer.unassign(topic, *partition);
        }
        Ok(Polled::Revoked { partitions, lost })
    }

    async fn join(&mut self) -> Result<Polled, Error> {
        let membership = self.member.join().await?;
        let mut wanted: Vec<TopicPartition> = Vec::new();
        for (topic, partitions) in &membership.partitions {
            let topic: Arc<str> = Arc::from(topic.as_str());
            wanted.extend(partitions.iter().map(|&partition| (Arc::clone(&topic), partition)));
        }
        let committed = self.committed(&wanted).await?;
        for (place, offset) in wanted.iter().zip(committed) {
            let start = match (offset, self.config.on_reset) {
                (Some(offset), _) => Position::Offset(offset),
                (None, OnReset::Beginning) => Position::Beginning,
                (None, OnReset::End) => Position::End,
                (None, OnReset::Fail) => {
                    let what = partition_named(&place.0, place.1);
                    let reason = format!("{} has no committed offset of {what}", self.what());
                    return Err(Error::Invalid { reason });
                }
            };
            self.consumer.assign(&place.0, place.1, start);
        }
        self.assigned.clone_from(&wanted);
        self.membership = Some(membership);
        Ok(Polled::Assigned(wanted))
    }

    fn what(&self) -> String {
        format!("group {}", self.config.group)
    }

    /// Whether all that is assigned has been read to the end.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.membership.is_some() && self.consumer.is_at_end()
    }

    /// Stores `offsets`: of each partition the next one to be consumed.
    ///
    /// # Errors
    ///
    /// `Refused` with `REBALANCE_IN_PROGRESS`, `ILLEGAL_GENERATION` or `UNKNOWN_MEMBER_ID` if the
    /// group has moved on, after which `poll` says what is left.
    pub async fn commit(&mut self, offsets: &[(Arc<str>, i32, Offset)]) -> Result<(), Error> {
        if offsets.is_empty() {
            return Ok(());
        }
        self.member.commit(offsets).await
    }

    /// The group's offsets of `places`, in their order.
    async fn committed(&mut self, places: &[TopicPartition]) -> Result<Vec<Option<Offset>>, Error> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let mut by_topic: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for (topic, partition) in places {
            by_topic.entry(topic).or_default().push(*partition);
        }
        let topics = self.client.with_ids(by_topic).await?;
        let request = offset_fetch(&self.config, &topics);
        let group = self.config.group.clone();
        let response = self
            .member
            .ask_coordinator(&request, |response: &m::OffsetFetchResponse| {
                let groups = response.groups.iter().find(|found| found.group_id == *group);
                groups.map_or(response.error_code, |group| group.error_code)
            })
            .await?;
        let found = committed_offsets(&self.client, &response)?;
        let offset = |place: &TopicPartition| found.get(&(place.0.to_string(), place.1)).copied();
        Ok(places.iter().map(offset).collect())
    }

    /// Leaves the group, so that the others need not wait for the session to end.
    pub async fn close(mut self) -> Result<(), Error> {
        self.membership = None;
        self.member.leave().await
    }

    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }
}

fn consumer_config(config: &GroupConfig) -> ConsumerConfig {
    ConsumerConfig {
        fetch: config.fetch.clone(),
        on_reset: config.on_reset,
        ..ConsumerConfig::default()
    }
}

/// In the form of every version at once: each writes its own fields.
fn offset_fetch(
    config: &GroupConfig,
    topics: &[(Text, TopicId, Vec<i32>)],
) -> m::OffsetFetchRequest {
    let old = topics.iter().map(|(name, _, partitions)| {
        let (name, partition_indexes) = (name.clone(), partitions.clone());
        m::offset_fetch::OffsetFetchRequestTopic { name, partition_indexes }
    });
    let new = topics.iter().map(|(name, topic_id, partitions)| {
        let (name, topic_id) = (name.clone(), *topic_id);
        m::offset_fetch::OffsetFetchRequestTopics {
            name,
            topic_id,
            partition_indexes: partitions.clone(),
        }
    });
    let group_id = Text::from(config.group.as_str());
    m::OffsetFetchRequest {
        topics: Some(old.collect()),
        groups: vec![m::offset_fetch::OffsetFetchRequestGroup {
            group_id: group_id.clone(),
            topics: Some(new.collect()),
            ..Default::default()
        }],
        group_id,
        // Who reads what is committed waits for offsets that a transaction is about to commit.
        require_stable: config.fetch.isolation == Isolation::ReadCommitted,
    }
}

fn committed_offsets(
    client: &Client,
    response: &m::OffsetFetchResponse,
) -> Result<BTreeMap<(String, i32), Offset>, Error> {
    let old = response.topics.iter().flat_map(|topic| {
        let name = topic.name.to_string();
        topic.partitions.iter().map(move |found| {
            (name.clone(), found.partition_index, found.committed_offset, found.error_code)
        })
    });
    let new = response.groups.iter().flat_map(|group| &group.topics).flat_map(|topic| {
        let name = client.name_told(&topic.name, topic.topic_id);
        topic.partitions.iter().map(move |found| {
            (name.clone(), found.partition_index, found.committed_offset, found.error_code)
        })
    });
    let mut offsets = BTreeMap::new();
    for (topic, partition, offset, code) in old.chain(new) {
        if let Some(code) = refusal(code) {
            return Err(Error::refused(partition_named(&topic, partition), code, None));
        }
        if offset >= 0 {
            offsets.insert((topic, partition), Offset(offset));
        }
    }
    Ok(offsets)
}
