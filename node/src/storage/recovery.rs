//! One log as its files tell it: which segments are there, where its valid prefix ends, and the
//! replica's state, from the newest snapshot and the frames behind it.

mod again;
mod cleaned;

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use quorate_core::id::{Offset, PartitionId};
use quorate_core::partition::recovered::Recovered;
use quorate_core::segment::checkpoint::{EnvelopeError, Mark};
use quorate_core::segment::cleaned::Cleaned;
use quorate_core::segment::frame::FrameFlaw;
use quorate_core::segment::index::Index;
use quorate_core::segment::scan::{Depth, Scan, Step};
use quorate_core::segment::{FileKind, file_name, parse_segment_file_name};
use quorate_core::time::Timestamp;
use quorate_core::{mutant, reached};

use super::Shared;
use super::directory::read;
use super::error::{LogError, Rot, StorageError};
use super::log::{LogState, Segment};
use super::walk::{Window, is_zero_from};
use super::writer::{UNFINISHED, sync_all};
use crate::disk::{File, Open};

/// A log as recovery found it.
pub(super) struct Loaded {
    pub(super) recovered: Recovered,
    pub(super) state: LogState,
    /// Snapshots that may speak of records which are not there: see `remove_snapshots`.
    pub(super) beyond: Vec<Offset>,
    /// Whether more was found, or less kept, than the mark says.
    pub(super) changed: bool,
}

/// What recovery knows of the log while it looks at its segments.
struct Loading<'a> {
    shared: &'a Shared,
    partition: PartitionId,
    directory: PathBuf,
    mark: Option<Mark>,
    /// What compaction has made of the log, if it ever did.
    cleaned: Option<Cleaned>,
    bases: Vec<Offset>,
    recovered: Recovered,
    segments: Vec<Segment>,
    index: Index,
    /// Of closed segments that were walked: the index, and the state behind it.
    closed: Vec<(Index, Bytes)>,
    /// Snapshots beyond the mark.
    beyond: Vec<Offset>,
    changed: bool,
    /// The log has no directory: all that was written to it was lost with the name.
    absent: bool,
}

/// Why a walk over a segment ended before the segment did.
enum End {
    /// The segment's content ends here, as far as the segment itself can tell.
    Here,
    /// A write was interrupted here.
    Torn,
}

/// Reads a log. `trusted` says that the node was closed cleanly, so that where mark and snapshot
/// agree nothing need be scanned.
///
/// # Errors
///
/// `Rot` where the log is not what was durable once; nothing is cut then.
pub(super) async fn load(
    shared: &Shared,
    partition: PartitionId,
    mark: Option<Mark>,
    trusted: bool,
) -> Result<Loaded, LogError> {
    let directory = shared.log_directory(partition);
    let mut loading = Loading {
        shared,
        partition,
        directory,
        mark,
        cleaned: None,
        bases: Vec::new(),
        recovered: Recovered::default(),
        segments: Vec::new(),
        index: Index::new(Offset::ZERO),
        closed: Vec::new(),
        beyond: Vec::new(),
        changed: false,
        absent: false,
    };
    loading.read_cleaned().await?;
    let snapshots = loading.list().await?;
    loading.check_presence()?;
    loading.remove_orphans().await?;
    loading.newest_snapshot(snapshots).await?;
    loading.scan(trusted).await?;
    loading.settle().await
}

impl Loading<'_> {
    fn log_start(&self) -> Offset {
        self.mark.map(|mark| mark.log_start).unwrap_or_default()
    }

    /// Takes stock of the segments, and removes those that lie below the log's start: their
    /// removal was cut short. Returns the snapshots, ascending.
    async fn list(&mut self) -> Result<Vec<Offset>, LogError> {
        let names = match self.shared.disk.list(&self.directory).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.absent = true;
                Vec::new()
            }
            names => names.map_err(StorageError::io("reading a log", &self.directory))?,
        };
        let mut snapshots = Vec::new();
        for name in &names {
            if name.extension().is_some_and(|extension| extension == UNFINISHED) {
                reached!("unfinished-file-removed");
                self.remove_file(name).await?;
                continue;
            }
            let parsed = name.to_str().and_then(parse_segment_file_name);
            let Some((base, generation, kind)) = parsed else { continue };
            match kind {
                // The state at a place that a pass has gone over does not know its segments.
                FileKind::Snapshot if self.cleaned.as_ref().is_some_and(|c| base < c.until) => {
                    self.remove_file(name).await?;
                }
                FileKind::Snapshot => snapshots.push(base),
                // Written by a pass that did not come about, or replaced by one that did.
                _ if self.generation(base) != Some(generation) => {
                    reached!("file-that-does-not-count-removed");
                    self.remove_file(name).await?;
                }
                FileKind::Segment => self.bases.push(base),
                FileKind::Index => {}
            }
        }
        self.bases.sort_unstable();
        snapshots.sort_unstable();
        let start = self.log_start();
        // The segment that holds the start: among those that the mark knows, and an empty active
        // one has no file.
        let active = self.mark.map(|mark| mark.segment).unwrap_or_default();
        let known = self.bases.iter().copied().chain([active]).filter(|&base| base <= active);
        let holds = known.filter(|&base| base <= start).max();
        let keep = self.bases.partition_point(|&base| Some(base) < holds);
        for base in self.bases.drain(..keep).collect::<Vec<_>>() {
            self.remove(base).await?;
            reached!("leftover-segment-removed");
        }
        Ok(snapshots)
    }

    /// What was durable must have its files.
    fn check_presence(&self) -> Result<(), LogError> {
        let Some(mark) = self.mark else { return Ok(()) };
        let missing = |base: Offset| {
            let path = self.file(base, FileKind::Segment);
            self.rot(path, 0, base, "the file is missing")
        };
        if mark.end < mark.log_start {
            // All that was durable is deleted.
            return Ok(());
        }
        if mark.segment_bytes > 0 && !self.bases.contains(&mark.segment) {
            return Err(missing(mark.segment));
        }
        let first = self.bases.first();
        if mark.log_start < mark.end && first.is_none_or(|&first| first > mark.log_start) {
            return Err(missing(mark.log_start));
        }
        Ok(())
    }

    /// Segments behind one that a power loss took before its name was durable. What of them was
    /// acknowledged stands in the journal.
    async fn remove_orphans(&mut self) -> Result<(), LogError> {
        let start = self.log_start();
        if self.bases.first().is_some_and(|&first| first > start) {
            reached!("segments-without-their-first-removed");
            for base in std::mem::take(&mut self.bases) {
                self.remove(base).await?;
            }
            self.changed = true;
        }
        Ok(())
    }

    fn rot(&self, path: PathBuf, position: u64, offset: Offset, why: &str) -> LogError {
        let partition = self.partition;
        LogError::Rot(Rot { partition, path, position, offset, why: why.to_owned() })
    }

    /// Begins with the newest state whose records are known to be durable: a snapshot beyond the
    /// mark may have outlived the records that it speaks of.
    async fn newest_snapshot(&mut self, snapshots: Vec<Offset>) -> Result<(), LogError> {
        let start = self.log_start();
        // At a start beyond the end stands what `settle` left there.
        let durable = self.mark.map(|mark| mark.end.max(start));
        let (usable, beyond) = snapshots.into_iter().rev().partition(|&at| Some(at) <= durable);
        self.beyond = beyond;
        let usable: Vec<Offset> = usable;
        for at in usable.iter().copied() {
            let path = self.directory.join(file_name(at, FileKind::Snapshot));
            let reading = StorageError::io("reading a snapshot", &path);
            let Some(bytes) = read(&*self.shared.disk, &path).await.map_err(reading)? else {
                continue;
            };
            let mut recovered = match Recovered::from_snapshot(&bytes) {
                // A deletion that was not durable when the snapshot was taken never happened.
                Ok(recovered) if recovered.end == at && recovered.log_start <= start => recovered,
                Err(flaw @ EnvelopeError::Newer { .. }) => {
                    let why = flaw.to_string();
                    return Err(StorageError::Newer { path, why }.into());
                }
                _ => {
                    reached!("snapshot-unusable");
                    continue;
                }
            };
            if let Some(cleaned) = &self.cleaned {
                recovered.replace(cleaned);
            }
            // The start is raised only after the scan: it may lie behind the snapshot's end.
            let known = recovered.segments.iter().map(|info| info.base).filter(|&base| base < at);
            let mut bases: Vec<_> = known.collect();
            bases.push(at);
            let below = bases.iter().rposition(|&base| base <= start).unwrap_or_default();
            bases.drain(..below);
            bases.retain(|&base| base < at);
            if let Some(&gone) = bases.iter().find(|base| !self.bases.contains(base)) {
                let path = self.file(gone, FileKind::Segment);
                return Err(self.rot(path, 0, gone, "the file is missing"));
            }
            if self.bases.iter().filter(|&&base| base < at).count() != bases.len() {
                reached!("snapshot-disagrees");
                continue;
            }
            // Taken when a segment was closed; that may be all that is left of the closing.
            let rolled =
                self.bases.contains(&at) || self.mark.is_some_and(|mark| mark.segment == at);
            recovered.segments.retain(|info| info.base < at || rolled);
            self.recovered = recovered;
            self.remove_spent(&usable, at).await?;
            return Ok(());
        }
        Ok(())
    }

    /// Of the older snapshots, those at a segment's base stay in reserve; those of clean closes go.
    async fn remove_spent(&self, snapshots: &[Offset], newest: Offset) -> Result<(), LogError> {
        for &at in snapshots.iter().filter(|&&at| at < newest && !self.bases.contains(&at)) {
            reached!("spent-snapshot-removed");
            let path = self.directory.join(file_name(at, FileKind::Snapshot));
            match self.shared.disk.remove(&path).await {
                // It went with its segment.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                gone => gone.map_err(StorageError::io("removing a snapshot", &path))?,
            }
        }
        Ok(())
    }

    /// Walks the segments from the one in which the snapshot's records end.
    async fn scan(&mut self, trusted: bool) -> Result<(), LogError> {
        let from = self.recovered.end;
        let at = self.bases.partition_point(|&base| base <= from).saturating_sub(1);
        let closed = self.recovered.segments.clone();
        for &base in &self.bases[..at.min(self.bases.len())] {
            let info = closed.iter().find(|info| info.base == base);
            let bytes = info.map(|info| info.bytes).unwrap_or_default();
            let max_timestamp = info.map(|info| info.max_timestamp);
            let generation = self.generation(base).unwrap_or(0);
            self.segments.push(Segment { base, generation, bytes, max_timestamp });
        }
        let bases = self.bases.clone();
        for (place, &base) in bases.iter().enumerate().skip(at) {
            let next = bases.get(place + 1).copied();
            let path = self.file(base, FileKind::Segment);
            let file = self.open(base).await?;
            if next.is_none() && trusted && self.is_known(base, &*file).await? {
                reached!("log-not-scanned");
                return Ok(());
            }
            let (end, offset) = self.walk(base).await?;
            let position = self.index.bytes();
            let gap = next.is_some_and(|next| next != offset);
            let ends = gap || next.is_none();
            if ends && self.is_short(gap, offset) {
                let why = if gap { "the next segment begins elsewhere" } else { "the log goes on" };
                return Err(self.rot(path, position, offset, why));
            }
            if next.is_some() && !gap && matches!(end, End::Here) {
                self.trim(&*file, &path, position).await?;
                self.closed.push((self.index.clone(), self.recovered.to_snapshot()));
            }
            if gap || matches!(end, End::Torn) || next.is_none() {
                self.cut(&*file, &path, position).await?;
                for &later in &bases[place + 1..] {
                    reached!("segment-behind-gap-removed");
                    self.remove(later).await?;
                    self.changed = true;
                }
                break;
            }
        }
        Ok(())
    }

    async fn open(&self, base: Offset) -> Result<Arc<dyn File>, LogError> {
        let path = self.file(base, FileKind::Segment);
        let key = (self.partition, base, self.generation(base).unwrap_or(0));
        let opened = self.shared.files.segment(key, &path).await;
        Ok(opened.map_err(StorageError::io("opening a segment", &path))?)
    }

    /// Whether everything below was durable in this segment.
    fn durable_bytes(&self, base: Offset, file: &dyn File) -> u64 {
        match self.mark {
            Some(mark) if base < mark.segment => file.len(),
            Some(mark) if base == mark.segment => mark.segment_bytes,
            _ => 0,
        }
    }

    /// Whether a log that ends at `offset` has lost what was durable, and what readers may see.
    fn is_short(&self, gap: bool, offset: Offset) -> bool {
        let Some(mark) = self.mark else { return false };
        let short = offset < mark.end && (gap || offset >= mark.log_start);
        short && !mutant!("checksum-mismatch-means-truncate")
    }

    /// Whether a later segment was durable.
    fn is_closed(&self, base: Offset) -> bool {
        self.mark.is_some_and(|mark| base < mark.segment)
    }

    /// Whether the log was durable beyond this place.
    fn is_durable(&self, base: Offset, position: u64) -> bool {
        self.mark.is_some_and(|mark| {
            base < mark.segment || (base == mark.segment && position < mark.segment_bytes)
        })
    }

    /// After a clean close: the snapshot tells everything, and the index can be read.
    async fn is_known(&mut self, base: Offset, file: &dyn File) -> Result<bool, LogError> {
        let Some(mark) = self.mark else { return Ok(false) };
        let agree = mark.end == self.recovered.end && mark.segment == base;
        if !agree || file.len() < mark.segment_bytes {
            return Ok(false);
        }
        let path = self.file(base, FileKind::Index);
        let reading = StorageError::io("reading an index", &path);
        let bytes = read(&*self.shared.disk, &path).await.map_err(reading)?;
        let index = bytes.and_then(|bytes| Index::decode(&bytes).ok());
        let Some(index) = index.filter(|index| index.bytes() == mark.segment_bytes) else {
            reached!("index-made-anew");
            return Ok(false);
        };
        let (bytes, max_timestamp) = (index.bytes(), Some(index.max_timestamp()));
        let generation = self.generation(base).unwrap_or(0);
        self.segments.push(Segment { base, generation, bytes, max_timestamp });
        self.index = index;
        Ok(true)
    }

    /// The index of what the snapshot knows of the segment in which its records end, if it can be
    /// read: all that stands before is durable, and need not be read again. Who reads a record
    /// checks it.
    async fn known_part(&self, base: Offset, file_bytes: u64) -> Result<Option<Index>, LogError> {
        let last = self.recovered.segments.last();
        let Some(known) = last.filter(|known| known.base == base && known.bytes > 0) else {
            return Ok(None);
        };
        let path = self.file(base, FileKind::Index);
        let reading = StorageError::io("reading an index", &path);
        let bytes = read(&*self.shared.disk, &path).await.map_err(reading)?;
        let index = bytes.and_then(|bytes| Index::decode(&bytes).ok());
        let index = index.filter(|index| index.base() == base && known.bytes <= file_bytes);
        Ok(index.and_then(|index| index.cut(known.bytes, known.max_timestamp)))
    }

    /// Folds the frames of a segment that the snapshot does not know, and indexes all of them.
    async fn walk(&mut self, base: Offset) -> Result<(End, Offset), LogError> {
        let path = self.file(base, FileKind::Segment);
        let opened = self.shared.disk.open(&path, Open::Read).await;
        let file = opened.map_err(StorageError::io("opening a segment", &path))?;
        let durable = self.durable_bytes(base, &*file);
        let depth = if mutant!("ignore-torn-tail") { Depth::Headers } else { Depth::Records };
        let file_bytes = file.len();
        let mut scan = Scan::new(self.partition, base, file_bytes, durable, depth);
        let mut window = Window::new(file);
        self.index = Index::new(base);
        if let Some(index) = self.known_part(base, file_bytes).await? {
            reached!("segment-resumed");
            scan = scan.from_position(index.bytes(), self.recovered.end);
            self.index = index;
        }
        if self.recovered.segments.last().is_none_or(|active| active.base < base)
            && (self.recovered.end > Offset::ZERO || !self.recovered.segments.is_empty())
        {
            // Fails where the segment begins below the end of the one before: the walk below
            // finds that out.
            let _ = self.recovered.roll(base);
        }
        let end = loop {
            let bytes = window.at(scan.position()).await;
            let bytes = bytes.map_err(StorageError::io("reading a segment", &path))?;
            match scan.step(&bytes) {
                Step::Frame { frame, header, marker, .. } => {
                    self.index.push(&header, frame.levels, frame.frame_bytes());
                    if header.base_offset() < self.recovered.end {
                        continue;
                    }
                    let applied = self.recovered.apply_parts(&header, marker, frame.frame_bytes());
                    assert!(applied.is_ok(), "a frame at the end lies behind it");
                }
                Step::More { bytes } => window.want(bytes),
                Step::End => break End::Here,
                Step::Torn { flaw: FrameFlaw::Version { .. } } => {
                    let why = "a frame has a newer format".to_owned();
                    return Err(StorageError::Newer { path, why }.into());
                }
                Step::Torn { .. } => break End::Torn,
                // A closed segment may have kept its spare space: whether a frame is missing shows
                // in where the next segment begins.
                Step::Rot { flaw: FrameFlaw::Missing } if self.is_closed(base) => break End::Here,
                Step::Rot { .. } if mutant!("checksum-mismatch-means-truncate") => {
                    break End::Torn;
                }
                Step::Rot { flaw } => {
                    let why = flaw.to_string();
                    return Err(self.rot(path, scan.position(), scan.next_offset(), &why));
                }
            }
        };
        let (bytes, max_timestamp) = (self.index.bytes(), Some(self.index.max_timestamp()));
        let generation = self.generation(base).unwrap_or(0);
        self.segments.push(Segment { base, generation, bytes, max_timestamp });
        self.changed |= bytes > durable;
        Ok((end, scan.next_offset()))
    }

    /// A segment that was closed ends where its frames end, before the mark passes it: room left
    /// behind them would be taken for frames that were lost.
    async fn trim(&mut self, file: &dyn File, path: &Path, position: u64) -> Result<(), LogError> {
        if file.len() > position {
            reached!("closed-segment-trimmed");
            let trimming = StorageError::io("trimming a closed segment", path);
            file.set_len(position).await.map_err(trimming)?;
            self.changed = true;
        }
        Ok(())
    }

    /// Behind the end of the log nothing but zeros may stand, or a frame of an earlier life could
    /// come back to life behind a new one of the right length. The cut is durable before anything
    /// is appended.
    async fn cut(&mut self, file: &dyn File, path: &Path, position: u64) -> Result<(), LogError> {
        if mutant!("ignore-torn-tail") {
            return Ok(());
        }
        let cutting = StorageError::io("cutting a torn tail", path);
        let cut = async {
            let beside = self.shared.disk.open(path, Open::Read).await?;
            if is_zero_from(&*beside, position).await? {
                return Ok(false);
            }
            reached!("torn-tail-cut");
            file.set_len(position).await?;
            io::Result::Ok(true)
        };
        self.changed |= cut.await.map_err(cutting)?;
        Ok(())
    }

    /// Makes durable what was found beyond the mark, since readers will be shown it.
    async fn settle(mut self) -> Result<Loaded, LogError> {
        if let Some(cleaned) = &self.cleaned {
            // A walk without a snapshot has not heard how far the log is compacted.
            self.recovered.replace(cleaned);
        }
        let start = self.log_start();
        if self.recovered.end < start {
            // What was written without a sync is lost, and its deletion was durable.
            reached!("log-lost-below-start");
            self.recovered.segments.clear();
            self.recovered.delete_before(start);
            self.write_state_at(start).await?;
            for base in std::mem::take(&mut self.bases) {
                self.remove(base).await?;
            }
            let max_timestamp = Some(Timestamp::NONE);
            self.segments = vec![Segment { base: start, generation: 0, bytes: 0, max_timestamp }];
            self.index = Index::new(start);
            self.changed = true;
        }
        self.recovered.delete_before(start);
        self.changed |= !self.closed.is_empty();
        if self.changed {
            self.write_sides().await?;
            let mut names = BTreeSet::from([self.shared.logs_directory()]);
            if !self.absent {
                names.insert(self.directory.clone());
            }
            let mut files = Vec::new();
            for segment in &self.segments {
                let has_file = self.bases.contains(&segment.base);
                if has_file && !self.is_durable(segment.base, segment.bytes) {
                    let file = self.open(segment.base).await?;
                    self.write_again(segment, &*file).await?;
                    files.push(file);
                }
            }
            let syncing = StorageError::io("syncing a recovered log", &self.directory);
            let synced = sync_all(&*self.shared.disk, &files, &names).await;
            synced.map_err(syncing)?;
        }
        let Self { mark, mut recovered, mut segments, mut index, beyond, changed, .. } = self;
        // An active segment without frames has no file, and only the mark tells of it.
        let newest = segments.last().map(|active| active.base);
        if let Some(mark) = mark
            && mark.segment_bytes == 0
            && newest.is_none_or(|newest| newest < mark.segment)
            && mark.end == recovered.end
        {
            let max_timestamp = Some(Timestamp::NONE);
            let (base, generation) = (mark.segment, 0);
            segments.push(Segment { base, generation, bytes: 0, max_timestamp });
            index = Index::new(mark.segment);
        }
        let newest = segments.last().map(|active| active.base);
        recovered.segments.retain(|info| newest.is_some_and(|newest| info.base <= newest));
        if let Some(active) = newest {
            // Fails where the fold knows the segment already.
            let _ = recovered.roll(active);
        }
        recovered.delete_before(start);
        let state = LogState::new(recovered.log_start, recovered.end, segments, index);
        Ok(Loaded { recovered, state, beyond, changed })
    }
}

/// Removes those of the snapshots `beyond` the mark that lie behind the recovered `end`: they would
/// lie of the records that come to stand there. Those below it were taken in the life that wrote
/// the records. Whether the directory must be synced.
pub(super) async fn remove_snapshots(
    shared: &Shared,
    partition: PartitionId,
    beyond: &[Offset],
    end: Offset,
) -> Result<bool, StorageError> {
    let mut removed = false;
    for &at in beyond.iter().filter(|&&at| at > end) {
        reached!("snapshot-beyond-end-removed");
        let path = shared.log_directory(partition).join(file_name(at, FileKind::Snapshot));
        match shared.disk.remove(&path).await {
            // It went with its segment.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            gone => gone.map_err(StorageError::io("removing a snapshot", &path))?,
        }
        removed = true;
    }
    Ok(removed)
}
