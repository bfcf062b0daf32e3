//! How writes come to the storage engine and how their completions leave it.

use std::path::PathBuf;
use std::sync::Arc;

use quorate_core::id::{PartitionId, WriteId};
use quorate_core::partition::Recovered;
use quorate_core::partition::interface::{Flush, LogOp};
use tokio::sync::{mpsc, oneshot};

use super::error::StorageError;
use super::log::Log;

/// One change of one log. Changes of one log are done in the order in which they are sent, which
/// is the order of their ids.
#[derive(Debug)]
pub struct WriteRequest {
    pub partition: PartitionId,
    pub write: WriteId,
    pub op: LogOp,
    /// What `Written` waits for, of an append. The other changes always wait for the disk.
    pub flush: Flush,
}

/// Where the storage engine says what became of the writes. Called by its one writer task; must
/// not wait. There are never more completions than writes were sent, so a bound on the writes in
/// flight bounds whatever queue stands behind this.
pub trait Completions: Send + Sync + 'static {
    /// Of each log, all writes up to the id are as durable as was asked. At most one entry a log.
    fn written(&self, written: &[(PartitionId, WriteId)]);

    /// The log was cut, or begun anew, as `write` wanted; all writes before are done. `recovered`
    /// is what a start would make of it. It stands for `written`.
    fn truncated(&self, partition: PartitionId, write: WriteId, recovered: Box<Recovered>);

    /// The write, and each later one to any log, has failed. The node must halt: what a failed
    /// write or sync leaves on the disk is unknown. If a background sync fails while nobody waits,
    /// some open log is told, with write 0.
    fn write_failed(&self, partition: PartitionId, write: WriteId);
}

/// What the writer task is told.
#[derive(Debug)]
pub(super) enum Command {
    Write(WriteRequest),
    /// The log is open: the writer takes it over from recovery.
    Attach {
        log: Arc<Log>,
        /// Its mark is out of date.
        changed: bool,
    },
    Remove {
        partition: PartitionId,
        directory: PathBuf,
        done: oneshot::Sender<Result<(), StorageError>>,
    },
    Checkpoint {
        done: oneshot::Sender<Result<(), StorageError>>,
    },
    Close {
        done: oneshot::Sender<Result<(), StorageError>>,
    },
    /// Orphan files that are too many or too old are to go.
    Tidy,
}

/// The bounded queue in front of the writer. Clones are the same queue.
#[derive(Clone, Debug)]
pub struct WriteQueue {
    pub(super) commands: mpsc::Sender<Command>,
}

impl WriteQueue {
    /// Waits while the queue is full, so that whoever feeds it stops taking new work.
    ///
    /// # Errors
    ///
    /// `Stopped` once the engine was closed.
    pub async fn send(&self, request: WriteRequest) -> Result<(), StorageError> {
        let sent = self.commands.send(Command::Write(request)).await;
        sent.map_err(|_| StorageError::Stopped)
    }
}
