//! What this node knows of the cluster and serves of it: topics by name and by id, each with the
//! logs that are open here. Read by every request; written by the keeper alone.

pub(crate) mod keeper;
pub(crate) mod log;
pub(crate) mod news;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use quorate_core::batch::{Codec, Rules};
use quorate_core::id::{NodeId, PartitionId, TopicId};
use quorate_core::metadata::Image;
use quorate_core::metadata::config::TopicConfigs;
pub(crate) use quorate_core::metadata::topic::{OFFSETS_TOPIC, TRANSACTIONS_TOPIC};
use quorate_core::partition::interface::Assignment;
use tokio::sync::Notify;

use self::log::LogHandle;

/// A topic as it is served. Never changed: a change makes another one.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) id: TopicId,
    pub(crate) name: String,
    pub(crate) configs: TopicConfigs,
    /// What batches must keep to; the time and the request's version are filled in for each.
    pub(crate) rules: Rules,
    /// Batches in another codec are compressed anew; `None` keeps them as they come.
    pub(crate) kept_codec: Option<Codec>,
    pub(crate) partitions: Vec<Partition>,
}

#[derive(Clone, Debug)]
pub(crate) struct Partition {
    pub(crate) assignment: Arc<Assignment>,
    pub(crate) log: Log,
}

#[derive(Clone, Debug)]
pub(crate) enum Log {
    Open(Arc<LogHandle>),
    /// What stands on the disk is not what was written there: `KAFKA_STORAGE_ERROR` for every
    /// request, until a human acts.
    Offline,
    /// Other nodes keep it.
    Elsewhere,
}

impl Topic {
    /// Topics of the node's own; users read them at most.
    pub(crate) fn is_internal(name: &str) -> bool {
        matches!(name, OFFSETS_TOPIC | TRANSACTIONS_TOPIC)
    }

    /// `None` for an index that the topic does not have.
    pub(crate) fn partition(&self, index: i32) -> Option<&Partition> {
        self.partitions.get(usize::try_from(index).ok()?)
    }
}

/// The cluster and the topics at one moment.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) image: Image,
    /// All that was decided before this node registered is open, as far as it is kept here.
    pub(crate) is_current: bool,
    topics: HashMap<TopicId, Arc<Topic>>,
    names: HashMap<String, TopicId>,
}

impl State {
    pub(crate) fn topic(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.topics.get(&id)
    }

    pub(crate) fn topic_named(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics.get(self.names.get(name)?)
    }

    /// By name, ascending.
    pub(crate) fn topics(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.image.topics().filter_map(|topic| self.topics.get(&topic.id))
    }

    /// Partitions that are kept here and cannot be served: their logs are rotten.
    pub(crate) fn offline(&self) -> Vec<PartitionId> {
        let topics = self.topics().flat_map(|topic| {
            let partitions = (0..).zip(&topic.partitions);
            let offline = partitions.filter(|(_, found)| matches!(found.log, Log::Offline));
            offline.map(|(index, _)| PartitionId { topic: topic.id, index })
        });
        topics.collect()
    }

    pub(crate) fn put(&mut self, topic: Topic) {
        self.names.insert(topic.name.clone(), topic.id);
        self.topics.insert(topic.id, Arc::new(topic));
    }

    fn remove(&mut self, id: TopicId) {
        if let Some(topic) = self.topics.remove(&id) {
            // The name may belong to a newer topic by now.
            if self.names.get(&topic.name) == Some(&id) {
                self.names.remove(&topic.name);
            }
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Catalog {
    state: RwLock<State>,
    changed: Notify,
}

impl Catalog {
    /// For a look that does not wait for anything.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn topic(&self, id: TopicId) -> Option<Arc<Topic>> {
        self.read().topic(id).cloned()
    }

    pub(crate) fn topic_named(&self, name: &str) -> Option<Arc<Topic>> {
        self.read().topic_named(name).cloned()
    }

    /// Completes once `holds` is true of what is known. May be dropped at any time.
    pub(crate) async fn until(&self, holds: impl Fn(&State) -> bool) {
        loop {
            let changed = self.changed.notified();
            if holds(&self.read()) {
                return;
            }
            changed.await;
        }
    }

    /// The node's own entry, once it has registered in this life, and all its logs are open.
    pub(crate) async fn until_registered(&self, node: NodeId, incarnation: u64) {
        self.until(|state| {
            let found = state.image.node(node);
            state.is_current && found.is_some_and(|found| found.incarnation == incarnation)
        })
        .await;
    }
}
