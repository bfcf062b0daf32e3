//! The lane of files that go: they are unlinked one after another, beside the writer's loop, once a
//! checkpoint's marks speak of them no more.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quorate_core::reached;
use quorate_core::segment::FileKind;

use super::{Done, Work};
use crate::storage::Shared;
use crate::storage::directory::remove_all;
use crate::storage::error::StorageError;
use crate::storage::log::{Log, Segment};
use crate::storage::orphans;

/// Files whose content nobody needs any more.
pub(in crate::storage) enum Leaving {
    Segments {
        log: Arc<Log>,
        segments: Vec<Segment>,
    },
    Log {
        directory: PathBuf,
        done: Option<Done>,
    },
    Snapshot {
        path: PathBuf,
    },
    /// Orphan files that are too many or too old.
    Orphans,
}

impl Leaving {
    /// The log's directory whose files go, if it is one log's.
    pub(super) fn directory(&self) -> Option<&Path> {
        match self {
            Self::Segments { log, .. } => Some(&log.directory),
            Self::Log { directory, .. } => Some(directory),
            Self::Snapshot { path } => path.parent(),
            Self::Orphans => None,
        }
    }
}

/// What is being unlinked, and what comes after it.
#[derive(Default)]
pub(super) struct Lane {
    waiting: Vec<Leaving>,
    /// Of the logs whose files are on their way out.
    directories: BTreeSet<PathBuf>,
    pub(super) work: Option<Work<io::Result<()>>>,
}

impl Lane {
    /// Whether files of this log are on their way out.
    pub(super) fn concerns(&self, directory: &Path) -> bool {
        self.directories.contains(directory)
    }

    /// To be unlinked behind all that came before.
    pub(super) fn push(&mut self, shared: &Arc<Shared>, leaving: Vec<Leaving>) {
        let directories = leaving.iter().filter_map(Leaving::directory);
        self.directories.extend(directories.map(Path::to_path_buf));
        self.waiting.extend(leaving);
        self.start(shared);
    }

    /// What was under way is done.
    pub(super) fn done(&mut self, shared: &Arc<Shared>) {
        self.work = None;
        let waiting = self.waiting.iter().filter_map(Leaving::directory);
        self.directories = waiting.map(Path::to_path_buf).collect();
        self.start(shared);
    }

    fn start(&mut self, shared: &Arc<Shared>) {
        if self.work.is_none() && !self.waiting.is_empty() {
            let leaving = std::mem::take(&mut self.waiting);
            self.work = Some(Box::pin(unlink_all(Arc::clone(shared), leaving)));
        }
    }

    /// Nothing is unlinked any more; who waits is told by the end of its channel.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Removes files that no mark speaks of any more, and then their names durably.
pub(in crate::storage) async fn unlink_all(
    shared: Arc<Shared>,
    leaving: Vec<Leaving>,
) -> io::Result<()> {
    let mut directories = BTreeSet::new();
    let mut told = Vec::new();
    for leaving in leaving {
        match leaving {
            Leaving::Segments { log, segments } => {
                if unlink_segments(&shared, &log, &segments).await? {
                    directories.insert(log.directory.clone());
                }
                reached!("segments-unlinked");
            }
            Leaving::Snapshot { path } => {
                was_there(shared.disk.remove(&path).await)?;
            }
            Leaving::Orphans => orphans::tidy(&shared).await?,
            Leaving::Log { directory, done } => {
                directories.remove(&directory);
                remove_all(&*shared.disk, &directory).await?;
                directories.insert(shared.logs_directory());
                told.extend(done);
                reached!("log-unlinked");
            }
        }
    }
    for directory in directories {
        shared.disk.sync_directory(&directory).await?;
    }
    for done in told {
        let _ = done.send(Ok(()) as Result<(), StorageError>);
    }
    Ok(())
}

/// Whether there was something to remove: a power loss may have taken the files, and their
/// directory with them.
async fn unlink_segments(shared: &Shared, log: &Log, segments: &[Segment]) -> io::Result<bool> {
    let mut changed = false;
    for segment in segments {
        let (base, generation) = (segment.base, segment.generation);
        shared.files.forget((log.partition, base, generation));
        let paths = [
            log.file(base, generation, FileKind::Segment),
            log.file(base, generation, FileKind::Index),
            log.path(base, FileKind::Snapshot),
        ];
        for path in paths {
            changed |= was_there(shared.disk.remove(&path).await)?;
        }
    }
    Ok(changed)
}

/// Whether there was something to remove; that there was not is fine.
fn was_there(removed: io::Result<()>) -> io::Result<bool> {
    match removed {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
