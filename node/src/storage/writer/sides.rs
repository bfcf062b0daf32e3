//! The small files beside segments, snapshots and indexes, which spare a start and a reader the
//! segment itself. They wait in memory until a checkpoint writes them, one after the other: so none
//! of them is held open, and however often a log says what its state is, a checkpoint writes it
//! once. A kill before that costs the next start a longer read.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use quorate_core::id::{Offset, PartitionId};
use quorate_core::reached;
use quorate_core::segment::FileKind;

use super::checkpoint::SYNCS_MAX;
use super::unlink::Leaving;
use crate::disk::{Disk, Open};
use crate::storage::log::Log;

/// What is to be written into small files, and where in them; each ends behind it.
#[derive(Debug, Default)]
pub(in crate::storage) struct Sides {
    files: BTreeMap<(PartitionId, PathBuf), (u64, Bytes)>,
    bytes: u64,
}

impl Sides {
    fn put(&mut self, log: &Log, path: PathBuf, at: u64, bytes: Bytes) {
        self.bytes += bytes.len() as u64;
        self.files.insert((log.partition, path), (at, bytes));
    }

    pub(in crate::storage) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(in crate::storage) fn forget(&mut self, partition: PartitionId) {
        self.files.retain(|(owner, _), _| *owner != partition);
    }

    /// Takes out what belongs to one log.
    pub(in crate::storage) fn take(&mut self, partition: PartitionId) -> Self {
        let own = self.files.extract_if(.., |(owner, _), _| *owner == partition).collect();
        Self { files: own, bytes: 0 }
    }

    /// Writes and syncs all of them.
    pub(in crate::storage) async fn write(&self, disk: &dyn Disk) -> io::Result<()> {
        self.write_those(disk, |_| true).await
    }

    /// Writes and syncs those whose paths are wanted.
    pub(in crate::storage) async fn write_those(
        &self,
        disk: &dyn Disk,
        wanted: impl Fn(&Path) -> bool,
    ) -> io::Result<()> {
        let mut writes = FuturesUnordered::new();
        for ((_, path), (at, bytes)) in self.files.iter().filter(|((_, path), _)| wanted(path)) {
            if writes.len() == SYNCS_MAX
                && let Some(written) = writes.next().await
            {
                written?;
            }
            writes.push(write_side(disk, path, *at, bytes.clone()));
        }
        while let Some(written) = writes.next().await {
            written?;
        }
        Ok(())
    }
}

/// What ends the name of a file that is to take the place of another, as long as it does not.
pub(in crate::storage) const UNFINISHED: &str = "new";

pub(in crate::storage) fn unfinished(path: &Path) -> PathBuf {
    path.with_added_extension(UNFINISHED)
}

/// Writes one of them from `at` to its end, and syncs it.
pub(in crate::storage) async fn write_side(
    disk: &dyn Disk,
    path: &Path,
    at: u64,
    bytes: Bytes,
) -> io::Result<()> {
    // What replaces a whole file goes beside it first: a power loss leaves one of the two.
    let fresh = unfinished(path);
    let name = if at == 0 { &fresh } else { path };
    let file = match disk.open(name, Open::Create).await {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            disk.open(name, Open::Write).await?
        }
        // Of a log whose first segment holds nothing yet.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            disk.make_directory(path.parent().unwrap_or(path)).await?;
            disk.open(name, Open::Create).await?
        }
        opened => opened?,
    };
    let end = at + bytes.len() as u64;
    file.write_at(at, vec![bytes]).await?;
    if file.len() > end {
        file.set_len(end).await?;
    }
    file.sync().await?;
    if at == 0 {
        disk.rename(&fresh, path).await?;
    }
    Ok(())
}

/// From where the next start of a log reads on, as far as the writer has brought it.
#[derive(Debug, Default)]
pub(in crate::storage) struct Resume {
    /// The newest state that the log's machine told, and the offset behind it.
    newest: Option<(Offset, Bytes)>,
    /// A snapshot inside the active segment that a checkpoint has written.
    written: Option<Offset>,
    /// ... and one that a newer one makes superfluous.
    spent: Option<Offset>,
    index: IndexFile,
}

/// How far the index file of the active segment reaches.
#[derive(Debug, Default)]
struct IndexFile {
    base: Offset,
    entries: usize,
    bytes: u64,
}

impl Resume {
    /// Returns the bytes of the state that this one takes the place of.
    pub(in crate::storage) fn tell(&mut self, end: Offset, snapshot: Bytes) -> u64 {
        let before = self.newest.replace((end, snapshot));
        before.map_or(0, |(_, snapshot)| snapshot.len() as u64)
    }

    /// What is missing in the index file of the active segment is to be written.
    pub(in crate::storage) fn index(&mut self, log: &Log, sides: &mut Sides) {
        let state = log.state();
        let (base, entries) = (state.index.base(), state.index.len());
        let generation = state.active().map_or(0, |active| active.generation);
        if self.index.base != base || self.index.entries > entries {
            self.index = IndexFile { base, ..IndexFile::default() };
        }
        let part = state.index.encode_from(self.index.entries);
        let at = self.index.bytes;
        self.index = IndexFile { base, entries, bytes: at + part.len() as u64 };
        drop(state);
        sides.put(log, log.file(base, generation, FileKind::Index), at, part);
    }

    /// The active segment was closed, and the next begins at `base`.
    pub(in crate::storage) fn closed(
        &mut self,
        log: &Log,
        base: Offset,
        snapshot: Bytes,
        sides: &mut Sides,
    ) {
        self.newest = None;
        self.spent = self.written.take().filter(|&written| written != base);
        sides.put(log, log.path(base, FileKind::Snapshot), 0, snapshot);
    }

    /// Has the newest state written, with the index up to it. Whether there is one.
    pub(in crate::storage) fn take(&mut self, log: &Log, sides: &mut Sides) -> bool {
        let Some((at, snapshot)) = self.newest.take() else { return false };
        let Some(base) = log.state().active().map(|active| active.base) else { return false };
        reached!("resume-written");
        self.index(log, sides);
        sides.put(log, log.path(at, FileKind::Snapshot), 0, snapshot);
        // One at a segment's base stays with its segment.
        let inside = Some(at).filter(|&at| at > base);
        self.spent =
            std::mem::replace(&mut self.written, inside).filter(|&old| Some(old) != inside);
        true
    }

    /// The snapshot that may go once the checkpoint that writes its successor is done.
    pub(in crate::storage) fn spent(&mut self, log: &Log) -> Option<Leaving> {
        let path = log.path(self.spent.take()?, FileKind::Snapshot);
        Some(Leaving::Snapshot { path })
    }
}
