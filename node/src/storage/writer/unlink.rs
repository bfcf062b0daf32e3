//! The lane of files that go: they are unlinked one after another, beside the writer's loop, once a
//! checkpoint's marks speak of them no more.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

use quorate_core::reached;
use quorate_core::segment::FileKind;

use super::{Done, Work};
use crate::storage::Shared;
use crate::storage::directory::remove_all;
use crate::storage::error::StorageError;
use crate::storage::log::{Log, Segment};

/// Files whose content nobody needs any more.
pub(in crate::storage) enum Leaving {
    Segments { log: Arc<Log>, segments: Vec<Segment> },
    Log { directory: PathBuf, done: Option<Done> },
    Snapshot { path: PathBuf },
}

/// What is being unlinked, and what comes after it.
#[derive(Default)]
pub(super) struct Lane {
    waiting: Vec<Leaving>,
    pub(super) work: Option<Work<io::Result<()>>>,
}

impl Lane {
    /// To be unlinked behind all that came before.
    pub(super) fn push(&mut self, shared: &Arc<Shared>, leaving: Vec<Leaving>) {
        self.waiting.extend(leaving);
        self.start(shared);
    }

    /// What was under way is done.
    pub(super) fn done(&mut self, shared: &Arc<Shared>) {
        self.work = None;
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
        shared.files.forget((log.partition, segment.base));
        for kind in FileKind::ALL {
            changed |= was_there(shared.disk.remove(&log.path(segment.base, kind)).await)?;
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
