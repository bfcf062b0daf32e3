//! What one node's disk holds, without time: bytes and names, live and durable, open handles,
//! faults. `world/disk.rs` adds latencies and the node's interface.

pub mod extent;
pub mod names;
pub mod pages;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use quorate_core::id::PartitionId;
use quorate_core::segment::checkpoint::Marks;
use quorate_core::segment::cleaned::{CLEANED_FILE, Cleaned};
use quorate_core::segment::parse_segment_file_name;

use crate::chance::Chance;
use crate::fault::bit_flip::Files;
use crate::fault::misdirected_write::{Lands, MisdirectedWrite};
use crate::fault::power_loss::Unsynced;
use names::{Entry, FileId, Names};
use pages::{Captured, Loss, Pages, SECTOR};

/// Names and handles that go between two collections of files that nothing leads to.
const COLLECT_EVERY: u32 = 256;

/// A write that was begun and has not completed.
pub type WriteKey = u64;

#[derive(Debug)]
pub struct Medium {
    names: Names,
    files: BTreeMap<FileId, Pages>,
    /// Bytes of blocks that files have.
    used: u64,
    /// Names and handles that went since the last `collect`.
    gone: u32,
    /// Handles per file: an unlinked file lives as long as one of them.
    open: BTreeMap<FileId, u32>,
    locks: BTreeSet<PathBuf>,
    in_flight: BTreeMap<WriteKey, (FileId, u64, Vec<Bytes>)>,
    next_write: WriteKey,
    /// Rises at each crash: handles of before do nothing.
    incarnation: u32,
    chance: Chance,
    capacity: u64,
    /// Syncs under way that have something to do.
    syncing: u32,
    /// No new blocks are given out.
    pub full: bool,
    /// The next sync with something to do fails.
    pub sync_fails: bool,
    /// The next write fails, a part of it done.
    pub write_fails: bool,
    /// So many reads fail.
    pub reads_fail: u32,
    /// The next write to such a file lands elsewhere.
    pub misdirects: Option<MisdirectedWrite>,
    /// A write has landed elsewhere, and nobody has been told.
    misdirected: Option<Misdirected>,
    /// The life in which a write or a sync last failed, and somebody was told: not for want of
    /// room for what `is_dispensable`.
    failed_in: Option<u32>,
}

/// A write that landed elsewhere: where it belongs, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misdirected {
    pub from: (PathBuf, u64),
    pub to: (PathBuf, u64),
}

/// What a sync of a file did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synced {
    Done,
    Failed,
}

impl Medium {
    /// Frees what the disk holds. Nobody uses it any more.
    pub fn discard(&mut self) {
        self.files.clear();
        self.in_flight.clear();
    }

    /// An empty disk stands in place of this one.
    pub fn wipe(&mut self) {
        let fresh = Self::new(self.chance.clone(), self.capacity);
        *self = Self { incarnation: self.incarnation, next_write: self.next_write, ..fresh };
    }

    /// Every file whose path begins so, ascending by its path.
    pub fn files(&self, directory: &Path) -> Vec<(PathBuf, FileId)> {
        let mut files = self.names.paths_under(directory);
        files.retain(|(_, file)| self.files.contains_key(file));
        files
    }

    /// Every file whose path begins so, with what a reader would find in it.
    pub fn contents(&self, directory: &Path) -> Vec<(PathBuf, Bytes)> {
        let files = self.files(directory).into_iter();
        files.map(|(path, file)| (path, self.content(file))).collect()
    }

    /// What a reader would find in the file.
    pub fn content(&self, file: FileId) -> Bytes {
        let pages = self.files.get(&file);
        pages.map_or_else(Bytes::new, |pages| Bytes::from(pages.read(0, usize::MAX)))
    }

    /// As long as it is the same, so is the file's content.
    pub fn version(&self, file: FileId) -> (u32, u64) {
        (self.incarnation, self.files.get(&file).map_or(0, Pages::version))
    }

    pub fn new(chance: Chance, capacity: u64) -> Self {
        Self {
            names: Names::default(),
            files: BTreeMap::new(),
            used: 0,
            gone: 0,
            open: BTreeMap::new(),
            locks: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            next_write: 0,
            incarnation: 0,
            chance,
            capacity,
            syncing: 0,
            full: false,
            sync_fails: false,
            write_fails: false,
            reads_fail: 0,
            misdirects: None,
            misdirected: None,
            failed_in: None,
        }
    }

    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    pub fn chance(&mut self) -> &mut Chance {
        &mut self.chance
    }

    pub fn open(&mut self, path: &Path, create: bool) -> io::Result<FileId> {
        let file = if create {
            let file = self.names.create_file(path)?;
            self.files.insert(file, Pages::default());
            file
        } else {
            match self.names.find(path)? {
                Entry::File(file) => file,
                Entry::Directory(_) => return Err(io::ErrorKind::IsADirectory.into()),
            }
        };
        *self.open.entry(file).or_default() += 1;
        Ok(file)
    }

    pub fn close(&mut self, file: FileId) {
        if let Some(handles) = self.open.get_mut(&file) {
            *handles -= 1;
            if *handles == 0 {
                self.open.remove(&file);
                self.collect_sometimes();
            }
        }
    }

    /// The names themselves, without the directory's.
    pub fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(self.names.list(directory)?.into_iter().map(PathBuf::from).collect())
    }

    pub fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.names.rename(from, to).map(drop)
    }

    pub fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.names.remove_file(path).map(drop)
    }

    pub fn make_directory(&mut self, path: &Path) -> io::Result<()> {
        self.names.make_directory(path)
    }

    pub fn remove_directory(&mut self, path: &Path) -> io::Result<()> {
        self.names.remove_directory(path)
    }

    pub fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        self.names.sync(path)?;
        self.collect_sometimes();
        Ok(())
    }

    /// A file that nothing leads to may stay for a while: looking for it costs.
    fn collect_sometimes(&mut self) {
        self.gone += 1;
        if self.gone >= COLLECT_EVERY {
            self.collect();
        }
    }

    /// Forgets files that nothing leads to.
    fn collect(&mut self) {
        let named = self.names.files();
        self.files.retain(|file, _| named.contains(file) || self.open.contains_key(file));
        self.used = self.files.values().map(Pages::backed).sum();
        self.gone = 0;
    }

    pub fn lock(&mut self, directory: &Path) -> io::Result<()> {
        if self.locks.insert(directory.to_owned()) {
            Ok(())
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    pub fn unlock(&mut self, directory: &Path) {
        self.locks.remove(directory);
    }

    pub fn free_space(&self) -> u64 {
        if self.full { 0 } else { self.capacity.saturating_sub(self.used) }
    }

    /// Changes a file, and counts its blocks.
    fn change(&mut self, file: FileId, change: impl FnOnce(&mut Pages)) {
        let pages = self.files.entry(file).or_default();
        let before = pages.backed();
        change(pages);
        self.used = self.used + pages.backed() - before;
    }

    fn pages(&mut self, file: FileId) -> &mut Pages {
        self.files.entry(file).or_default()
    }

    pub fn len(&self, file: FileId) -> u64 {
        self.files.get(&file).map_or(0, Pages::len)
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether a write or a sync has failed in the life that goes on, such that it must end.
    pub fn has_failed(&self) -> bool {
        self.failed_in == Some(self.incarnation)
    }

    /// Whether nobody counts on what is written to the file, so that the node goes on where there
    /// is no room for it (and only then: any other failure tells of the whole disk). Such are the
    /// believed time, which goes beside the old one (docs/decisions/0060), and what a pass of
    /// compaction makes, as long as the log's `cleaned` file does not name it (0121).
    fn is_dispensable(&self, file: FileId) -> bool {
        let paths = self.names.paths();
        let Some((path, _)) = paths.iter().find(|(_, named)| *named == file) else { return false };
        if path == Path::new("/data/clock.new") {
            return true;
        }
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = name.strip_suffix(".new").unwrap_or(name);
        let Some((base, generation, _)) = parse_segment_file_name(name) else { return false };
        let counts = match self.names.find(&path.with_file_name(CLEANED_FILE)) {
            Ok(Entry::File(cleaned)) => Cleaned::decode(&self.content(cleaned))
                .ok()
                .is_none_or(|cleaned| cleaned.generation(base) == Some(generation)),
            _ => false,
        };
        generation > 0 && !counts
    }

    /// # Errors
    ///
    /// `EIO`, if that is this read's lot.
    pub fn read(&mut self, file: FileId, position: u64, bytes: usize) -> io::Result<Bytes> {
        if self.reads_fail > 0 {
            self.reads_fail -= 1;
            return Err(io::Error::other("simulated: read failed"));
        }
        Ok(Bytes::from(self.pages(file).read(position, bytes)))
    }

    pub fn begin_write(&mut self, file: FileId, position: u64, chunks: Vec<Bytes>) -> WriteKey {
        self.next_write += 1;
        self.in_flight.insert(self.next_write, (file, position, chunks));
        self.next_write
    }

    /// # Errors
    ///
    /// `StorageFull`, or `EIO`; a part of the write may have been done.
    pub fn complete_write(&mut self, key: WriteKey) -> io::Result<()> {
        let Some((file, position, chunks)) = self.in_flight.remove(&key) else { return Ok(()) };
        let bytes: u64 = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        if std::mem::take(&mut self.write_fails) {
            self.failed_in = Some(self.incarnation);
            let part = self.chance.below(bytes + 1);
            self.write(file, position, &chunks, part);
            return Err(io::Error::other("simulated: write failed"));
        }
        let missing = (position + bytes).saturating_sub(self.pages(file).backed());
        if missing > 0 && missing > self.free_space() {
            if !self.is_dispensable(file) {
                self.failed_in = Some(self.incarnation);
            }
            let part = self.chance.below(bytes - missing.min(bytes) + 1);
            self.write(file, position, &chunks, part);
            return Err(io::ErrorKind::StorageFull.into());
        }
        let (file, position) = self.misdirect(file, position).unwrap_or((file, position));
        self.write(file, position, &chunks, bytes);
        Ok(())
    }

    /// Where a write lands instead, if that is its lot.
    fn misdirect(&mut self, file: FileId, position: u64) -> Option<(FileId, u64)> {
        let MisdirectedWrite { files, lands } = self.misdirects.clone()?;
        let mut paths = self.names.paths();
        let path = paths.iter().find(|(_, named)| *named == file).map(|(path, _)| path.clone())?;
        if !files.include(&path) {
            return None;
        }
        self.misdirects = None;
        let kind = Files::of(&path);
        paths.retain(|(other, named)| *named != file && Files::of(other) == kind);
        if self.chance.one_in(2) && paths.iter().any(|(other, _)| has_name_of(other, &path)) {
            paths.retain(|(other, _)| has_name_of(other, &path));
        }
        let is_elsewhere = lands == Lands::OtherFile && !paths.is_empty();
        let (other, target) =
            if is_elsewhere { self.chance.pick(&paths).clone() } else { (path.clone(), file) };
        let mut at = position;
        if !is_elsewhere || self.chance.one_in(4) {
            let sector = SECTOR as u64;
            at = self.chance.below(self.len(target) / sector + 1) * sector + position % sector;
            at += if (target, at) == (file, position) { sector } else { 0 };
        }
        self.misdirected = Some(Misdirected { from: (path, position), to: (other, at) });
        Some((target, at))
    }

    /// The last write that landed elsewhere, if nobody has been told yet.
    pub fn take_misdirected(&mut self) -> Option<Misdirected> {
        self.misdirected.take()
    }

    fn write(&mut self, file: FileId, mut position: u64, chunks: &[Bytes], mut most: u64) {
        for chunk in chunks {
            let part = (chunk.len() as u64).min(most);
            self.change(file, |pages| pages.write(position, &chunk[..part as usize]));
            position += part;
            most -= part;
        }
    }

    pub fn allocate(&mut self, file: FileId, len: u64) -> io::Result<()> {
        let missing = len.saturating_sub(self.pages(file).backed());
        if missing > 0 && missing > self.free_space() {
            self.failed_in = Some(self.incarnation);
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.change(file, |pages| pages.allocate(len));
        Ok(())
    }

    pub fn set_len(&mut self, file: FileId, len: u64) {
        self.change(file, |pages| pages.set_len(len));
    }

    pub fn begin_sync(&mut self, file: FileId) -> Captured {
        let captured = self.pages(file).capture();
        self.syncing += u32::from(captured.sectors() > 0);
        captured
    }

    pub fn complete_sync(&mut self, file: FileId, captured: Captured) -> Synced {
        self.syncing = self.syncing.saturating_sub(u32::from(captured.sectors() > 0));
        let pages = self.files.entry(file).or_default();
        if self.sync_fails && !captured.is_clean(pages) {
            self.sync_fails = false;
            self.failed_in = Some(self.incarnation);
            pages.forget(&captured);
            return Synced::Failed;
        }
        pages.persist(captured);
        Synced::Done
    }

    /// Whether something is on its way to durability: the moment at which crashes tell most.
    pub fn is_syncing(&self) -> bool {
        self.syncing > 0
    }

    /// The process dies: what is in flight is done, not done, or done in part; the rest stays.
    pub fn crash(&mut self) {
        self.incarnation += 1;
        self.syncing = 0;
        self.open.clear();
        self.locks.clear();
        for (_, (file, position, chunks)) in std::mem::take(&mut self.in_flight) {
            let bytes: u64 = chunks.iter().map(|chunk| chunk.len() as u64).sum();
            let part = match self.chance.below(3) {
                0 => 0,
                1 => bytes,
                _ => self.chance.below(bytes / SECTOR as u64 + 1) * SECTOR as u64,
            };
            self.write(file, position, &chunks, part.min(bytes));
        }
        self.collect();
    }

    /// Power fails. Returns what became of unsynced sectors, and how many name changes were lost.
    pub fn lose_power(&mut self, unsynced: Unsynced) -> (Loss, u64) {
        self.incarnation += 1;
        self.syncing = 0;
        self.open.clear();
        self.locks.clear();
        // What was on its way to the disk is as uncertain as what lay in the cache.
        for (_, (file, position, chunks)) in std::mem::take(&mut self.in_flight) {
            self.write(file, position, &chunks, u64::MAX);
        }
        let mut sum = Loss::default();
        for pages in self.files.values_mut() {
            let loss = pages.lose_power(unsynced, &mut self.chance);
            sum = Loss { kept: sum.kept + loss.kept, lost: sum.lost + loss.lost };
        }
        let names = self.names.lose_power(unsynced, &mut self.chance);
        self.collect();
        (sum, names)
    }

    /// Takes the journal's files away, if the marks know of its log: whether they are gone.
    pub fn lose_journal(&mut self) -> bool {
        let marks = self.contents(Path::new("/data/marks")).pop();
        let marks = marks.and_then(|(_, bytes)| Marks::decode(&bytes).ok());
        let is_known = marks.is_some_and(|marks| {
            marks.logs.iter().any(|mark| mark.partition == PartitionId::METADATA)
        });
        if is_known {
            let journal = Path::new("/data/journal");
            for (path, _) in self.contents(journal) {
                let _ = self.remove(&path);
            }
            let _ = self.sync_directory(journal);
        }
        is_known
    }

    /// Flips one durable bit in one of the files. Says where.
    pub fn flip_bit(&mut self, files: Files) -> Option<(PathBuf, u64)> {
        let mut paths = self.names.paths();
        paths.retain(|(path, file)| files.include(path) && self.len(*file) > 0);
        if files == Files::Newest {
            // The names of a log's segments rise; another log's segments have another directory.
            paths.sort();
            let parents: Vec<_> =
                paths.iter().map(|(path, _)| path.parent().map(Path::to_owned)).collect();
            let mut place = 0;
            paths.retain(|_| {
                place += 1;
                parents.get(place).is_none_or(|next| *next != parents[place - 1])
            });
        }
        if paths.is_empty() {
            return None;
        }
        let (path, file) = self.chance.pick(&paths).clone();
        let pages = self.files.get_mut(&file)?;
        Some((path, pages.flip_bit(&mut self.chance)?))
    }
}

fn has_name_of(path: &Path, other: &Path) -> bool {
    path.file_name() == other.file_name()
}

#[cfg(test)]
mod tests {
    use quorate_core::id::Offset;
    use quorate_core::partition::SegmentInfo;
    use quorate_core::segment::cleaned::CleanedSegment;
    use quorate_core::time::Timestamp;

    use super::*;

    fn write(medium: &mut Medium, file: FileId, position: u64, bytes: &'static [u8]) {
        let key = medium.begin_write(file, position, vec![Bytes::from_static(bytes)]);
        medium.complete_write(key).expect("the disk says that it is done");
    }

    #[test]
    fn a_misdirected_write_is_done_elsewhere_once() {
        for lands in [Lands::SameFile, Lands::OtherFile] {
            let mut medium = Medium::new(Chance::new(3, "medium"), 1 << 20);
            let path = |log: &str| PathBuf::from("/").join(log).join("0.segment");
            let files = ["/a", "/b"].map(|log| {
                medium.make_directory(Path::new(log)).expect("made");
                medium.open(&path(log), true).expect("made")
            });
            write(&mut medium, files[0], 0, &[1; 600]);
            write(&mut medium, files[1], 0, &[2; 600]);
            medium.misdirects = Some(MisdirectedWrite { files: Files::Segment, lands });
            write(&mut medium, files[0], 600, &[3; 10]);
            let told = medium.take_misdirected().expect("it was");
            assert_eq!(told.from, (path("/a"), 600));
            let target = files[usize::from(lands == Lands::OtherFile)];
            let landed = medium.read(target, told.to.1, 10).expect("read");
            assert_eq!(landed[..], [3; 10], "{told:?}");
            assert!(lands == Lands::OtherFile || told.to.1 != 600);
            assert!(medium.read(files[0], 600, 10).expect("read")[..] != [3; 10]);
            write(&mut medium, files[0], 600, &[4; 10]);
            assert_eq!(medium.read(files[0], 600, 10).expect("read")[..], [4; 10]);
            assert_eq!(medium.take_misdirected(), None);
        }
    }

    /// Whether the node must halt after a write to a file of `/data` has failed: for want of room,
    /// or otherwise.
    fn must_halt(cleaned: Option<&Cleaned>, name: &str, is_full: bool) -> bool {
        let mut medium = Medium::new(Chance::new(3, "medium"), 1 << 20);
        medium.make_directory(Path::new("/data/log")).expect("made");
        if let Some(cleaned) = cleaned {
            let file = medium.open(Path::new("/data/log/cleaned"), true).expect("made");
            let key = medium.begin_write(file, 0, vec![cleaned.encode()]);
            medium.complete_write(key).expect("there is room");
        }
        let file = medium.open(&Path::new("/data").join(name), true).expect("made");
        (medium.full, medium.write_fails) = (is_full, !is_full);
        let key = medium.begin_write(file, 0, vec![Bytes::from_static(&[1; 10])]);
        medium.complete_write(key).expect_err("it fails");
        medium.has_failed()
    }

    #[test]
    fn the_node_may_go_on_without_room_for_what_nobody_counts_on() {
        let made = ["log/00000000000000000099-1.segment", "log/00000000000000000099-1.index.new"];
        let info = SegmentInfo { base: Offset(99), bytes: 10, max_timestamp: Timestamp(9) };
        let segments = vec![CleanedSegment { info, generation: 1 }];
        let (to, until) = (Offset(100), Offset(105));
        let cleaned = Cleaned { to, until, tombstones_due: None, segments };
        for name in made.into_iter().chain(["clock.new"]) {
            assert!(!must_halt(None, name, true), "{name}");
            assert!(must_halt(None, name, false), "{name}");
        }
        // They count now, and those of the next pass do not.
        for name in made {
            assert!(must_halt(Some(&cleaned), name, true), "{name}");
            let next = name.replace("-1.", "-2.");
            assert!(!must_halt(Some(&cleaned), &next, true), "{next}");
        }
        let others = ["marks.new", "log/cleaned.new", "log/00000000000000000099.segment"];
        for name in others.into_iter().chain(["log/00000000000000000099.index.new"]) {
            assert!(must_halt(None, name, true), "{name}");
        }
    }
}
