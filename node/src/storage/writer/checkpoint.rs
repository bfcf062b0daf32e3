//! The background sync of segments, after which the journal before it is needed no more; and the
//! clean close, which is the last one.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use quorate_core::segment::checkpoint::Marks;
use quorate_core::{mutant, reached};

use super::segments::Dirty;
use super::unlink::unlink_all;
use super::{Writer, write_cleaned};
use crate::disk::{Disk, File};
use crate::storage::Shared;
use crate::storage::directory;
use crate::storage::error::StorageError;

/// Syncs on their way at once, so that the journal's own finds a thread free.
pub(super) const SYNCS_MAX: usize = 2;

/// Syncs files, then the directories that name them.
pub(in crate::storage) async fn sync_all(
    disk: &dyn Disk,
    files: &[Arc<dyn File>],
    directories: &BTreeSet<PathBuf>,
) -> io::Result<()> {
    let mut syncs = FuturesUnordered::new();
    for file in files {
        if syncs.len() == SYNCS_MAX
            && let Some(synced) = syncs.next().await
        {
            synced?;
        }
        syncs.push(file.sync());
    }
    while let Some(synced) = syncs.next().await {
        synced?;
    }
    if mutant!("new-file-dir-not-synced") {
        return Ok(());
    }
    for name in directories {
        disk.sync_directory(name).await?;
    }
    Ok(())
}

/// Makes everything in `dirty` durable: segments, what stands beside them, and their names.
pub(in crate::storage) async fn sync_dirty(disk: &dyn Disk, dirty: &Dirty) -> io::Result<()> {
    let files: Vec<_> = dirty.files.values().cloned().collect();
    sync_all(disk, &files, &BTreeSet::new()).await?;
    dirty.sides.write(disk).await?;
    sync_all(disk, &[], &dirty.directories).await
}

/// Makes everything in `dirty` durable, and then the marks that say so.
async fn checkpoint(
    shared: Arc<Shared>,
    cleaned: Vec<(PathBuf, Bytes)>,
    dirty: Arc<Dirty>,
    marks: Marks,
) -> io::Result<Marks> {
    write_cleaned(&*shared.disk, cleaned).await?;
    if mutant!("recovery-point-ahead") {
        directory::write_marks(&*shared.disk, &shared.config.directory, &marks).await?;
    }
    sync_dirty(&*shared.disk, &dirty).await?;
    reached!("checkpoint-synced-not-marked");
    directory::write_marks(&*shared.disk, &shared.config.directory, &marks).await?;
    Ok(marks)
}

impl Writer {
    /// Every change in a group below the one that gathers stands in the segments already, so a
    /// sync of the segments makes all of those groups superfluous.
    pub(super) fn start_checkpoint_if_due(&mut self) {
        let busy = self.checkpoint.is_some() || self.cutting.is_some() || self.ahead.is_some();
        if self.poisoned || busy || self.is_replacing() || !self.segments.is_due() {
            return;
        }
        self.start_checkpoint(Vec::new());
    }

    /// A pass of compaction is on its way into its log. The states that the log has told since know
    /// the new segments: with one of them on the disk and the old `cleaned` file beside it, a start
    /// would take the lengths of files that do not count for those of files that do.
    fn is_replacing(&self) -> bool {
        let flying = self.in_flight.as_ref();
        !self.group.cleaned.is_empty() || flying.is_some_and(|group| group.is_replacing)
    }

    /// The group that gathers has no room in the journal, and waits for this checkpoint. What
    /// compaction left, which the group would bring, is written here, before the states that know
    /// of it.
    pub(super) fn start_checkpoint_for_room(&mut self) {
        if self.checkpoint.is_none() && self.cutting.is_none() && self.ahead.is_none() {
            let cleaned = std::mem::take(&mut self.group.cleaned);
            if !cleaned.is_empty() {
                reached!("cleaned-written-by-a-checkpoint");
            }
            self.start_checkpoint(cleaned);
        }
    }

    fn start_checkpoint(&mut self, cleaned: Vec<(PathBuf, Bytes)>) {
        self.segments.wanted = false;
        self.leaving.append(&mut self.segments.leaving);
        let (dirty, marks) = self.take_dirty();
        self.segments.syncing = Some(Arc::clone(&dirty));
        self.checkpoint =
            Some(Box::pin(checkpoint(Arc::clone(&self.shared), cleaned, dirty, marks)));
    }

    fn take_dirty(&mut self) -> (Arc<Dirty>, Marks) {
        self.segments.told_bytes = 0;
        self.segments.ahead.forget_all();
        for partition in std::mem::take(&mut self.segments.dirty.logs) {
            if let Some(writing) = self.logs.get_mut(&partition) {
                self.segments.resume(writing);
                self.segments.changed(partition);
            }
        }
        let dirty = std::mem::take(&mut self.segments.dirty);
        let mut marks = self.shared.marks();
        for partition in &dirty.logs {
            let Some(writing) = self.logs.get(partition) else { continue };
            let mark = writing.log.state().mark(*partition, writing.start);
            marks.extend(mark.map(|mark| (*partition, mark)));
        }
        let logs = marks.values().copied().collect();
        (Arc::new(dirty), Marks { journal_sequence: self.group.sequence, logs })
    }

    pub(super) fn on_checkpointed(&mut self, result: io::Result<Marks>) {
        self.checkpoint = None;
        self.segments.syncing = None;
        match result {
            Ok(marks) => {
                reached!("checkpoint-done");
                self.released = self.released.max(marks.journal_sequence);
                self.marked = marks;
                if !self.poisoned {
                    self.unlinking.push(&self.shared, std::mem::take(&mut self.leaving));
                }
                for done in self.checkpoint_done.drain(..) {
                    let _ = done.send(Ok(()));
                }
            }
            Err(error) => self.fail(&error, None),
        }
    }

    pub(super) fn on_unlinked(&mut self, result: io::Result<()>) {
        self.unlinking.done(&self.shared);
        if let Err(error) = result {
            self.fail(&error, None);
        }
    }

    /// Nothing is in flight and nobody writes any more: syncs the rest, and says so in a marker
    /// that the next start removes before it appends anything.
    pub(super) async fn close(&mut self) -> Result<(), StorageError> {
        if self.poisoned {
            return Err(StorageError::Stopped);
        }
        let data = self.shared.config.directory.clone();
        let error = StorageError::io("closing", &data);
        let closed = async {
            let (dirty, marks) = self.take_dirty();
            let sequence = marks.journal_sequence;
            checkpoint(Arc::clone(&self.shared), Vec::new(), dirty, marks).await?;
            self.leaving.append(&mut self.segments.leaving);
            let leaving = std::mem::take(&mut self.leaving);
            unlink_all(Arc::clone(&self.shared), leaving).await?;
            if let Some(journal) = &mut self.journal {
                journal.trim().await?;
            }
            reached!("closed-not-marked-clean");
            directory::write_clean(&*self.shared.disk, &data, sequence).await
        };
        closed.await.map_err(error)
    }
}
