//! All logs of a node: one journal that makes appends durable, a segment file per stretch of each
//! log, one writer task, and readers that never wait for it.
//!
//! An append goes into its segment's page cache at once and into the journal with its group; the
//! journal's sync completes it. Segments are synced in the background, and only then is the journal
//! before them used again. Recovery reads the segments up to where they are whole and does again
//! what the journal has beyond. Machines decide what happens to a log; this module obeys.

pub mod clean;
pub mod config;
pub mod directory;
pub mod error;
pub mod queue;
pub mod reader;

mod cut;
mod files;
mod journal;
mod lag;
mod log;
mod orphans;
mod recovery;
mod replay;
mod walk;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quorate_core::id::{PartitionId, TopicId};
use quorate_core::partition::Recovered;
use quorate_core::segment::checkpoint::{Mark, Marks};
use quorate_core::segment::journal::JournalId;
use quorate_core::segment::{directory_name, parse_directory_name};
use quorate_core::time::Timestamp;
use quorate_core::{mutant, reached};
use tokio::sync::{mpsc, oneshot};

pub use self::config::{ConfigError, Identity, StorageConfig};
pub use self::directory::Believed;
use self::directory::{JOURNAL, LOGS};
pub use self::error::{LogError, ReadError, Rot, StorageError};
use self::files::Files;
use self::journal::{Journal, JournalFile};
pub use self::lag::Unread;
use self::log::Log;
use self::orphans::ORPHANS;
use self::queue::Command;
pub use self::queue::{Completions, WriteQueue, WriteRequest};
pub use self::reader::{LogReader, Unpack, Unpacked};
use self::replay::Replay;
use self::writer::Writer;
use crate::disk::{DirectoryLock, Disk};

/// What `Storage::open` found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenReport {
    /// Whose directory it is: for an old one, what stands in it.
    pub identity: Identity,
    /// How often the node was started on this directory, this time included.
    pub start: u64,
    /// The directory was empty.
    pub fresh: bool,
    /// The node was closed cleanly, or never used.
    pub clean: bool,
    /// Groups of the journal that were read again, and their bytes.
    pub groups_replayed: u64,
    pub bytes_replayed: u64,
    /// Logs that the journal speaks of and that are not what they were. More may be found by
    /// `open_log`.
    pub rot: Vec<Rot>,
    /// Logs on the disk.
    pub logs: usize,
    /// What the last life knew of the wall clock: see `Storage::believe`.
    pub believed: Believed,
}

/// What the writer, the readers and recovery have in common.
struct Shared {
    disk: Arc<dyn Disk>,
    config: StorageConfig,
    files: Files,
    journal: JournalId,
    /// What the segments are known to hold durably; the writer keeps it.
    marks: Mutex<BTreeMap<PartitionId, Mark>>,
    known: Mutex<Known>,
    orphans: orphans::Known,
    /// The latest time that the node believed.
    believed: AtomicI64,
}

/// What recovery has found out and nobody has asked for yet.
#[derive(Default)]
struct Known {
    loaded: BTreeMap<PartitionId, (Recovered, Arc<Log>)>,
    offline: BTreeMap<PartitionId, Rot>,
    opened: BTreeSet<PartitionId>,
    /// The node was closed cleanly: where mark and snapshot agree, nothing need be scanned.
    trusted: bool,
}

impl Shared {
    fn marks(&self) -> MutexGuard<'_, BTreeMap<PartitionId, Mark>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn believed(&self) -> Timestamp {
        Timestamp(self.believed.load(Ordering::Relaxed))
    }

    fn logs_directory(&self) -> PathBuf {
        self.config.directory.join(LOGS)
    }

    fn log_directory(&self, partition: PartitionId) -> PathBuf {
        self.logs_directory().join(directory_name(partition))
    }
}

/// The storage engine of a node. Dropping it is a kill: what is not durable may be lost.
pub struct Storage {
    shared: Arc<Shared>,
    queue: WriteQueue,
    _lock: Box<dyn DirectoryLock>,
}

impl Storage {
    /// Takes the data directory, recovers what the journal knows, and starts the writer task.
    ///
    /// # Errors
    ///
    /// As `StorageError` says; nothing is ever replaced or cut that was durable once.
    pub async fn open(
        disk: Arc<dyn Disk>,
        config: StorageConfig,
        completions: Arc<dyn Completions>,
    ) -> Result<(Self, OpenReport), StorageError> {
        config.check().map_err(StorageError::Config)?;
        let data = config.directory.clone();
        let (lock, identity, fresh) = take_directory(&*disk, &config).await?;
        let start = directory::count_start(&*disk, &data).await?;
        let marks = read_marks(&*disk, &data).await?;
        let reading = StorageError::io("reading the data directory", &data);
        let clean = directory::read_clean(&*disk, &data).await.map_err(reading)?;
        let trusted = clean.is_some_and(|sequence| {
            sequence == marks.journal_sequence || mutant!("clean-marker-survives-crash-in-recovery")
        });
        if !mutant!("clean-marker-survives-crash-in-recovery") {
            let removing = StorageError::io("removing the marker of a clean close", &data);
            directory::remove_clean(&*disk, &data).await.map_err(removing)?;
        }
        reached!("clean-marker-removed");
        let believed = directory::read_believed(&*disk, &data).await?;
        let files = Files::new(Arc::clone(&disk), config.open_files_max, config.open_indexes_max);
        let shared = Arc::new(Shared {
            disk,
            files,
            journal: JournalId(identity.directory),
            marks: Mutex::new(marks.logs.iter().map(|mark| (mark.partition, *mark)).collect()),
            known: Mutex::new(Known { trusted, ..Known::default() }),
            orphans: orphans::Known::default(),
            believed: AtomicI64::new(match believed {
                Believed::At(at) => at.0,
                Believed::Never | Believed::Lost => Timestamp::NONE.0,
            }),
            config,
        });
        let mut report = OpenReport {
            identity,
            start,
            fresh,
            clean: trusted || fresh,
            groups_replayed: 0,
            bytes_replayed: 0,
            rot: Vec::new(),
            logs: 0,
            believed,
        };
        let journal_files = replay::open_files(&shared).await?;
        // What a node decides is always journaled: where that stands in segments, there was a
        // journal. Without it nobody can tell what was acknowledged since (zoo D14).
        let had_journal = shared.marks().contains_key(&PartitionId::METADATA);
        let forgets = mutant!("empty-journal-means-new-node");
        if !report.clean && journal_files.is_empty() && had_journal && !forgets {
            let why = "the journal's files are missing, and the last stop was not a clean one";
            return Err(StorageError::Damaged { path: data.join(JOURNAL), why: why.to_owned() });
        }
        let next = if report.clean {
            marks.journal_sequence
        } else {
            let replay = Replay::new(Arc::clone(&shared), &journal_files);
            replay.run(marks.journal_sequence, &mut report).await?
        };
        report.logs = logs_on_disk(&shared).await?.len();
        let queue = start_writer(&shared, completions, journal_files, next);
        Ok((Self { shared, queue, _lock: lock }, report))
    }

    /// Recovers one log, or finds it new. Once for each log.
    ///
    /// # Errors
    ///
    /// `Rot` if the log is not what was durable once: it stays offline, and as it is.
    pub async fn open_log(
        &self,
        partition: PartitionId,
    ) -> Result<(Recovered, LogReader), LogError> {
        let (rot, loaded, trusted) = {
            let mut known = self.shared.known();
            assert!(known.opened.insert(partition), "log {partition} is open already");
            let rot = known.offline.get(&partition).cloned();
            (rot, known.loaded.remove(&partition), known.trusted)
        };
        if let Some(rot) = rot {
            return Err(LogError::Rot(rot));
        }
        let mut changed = false;
        let (recovered, log) = match loaded {
            Some(loaded) => loaded,
            None => {
                let mark = self.shared.marks().get(&partition).copied();
                let loaded = recovery::load(&self.shared, partition, mark, trusted).await;
                let loaded = loaded.inspect_err(|error| {
                    if let LogError::Rot(rot) = error {
                        self.shared.known().offline.insert(partition, rot.clone());
                    }
                })?;
                changed = loaded.changed;
                let directory = self.shared.log_directory(partition);
                let (beyond, end) = (&loaded.beyond, loaded.recovered.end);
                if recovery::remove_snapshots(&self.shared, partition, beyond, end).await? {
                    let syncing = StorageError::io("syncing a log's directory", &directory);
                    self.shared.disk.sync_directory(&directory).await.map_err(syncing)?;
                }
                (loaded.recovered, Arc::new(Log::new(partition, directory, loaded.state)))
            }
        };
        let attach = Command::Attach { log: Arc::clone(&log), changed };
        self.command(attach).await?;
        Ok((recovered, LogReader::new(Arc::clone(&self.shared), log)))
    }

    /// The queue in front of the writer. A log must be open before the first write to it.
    pub fn writer(&self) -> WriteQueue {
        self.queue.clone()
    }

    /// The logs that have files, ascending.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read.
    pub async fn logs(&self) -> Result<Vec<PartitionId>, StorageError> {
        logs_on_disk(&self.shared).await
    }

    /// Removes a log for ever, open or not; returns when that is durable and its files are gone.
    /// Writes to it that are still under way are dropped. What was cut off it stays in its orphan
    /// files.
    ///
    /// # Errors
    ///
    /// `Stopped`, or if its files cannot be removed.
    pub async fn remove_log(&self, partition: PartitionId) -> Result<(), StorageError> {
        {
            let mut known = self.shared.known();
            known.opened.remove(&partition);
            known.loaded.remove(&partition);
            known.offline.remove(&partition);
        }
        let directory = self.shared.log_directory(partition);
        self.ask(|done| Command::Remove { partition, directory, done }).await
    }

    /// Removes what was set aside of topics that are gone.
    ///
    /// # Errors
    ///
    /// If the files cannot be listed or removed.
    pub async fn remove_orphans(
        &self,
        is_gone: impl Fn(TopicId) -> bool + Send,
    ) -> Result<(), StorageError> {
        let directory = self.shared.config.directory.join(ORPHANS);
        let removed = orphans::remove_of(&self.shared, is_gone).await;
        removed
            .map_err(StorageError::io("removing the orphans of topics that are gone", &directory))
    }

    /// Syncs all segments now and frees the journal, as the writer does by itself in time.
    ///
    /// # Errors
    ///
    /// `Stopped` if a write or sync failed.
    pub async fn checkpoint(&self) -> Result<(), StorageError> {
        self.ask(|done| Command::Checkpoint { done }).await
    }

    /// Completes all writes, syncs everything and marks the directory as closed cleanly.
    /// `LogOp::Checkpoint` of each log beforehand saves the next start its scan.
    ///
    /// # Errors
    ///
    /// `Stopped` if a write or sync failed before.
    pub async fn close(&self) -> Result<(), StorageError> {
        self.ask(|done| Command::Close { done }).await
    }

    /// Writes down durably that it is at least `at` o'clock, for the next start to compare its
    /// wall clock with (docs/decisions/0060). To be called from time to time, by one task, while
    /// the wall clock is believed.
    ///
    /// # Errors
    ///
    /// If it cannot be written. Where the disk is full, the old one is still there
    /// (`is_disk_full`); otherwise the node must halt, as after any failed write.
    pub async fn believe(&self, at: Timestamp) -> Result<(), StorageError> {
        self.shared.believed.fetch_max(at.0, Ordering::Relaxed);
        self.command(Command::Tidy).await?;
        let data = &self.shared.config.directory;
        if self.shared.config.ephemeral {
            return Ok(());
        }
        let written = directory::write_believed(&*self.shared.disk, data, at).await;
        reached!("believed-time-written");
        written.map_err(StorageError::io("writing the last believed time", data))
    }

    /// Bytes that may still be written.
    ///
    /// # Errors
    ///
    /// If the disk does not say.
    pub async fn free_space(&self) -> Result<u64, StorageError> {
        let data = &self.shared.config.directory;
        let space = self.shared.disk.free_space(data).await;
        space.map_err(StorageError::io("asking for free space", data))
    }

    async fn ask(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<(), StorageError>>) -> Command,
    ) -> Result<(), StorageError> {
        let (done, wait) = oneshot::channel();
        self.command(command(done)).await?;
        wait.await.unwrap_or(Err(StorageError::Stopped))
    }

    async fn command(&self, command: Command) -> Result<(), StorageError> {
        self.queue.commands.send(command).await.map_err(|_| StorageError::Stopped)
    }
}

/// Locks the directory and learns, or says, whose it is.
async fn take_directory(
    disk: &dyn Disk,
    config: &StorageConfig,
) -> Result<(Box<dyn DirectoryLock>, Identity, bool), StorageError> {
    let data = &config.directory;
    let making = || StorageError::io("making the data directory", data);
    disk.make_directory(data).await.map_err(making())?;
    let lock = disk.lock(data).await.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => StorageError::Locked { directory: data.clone() },
        _ => StorageError::io("locking the data directory", data)(error),
    })?;
    // Before the identity says that the directory is not fresh any more: a crash in between must
    // not leave a directory in use whose own name no disk has.
    if let Some(parent) = data.parent() {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        disk.sync_directory(parent).await.map_err(making())?;
    }
    let (identity, fresh) = directory::identify(disk, data, &config.identity).await?;
    let made = async {
        disk.make_directory(&data.join(LOGS)).await?;
        disk.make_directory(&data.join(JOURNAL)).await?;
        disk.make_directory(&data.join(ORPHANS)).await?;
        disk.sync_directory(data).await?;
        orphans::remove_unfinished(disk, data).await
    };
    made.await.map_err(making())?;
    Ok((lock, identity, fresh))
}

/// The marks are as old as the identity: where they are missing, something was lost. What they say
/// is to be cut is cut.
async fn read_marks(disk: &dyn Disk, data: &Path) -> Result<Marks, StorageError> {
    let marks = directory::read_marks(disk, data).await?;
    let mut marks = marks.ok_or_else(|| StorageError::Damaged {
        path: data.join(directory::MARKS),
        why: "the file is missing".to_owned(),
    })?;
    let finished = cut::finish(disk, data, &mut marks).await;
    finished.map_err(StorageError::io("finishing a cut", data))?;
    Ok(marks)
}

async fn logs_on_disk(shared: &Shared) -> Result<Vec<PartitionId>, StorageError> {
    let directory = shared.logs_directory();
    let names = shared.disk.list(&directory).await;
    let names = names.map_err(StorageError::io("reading the data directory", &directory))?;
    let logs = names.iter().filter_map(|name| parse_directory_name(name.to_str()?));
    Ok(logs.collect::<BTreeSet<_>>().into_iter().collect())
}

fn start_writer(
    shared: &Arc<Shared>,
    completions: Arc<dyn Completions>,
    files: Vec<JournalFile>,
    next_sequence: u64,
) -> WriteQueue {
    let config = &shared.config;
    let journal = Journal::new(
        Arc::clone(&shared.disk),
        config.directory.join(JOURNAL),
        shared.journal,
        (config.journal_file_bytes, config.journal_files_max),
        files,
        next_sequence,
    );
    let (commands, queue) = mpsc::channel(config.queue_writes_max);
    tokio::spawn(Writer::new(Arc::clone(shared), completions, queue, journal).run());
    WriteQueue { commands }
}
