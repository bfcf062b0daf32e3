//! What the journal knows and the segments may not: its groups are read in order and done again,
//! each change that is there already being passed over.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use quorate_core::id::{Offset, PartitionId};
use quorate_core::partition::recovered::Recovered;
use quorate_core::segment::FileKind;
use quorate_core::segment::checkpoint::{Mark, Marks};
use quorate_core::segment::frame::{Frame, frame_chunks};
use quorate_core::segment::journal::{
    Entry, FileHeader, Found, Group, GroupFlaw, JournalId, PAGE_BYTES, find_group, later_group,
};
use quorate_core::{mutant, reached};

use super::directory::{self, JOURNAL};
use super::error::{LogError, Rot, StorageError};
use super::journal::{JournalFile, file_path, parse_ordinal};
use super::log::Log;
use super::recovery::{load, remove_snapshots};
use super::writer::{Segments, Writing, sync_dirty, unlink_all};
use super::{OpenReport, Shared};
use crate::disk::Open;

/// Pieces in which journal files are searched: whole pages.
const PIECE_BYTES: usize = 256 * PAGE_BYTES;

/// Opens every file of the journal. Their names are durable before one of them is used again: a
/// life that was cut short may have made a file and not synced the directory, and groups synced
/// into a file whose name a power loss takes are lost with it.
pub(super) async fn open_files(shared: &Shared) -> Result<Vec<JournalFile>, StorageError> {
    let directory = shared.config.directory.join(JOURNAL);
    let reading = || StorageError::io("opening the journal", &directory);
    let names = shared.disk.list(&directory).await.map_err(reading())?;
    let mut files = Vec::new();
    for ordinal in names.iter().filter_map(|name| parse_ordinal(name)) {
        let path = file_path(&directory, ordinal);
        let file = shared.disk.open(&path, Open::Write).await.map_err(reading())?;
        files.push(JournalFile { ordinal, file, newest: None });
    }
    if !files.is_empty() {
        shared.disk.sync_directory(&directory).await.map_err(reading())?;
    }
    Ok(files)
}

/// A log while the journal is replayed onto it.
struct Replayed {
    recovered: Recovered,
    writing: Writing,
    beyond: Vec<Offset>,
}

/// See the file's comment.
pub(super) struct Replay<'a> {
    shared: Arc<Shared>,
    id: JournalId,
    files: &'a [JournalFile],
    logs: BTreeMap<PartitionId, Replayed>,
    offline: BTreeMap<PartitionId, Rot>,
    /// Of logs that are offline: where they end, and start, as the journal says.
    missed: BTreeMap<PartitionId, (Offset, Offset)>,
    segments: Segments,
    touched: BTreeSet<PartitionId>,
}

/// Where groups are looked for.
#[derive(Clone, Copy)]
struct Cursor {
    file: usize,
    position: u64,
    sequence: u64,
}

impl<'a> Replay<'a> {
    pub(super) fn new(shared: Arc<Shared>, files: &'a [JournalFile]) -> Self {
        let segments = Segments::new(Arc::clone(&shared));
        let id = shared.journal;
        let (logs, offline, missed) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { shared, id, files, logs, offline, missed, segments, touched: BTreeSet::new() }
    }

    /// Replays all groups from `sequence` on, makes the segments durable and marks them so.
    /// Returns the number that the next group takes.
    pub(super) async fn run(
        mut self,
        sequence: u64,
        report: &mut OpenReport,
    ) -> Result<u64, StorageError> {
        let headers = self.headers().await?;
        let mut next = sequence;
        let mut cursor = self.find(&headers, sequence).await?;
        while let Some(at) = cursor {
            let flaw = match self.group_at(at).await? {
                Ok(group) => {
                    next = group.sequence + 1;
                    report.groups_replayed += 1;
                    report.bytes_replayed += group.bytes as u64;
                    let position = at.position + group.bytes as u64;
                    self.on_group(group).await?;
                    cursor = Some(Cursor { position, sequence: next, ..at });
                    continue;
                }
                Err(flaw) => flaw,
            };
            if flaw.is_newer() {
                let path = self.path(at.file);
                return Err(StorageError::Newer { path, why: flaw.to_string() });
            }
            let follows = headers.iter().find(|(first, _)| *first == at.sequence);
            cursor = match follows {
                Some(&(_, file)) if file != at.file => {
                    Some(Cursor { file, position: PAGE_BYTES as u64, ..at })
                }
                _ => {
                    let hidden = self.find_without_header(&headers, at.sequence).await?;
                    if hidden.is_none() {
                        self.prove_end(at, &headers, flaw).await?;
                    }
                    hidden
                }
            };
        }
        reached!("journal-replayed");
        self.finish(next + 1, report).await
    }

    fn path(&self, file: usize) -> PathBuf {
        file_path(&self.shared.config.directory.join(JOURNAL), self.files[file].ordinal)
    }

    async fn read(&self, at: Cursor, bytes: usize) -> Result<Bytes, StorageError> {
        let read = self.files[at.file].file.read_at(at.position, bytes).await;
        read.map_err(StorageError::io("reading the journal", &self.path(at.file)))
    }

    /// Per file with a whole header, the number of its first group; ascending.
    async fn headers(&self) -> Result<Vec<(u64, usize)>, StorageError> {
        let mut headers = Vec::new();
        for file in 0..self.files.len() {
            let at = Cursor { file, position: 0, sequence: 0 };
            let page = self.read(at, PAGE_BYTES).await?;
            match FileHeader::decode(self.id, &page) {
                Ok(header) => headers.push((header.first_sequence, file)),
                Err(flaw @ (GroupFlaw::Version { .. } | GroupFlaw::Stranger)) => {
                    let (path, why) = (self.path(file), flaw.to_string());
                    return Err(match flaw {
                        GroupFlaw::Stranger => StorageError::Damaged { path, why },
                        _ => StorageError::Newer { path, why },
                    });
                }
                Err(_) => {}
            }
        }
        headers.sort_unstable();
        Ok(headers)
    }

    /// The place of group `sequence`: in the newest file that begins no later.
    async fn find(
        &self,
        headers: &[(u64, usize)],
        sequence: u64,
    ) -> Result<Option<Cursor>, StorageError> {
        let Some(&(_, file)) = headers.iter().rev().find(|(first, _)| *first <= sequence) else {
            if let Some(at) = self.find_without_header(headers, sequence).await? {
                return Ok(Some(at));
            }
            let start = Cursor { file: 0, position: 0, sequence };
            if !self.files.is_empty() {
                self.prove_end(start, headers, GroupFlaw::Magic).await?;
            }
            return Ok(None);
        };
        let end = Cursor { file, position: self.files[file].file.len(), sequence };
        Ok(Some(self.find_in(file, sequence).await?.unwrap_or(end)))
    }

    /// The first page of a file from which group `sequence` or a later one stands.
    async fn find_in(&self, file: usize, sequence: u64) -> Result<Option<Cursor>, StorageError> {
        let mut at = Cursor { file, position: PAGE_BYTES as u64, sequence };
        loop {
            let piece = self.read(at, PIECE_BYTES).await?;
            if piece.is_empty() {
                return Ok(None);
            }
            for page in piece.chunks(PAGE_BYTES) {
                if later_group(self.id, sequence - 1, page).is_some() {
                    return Ok(Some(at));
                }
                at.position += page.len() as u64;
            }
        }
    }

    /// Group `sequence` in a file whose header page is lost: rot there must not hide it.
    async fn find_without_header(
        &self,
        headers: &[(u64, usize)],
        sequence: u64,
    ) -> Result<Option<Cursor>, StorageError> {
        for file in 0..self.files.len() {
            if headers.iter().any(|(_, known)| *known == file) {
                continue;
            }
            if let Some(at) = self.find_in(file, sequence).await?
                && self.group_at(at).await?.is_ok()
            {
                reached!("journal-header-lost");
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    async fn group_at(&self, at: Cursor) -> Result<Result<Group, GroupFlaw>, StorageError> {
        let left = self.files[at.file].file.len().saturating_sub(at.position);
        let mut wanted = PAGE_BYTES;
        loop {
            let bytes = self.read(at, wanted).await?;
            match find_group(self.id, at.sequence, &bytes, left) {
                Found::Group(group) => return Ok(Ok(group)),
                Found::More { bytes } if bytes > wanted => wanted = bytes,
                Found::More { .. } => return Ok(Err(GroupFlaw::Short)),
                Found::Nothing(flaw) => return Ok(Err(flaw)),
            }
        }
    }

    /// A group cannot be read. That is the journal's end, unless a later group proves that this
    /// one was durable.
    async fn prove_end(
        &self,
        at: Cursor,
        headers: &[(u64, usize)],
        flaw: GroupFlaw,
    ) -> Result<(), StorageError> {
        if mutant!("checksum-mismatch-means-truncate") {
            return Ok(());
        }
        for file in 0..self.files.len() {
            let first = headers.iter().find(|(_, known)| *known == file).map(|(first, _)| *first);
            let (position, may) = match first {
                _ if file == at.file => (at.position, true),
                Some(first) => (PAGE_BYTES as u64, first > at.sequence),
                None => (PAGE_BYTES as u64, true),
            };
            if !may {
                continue;
            }
            let mut cursor = Cursor { file, position, ..at };
            loop {
                let piece = self.read(cursor, PIECE_BYTES).await?;
                if piece.is_empty() {
                    break;
                }
                if let Some(later) = later_group(self.id, at.sequence, &piece) {
                    reached!("journal-rot-found");
                    let why = format!("{flaw}, and group {later} proves that it was written");
                    let (path, position) = (self.path(at.file), at.position);
                    return Err(StorageError::JournalRot { path, position, why });
                }
                cursor.position += piece.len() as u64;
            }
        }
        if !matches!(flaw, GroupFlaw::Magic | GroupFlaw::Sequence { .. }) {
            reached!("journal-torn-tail");
        }
        Ok(())
    }

    async fn on_group(&mut self, group: Group) -> Result<(), StorageError> {
        for entry in group.entries {
            self.on_entry(group.sequence, entry).await?;
        }
        self.write().await?;
        if self.segments.is_full() {
            self.sync().await?;
        }
        reached!("journal-group-replayed");
        Ok(())
    }

    async fn on_entry(&mut self, sequence: u64, entry: Entry) -> Result<(), StorageError> {
        let partition = match &entry {
            Entry::Append(frame) => frame.header.partition,
            Entry::Roll { partition, .. }
            | Entry::DeleteBefore { partition, .. }
            | Entry::TruncateTo { partition, .. }
            | Entry::Synced { partition, .. }
            | Entry::Remove { partition } => *partition,
        };
        let from = self.shared.marks().get(&partition).map(|mark| mark.from_sequence);
        if from.is_some_and(|from| sequence < from) && !mutant!("journal-resurrects-cut") {
            reached!("cut-entry-passed-over");
            return Ok(());
        }
        if let Entry::Remove { .. } = entry {
            self.on_remove(partition);
            return Ok(());
        }
        let says = says(&entry);
        if self.load(partition).await? {
            self.do_again(partition, entry).await?;
        }
        if self.offline.contains_key(&partition) {
            self.miss(partition, says);
        }
        Ok(())
    }

    async fn do_again(&mut self, partition: PartitionId, entry: Entry) -> Result<(), StorageError> {
        match entry {
            Entry::Append(frame) => {
                self.on_append(partition, &frame);
                Ok(())
            }
            Entry::Roll { base, .. } => self.on_roll(partition, base).await,
            Entry::DeleteBefore { offset, .. } => self.on_delete_before(partition, offset).await,
            Entry::Synced { offset, .. } => {
                let end = self.logs.get(&partition).map(|log| log.recovered.end);
                if end.is_some_and(|end| end < offset) {
                    self.take_offline(partition, "records that were synced are missing");
                }
                Ok(())
            }
            Entry::TruncateTo { .. } => {
                let path = self.shared.config.directory.join(JOURNAL);
                let why = "a log is cut back, which this build never does".to_owned();
                Err(StorageError::Newer { path, why })
            }
            Entry::Remove { .. } => Ok(()),
        }
    }

    /// What the journal says of a log that is offline is forgotten with the journal. The mark keeps
    /// how much there was: a log that is whole again up to its old mark is short all the same.
    fn miss(&mut self, partition: PartitionId, (end, start): (Offset, Offset)) {
        let missed = self.missed.entry(partition).or_default();
        *missed = (missed.0.max(end), missed.1.max(start));
    }

    /// Reads a log's segments at its first entry. `false` if the log is offline.
    async fn load(&mut self, partition: PartitionId) -> Result<bool, StorageError> {
        if self.logs.contains_key(&partition) {
            return Ok(true);
        }
        if self.offline.contains_key(&partition) {
            return Ok(false);
        }
        let mark = self.shared.marks().get(&partition).copied();
        match load(&self.shared, partition, mark, false).await {
            Ok(loaded) => {
                let directory = self.shared.log_directory(partition);
                let log = Arc::new(Log::new(partition, directory, loaded.state));
                let writing = Writing::new(log);
                self.segments.changed(partition);
                let (recovered, beyond) = (loaded.recovered, loaded.beyond);
                self.logs.insert(partition, Replayed { recovered, writing, beyond });
                Ok(true)
            }
            Err(LogError::Rot(rot)) => {
                self.offline.insert(partition, rot);
                Ok(false)
            }
            Err(LogError::Storage(error)) => Err(error),
        }
    }

    fn on_append(&mut self, partition: PartitionId, frame: &Frame) {
        let Some(log) = self.logs.get_mut(&partition) else { return };
        let header = frame.batch.header();
        if header.base_offset() < log.recovered.end {
            if header.next_offset() > log.recovered.end {
                self.take_offline(partition, "the journal and the segment disagree");
            }
            return;
        }
        if header.base_offset() > log.recovered.end {
            return self.take_offline(partition, "records before the journal's are missing");
        }
        let bytes = frame.header.frame_bytes();
        let applied = log.recovered.apply(&frame.batch, bytes);
        assert!(applied.is_ok(), "a frame at the end lies behind it");
        let chunks = frame_chunks(partition, &frame.batch, frame.header.levels);
        log.writing.push(*header, frame.header.levels, chunks, bytes);
        self.touched.insert(partition);
        reached!("frame-brought-back");
    }

    async fn on_roll(&mut self, partition: PartitionId, base: Offset) -> Result<(), StorageError> {
        self.write().await?;
        let Some(log) = self.logs.get_mut(&partition) else { return Ok(()) };
        if log.recovered.end != base || log.recovered.roll(base).is_err() {
            return Ok(());
        }
        let snapshot = log.recovered.to_snapshot();
        let rolled = self.segments.roll(&mut log.writing, base, &snapshot).await;
        rolled.map_err(StorageError::io("closing a segment", &log.writing.log.directory))
    }

    async fn on_delete_before(
        &mut self,
        partition: PartitionId,
        offset: Offset,
    ) -> Result<(), StorageError> {
        self.write().await?;
        let Some(Replayed { recovered, writing, .. }) = self.logs.get_mut(&partition) else {
            return Ok(());
        };
        let lost = offset > recovered.end;
        recovered.delete_before(offset);
        writing.start = writing.start.max(offset);
        let gone = {
            let log = &writing.log;
            let mut state = log.state();
            state.start = state.start.max(offset);
            if lost {
                recovered.segments.clear();
                // Fails never: there is no segment left.
                let _ = recovered.roll(offset);
                state.restart(offset)
            } else {
                state.drop_below_start()
            }
        };
        if lost {
            reached!("log-lost-below-deletion");
            // What the lost log said of producers stands nowhere else once its segments go, nor
            // once an earlier deletion's empty one does.
            self.segments.begin_at(writing, offset, recovered.to_snapshot());
        }
        self.segments.leave(&writing.log, gone);
        Ok(())
    }

    fn on_remove(&mut self, partition: PartitionId) {
        self.logs.remove(&partition);
        self.offline.remove(&partition);
        self.missed.remove(&partition);
        self.touched.remove(&partition);
        self.segments.removed(partition);
        self.segments.leave_log(self.shared.log_directory(partition), None);
    }

    /// The log is not what was promised: it is left as it is.
    fn take_offline(&mut self, partition: PartitionId, why: &str) {
        reached!("log-taken-offline");
        let Some(log) = self.logs.remove(&partition) else { return };
        self.miss(partition, (log.recovered.end, log.writing.start));
        let (base, generation, position, offset) = {
            let state = log.writing.log.state();
            let active = state.active();
            let active = active.map(|active| (active.base, active.generation, active.bytes));
            let (base, generation, position) = active.unwrap_or_default();
            (base, generation, position, state.end)
        };
        self.touched.remove(&partition);
        self.segments.dirty.logs.remove(&partition);
        let path = log.writing.log.file(base, generation, FileKind::Segment);
        let rot = Rot { partition, path, position, offset, why: why.to_owned() };
        self.offline.insert(partition, rot);
    }

    async fn write(&mut self) -> Result<(), StorageError> {
        for partition in std::mem::take(&mut self.touched) {
            let Some(log) = self.logs.get_mut(&partition) else { continue };
            let written = self.segments.append(&mut log.writing).await;
            written.map_err(StorageError::io("writing a segment", &log.writing.log.directory))?;
        }
        Ok(())
    }

    /// Makes durable what was written so far; what is dirty in name only stays so.
    async fn sync(&mut self) -> Result<(), StorageError> {
        let logs = std::mem::take(&mut self.segments.dirty.logs);
        let dirty = std::mem::take(&mut self.segments.dirty);
        self.segments.dirty.logs = logs;
        let synced = sync_dirty(&*self.shared.disk, &dirty).await;
        synced.map_err(StorageError::io("syncing recovered logs", &self.shared.config.directory))
    }

    async fn finish(mut self, next: u64, report: &mut OpenReport) -> Result<u64, StorageError> {
        for (&partition, log) in &self.logs {
            let end = log.recovered.end;
            if remove_snapshots(&self.shared, partition, &log.beyond, end).await? {
                let directory = log.writing.log.directory.clone();
                self.segments.dirty.directories.insert(directory);
            }
        }
        self.sync().await?;
        reached!("recovery-synced-not-marked");
        let marks = {
            let mut marks = self.shared.marks();
            for (&partition, log) in &self.logs {
                let mark = log.writing.log.state().mark(partition, log.writing.start);
                marks.extend(mark.map(|mark| (partition, mark)));
            }
            for (&partition, &(end, start)) in &self.missed {
                let mark = marks.entry(partition).or_insert_with(|| Mark::nothing(partition));
                mark.end = mark.end.max(end);
                mark.log_start = mark.log_start.max(start);
            }
            Marks { journal_sequence: next, logs: marks.values().copied().collect() }
        };
        let data = &self.shared.config.directory;
        let written = directory::write_marks(&*self.shared.disk, data, &marks).await;
        written.map_err(StorageError::io("writing the marks", data))?;
        let leaving = std::mem::take(&mut self.segments.leaving);
        let unlinked = unlink_all(Arc::clone(&self.shared), leaving).await;
        unlinked.map_err(StorageError::io("removing what was deleted", data))?;
        report.rot = self.offline.values().cloned().collect();
        let mut known = self.shared.known();
        known.offline = self.offline;
        let replayed = self.logs.into_iter();
        known.loaded = replayed.map(|(id, log)| (id, (log.recovered, log.writing.log))).collect();
        Ok(next)
    }
}

/// Where an entry says that its log ends, at least, and starts.
fn says(entry: &Entry) -> (Offset, Offset) {
    match entry {
        Entry::Append(frame) => (frame.batch.header().next_offset(), Offset::ZERO),
        Entry::Synced { offset, .. } => (*offset, Offset::ZERO),
        Entry::DeleteBefore { offset, .. } => (Offset::ZERO, *offset),
        Entry::Roll { .. } | Entry::TruncateTo { .. } | Entry::Remove { .. } => {
            (Offset::ZERO, Offset::ZERO)
        }
    }
}
