//! Who the brokers are and who leads what, as the client last heard it. Stale metadata are never
//! an error: a broker that is not the leader says so, and the client asks again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quorate_core::id::{LeaderEpoch, NodeId, TopicId};
use quorate_core::time::Instant;

use super::route::Lane;
use super::{Client, Error};
use crate::kafka::Call;
use crate::kafka::error::Code;
use crate::kafka::messages::metadata::MetadataRequestTopic;
use crate::kafka::messages::{MetadataRequest, MetadataResponse};
use crate::wire::Text;

/// The cluster as one broker described it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    pub cluster_id: Option<String>,
    pub controller: Option<NodeId>,
    pub brokers: BTreeMap<NodeId, Broker>,
    /// The topics that were asked for, by name.
    pub topics: BTreeMap<String, Arc<Topic>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    pub id: NodeId,
    /// `host:port`.
    pub address: String,
    pub rack: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    pub name: String,
    pub id: TopicId,
    /// The cluster's own, such as `__consumer_offsets`.
    pub internal: bool,
    /// In the order of their indexes, which count from 0.
    pub partitions: Vec<Partition>,
    /// Why nothing more is known, if so.
    pub error: Option<Code>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    pub index: i32,
    pub leader: Option<NodeId>,
    pub leader_epoch: LeaderEpoch,
    pub replicas: Vec<NodeId>,
    pub in_sync: Vec<NodeId>,
    pub offline: Vec<NodeId>,
}

impl Topic {
    /// As the type that partitions are counted in.
    #[must_use]
    pub fn partition_count(&self) -> i32 {
        i32::try_from(self.partitions.len()).unwrap_or(i32::MAX)
    }
}

/// What has been heard, and when.
#[derive(Debug, Default)]
pub(crate) struct MetadataCache {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    known: Metadata,
    heard: BTreeMap<String, Instant>,
}

impl MetadataCache {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything is asked for again when it is next needed. Addresses are kept.
    pub(crate) fn expire(&self) {
        self.lock().heard.clear();
    }

    pub(crate) fn topic(&self, name: &str, now: Instant, age_max: Duration) -> Option<Arc<Topic>> {
        let state = self.lock();
        let heard = state.heard.get(name)?;
        if now.saturating_since(*heard) >= age_max {
            return None;
        }
        state.known.topics.get(name).cloned()
    }

    /// The leader's address and the topic's id as last heard, unless that has expired.
    pub(crate) fn leader(&self, topic: &str, partition: i32) -> Option<(String, TopicId)> {
        let state = self.lock();
        state.heard.get(topic)?;
        let place = usize::try_from(partition).ok()?;
        let topic = state.known.topics.get(topic)?;
        let leader = topic.partitions.get(place)?.leader?;
        let broker = state.known.brokers.get(&leader)?;
        Some((broker.address.clone(), topic.id))
    }

    pub(crate) fn name_of(&self, id: TopicId) -> Option<Arc<str>> {
        let state = self.lock();
        let topic = state.known.topics.values().find(|topic| topic.id == id)?;
        Some(Arc::from(topic.name.as_str()))
    }

    fn addresses(&self) -> Vec<String> {
        self.lock().known.brokers.values().map(|broker| broker.address.clone()).collect()
    }

    fn learn(&self, heard: &Metadata, now: Instant) {
        let mut state = self.lock();
        state.known.cluster_id.clone_from(&heard.cluster_id);
        state.known.controller = heard.controller;
        state.known.brokers.clone_from(&heard.brokers);
        for (name, topic) in &heard.topics {
            match topic.error {
                None => {
                    state.heard.insert(name.clone(), now);
                    state.known.topics.insert(name.clone(), Arc::clone(topic));
                }
                Some(_) => {
                    state.heard.remove(name);
                    state.known.topics.remove(name);
                }
            }
        }
    }
}

impl Client {
    /// Asks a broker, once, about `topics`; `None` means all of them. A topic with an error is in
    /// the answer with its error. `create` lets the cluster create absent topics, if it is so
    /// configured.
    pub async fn metadata(&self, topics: Option<&[&str]>, create: bool) -> Result<Metadata, Error> {
        let request = MetadataRequest {
            topics: topics.map(|names| {
                let topic = |name: &&str| MetadataRequestTopic {
                    name: Some(Text::from(*name)),
                    ..MetadataRequestTopic::default()
                };
                names.iter().map(topic).collect()
            }),
            allow_auto_topic_creation: create,
            ..MetadataRequest::default()
        };
        let response = self.ask_any(&request, Duration::ZERO).await?;
        let metadata = understood(response)?;
        self.inner.metadata.learn(&metadata, self.now());
        Ok(metadata)
    }

    /// The topic as last heard, asked for if that is too long ago. One attempt.
    ///
    /// # Errors
    ///
    /// `Refused` with the topic's own error if it is absent or has none to lead it.
    pub(crate) async fn topic_once(&self, name: &str, create: bool) -> Result<Arc<Topic>, Error> {
        let age_max = self.inner.config.metadata_age_max;
        if let Some(topic) = self.inner.metadata.topic(name, self.now(), age_max) {
            return Ok(topic);
        }
        let metadata = self.metadata(Some(&[name]), create).await?;
        let unknown = || Error::refused(topic_named(name), Code::UnknownTopicOrPartition, None);
        let topic = metadata.topics.get(name).ok_or_else(unknown)?;
        match topic.error {
            Some(code) => Err(Error::refused(topic_named(name), code, None)),
            None if topic.partitions.is_empty() => Err(unknown()),
            None => Ok(Arc::clone(topic)),
        }
    }

    /// As `topic_once`, with retries.
    pub async fn topic(&self, name: &str) -> Result<Arc<Topic>, Error> {
        self.retry(&topic_named(name), || self.topic_once(name, false)).await
    }

    /// Each topic's name and id beside what is said of it: a request has the one or the other, by
    /// its version.
    pub(crate) async fn with_ids<T>(
        &self,
        topics: BTreeMap<&str, T>,
    ) -> Result<Vec<(Text, TopicId, T)>, Error> {
        let mut found = Vec::with_capacity(topics.len());
        for (name, said) in topics {
            found.push((Text::from(name), self.topic(name).await?.id, said));
        }
        Ok(found)
    }

    /// The name of a topic that an answer tells by its name or by its id.
    pub(crate) fn name_told(&self, name: &Text, id: TopicId) -> String {
        match name.as_str() {
            "" => {
                self.inner.metadata.name_of(id).map_or_else(|| id.to_string(), |it| it.to_string())
            }
            name => name.to_owned(),
        }
    }

    /// The address of a partition's leader. One attempt.
    pub(crate) async fn leader_once(&self, topic: &str, partition: i32) -> Result<String, Error> {
        let known = self.topic_once(topic, false).await?;
        let what = partition_named(topic, partition);
        let place = usize::try_from(partition).ok();
        if place.and_then(|place| known.partitions.get(place)).is_none() {
            let count = known.partition_count();
            let reason = format!("{what} does not exist: the topic has {count} partitions");
            return Err(Error::Invalid { reason });
        }
        match self.inner.metadata.leader(topic, partition) {
            Some((address, _)) => Ok(address),
            None => {
                // It may have one in a moment: the cache must not answer for the next attempt.
                self.inner.metadata.expire();
                Err(Error::refused(what, Code::LeaderNotAvailable, None))
            }
        }
    }

    /// Where a broker is reached. One attempt.
    pub(crate) async fn broker_once(&self, id: NodeId) -> Result<String, Error> {
        let metadata = self.metadata(Some(&[]), false).await?;
        let known = metadata.brokers.get(&id).map(|broker| broker.address.clone());
        known.ok_or_else(|| Error::refused(format!("broker {id}"), Code::BrokerNotAvailable, None))
    }

    /// Asks the brokers one after another until one can be reached: those of the metadata, then
    /// those of the configuration. The seed says which of these is first.
    pub(crate) async fn ask_any<R: Call>(
        &self,
        request: &R,
        patience: Duration,
    ) -> Result<R::Response, Error> {
        let mut addresses = self.inner.metadata.addresses();
        let mut bootstrap = self.inner.config.bootstrap.clone();
        if !bootstrap.is_empty() {
            let first = self.inner.config.seed % bootstrap.len() as u64;
            bootstrap.rotate_left(usize::try_from(first).unwrap_or_default());
        }
        for address in bootstrap {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        let mut last = Error::Invalid { reason: "no bootstrap address was given".to_owned() };
        for address in addresses {
            match self.inner.routes.call(&address, Lane::Ask, request, patience).await {
                Err(error @ Error::Unreachable { .. }) => last = error,
                outcome => return outcome,
            }
        }
        Err(last)
    }

    /// The versions each API has at the first reachable broker of the configuration.
    pub async fn api_versions(&self) -> Result<BTreeMap<i16, (i16, i16)>, Error> {
        let mut last = Error::Invalid { reason: "no bootstrap address was given".to_owned() };
        for address in &self.inner.config.bootstrap {
            match self.inner.routes.versions(address).await {
                Err(error) => last = error,
                outcome => return outcome,
            }
        }
        Err(last)
    }
}

pub(crate) fn topic_named(name: &str) -> String {
    format!("topic {name}")
}

pub(crate) fn partition_named(topic: &str, partition: i32) -> String {
    format!("partition {topic}-{partition}")
}

fn understood(response: MetadataResponse) -> Result<Metadata, Error> {
    if let Some(code) = refusal(response.error_code) {
        return Err(Error::refused("metadata", code, None));
    }
    let brokers = response.brokers.iter().map(|broker| {
        let id = NodeId(broker.node_id);
        let address = if broker.host.contains(':') {
            format!("[{}]:{}", broker.host, broker.port)
        } else {
            format!("{}:{}", broker.host, broker.port)
        };
        (id, Broker { id, address, rack: broker.rack.as_ref().map(|rack| rack.to_string()) })
    });
    let topics = response.topics.iter().filter_map(|topic| {
        let name = topic.name.as_ref()?.to_string();
        let mut partitions: Vec<Partition> = topic.partitions.iter().map(partition).collect();
        partitions.sort_by_key(|partition| partition.index);
        // A gap would give the partitions behind it another one's place.
        let whole = partitions.iter().zip(0..).all(|(partition, index)| partition.index == index);
        let gap = (!whole).then_some(Code::UnknownServerError);
        let topic = Topic {
            name: name.clone(),
            id: topic.topic_id,
            internal: topic.is_internal,
            partitions,
            error: refusal(topic.error_code).or(gap),
        };
        Some((name, Arc::new(topic)))
    });
    Ok(Metadata {
        cluster_id: response.cluster_id.as_ref().map(|id| id.to_string()),
        controller: Some(NodeId(response.controller_id)).filter(|id| id.0 >= 0),
        brokers: brokers.collect(),
        topics: topics.collect(),
    })
}

fn partition(partition: &crate::kafka::messages::metadata::MetadataResponsePartition) -> Partition {
    let nodes = |ids: &[i32]| ids.iter().copied().map(NodeId).collect();
    Partition {
        index: partition.partition_index,
        leader: Some(NodeId(partition.leader_id)).filter(|id| id.0 >= 0),
        leader_epoch: LeaderEpoch(partition.leader_epoch),
        replicas: nodes(&partition.replica_nodes),
        in_sync: nodes(&partition.isr_nodes),
        offline: nodes(&partition.offline_replicas),
    }
}

/// The error that a code in an answer means; `None` for none. One that is newer than this client
/// is an unknown error.
pub(crate) fn refusal(code: i16) -> Option<Code> {
    match code {
        0 => None,
        code => Some(Code::from_code(code).unwrap_or(Code::UnknownServerError)),
    }
}
