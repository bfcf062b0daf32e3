//! What can go wrong with a data directory, a log, or a read, as sentences.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use quorate_core::id::{NodeId, Offset, PartitionId};

use super::config::ConfigError;

/// Why the storage engine does not start, or does not go on.
#[derive(Debug)]
pub enum StorageError {
    Config(ConfigError),
    /// Another process holds the data directory.
    Locked {
        directory: PathBuf,
    },
    /// The directory has files in it and none that says it is ours. A lost disk is not taken for a
    /// new one, and a stranger's files are not touched.
    NotOurs {
        directory: PathBuf,
    },
    /// A newer build wrote this.
    Newer {
        path: PathBuf,
        why: String,
    },
    /// An older build wrote this, and no build reads it any more.
    Older {
        path: PathBuf,
        found: u16,
        known: u16,
    },
    /// The directory belongs to another node.
    OtherNode {
        directory: PathBuf,
        found: NodeId,
        expected: NodeId,
    },
    /// A file that cannot be made anew is damaged: refused, never replaced.
    Damaged {
        path: PathBuf,
        why: String,
    },
    /// The journal lost what it had promised to keep, and it cannot be told which logs it was.
    JournalRot {
        path: PathBuf,
        position: u64,
        why: String,
    },
    Io {
        doing: &'static str,
        path: PathBuf,
        error: io::Error,
    },
    /// An earlier write or sync failed, or the engine was closed.
    Stopped,
}

impl StorageError {
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |error| Self::Io { doing, path, error }
    }
}

impl StorageError {
    /// Whether there was no room for what was to be written.
    pub fn is_disk_full(&self) -> bool {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        matches!(self, Self::Io { error, .. } if full.contains(&error.kind()))
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Locked { directory } => {
                write!(f, "{}: another process uses this data directory", directory.display())
            }
            Self::NotOurs { directory } => write!(
                f,
                "{}: the directory is not empty and has no file `identity`: it is not a data \
                 directory, or it has lost its first file. Name another directory, or bring the \
                 file back",
                directory.display()
            ),
            Self::Newer { path, why } => {
                write!(f, "{}: {why}. Start the newer version again", path.display())
            }
            Self::Older { path, found, known } => write!(
                f,
                "{}: the data directory has format {found}, of a version before the first \
                 release; this version begins with format {known}. Name an empty directory: what \
                 stands here is left as it is",
                path.display()
            ),
            Self::OtherNode { directory, found, expected } => write!(
                f,
                "{}: the directory belongs to node {found}, and this is node {expected}",
                directory.display()
            ),
            Self::Damaged { path, why } => write!(f, "{}: {why}", path.display()),
            Self::JournalRot { path, position, why } => write!(
                f,
                "{}: at byte {position}: {why}; this stood there whole once, so the disk has \
                 changed or lost it. Nothing was cut",
                path.display()
            ),
            Self::Io { doing, path, error } => {
                write!(f, "{}: {doing}: {error}", path.display())
            }
            Self::Stopped => f.write_str("the storage engine has stopped"),
        }
    }
}

impl std::error::Error for StorageError {}

/// Why one log cannot be used. The rest of the node goes on.
#[derive(Debug)]
pub enum LogError {
    /// Below its durable mark the log is not what was written: `KAFKA_STORAGE_ERROR` for every
    /// request to the partition, until a human acts. Nothing was cut.
    Rot(Rot),
    Storage(StorageError),
}

/// Bytes that were on the disk once and are not what they were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rot {
    pub partition: PartitionId,
    pub path: PathBuf,
    /// In the file.
    pub position: u64,
    /// The first offset that is not readable.
    pub offset: Offset,
    pub why: String,
}

impl fmt::Display for Rot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { partition, path, position, offset, why } = self;
        write!(
            f,
            "partition {partition} is offline from offset {offset} on: {} at byte {position}: \
             {why}; this was durable once, so the disk has changed or lost it. Nothing was cut",
            path.display()
        )
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rot(rot) => rot.fmt(f),
            Self::Storage(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LogError {}

impl From<StorageError> for LogError {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

/// Why a read has no answer.
#[derive(Debug)]
pub enum ReadError {
    /// The offset lies before the log's start or behind its end: `OFFSET_OUT_OF_RANGE`. The start
    /// may have been raised while the read was on its way.
    OutOfRange { start: Offset, end: Offset },
    /// `KAFKA_STORAGE_ERROR`.
    Rot(Rot),
    /// `KAFKA_STORAGE_ERROR`.
    Io { path: PathBuf, error: io::Error },
    /// The log was removed with its topic.
    Removed,
    /// The log was cut while it was read, since its leader's log is another: ask again.
    Cut,
    /// Compaction has put another file in the place of the one that was looked for: look again.
    Replaced,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { start, end } => {
                write!(f, "the log holds the offsets from {start} to below {end}")
            }
            Self::Rot(rot) => rot.fmt(f),
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Removed => f.write_str("the log was removed"),
            Self::Cut => f.write_str("the log was cut while it was read"),
            Self::Replaced => f.write_str("the log was compacted while it was read"),
        }
    }
}

impl std::error::Error for ReadError {}
