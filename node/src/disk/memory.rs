//! A disk in memory, bounded: for `--ephemeral`, where nothing outlives the process, and for tests,
//! which cut its power at any operation and look at what a real disk might have kept.

mod pages;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use self::pages::{Inode, PAGE_BYTES, Pages};
use super::{DirectoryLock, Disk, File, Io, Open};

/// What shall go wrong, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The power is cut: this operation may have begun, no other ever will.
    PowerLoss,
    /// The operation fails; a write is done by half, a sync drops what it should have kept.
    Failure,
    /// As `Failure`, for want of space.
    Full,
}

type Shared = Arc<Mutex<Inode>>;

#[derive(Clone, Debug)]
enum Entry {
    File(Shared),
    Directory,
}

/// A change of a directory that no `sync_directory` covers yet.
#[derive(Clone, Debug)]
struct Renaming {
    directory: PathBuf,
    path: PathBuf,
    /// `None`: the name is gone.
    entry: Option<Entry>,
}

#[derive(Debug, Default)]
struct State {
    live: BTreeMap<PathBuf, Entry>,
    durable: BTreeMap<PathBuf, Entry>,
    unsynced: Vec<Renaming>,
    locked: BTreeSet<PathBuf>,
    pages_held: usize,
    pages_max: usize,
    tracked: bool,
    operations: u64,
    fault: Option<(u64, Fault)>,
    dark: bool,
}

/// See the file's comment. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryDisk {
    /// A disk that holds `bytes_max` (in pages of 16 KiB) and forgets all with the process.
    pub fn ephemeral(bytes_max: u64) -> Self {
        let pages_max = usize::try_from(bytes_max).unwrap_or(usize::MAX) / PAGE_BYTES;
        let state = State { pages_max, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// A disk for tests: it also knows what a power loss would leave.
    pub fn tracked(bytes_max: u64) -> Self {
        let disk = Self::ephemeral(bytes_max);
        lock(&disk.state).tracked = true;
        disk
    }

    /// Operations that change or sync something, so far.
    pub fn operations(&self) -> u64 {
        lock(&self.state).operations
    }

    /// Whether the power was cut.
    pub fn is_dark(&self) -> bool {
        lock(&self.state).dark
    }

    /// Lets `fault` strike at the operation with this number, counted from 0.
    pub fn strike_at(&self, operation: u64, fault: Fault) {
        lock(&self.state).fault = Some((operation, fault));
    }

    /// The disk as the next boot finds it. `kept` is asked for each unsynced sector and name
    /// whether it got to the disk. This disk is dark from here on.
    pub fn after_power_loss(&self, mut kept: impl FnMut() -> bool) -> Self {
        let mut state = lock(&self.state);
        state.dark = true;
        let mut names = state.durable.clone();
        for renaming in &state.unsynced {
            if kept() {
                renaming.apply(&mut names);
            }
        }
        // What stands in a directory that was lost is lost with it.
        let found = names.clone();
        names.retain(|path, _| {
            let inside = path.ancestors().skip(1).filter(|directory| directory.parent().is_some());
            inside.into_iter().all(|directory| found.contains_key(directory))
        });
        // A rename is one step for one inode under two names: both names show the same bytes.
        let mut pages_held = 0;
        let mut restored: Vec<(Shared, Shared)> = Vec::new();
        for entry in names.values_mut() {
            let Entry::File(file) = entry else { continue };
            let known = restored.iter().find(|(before, _)| Arc::ptr_eq(before, file));
            let after = known.map(|(_, after)| Arc::clone(after)).unwrap_or_else(|| {
                let pages: Pages = lock(file).after_power_loss(&mut kept);
                pages_held += pages.held();
                let after = Arc::new(Mutex::new(Inode::restored(pages)));
                restored.push((Arc::clone(file), Arc::clone(&after)));
                after
            });
            *entry = Entry::File(after);
        }
        let (live, durable) = (names.clone(), names);
        let (pages_max, tracked) = (state.pages_max, state.tracked);
        let state = State { live, durable, pages_held, pages_max, tracked, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// The disk as the next process finds it after `kill -9`: the page cache is still there.
    pub fn after_kill(&self) -> Self {
        lock(&self.state).dark = true;
        let state = lock(&self.state);
        let after = State {
            live: state.live.clone(),
            durable: state.durable.clone(),
            unsynced: state.unsynced.clone(),
            locked: BTreeSet::new(),
            pages_held: state.pages_held,
            pages_max: state.pages_max,
            tracked: state.tracked,
            ..State::default()
        };
        Self { state: Arc::new(Mutex::new(after)) }
    }

    /// Turns over a bit of the byte at `position`: rot.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such file.
    pub fn flip(&self, path: &Path, position: u64) -> io::Result<()> {
        lock(lock(&self.state).file(path)?).flip(position);
        Ok(())
    }

    /// Every file's path and length, sorted.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let state = lock(&self.state);
        let files = state.live.iter().filter_map(|(path, entry)| match entry {
            Entry::File(file) => Some((path.clone(), lock(file).live.len())),
            Entry::Directory => None,
        });
        files.collect()
    }

    fn now<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = lock(&self.state);
        if state.dark {
            return Err(dark());
        }
        act(&mut state)
    }

    /// A change of names: counted, and perhaps struck.
    fn change(&self, act: impl FnOnce(&mut State) -> io::Result<()>) -> io::Result<()> {
        self.now(|state| match state.count() {
            None => act(state),
            Some(Fault::PowerLoss) => {
                let began = act(state);
                state.dark = true;
                began.and_then(|()| Err(dark()))
            }
            Some(fault) => Err(fault.error()),
        })
    }
}

fn dark() -> io::Error {
    io::Error::other("the power is off")
}

impl Fault {
    fn error(self) -> io::Error {
        match self {
            Self::PowerLoss => dark(),
            Self::Failure => io::Error::other("the disk failed"),
            Self::Full => ErrorKind::StorageFull.into(),
        }
    }
}

impl Renaming {
    fn apply(&self, names: &mut BTreeMap<PathBuf, Entry>) {
        match &self.entry {
            Some(entry) => names.insert(self.path.clone(), entry.clone()),
            None => names.remove(&self.path),
        };
    }
}

impl State {
    fn count(&mut self) -> Option<Fault> {
        let this = self.operations;
        self.operations += 1;
        self.fault.filter(|(at, _)| *at == this).map(|(_, fault)| fault)
    }

    fn file(&self, path: &Path) -> io::Result<&Shared> {
        match self.live.get(path) {
            Some(Entry::File(file)) => Ok(file),
            Some(Entry::Directory) => Err(ErrorKind::IsADirectory.into()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    /// All that stands in a directory, and in those within it.
    fn below<'a>(&'a self, directory: &'a Path) -> impl Iterator<Item = &'a PathBuf> {
        let after = (Bound::Excluded(directory), Bound::Unbounded);
        let names = self.live.range::<Path, _>(after).map(|(path, _)| path);
        names.take_while(move |path| path.starts_with(directory))
    }

    fn is_directory(&self, path: &Path) -> bool {
        path.parent().is_none() || matches!(self.live.get(path), Some(Entry::Directory))
    }

    fn set(&mut self, path: &Path, entry: Option<Entry>) {
        let directory = path.parent().map(Path::to_path_buf).unwrap_or_default();
        let renaming = Renaming { directory, path: path.to_path_buf(), entry };
        renaming.apply(&mut self.live);
        if self.tracked {
            self.unsynced.push(renaming);
        }
    }

    fn create(&mut self, path: &Path) -> io::Result<()> {
        if self.live.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        if path.parent().is_some_and(|parent| !self.is_directory(parent)) {
            return Err(ErrorKind::NotFound.into());
        }
        self.set(path, Some(Entry::File(Shared::default())));
        Ok(())
    }

    fn sync_directory(&mut self, directory: &Path) {
        let (now, later) = std::mem::take(&mut self.unsynced)
            .into_iter()
            .partition::<Vec<_>, _>(|renaming| renaming.directory == directory);
        now.iter().for_each(|renaming| renaming.apply(&mut self.durable));
        self.unsynced = later;
    }

    /// Gives back the pages of a file that nothing names any more (a handle may still read it).
    fn forget(&mut self, path: &Path) {
        if let Some(Entry::File(file)) = self.live.get(path) {
            self.pages_held -= lock(file).live.held();
        }
    }
}

impl Disk for MemoryDisk {
    fn open<'a>(&'a self, path: &'a Path, how: Open) -> Io<'a, Arc<dyn File>> {
        Box::pin(async move {
            if how == Open::Create {
                self.change(|state| state.create(path))?;
            }
            let inode = self.now(|state| state.file(path).cloned())?;
            let file = MemoryFile { disk: self.clone(), inode };
            Ok(Arc::new(file) as Arc<dyn File>)
        })
    }

    fn list<'a>(&'a self, directory: &'a Path) -> Io<'a, Vec<PathBuf>> {
        Box::pin(async move {
            self.now(|state| {
                if !state.is_directory(directory) {
                    return Err(ErrorKind::NotFound.into());
                }
                let inside = state.below(directory);
                let inside = inside.filter(|path| path.parent() == Some(directory));
                Ok(inside.filter_map(|path| path.file_name().map(PathBuf::from)).collect())
            })
        })
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> Io<'a, ()> {
        Box::pin(async move {
            self.change(|state| {
                let entry = state.live.get(from).cloned().ok_or(ErrorKind::NotFound)?;
                state.forget(to);
                // Both halves become durable with their directory's sync; a power loss may keep
                // either half, so the new name stands first and nothing is ever without one.
                state.set(to, Some(entry));
                state.set(from, None);
                Ok(())
            })
        })
    }

    fn remove<'a>(&'a self, path: &'a Path) -> Io<'a, ()> {
        Box::pin(async move {
            self.change(|state| {
                state.file(path)?;
                state.forget(path);
                state.set(path, None);
                Ok(())
            })
        })
    }

    fn make_directory<'a>(&'a self, path: &'a Path) -> Io<'a, ()> {
        Box::pin(async move {
            self.change(|state| {
                let mut missing: Vec<&Path> =
                    path.ancestors().take_while(|path| !state.is_directory(path)).collect();
                missing.retain(|path| !path.as_os_str().is_empty());
                missing.into_iter().rev().for_each(|path| state.set(path, Some(Entry::Directory)));
                Ok(())
            })
        })
    }

    fn remove_directory<'a>(&'a self, path: &'a Path) -> Io<'a, ()> {
        Box::pin(async move {
            self.change(|state| {
                if !state.is_directory(path) {
                    return Err(ErrorKind::NotFound.into());
                }
                if state.below(path).next().is_some() {
                    return Err(ErrorKind::DirectoryNotEmpty.into());
                }
                state.set(path, None);
                Ok(())
            })
        })
    }

    fn sync_directory<'a>(&'a self, directory: &'a Path) -> Io<'a, ()> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.now(|state| match state.count() {
                None => {
                    state.sync_directory(directory);
                    Ok(())
                }
                Some(fault) => {
                    state.dark |= fault == Fault::PowerLoss;
                    Err(fault.error())
                }
            })
        })
    }

    fn free_space<'a>(&'a self, _: &'a Path) -> Io<'a, u64> {
        Box::pin(async move {
            self.now(|state| Ok(((state.pages_max - state.pages_held) * PAGE_BYTES) as u64))
        })
    }

    fn lock<'a>(&'a self, directory: &'a Path) -> Io<'a, Box<dyn DirectoryLock>> {
        Box::pin(async move {
            self.now(|state| {
                if !state.locked.insert(directory.to_path_buf()) {
                    return Err(ErrorKind::WouldBlock.into());
                }
                let disk = self.clone();
                let directory = directory.to_path_buf();
                Ok(Box::new(Locked { disk, directory }) as Box<dyn DirectoryLock>)
            })
        })
    }
}

struct Locked {
    disk: MemoryDisk,
    directory: PathBuf,
}

impl DirectoryLock for Locked {}

impl Drop for Locked {
    fn drop(&mut self) {
        lock(&self.disk.state).locked.remove(&self.directory);
    }
}

struct MemoryFile {
    disk: MemoryDisk,
    inode: Shared,
}

impl MemoryFile {
    fn write(&self, state: &mut State, position: u64, bytes: &Bytes) -> io::Result<()> {
        let mut inode = lock(&self.inode);
        let pages = inode.live.new_pages(position, bytes.len());
        if state.pages_held + pages > state.pages_max {
            return Err(ErrorKind::StorageFull.into());
        }
        state.pages_held += pages;
        inode.write(position, bytes, state.tracked);
        Ok(())
    }

    fn write_chunks(&self, state: &mut State, at: u64, chunks: &[Bytes]) -> io::Result<()> {
        let mut at = at;
        for chunk in chunks {
            self.write(state, at, chunk)?;
            at += chunk.len() as u64;
        }
        Ok(())
    }

    fn set_len_now(&self, state: &mut State, len: u64) {
        let mut inode = lock(&self.inode);
        let before = inode.live.held();
        inode.set_len(len, state.tracked);
        state.pages_held -= before - inode.live.held();
    }
}

impl File for MemoryFile {
    fn len(&self) -> u64 {
        lock(&self.inode).live.len()
    }

    fn read_at(&self, position: u64, bytes: usize) -> Io<'_, Bytes> {
        Box::pin(async move {
            self.disk.now(|_| Ok(()))?;
            Ok(lock(&self.inode).live.read(position, bytes))
        })
    }

    fn write_at(&self, position: u64, chunks: Vec<Bytes>) -> Io<'_, ()> {
        Box::pin(async move {
            self.disk.now(|state| {
                let Some(fault) = state.count() else {
                    return self.write_chunks(state, position, &chunks);
                };
                state.dark |= fault == Fault::PowerLoss;
                let done = if fault == Fault::PowerLoss { chunks.len() } else { chunks.len() / 2 };
                self.write_chunks(state, position, &chunks[..done])?;
                Err(fault.error())
            })
        })
    }

    fn allocate(&self, len: u64) -> Io<'_, ()> {
        Box::pin(async move {
            self.disk.change(|state| {
                if len > lock(&self.inode).live.len() {
                    self.set_len_now(state, len);
                }
                Ok(())
            })
        })
    }

    fn set_len(&self, len: u64) -> Io<'_, ()> {
        Box::pin(async move {
            self.disk.change(|state| {
                self.set_len_now(state, len);
                Ok(())
            })
        })
    }

    fn sync(&self) -> Io<'_, ()> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.disk.now(|state| match state.count() {
                None => lock(&self.inode).sync(),
                Some(Fault::PowerLoss) => {
                    state.dark = true;
                    Err(dark())
                }
                Some(fault) => {
                    lock(&self.inode).fail_sync();
                    Err(fault.error())
                }
            })
        })
    }
}
