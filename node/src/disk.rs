//! The disk as a part of the world, and the contract between it and the storage engine.
//!
//! - Nothing is durable before `sync` returns `Ok`; a sync covers exactly the writes that
//!   completed before it was called.
//! - A name (after create, rename, remove) is durable only after `sync_directory` of its directory.
//! - Writes in flight together may land in any order and tear at any sector.
//! - After one failed `sync` the file is lost to us: the kernel may have dropped the dirty pages
//!   and may report success the next time. The node halts.
//! - A read may return rot. Each byte we keep is under a checksum of ours.
//! - A removed file that is still open stays readable through its handle.
//!
//! Implementations: `disk/os.rs` (the machine's), `disk/memory.rs` (`--ephemeral` and tests), and
//! the simulator's.

pub mod memory;
#[cfg(not(madsim))]
pub mod os;

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

/// A pending operation of the disk.
pub type Io<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// How `Disk::open` treats a name that exists, or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// The file must exist; it is read only, in pieces of which nothing is read ahead.
    Read,
    /// The file must exist; it is read and written.
    Write,
    /// The file must not exist; it is created empty, read and written.
    Create,
}

pub trait Disk: Send + Sync + 'static {
    fn open<'a>(&'a self, path: &'a Path, how: Open) -> Io<'a, Arc<dyn File>>;

    /// The names in a directory, sorted, directories included. An absent directory is `NotFound`.
    fn list<'a>(&'a self, directory: &'a Path) -> Io<'a, Vec<PathBuf>>;

    /// Replaces `to` if it exists.
    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> Io<'a, ()>;

    /// The name is gone; the room may come back a little later.
    fn remove<'a>(&'a self, path: &'a Path) -> Io<'a, ()>;

    /// Creates the directory and its parents; an existing one is fine.
    fn make_directory<'a>(&'a self, path: &'a Path) -> Io<'a, ()>;

    /// The directory must be empty.
    fn remove_directory<'a>(&'a self, path: &'a Path) -> Io<'a, ()>;

    fn sync_directory<'a>(&'a self, directory: &'a Path) -> Io<'a, ()>;

    /// Bytes that may still be written below `directory`.
    fn free_space<'a>(&'a self, directory: &'a Path) -> Io<'a, u64>;

    /// Takes the directory for this process alone until the guard is dropped; `WouldBlock` if
    /// another process holds it.
    fn lock<'a>(&'a self, directory: &'a Path) -> Io<'a, Box<dyn DirectoryLock>>;
}

/// Holds a directory for this process.
pub trait DirectoryLock: Send + Sync + 'static {}

pub trait File: Send + Sync + 'static {
    /// Bytes, as far as this handle's operations know.
    fn len(&self) -> u64;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fewer bytes than asked only at the end of the file.
    fn read_at(&self, position: u64, bytes: usize) -> Io<'_, Bytes>;

    /// Where at or behind `position` something other than zeros may stand; `None`: nowhere. A disk
    /// that cannot say answers `position`.
    fn data_from(&self, position: u64) -> Io<'_, Option<u64>> {
        let there = (position < self.len()).then_some(position);
        Box::pin(std::future::ready(Ok(there)))
    }

    /// Writes the chunks one after the other, all or an error; what an error leaves is unknown.
    fn write_at(&self, position: u64, chunks: Vec<Bytes>) -> Io<'_, ()>;

    /// Grows the file to `len` bytes of zeros, backed by blocks, so that writing there cannot
    /// run out of space. Never shrinks.
    fn allocate(&self, len: u64) -> Io<'_, ()>;

    /// Cuts or extends the file.
    fn set_len(&self, len: u64) -> Io<'_, ()>;

    /// Data, and the metadata needed to read it back.
    fn sync(&self) -> Io<'_, ()>;
}
