//! A disk that counts what is done with it, and can hold up syncs and the removal of files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use quorate_node::disk::memory::MemoryDisk;
use quorate_node::disk::{DirectoryLock, Disk, File, Io, Open};
use tokio::sync::Semaphore;

/// What was seen.
pub(crate) struct Seen {
    /// Bytes read from segments.
    pub(crate) segment_bytes_read: AtomicU64,
    /// ... and of these, how many somebody still holds.
    segment_bytes_held: AtomicUsize,
    pub(crate) segment_bytes_held_max: AtomicUsize,
    /// The most that was written to a segment and not synced yet.
    pub(crate) segment_bytes_unsynced_max: AtomicU64,
    handles: AtomicUsize,
    pub(crate) handles_max: AtomicUsize,
    /// One permit for each file that may be removed.
    pub(crate) removals: Semaphore,
    /// One permit for each sync of a segment, of a file of the journal, of what compaction left.
    pub(crate) segment_syncs: Semaphore,
    pub(crate) journal_syncs: Semaphore,
    pub(crate) cleaned_syncs: Semaphore,
    pub(crate) segment_syncs_fail: AtomicBool,
    /// Snapshots that were opened to be written under their own name.
    pub(crate) written_in_place: AtomicUsize,
    /// There is no room for the file that tells the time.
    pub(crate) clock_is_full: AtomicBool,
}

impl Seen {
    async fn sync_may_go(&self, kind: Kind) -> io::Result<()> {
        let gate = match kind {
            Kind::Segment => &self.segment_syncs,
            Kind::Journal => &self.journal_syncs,
            Kind::Cleaned => &self.cleaned_syncs,
            Kind::Other => return Ok(()),
        };
        gate.acquire().await.map_err(io::Error::other)?.forget();
        if kind == Kind::Segment && self.segment_syncs_fail.load(Ordering::SeqCst) {
            return Err(io::Error::other("a sync that is to fail"));
        }
        Ok(())
    }
}

/// Takes all permits away; says how many there were.
pub(crate) fn hold(gate: &Semaphore) -> usize {
    gate.forget_permits(gate.available_permits())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Segment,
    Journal,
    Cleaned,
    Other,
}

pub(crate) struct Watched {
    disk: MemoryDisk,
    pub(crate) seen: Arc<Seen>,
}

impl Watched {
    pub(crate) fn new(disk: MemoryDisk) -> Arc<Self> {
        let seen = Seen {
            segment_bytes_read: AtomicU64::new(0),
            segment_bytes_held: AtomicUsize::new(0),
            segment_bytes_held_max: AtomicUsize::new(0),
            segment_bytes_unsynced_max: AtomicU64::new(0),
            handles: AtomicUsize::new(0),
            handles_max: AtomicUsize::new(0),
            removals: Semaphore::new(Semaphore::MAX_PERMITS),
            segment_syncs: Semaphore::new(Semaphore::MAX_PERMITS),
            journal_syncs: Semaphore::new(Semaphore::MAX_PERMITS),
            cleaned_syncs: Semaphore::new(Semaphore::MAX_PERMITS),
            segment_syncs_fail: AtomicBool::new(false),
            written_in_place: AtomicUsize::new(0),
            clock_is_full: AtomicBool::new(false),
        };
        Arc::new(Self { disk, seen: Arc::new(seen) })
    }

    #[allow(dead_code, reason = "the tests of the node have no use for it")]
    pub(crate) fn files(&self) -> Vec<(PathBuf, u64)> {
        self.disk.files()
    }
}

impl Disk for Watched {
    fn open<'a>(&'a self, path: &'a Path, how: Open) -> Io<'a, Arc<dyn File>> {
        Box::pin(async move {
            let ends = |end| path.to_string_lossy().ends_with(end);
            if ends("/clock.new") && self.seen.clock_is_full.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            if ends(".snapshot") && how != Open::Read {
                self.seen.written_in_place.fetch_add(1, Ordering::SeqCst);
            }
            let file = self.disk.open(path, how).await?;
            let handles = self.seen.handles.fetch_add(1, Ordering::SeqCst) + 1;
            self.seen.handles_max.fetch_max(handles, Ordering::SeqCst);
            let is = |wanted| path.extension().is_some_and(|extension| extension == wanted);
            let kind = match () {
                () if is("segment") => Kind::Segment,
                () if is("journal") => Kind::Journal,
                () if ends("/cleaned.new") => Kind::Cleaned,
                () => Kind::Other,
            };
            let seen = Arc::clone(&self.seen);
            let unsynced = AtomicU64::new(0);
            Ok(Arc::new(WatchedFile { file, seen, kind, unsynced }) as Arc<dyn File>)
        })
    }

    fn list<'a>(&'a self, directory: &'a Path) -> Io<'a, Vec<PathBuf>> {
        self.disk.list(directory)
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> Io<'a, ()> {
        self.disk.rename(from, to)
    }

    fn remove<'a>(&'a self, path: &'a Path) -> Io<'a, ()> {
        Box::pin(async move {
            let permit = self.seen.removals.acquire().await.map_err(io::Error::other)?;
            permit.forget();
            self.disk.remove(path).await
        })
    }

    fn make_directory<'a>(&'a self, path: &'a Path) -> Io<'a, ()> {
        self.disk.make_directory(path)
    }

    fn remove_directory<'a>(&'a self, path: &'a Path) -> Io<'a, ()> {
        self.disk.remove_directory(path)
    }

    fn sync_directory<'a>(&'a self, directory: &'a Path) -> Io<'a, ()> {
        self.disk.sync_directory(directory)
    }

    fn free_space<'a>(&'a self, directory: &'a Path) -> Io<'a, u64> {
        self.disk.free_space(directory)
    }

    fn lock<'a>(&'a self, directory: &'a Path) -> Io<'a, Box<dyn DirectoryLock>> {
        self.disk.lock(directory)
    }
}

struct WatchedFile {
    file: Arc<dyn File>,
    seen: Arc<Seen>,
    kind: Kind,
    /// Written to it and not synced yet.
    unsynced: AtomicU64,
}

/// Bytes of a segment until the last who has a part of them lets go.
struct Held {
    read: Bytes,
    seen: Arc<Seen>,
}

impl Held {
    fn new(read: Bytes, seen: Arc<Seen>) -> Self {
        let held = seen.segment_bytes_held.fetch_add(read.len(), Ordering::SeqCst) + read.len();
        seen.segment_bytes_held_max.fetch_max(held, Ordering::SeqCst);
        Self { read, seen }
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.read
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.seen.segment_bytes_held.fetch_sub(self.read.len(), Ordering::SeqCst);
    }
}

impl Drop for WatchedFile {
    fn drop(&mut self) {
        self.seen.handles.fetch_sub(1, Ordering::SeqCst);
    }
}

impl File for WatchedFile {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_at(&self, position: u64, bytes: usize) -> Io<'_, Bytes> {
        Box::pin(async move {
            let read = self.file.read_at(position, bytes).await?;
            if self.kind == Kind::Segment {
                self.seen.segment_bytes_read.fetch_add(read.len() as u64, Ordering::SeqCst);
                return Ok(Bytes::from_owner(Held::new(read, Arc::clone(&self.seen))));
            }
            Ok(read)
        })
    }

    fn write_at(&self, position: u64, chunks: Vec<Bytes>) -> Io<'_, ()> {
        let bytes = chunks.iter().map(Bytes::len).sum::<usize>() as u64;
        let unsynced = self.unsynced.fetch_add(bytes, Ordering::SeqCst) + bytes;
        if self.kind == Kind::Segment {
            self.seen.segment_bytes_unsynced_max.fetch_max(unsynced, Ordering::SeqCst);
        }
        self.file.write_at(position, chunks)
    }

    fn allocate(&self, len: u64) -> Io<'_, ()> {
        self.file.allocate(len)
    }

    fn set_len(&self, len: u64) -> Io<'_, ()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> Io<'_, ()> {
        Box::pin(async move {
            self.seen.sync_may_go(self.kind).await?;
            self.unsynced.store(0, Ordering::SeqCst);
            self.file.sync().await
        })
    }
}
