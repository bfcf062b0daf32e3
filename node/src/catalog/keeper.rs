//! Follows the metadata log: opens the logs of new partitions, drops those of deleted topics, and
//! shows a topic to requests only once it can be served.
//!
//! Records say what has changed; what is then done follows from comparing what should be with what
//! is open, so that a topic created and deleted in one stretch of the log is never opened.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::stream::{self, StreamExt};
use quorate_core::group::interface::Input as ForGroups;
use quorate_core::id::{PartitionId, TopicId};
use quorate_core::metadata::config::TopicConfigs;
use quorate_core::metadata::{ConfigResource, Image, Record, Topic as TopicRecord};
use quorate_core::partition::interface::Input as PartitionInput;
use quorate_core::shard::interface::{Input, Open, Role};
use quorate_core::time::Timestamp;
use tokio::sync::Notify;

use super::log::LogHandle;
use super::{Catalog, Log, OFFSETS_TOPIC, Partition, Topic};
use crate::driver::Command;
use crate::driver::ask::{ShardClient, Stopped};
use crate::driver::lane::shard_of;
use crate::halt::Halt;
use crate::storage::{LogError, Storage, StorageError};

/// Logs opened, or removed, at the same time.
const OPENING_MAX: usize = 64;

/// Records on their way from the driver to the keeper: as many as one controller commits while
/// the keeper works, which has one append at a time; at a start, those of the whole log.
#[derive(Debug, Default)]
pub(crate) struct News {
    records: Mutex<Vec<Record>>,
    arrived: Notify,
    closed: AtomicBool,
}

impl News {
    pub(crate) fn tell(&self, records: Vec<Record>) {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).extend(records);
        self.arrived.notify_one();
    }

    /// No more will come.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.arrived.notify_one();
    }

    async fn next(&self) -> Option<Vec<Record>> {
        loop {
            if self.closed.load(Ordering::SeqCst) {
                return None;
            }
            let records =
                std::mem::take(&mut *self.records.lock().unwrap_or_else(PoisonError::into_inner));
            if !records.is_empty() {
                return Some(records);
            }
            self.arrived.notified().await;
        }
    }
}

pub(crate) struct Keeper {
    pub(crate) news: Arc<News>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) storage: Arc<Storage>,
    pub(crate) shards: Vec<ShardClient>,
    pub(crate) halt: Arc<Halt>,
    /// `request.uncompressed_bytes_max`.
    pub(crate) uncompressed_bytes_max: usize,
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
        // What the records add up to; shown to requests once the logs are open.
        let mut image = Image::default();
        while let Some(records) = self.news.next().await {
            match self.follow(&mut image, &records).await {
                Ok(()) => {}
                Err(Failed::Stopped | Failed::Storage(StorageError::Stopped)) => return,
                Err(Failed::Storage(error)) => {
                    self.halt.halt(&error.to_string());
                    return;
                }
            }
        }
    }

    async fn follow(&self, image: &mut Image, records: &[Record]) -> Result<(), Failed> {
        let mut touched = BTreeSet::new();
        let mut deleted = Vec::new();
        for record in records {
            if let Record::TopicDeleted { topic } = record {
                deleted.extend(image.topic(*topic).map(|topic| topic.name.clone()));
            }
            image.apply(record);
            touched.extend(topic_of(record));
        }
        let wanted: Vec<&TopicRecord> =
            touched.iter().filter_map(|topic| image.topic(*topic)).collect();
        let topics = self.serve(&wanted).await?;
        let gone: Vec<Arc<Topic>> = touched
            .iter()
            .filter(|topic| image.topic(**topic).is_none())
            .filter_map(|topic| self.catalog.topic(*topic))
            .collect();
        // Before the topic that has the name now is shown, and commits for it can come.
        let names: Vec<String> = gone.iter().map(|topic| topic.name.clone()).collect();
        self.forget_offsets(&names).await?;
        {
            let mut state = self.catalog.write();
            for record in records {
                state.image.apply(record);
            }
            for topic in &gone {
                state.remove(topic.id);
            }
            for topic in topics {
                state.put(topic);
            }
        }
        self.catalog.changed.notify_waiters();
        deleted.retain(|name| image.topic_named(name).is_none() && !names.contains(name));
        self.forget_offsets(&deleted).await?;
        if !gone.is_empty() {
            // The next topics need not wait until the files of these are gone: ids are never used
            // again, and what a stop leaves behind is removed by the next start.
            let (storage, halt) = (Arc::clone(&self.storage), Arc::clone(&self.halt));
            tokio::spawn(async move {
                match remove(&storage, &gone).await {
                    Ok(()) | Err(Failed::Stopped | Failed::Storage(StorageError::Stopped)) => {}
                    Err(Failed::Storage(error)) => halt.halt(&error.to_string()),
                }
            });
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

    /// The topics as they are to be shown, with all their logs open.
    async fn serve(&self, wanted: &[&TopicRecord]) -> Result<Vec<Topic>, Failed> {
        let mut topics = Vec::with_capacity(wanted.len());
        let mut missing = Vec::new();
        for record in wanted {
            let configs = TopicConfigs::from_stored(&record.configs);
            let shown = self.catalog.topic(record.id);
            if let Some(shown) = shown.as_deref().filter(|shown| shown.configs != configs) {
                self.configure(shown, &configs).await?;
            }
            let open = shown.map_or_else(Vec::new, |shown| shown.partitions.clone());
            missing.extend((open.len()..record.partitions.len()).map(|index| (*record, index)));
            topics.push(Topic {
                id: record.id,
                name: record.name.clone(),
                rules: configs.batch_rules(Timestamp::NONE, self.uncompressed_bytes_max, true),
                kept_codec: configs.kept_codec(),
                configs,
                partitions: open,
            });
        }
        let opening: Vec<_> =
            missing.into_iter().map(|(record, index)| self.open(record, index)).collect();
        let mut opening = stream::iter(opening).buffered(OPENING_MAX);
        // In the order in which they were asked for, so each topic's indexes come ascending.
        let mut at = 0;
        while let Some(opened) = opening.next().await {
            let (id, partition) = opened?;
            while topics[at].id != id {
                at += 1;
            }
            topics[at].partitions.push(partition);
        }
        drop(opening);
        Ok(topics)
    }

    async fn open(
        &self,
        record: &TopicRecord,
        index: usize,
    ) -> Result<(TopicId, Partition), Failed> {
        let assignment = record.partitions[index].clone();
        let index = i32::try_from(index).expect("a topic has fewer than 2^31 partitions");
        let partition = PartitionId { topic: record.id, index };
        let (recovered, reader) = match self.storage.open_log(partition).await {
            Ok(opened) => opened,
            Err(LogError::Rot(rot)) => {
                tracing::error!(topic = record.name, index, "{rot}");
                return Ok((record.id, Partition { assignment, log: Log::Offline }));
            }
            Err(LogError::Storage(error)) => return Err(error.into()),
        };
        let role = if record.name == OFFSETS_TOPIC { Role::Offsets } else { Role::Data };
        let shard = self.shards[shard_of(partition, self.shards.len())].clone();
        let range = (recovered.log_start, recovered.end);
        let log = Arc::new(LogHandle::new(partition, shard, reader, range));
        let replicas = assignment.replicas.len();
        let config = TopicConfigs::from_stored(&record.configs).partition_config(replicas);
        let open =
            Box::new(Open { partition, role, recovered, config, assignment: assignment.clone() });
        log.shard.tell(Command::Open { log: Arc::clone(&log), open }).await?;
        Ok((record.id, Partition { assignment, log: Log::Open(log) }))
    }

    async fn configure(&self, topic: &Topic, configs: &TopicConfigs) -> Result<(), Failed> {
        for Partition { assignment, log } in &topic.partitions {
            let Log::Open(log) = log else { continue };
            let config = configs.partition_config(assignment.replicas.len());
            let input = PartitionInput::Configured(config);
            let partition = log.partition;
            log.shard.tell(Command::Tell(Input::Partition { partition, input })).await?;
        }
        Ok(())
    }
}

/// Ends the machines of deleted topics and removes their logs.
async fn remove(storage: &Storage, topics: &[Arc<Topic>]) -> Result<(), Failed> {
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
        let indexes = 0..i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        indexes.map(|index| PartitionId { topic: topic.id, index })
    });
    let removals: Vec<_> = logs.map(|partition| storage.remove_log(partition)).collect();
    let mut removals = stream::iter(removals).buffer_unordered(OPENING_MAX);
    while let Some(removed) = removals.next().await {
        removed?;
    }
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
