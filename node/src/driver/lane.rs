//! The lane of completed writes: what the disk has done never waits behind what clients want.

use std::sync::{Arc, Mutex, PoisonError};

use quorate_core::id::{PartitionId, WriteId};
use quorate_core::partition::Recovered;
use tokio::sync::Notify;

use crate::storage::Completions;

/// What became of writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    Written { partition: PartitionId, through: WriteId },
    Truncated { partition: PartitionId, write: WriteId, recovered: Box<Recovered> },
    Failed { partition: PartitionId, write: WriteId },
}

/// One shard's lane. It holds no more than there are writes in flight, which the storage engine's
/// queue bounds.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    waiting: Mutex<Vec<Completion>>,
    arrived: Notify,
}

impl Lane {
    fn push(&self, completions: impl IntoIterator<Item = Completion>) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).extend(completions);
        self.arrived.notify_one();
    }

    /// Moves all that have arrived behind what is in `into`.
    pub(super) fn take(&self, into: &mut Vec<Completion>) {
        into.append(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Completes when there may be something to take. May be dropped and asked again.
    pub(super) async fn arrived(&self) {
        self.arrived.notified().await;
    }
}

/// Which shard a partition lives in: the metadata log in the first, the partitions of one topic
/// one after another.
pub(crate) fn shard_of(partition: PartitionId, shards: usize) -> usize {
    if partition == PartitionId::METADATA {
        return 0;
    }
    // The last bytes of an id are drawn at random, whatever its first ones say.
    let id = partition.topic.0;
    let start = u32::from_be_bytes([id[12], id[13], id[14], id[15]]) as usize;
    (start + partition.index.unsigned_abs() as usize) % shards
}

/// Hands each completion to the lane of its shard.
#[derive(Debug)]
pub(crate) struct Lanes {
    lanes: Vec<Arc<Lane>>,
}

impl Lanes {
    pub(crate) fn new(shards: usize) -> Self {
        Self { lanes: (0..shards).map(|_| Arc::default()).collect() }
    }

    pub(crate) fn lane(&self, shard: usize) -> Arc<Lane> {
        Arc::clone(&self.lanes[shard])
    }

    fn of(&self, partition: PartitionId) -> &Lane {
        &self.lanes[shard_of(partition, self.lanes.len())]
    }
}

impl Completions for Lanes {
    fn written(&self, written: &[(PartitionId, WriteId)]) {
        if let [lane] = &self.lanes[..] {
            lane.push(written.iter().map(completed));
            return;
        }
        for (shard, lane) in self.lanes.iter().enumerate() {
            let of_shard =
                |entry: &&(PartitionId, WriteId)| shard_of(entry.0, self.lanes.len()) == shard;
            let mut own = written.iter().filter(of_shard).map(completed).peekable();
            if own.peek().is_some() {
                lane.push(own);
            }
        }
    }

    fn truncated(&self, partition: PartitionId, write: WriteId, recovered: Box<Recovered>) {
        self.of(partition).push([Completion::Truncated { partition, write, recovered }]);
    }

    fn write_failed(&self, partition: PartitionId, write: WriteId) {
        self.of(partition).push([Completion::Failed { partition, write }]);
    }
}

const fn completed(&(partition, through): &(PartitionId, WriteId)) -> Completion {
    Completion::Written { partition, through }
}

#[cfg(test)]
mod tests {
    use quorate_core::id::TopicId;

    use super::*;

    #[test]
    fn completions_reach_the_shard_of_their_partition() {
        let lanes = Lanes::new(3);
        let mut topic = TopicId::default();
        topic.0[15] = 7;
        let partition = |index| PartitionId { topic, index };
        lanes.written(&[(partition(0), WriteId(4)), (partition(1), WriteId(2))]);
        lanes.write_failed(PartitionId::METADATA, WriteId(1));
        let mut found: Vec<Vec<Completion>> = vec![Vec::new(); 3];
        for (shard, found) in found.iter_mut().enumerate() {
            lanes.lane(shard).take(found);
        }
        let written = |index, through| Completion::Written { partition: partition(index), through };
        assert_eq!(found[1], [written(0, WriteId(4))]);
        assert_eq!(found[2], [written(1, WriteId(2))]);
        let failed = Completion::Failed { partition: PartitionId::METADATA, write: WriteId(1) };
        assert_eq!(found[0], [failed]);
    }
}
