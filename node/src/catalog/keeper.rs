//! Follows the metadata log: opens the logs of which this node keeps a copy, drops those that it
//! keeps no more, tells replicas who leads, and shows a topic to requests once it can be served.
//!
//! Records say what has changed; what is then done follows from comparing what should be with what
//! is open, so that a topic created and deleted in one stretch of the log is never opened.
//!
//! Nothing is opened before the log shows this life's registration. What it says before that may
//! be long over: a log that was to go then, and came back since, must not lose its files
//! (docs/decisions/0076).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use quorate_core::group::interface::Input as ForGroups;
use quorate_core::id::{NodeEpoch, NodeId, PartitionId, TopicId};
use quorate_core::metadata::config::TopicConfigs;
use quorate_core::metadata::{ConfigResource, Image, Record, Topic as TopicRecord};
use quorate_core::mutant;
use quorate_core::partition::interface::{Assignment, Input as PartitionInput};
use quorate_core::shard::interface::{Input, Open, Role};
use quorate_core::shard::topics::Told;
use quorate_core::time::Timestamp;
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::log::LogHandle;
use super::news::{News, Stretch};
use super::{Catalog, Log, OFFSETS_TOPIC, Partition, TRANSACTIONS_TOPIC, Topic};
use crate::driver::Command;
use crate::driver::ask::{ShardClient, Stopped};
use crate::driver::lane::shard_of;
use crate::halt::Halt;
use crate::storage::{LogError, Storage, StorageError};
use crate::witness::Witness;

/// Logs opened, or removed, at the same time.
const OPENING_MAX: usize = 64;

pub(crate) struct Keeper {
    pub(crate) node: NodeId,
    pub(crate) news: Arc<News>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) storage: Arc<Storage>,
    pub(crate) shards: Vec<ShardClient>,
    pub(crate) halt: Arc<Halt>,
    /// `request.uncompressed_bytes_max`.
    pub(crate) uncompressed_bytes_max: usize,
    /// Hears of logs that go without ever having been served.
    pub(crate) witness: Option<Arc<dyn Witness>>,
}

/// What the keeper knows between two stretches of the log.
#[derive(Default)]
struct Followed {
    /// What the records add up to; shown to requests once the logs are open.
    image: Image,
    /// Topics that were not compared since something of them has changed.
    touched: BTreeSet<TopicId>,
    /// Names of topics that were deleted, and that groups still have offsets for.
    deleted: Vec<String>,
    told: Told,
    registered: Option<NodeEpoch>,
    /// The image holds this life's registration, and so all that was decided before it.
    is_current: bool,
    /// Logs whose files are being removed; they end with a word or with the node.
    leaving: BTreeMap<PartitionId, oneshot::Receiver<()>>,
}

impl Followed {
    fn take(&mut self, stretch: &Stretch) {
        if stretch.is_restored {
            let before = std::mem::take(&mut self.image);
            self.touched.extend(before.topics_by_id().map(|topic| topic.id));
            self.deleted.extend(before.topics().map(|topic| topic.name.clone()));
        }
        for record in &stretch.records {
            if let Record::TopicDeleted { topic } = record {
                self.deleted.extend(self.image.topic(*topic).map(|topic| topic.name.clone()));
            }
            self.image.apply(record);
            self.touched.extend(topic_of(record));
            if let Record::NodeRegistered(_) = record {
                let counts =
                    |topic: &&TopicRecord| TopicConfigs::from_stored(&topic.configs).counts_racks();
                self.touched.extend(self.image.topics().filter(counts).map(|topic| topic.id));
            }
        }
        self.deleted.retain(|name| self.image.topic_named(name).is_none());
        self.registered = stretch.registered.or(self.registered);
        self.is_current |=
            self.registered.is_some_and(|epoch| self.image.next_node_epoch() > epoch);
        self.leaving.retain(|_, left| matches!(left.try_recv(), Err(TryRecvError::Empty)));
    }
}

/// A log that is to be opened, and where it is to be shown.
struct Opening<'a> {
    place: (usize, usize),
    topic: &'a TopicRecord,
    partition: PartitionId,
    assignment: Arc<Assignment>,
    /// Its files of an earlier stay here are still being removed.
    left: Option<oneshot::Receiver<()>>,
}

enum Failed {
    Stopped,
    Storage(StorageError),
}

impl From<Stopped> for Failed {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl From<StorageError> for Failed {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

impl Keeper {
    /// Until the node stops.
    pub(crate) async fn run(self) {
        let mut followed = Followed::default();
        while let Some(stretch) = self.news.next().await {
            if let Err(failed) = self.follow(&mut followed, &stretch).await {
                return stop(&self.halt, failed);
            }
        }
    }

    async fn follow(&self, followed: &mut Followed, stretch: &Stretch) -> Result<(), Failed> {
        let was_current = followed.is_current;
        followed.take(stretch);
        if !followed.is_current {
            self.show(followed, stretch, Vec::new(), &[]);
            return Ok(());
        }
        let touched = std::mem::take(&mut followed.touched);
        let topics = self.serve(followed, &touched).await?;
        let gone: Vec<Arc<Topic>> = touched
            .iter()
            .filter(|topic| followed.image.topic(**topic).is_none())
            .filter_map(|topic| self.catalog.topic(*topic))
            .collect();
        // Before the topic that has the name now is shown, and commits for it can come.
        let names: Vec<String> = gone.iter().map(|topic| topic.name.clone()).collect();
        self.forget_offsets(&names).await?;
        self.show(followed, stretch, topics, &gone);
        self.tell_topics(followed, &touched).await?;
        self.tell_unfenced(stretch).await?;
        let mut deleted = std::mem::take(&mut followed.deleted);
        deleted.retain(|name| !names.contains(name));
        self.forget_offsets(&deleted).await?;
        if !gone.is_empty() {
            // The next topics need not wait until the files of these are gone: ids are never used
            // again, and what a stop leaves behind is removed by the next start.
            let (storage, halt) = (Arc::clone(&self.storage), Arc::clone(&self.halt));
            tokio::spawn(async move {
                if let Err(failed) = remove_topics(&storage, &gone).await {
                    stop(&halt, failed);
                }
            });
        }
        if !was_current {
            self.remove_strays(followed).await?;
        }
        Ok(())
    }

    /// Requests see from now on what the records say, and what is open.
    fn show(
        &self,
        followed: &Followed,
        stretch: &Stretch,
        topics: Vec<Topic>,
        gone: &[Arc<Topic>],
    ) {
        {
            let mut state = self.catalog.write();
            if stretch.is_restored {
                state.image = followed.image.clone();
            } else {
                for record in &stretch.records {
                    state.image.apply(record);
                }
            }
            for topic in gone {
                state.remove(topic.id);
            }
            for topic in topics {
                state.put(topic);
            }
            state.is_current = followed.is_current;
        }
        self.catalog.changed.notify_waiters();
    }

    /// Groups share out anew when topics come, grow or go.
    async fn tell_topics(
        &self,
        followed: &mut Followed,
        touched: &BTreeSet<TopicId>,
    ) -> Result<(), Failed> {
        if let Some(news) = followed.told.news(&followed.image, touched) {
            for shard in &self.shards {
                shard.tell(Command::Tell(Input::Topics(news.clone()))).await?;
            }
        }
        Ok(())
    }

    /// Leaders need not wait any more for those that were not there.
    async fn tell_unfenced(&self, stretch: &Stretch) -> Result<(), Failed> {
        for record in &stretch.records {
            let Record::NodeUnfenced { node, .. } = record else { continue };
            for shard in &self.shards {
                shard.tell(Command::Tell(Input::Unfenced { peer: *node })).await?;
            }
        }
        Ok(())
    }

    /// A topic that gets the name of a deleted one must not begin where groups left the old one.
    /// At a start this repeats what the last life may not have got to, but for names that are in
    /// use again (docs/decisions/0037).
    async fn forget_offsets(&self, deleted: &[String]) -> Result<(), Failed> {
        let Some(offsets) = self.catalog.topic_named(OFFSETS_TOPIC) else { return Ok(()) };
        if deleted.is_empty() {
            return Ok(());
        }
        for Partition { log, .. } in &offsets.partitions {
            let Log::Open(log) = log else { continue };
            let (coordinator, topics) = (log.partition.index, deleted.to_vec());
            let input = ForGroups::TopicsDeleted { topics };
            log.shard.tell(Command::Tell(Input::Group { coordinator, input })).await?;
        }
        Ok(())
    }

    /// The topics as they are to be shown, with all logs open that are here.
    async fn serve(
        &self,
        followed: &mut Followed,
        touched: &BTreeSet<TopicId>,
    ) -> Result<Vec<Topic>, Failed> {
        let Followed { image, leaving, .. } = followed;
        let mut topics = Vec::with_capacity(touched.len());
        let mut opening = Vec::new();
        for record in touched.iter().filter_map(|topic| image.topic(*topic)) {
            let configs = TopicConfigs::from_stored(&record.configs);
            let shown = self.catalog.topic(record.id);
            let mut partitions = Vec::with_capacity(record.partitions.len());
            for (index, assignment) in (0..).zip(&record.partitions) {
                let partition = PartitionId { topic: record.id, index };
                let before = shown.as_deref().and_then(|topic| topic.partition(index));
                let assignment = match before {
                    Some(before) if is_same(&before.assignment, assignment) => {
                        Arc::clone(&before.assignment)
                    }
                    _ => Arc::new(assignment.clone()),
                };
                let is_here = assignment.replicas.contains(&self.node);
                let log = match before.map(|before| &before.log) {
                    Some(log @ (Log::Open(_) | Log::Offline)) if is_here => log.clone(),
                    Some(log @ (Log::Open(_) | Log::Offline)) => {
                        self.leave(leaving, partition, log).await?;
                        Log::Elsewhere
                    }
                    Some(Log::Elsewhere) | None if is_here => {
                        let left = leaving.remove(&partition);
                        let (place, assignment) =
                            ((topics.len(), partitions.len()), Arc::clone(&assignment));
                        opening.push(Opening { place, topic: record, partition, assignment, left });
                        Log::Elsewhere
                    }
                    Some(Log::Elsewhere) | None => Log::Elsewhere,
                };
                partitions.push(Partition { assignment, log });
            }
            let topic = Topic {
                id: record.id,
                name: record.name.clone(),
                rules: configs.batch_rules(Timestamp::NONE, self.uncompressed_bytes_max, true),
                kept_codec: configs.kept_codec(),
                configs,
                partitions,
            };
            if let Some(shown) = shown {
                self.tell_replicas(image, &shown, &topic).await?;
            }
            topics.push(topic);
        }
        let shards: BTreeSet<usize> =
            opening.iter().map(|opening| self.shard_of(opening.partition)).collect();
        let opening: Vec<_> =
            opening.into_iter().map(|opening| self.open(image, opening)).collect();
        let mut opening = stream::iter(opening).buffer_unordered(OPENING_MAX);
        while let Some(opened) = opening.next().await {
            let ((topic, index), log) = opened?;
            topics[topic].partitions[index].log = log;
        }
        drop(opening);
        // What can be read of them is published before anybody can look.
        for shard in shards {
            self.shards[shard].barrier().await?;
        }
        Ok(topics)
    }

    fn shard_of(&self, partition: PartitionId) -> usize {
        shard_of(partition, self.shards.len())
    }

    /// What has changed for the replicas that were open before.
    async fn tell_replicas(
        &self,
        image: &Image,
        shown: &Topic,
        topic: &Topic,
    ) -> Result<(), Failed> {
        let rack = |node| image.node(node)?.rack.as_deref();
        // A node that came back may stand elsewhere.
        let is_configured = shown.configs != topic.configs || topic.configs.counts_racks();
        for (before, now) in shown.partitions.iter().zip(&topic.partitions) {
            let Log::Open(log) = &now.log else { continue };
            let partition = log.partition;
            let tell = async |input| {
                log.shard.tell(Command::Tell(Input::Partition { partition, input })).await
            };
            if !Arc::ptr_eq(&before.assignment, &now.assignment) {
                tell(PartitionInput::Assigned((*now.assignment).clone())).await?;
            }
            let config = topic.configs.partition_config(&now.assignment, rack);
            let is_resized = before.assignment.copies() != now.assignment.copies()
                && shown.configs.partition_config(&before.assignment, rack) != config;
            if is_configured || is_resized {
                tell(PartitionInput::Configured(config)).await?;
            }
        }
        Ok(())
    }

    async fn open(
        &self,
        image: &Image,
        opening: Opening<'_>,
    ) -> Result<((usize, usize), Log), Failed> {
        let Opening { place, topic, partition, assignment, left } = opening;
        if let Some(left) = left {
            left.await.map_err(|_| Failed::Stopped)?;
        }
        let (recovered, reader) = match self.storage.open_log(partition).await {
            Ok(opened) => opened,
            // zoo C13: what cannot be read is taken for what was never there.
            Err(LogError::Rot(_)) if mutant!("failed-dir-recreates-empty") => {
                self.storage.remove_log(partition).await?;
                match self.storage.open_log(partition).await {
                    Ok(opened) => opened,
                    Err(LogError::Rot(_)) => return Ok((place, Log::Offline)),
                    Err(LogError::Storage(error)) => return Err(error.into()),
                }
            }
            Err(LogError::Rot(rot)) => {
                tracing::error!(topic = topic.name, index = partition.index, "{rot}");
                return Ok((place, Log::Offline));
            }
            Err(LogError::Storage(error)) => return Err(error.into()),
        };
        let role = match topic.name.as_str() {
            OFFSETS_TOPIC => Role::Offsets,
            TRANSACTIONS_TOPIC => Role::Transactions,
            _ => Role::Data,
        };
        let shard = self.shards[self.shard_of(partition)].clone();
        let range = (recovered.log_start, recovered.end);
        let log = Arc::new(LogHandle::new(partition, shard, reader, range));
        let rack = |node| image.node(node)?.rack.as_deref();
        let config = TopicConfigs::from_stored(&topic.configs).partition_config(&assignment, rack);
        let assignment = (*assignment).clone();
        let open = Box::new(Open { partition, role, recovered, config, assignment });
        log.shard.tell(Command::Open { log: Arc::clone(&log), open }).await?;
        Ok((place, Log::Open(log)))
    }

    /// The partition is kept elsewhere from now on: its machine goes, and then its files.
    async fn leave(
        &self,
        leaving: &mut BTreeMap<PartitionId, oneshot::Receiver<()>>,
        partition: PartitionId,
        log: &Log,
    ) -> Result<(), Failed> {
        tracing::info!(%partition, "this node keeps no copy any more");
        let shard = match log {
            Log::Open(log) => Some(log.shard.clone()),
            Log::Offline | Log::Elsewhere => None,
        };
        if let Some(shard) = &shard {
            shard.tell(Command::Tell(Input::Drop { partition })).await?;
        }
        leaving.insert(partition, self.remove(partition, shard));
        Ok(())
    }

    /// Removes a log's files behind our back. It may be opened again once that is done.
    fn remove(&self, partition: PartitionId, shard: Option<ShardClient>) -> oneshot::Receiver<()> {
        let (done, left) = oneshot::channel();
        let (storage, halt) = (Arc::clone(&self.storage), Arc::clone(&self.halt));
        tokio::spawn(async move {
            match remove_log(&storage, partition, shard).await {
                // Whoever does not wait does not want it back.
                Ok(()) => drop(done.send(())),
                Err(failed) => stop(&halt, failed),
            }
        });
        left
    }

    /// Logs of topics that are deleted, or of partitions that went elsewhere, and whose files a
    /// crash left behind.
    async fn remove_strays(&self, followed: &mut Followed) -> Result<(), Failed> {
        for partition in self.storage.logs().await? {
            let is_known = partition == PartitionId::METADATA
                || self.catalog.topic(partition.topic).is_some_and(|topic| {
                    let partition = topic.partition(partition.index);
                    partition.is_some_and(|partition| !matches!(partition.log, Log::Elsewhere))
                });
            // zoo C11
            let is_stray = if mutant!("stray-deletion-inverted") { is_known } else { !is_known };
            if is_stray {
                tracing::info!(%partition, "a log that belongs here no more is removed");
                if let Some(witness) = &self.witness {
                    witness.dropped(partition);
                }
                followed.leaving.insert(partition, self.remove(partition, None));
            }
        }
        let is_gone = |topic| followed.image.topic(topic).is_none();
        self.storage.remove_orphans(is_gone).await?;
        Ok(())
    }
}

/// The controller raises the partition epoch with every change.
fn is_same(shown: &Assignment, decided: &Assignment) -> bool {
    shown.partition_epoch == decided.partition_epoch && shown.leader_epoch == decided.leader_epoch
}

fn stop(halt: &Halt, failed: Failed) {
    match failed {
        Failed::Stopped | Failed::Storage(StorageError::Stopped) => {}
        Failed::Storage(error) => halt.halt(&error.to_string()),
    }
}

async fn remove_log(
    storage: &Storage,
    partition: PartitionId,
    shard: Option<ShardClient>,
) -> Result<(), Failed> {
    if let Some(shard) = &shard {
        // The last writes must be in the storage's queue before the removal is.
        shard.barrier().await?;
    }
    storage.remove_log(partition).await?;
    if let Some(shard) = &shard {
        // The last completions must be taken before a new machine of this name could hear them.
        shard.barrier().await?;
    }
    Ok(())
}

/// Ends the machines of deleted topics and removes their logs.
async fn remove_topics(storage: &Storage, topics: &[Arc<Topic>]) -> Result<(), Failed> {
    let mut shards: Vec<ShardClient> = Vec::new();
    for Partition { log, .. } in topics.iter().flat_map(|topic| &topic.partitions) {
        let Log::Open(log) = log else { continue };
        let partition = log.partition;
        log.shard.tell(Command::Tell(Input::Drop { partition })).await?;
        if !shards.iter().any(|shard| shard.is_same(&log.shard)) {
            shards.push(log.shard.clone());
        }
    }
    for shard in shards {
        // The last writes must be in the storage's queue before the removals are.
        shard.barrier().await?;
    }
    let logs = topics.iter().flat_map(|topic| {
        let here = (0..).zip(&topic.partitions);
        let here = here.filter(|(_, partition)| !matches!(partition.log, Log::Elsewhere));
        here.map(|(index, _)| PartitionId { topic: topic.id, index })
    });
    let removals: Vec<_> = logs.map(|partition| storage.remove_log(partition)).collect();
    let mut removals = stream::iter(removals).buffer_unordered(OPENING_MAX);
    while let Some(removed) = removals.next().await {
        removed?;
    }
    storage.remove_orphans(|id| topics.iter().any(|topic| topic.id == id)).await?;
    for topic in topics {
        tracing::info!(topic = topic.name, "topic deleted");
    }
    Ok(())
}

const fn topic_of(record: &Record) -> Option<TopicId> {
    match record {
        Record::TopicCreated { topic, .. }
        | Record::PartitionsAdded { topic, .. }
        | Record::TopicDeleted { topic }
        | Record::PartitionsChanged { topic, .. }
        | Record::ConfigsSet { resource: ConfigResource::Topic(topic), .. } => Some(*topic),
        Record::ClusterNamed { .. }
        | Record::NodeRegistered { .. }
        | Record::ConfigsSet { resource: ConfigResource::Node(_), .. }
        | Record::NodeFenced { .. }
        | Record::NodeUnfenced { .. }
        | Record::NodeWished { .. }
        | Record::NodeDutySet { .. }
        | Record::NodeUnregistered { .. }
        | Record::FeatureLevelSet { .. }
        | Record::NodeEpochsGiven { .. }
        | Record::ProducerIdsAllocated { .. } => None,
    }
}

#[cfg(test)]
mod tests;
