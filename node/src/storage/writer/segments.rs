//! The writer's hand on the segment files: frames at their end, what is not synced yet, and what
//! the next checkpoint writes beside them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use quorate_core::batch::{Header, Levels};
use quorate_core::id::{Offset, PartitionId, WriteId};
use quorate_core::reached;
use quorate_core::segment::FileKind;

use super::Done;
use super::ahead::Ahead;
use super::sides::{Resume, Sides};
use super::unlink::Leaving;
use crate::disk::{File, Open};
use crate::storage::Shared;
use crate::storage::files::SegmentKey;
use crate::storage::log::{Log, Segment};

/// Snapshots and indexes wait in memory for a checkpoint, which their bytes bring about.
const SIDE_BYTES_MAX: u64 = 16 << 20;

/// What the writer knows of one open log.
pub(in crate::storage) struct Writing {
    pub(in crate::storage) log: Arc<Log>,
    /// The log's start as far as changes were accepted; readers see it once it is durable.
    pub(in crate::storage) start: Offset,
    /// The segment holds frames that neither the journal has nor a sync covers.
    pub(in crate::storage) unjournaled: bool,
    /// Complete as soon as it stands in the segment.
    pub(in crate::storage) done: Option<WriteId>,
    /// Bytes that came into the group with this number.
    pub(in crate::storage) group: u64,
    pub(in crate::storage) group_bytes: u64,
    pub(in crate::storage) resume: Resume,
    chunks: Vec<Bytes>,
    frames: Vec<(Header, Levels, u64)>,
    bytes: u64,
}

impl Writing {
    pub(in crate::storage) fn new(log: Arc<Log>) -> Self {
        let start = log.state().start;
        Self {
            log,
            start,
            unjournaled: false,
            done: None,
            group: 0,
            group_bytes: 0,
            resume: Resume::default(),
            chunks: Vec::new(),
            frames: Vec::new(),
            bytes: 0,
        }
    }

    /// A frame to be written with the next `Segments::append`.
    pub(in crate::storage) fn push(
        &mut self,
        header: Header,
        levels: Levels,
        chunks: [Bytes; 2],
        bytes: u64,
    ) {
        self.chunks.extend(chunks);
        self.frames.push((header, levels, bytes));
        self.bytes += bytes;
    }

    /// The log's end once what was pushed is written.
    pub(in crate::storage) fn end(&self) -> Offset {
        let last = self.frames.last().map(|(header, ..)| header.next_offset());
        last.unwrap_or_else(|| self.log.state().end)
    }
}

/// What no sync covers yet.
#[derive(Default)]
pub(in crate::storage) struct Dirty {
    pub(in crate::storage) files: BTreeMap<SegmentKey, Arc<dyn File>>,
    /// Snapshots and indexes that are still to be written.
    pub(in crate::storage) sides: Sides,
    pub(in crate::storage) directories: BTreeSet<PathBuf>,
    /// Logs whose marks are out of date.
    pub(in crate::storage) logs: BTreeSet<PartitionId>,
    pub(in crate::storage) bytes: u64,
}

/// What no sync covers yet of one log.
pub(in crate::storage) struct Unsynced {
    /// Segments, by their bases.
    pub(in crate::storage) files: Vec<(Offset, Arc<dyn File>)>,
    pub(in crate::storage) sides: Sides,
    pub(in crate::storage) directories: BTreeSet<PathBuf>,
}

/// See the file's comment.
pub(in crate::storage) struct Segments {
    shared: Arc<Shared>,
    pub(in crate::storage) dirty: Dirty,
    /// What the running checkpoint syncs.
    pub(in crate::storage) syncing: Option<Arc<Dirty>>,
    /// What is synced before the next checkpoint.
    pub(super) ahead: Ahead,
    /// Files to be unlinked after the next checkpoint.
    pub(in crate::storage) leaving: Vec<Leaving>,
    /// Somebody asked for a checkpoint.
    pub(in crate::storage) wanted: bool,
    /// Bytes of states that logs told and that no checkpoint has taken up.
    pub(in crate::storage) told_bytes: u64,
}

impl Segments {
    pub(in crate::storage) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            dirty: Dirty::default(),
            syncing: None,
            ahead: Ahead::default(),
            leaving: Vec::new(),
            wanted: false,
            told_bytes: 0,
        }
    }

    /// Whether so many files are unsynced that a checkpoint must come first.
    pub(in crate::storage) fn is_full(&self) -> bool {
        self.is_full_with(0)
    }

    pub(in crate::storage) fn is_full_with(&self, more: usize) -> bool {
        self.dirty.files.len() + more >= self.shared.config.open_files_max / 4
            || self.dirty.sides.bytes() + self.told_bytes >= SIDE_BYTES_MAX
    }

    pub(in crate::storage) fn is_due(&self) -> bool {
        self.wanted || self.is_full() || self.dirty.bytes >= self.shared.config.checkpoint_bytes
    }

    pub(in crate::storage) fn changed(&mut self, partition: PartitionId) {
        self.dirty.logs.insert(partition);
    }

    /// Writes what was pushed, in one write.
    pub(in crate::storage) async fn append(&mut self, writing: &mut Writing) -> io::Result<()> {
        let Some(&(first, ..)) = writing.frames.first() else { return Ok(()) };
        let log = Arc::clone(&writing.log);
        let (base, generation, position) = {
            let mut state = log.state();
            if state.segments.is_empty() {
                state.roll(first.base_offset());
            }
            let active = state.active();
            active.map(|active| (active.base, active.generation, active.bytes)).unwrap_or_default()
        };
        let end = position + writing.bytes;
        let last = writing.frames.last().map_or(first, |(last, ..)| *last).last_offset();
        if end > u64::from(u32::MAX) || last.0 - base.0 > i64::from(u32::MAX) {
            return Err(io::Error::other("a segment takes at most 4 GiB and 2^32 offsets"));
        }
        let file = self.active_file(&log, base, generation, position).await?;
        self.dirty.files.insert((log.partition, base, generation), Arc::clone(&file));
        self.dirty.bytes += writing.bytes;
        self.ahead.wrote((log.partition, base, generation), &file, writing.bytes);
        self.changed(log.partition);
        let written = async {
            if end > file.len() {
                let config = &self.shared.config;
                let more =
                    file.len().clamp(config.allocation_bytes_min, config.allocation_bytes_max);
                file.allocate(end.max(file.len() + more)).await?;
            }
            file.write_at(position, std::mem::take(&mut writing.chunks)).await
        };
        if let Err(error) = written.await {
            // The log's end is where it was; what a failed write left behind it goes if it can.
            let _ = file.set_len(position).await;
            return Err(error);
        }
        reached!("segment-written");
        let mut state = log.state();
        for (header, levels, bytes) in writing.frames.drain(..) {
            state.push(&header, levels, bytes);
        }
        writing.bytes = 0;
        Ok(())
    }

    async fn active_file(
        &mut self,
        log: &Log,
        base: Offset,
        generation: u32,
        position: u64,
    ) -> io::Result<Arc<dyn File>> {
        let key = (log.partition, base, generation);
        if let Some(file) = self.dirty.files.get(&key) {
            return Ok(Arc::clone(file));
        }
        let path = log.file(base, generation, FileKind::Segment);
        if position > 0 {
            return self.shared.files.segment(key, &path).await;
        }
        self.shared.disk.make_directory(&log.directory).await?;
        let file = self.create(&path).await?;
        if !file.is_empty() {
            // What an earlier life left under this name was never part of the log.
            file.set_len(0).await?;
        }
        self.dirty.directories.insert(log.directory.clone());
        self.dirty.directories.insert(self.shared.logs_directory());
        Ok(self.shared.files.keep_segment(key, file))
    }

    async fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        match self.shared.disk.open(path, Open::Create).await {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.shared.disk.open(path, Open::Write).await
            }
            opened => opened,
        }
    }

    /// Closes the active segment: trims its file, writes its index and the state behind it.
    pub(in crate::storage) async fn roll(
        &mut self,
        writing: &mut Writing,
        base: Offset,
        snapshot: &Bytes,
    ) -> io::Result<()> {
        let log = Arc::clone(&writing.log);
        let active = log.state().active().cloned();
        if active.as_ref().is_some_and(|active| active.base >= base) {
            return Ok(());
        }
        self.changed(log.partition);
        if let Some(active) = active.filter(|active| active.bytes > 0) {
            let key = (log.partition, active.base, active.generation);
            let file = self.active_file(&log, key.1, key.2, active.bytes).await?;
            file.set_len(active.bytes).await?;
            self.dirty.files.insert(key, file);
            // Readers need not wait for its file.
            let index = log.state().index.clone();
            self.shared.files.keep_index(key, index);
            writing.resume.index(&log, &mut self.dirty.sides);
            writing.resume.closed(&log, base, snapshot.clone(), &mut self.dirty.sides);
            self.leaving.extend(writing.resume.spent(&log));
            self.names_of(&log);
        }
        reached!("segment-rolled");
        // Where all records were deleted before, the closed segment holds none to keep.
        let gone = {
            let mut state = log.state();
            state.roll(base);
            state.drop_below_start()
        };
        self.leave(&log, gone);
        Ok(())
    }

    /// Nothing stands in the log any more, which goes on at `base`: `snapshot` is all that is known
    /// of what was before.
    pub(in crate::storage) fn begin_at(
        &mut self,
        writing: &mut Writing,
        base: Offset,
        snapshot: Bytes,
    ) {
        let log = Arc::clone(&writing.log);
        self.changed(log.partition);
        writing.resume.closed(&log, base, snapshot, &mut self.dirty.sides);
        self.leaving.extend(writing.resume.spent(&log));
        self.names_of(&log);
    }

    fn names_of(&mut self, log: &Log) {
        self.dirty.directories.insert(log.directory.clone());
        self.dirty.directories.insert(self.shared.logs_directory());
    }

    /// Takes up what the next start of this log resumes from: `writing` has a new snapshot of it.
    pub(in crate::storage) fn resume(&mut self, writing: &mut Writing) {
        let log = Arc::clone(&writing.log);
        if writing.resume.take(&log, &mut self.dirty.sides) {
            self.leaving.extend(writing.resume.spent(&log));
            self.names_of(&log);
        }
    }

    /// The unsynced files of these logs, and the directories whose names they need.
    pub(in crate::storage) fn unsynced(
        &self,
        logs: &BTreeSet<PartitionId>,
        directories: impl Fn(PartitionId) -> PathBuf,
    ) -> (Vec<Arc<dyn File>>, BTreeSet<PathBuf>) {
        let mut files = Vec::new();
        let mut names = BTreeSet::new();
        // What a checkpoint has taken to sync is not synced before it is done.
        for dirty in std::iter::once(&self.dirty).chain(self.syncing.as_deref()) {
            for &log in logs {
                let all = (log, Offset(i64::MIN), 0)..=(log, Offset(i64::MAX), u32::MAX);
                files.extend(dirty.files.range(all).map(|(_, file)| Arc::clone(file)));
                let needed = [directories(log), self.shared.logs_directory()];
                names.extend(needed.into_iter().filter(|name| dirty.directories.contains(name)));
            }
        }
        (files, names)
    }

    /// These segments lie below the log's start: their files go with the next checkpoint, whose
    /// marks say so. Otherwise a crash would find a start that speaks of files that are gone. Until
    /// then they are synced like others: what was synced behind them must not stand behind a gap.
    pub(in crate::storage) fn leave(&mut self, log: &Arc<Log>, segments: Vec<Segment>) {
        if segments.is_empty() {
            return;
        }
        self.changed(log.partition);
        self.wanted = true;
        self.leaving.push(Leaving::Segments { log: Arc::clone(log), segments });
    }

    pub(in crate::storage) fn leave_log(&mut self, directory: PathBuf, done: Option<Done>) {
        self.wanted = true;
        self.dirty.directories.remove(&directory);
        self.leaving.push(Leaving::Log { directory, done });
    }

    /// All of this log's that no sync covers, for a cut to see to; what was to be unlinked is the
    /// cut's too.
    pub(in crate::storage) fn take_unsynced(&mut self, log: &Log) -> Unsynced {
        let partition = log.partition;
        self.ahead.forget(partition);
        let own = self.dirty.files.extract_if(.., |key, _| key.0 == partition);
        let files = own.map(|((_, base, _), file)| (base, file)).collect();
        let sides = self.dirty.sides.take(partition);
        let names = [&log.directory, &self.shared.logs_directory()].map(Clone::clone);
        let dirty = names.into_iter().filter(|name| self.dirty.directories.contains(name));
        self.leaving.retain(|leaving| leaving.directory() != Some(&log.directory));
        Unsynced { files, sides, directories: dirty.collect() }
    }

    /// The log is gone from here on: nothing of it is synced or marked any more.
    pub(in crate::storage) fn removed(&mut self, partition: PartitionId) {
        self.shared.files.forget_log(partition);
        self.dirty.files.retain(|key, _| key.0 != partition);
        self.ahead.forget(partition);
        self.dirty.sides.forget(partition);
        self.dirty.logs.remove(&partition);
        self.shared.marks().remove(&partition);
    }
}
