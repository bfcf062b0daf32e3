//! What gathers for one sync.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use bytes::Bytes;
use quorate_core::id::{Offset, PartitionId, WriteId};
use quorate_core::segment::cleaned::Cleaned;
use quorate_core::segment::journal::{GroupBuilder, JournalId};

use super::Done;

/// An upper bound of what one log's notes add to a group.
const NOTES_BYTES: usize = 128;

/// Per log, the first and the last write that a group completes.
pub(super) type Members = BTreeMap<PartitionId, (WriteId, WriteId)>;

/// Changes of many logs that become durable together.
pub(super) struct Group {
    id: JournalId,
    pub(super) sequence: u64,
    pub(super) builder: GroupBuilder,
    /// Of all frames, journaled or not.
    pub(super) bytes: u64,
    pub(super) members: Members,
    /// Logs whose segments are synced before the group is written: they hold frames that were not
    /// journaled.
    pub(super) sync_first: BTreeSet<PartitionId>,
    /// What compaction left of logs, to be written before the group.
    pub(super) cleaned: Vec<(PathBuf, Bytes)>,
    pub(super) after: Vec<After>,
}

/// What may be done only once the group is durable.
pub(super) enum After {
    /// The log's start is raised, and segments below it go.
    Start { partition: PartitionId, offset: Offset },
    /// A pass of compaction counts from here on.
    Replaced { partition: PartitionId, cleaned: Box<Cleaned> },
    /// The log's files go.
    Removed { directory: PathBuf, done: Done },
}

impl Group {
    pub(super) fn new(id: JournalId, sequence: u64) -> Self {
        Self {
            id,
            sequence,
            builder: GroupBuilder::new(id, sequence),
            bytes: 0,
            members: Members::new(),
            sync_first: BTreeSet::new(),
            cleaned: Vec::new(),
            after: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.builder.is_empty()
    }

    /// The group completes `write`, the latest of its log.
    pub(super) fn join(&mut self, partition: PartitionId, write: WriteId) {
        self.members.entry(partition).or_insert((write, write)).1 = write;
    }

    /// Bytes that the group may take in the journal, at most.
    pub(super) fn journal_bytes(&self) -> usize {
        self.builder.bytes() + NOTES_BYTES * (self.members.len() + self.after.len() + 1)
    }

    /// Takes the group; the next one gathers from here on.
    pub(super) fn close(&mut self) -> Self {
        let next = self.sequence + u64::from(!self.builder.is_empty());
        std::mem::replace(self, Self::new(self.id, next))
    }
}

/// What a group completes, log by log.
pub(super) fn completed(members: &Members) -> Vec<(PartitionId, WriteId)> {
    members.iter().map(|(&partition, &(_, last))| (partition, last)).collect()
}
