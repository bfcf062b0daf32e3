//! The one task that changes logs. It writes what arrives into the segments at once, gathers what
//! must be durable into groups, and has at most one group on its way to the journal: while that
//! one is being synced, the next gathers.

mod ahead;
mod checkpoint;
mod cut;
mod group;
mod segments;
mod sides;
mod unlink;

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, pending};
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use quorate_core::batch::{Batch, Levels};
use quorate_core::id::{Offset, PartitionId, WriteId};
use quorate_core::mutant;
use quorate_core::partition::interface::{Flush, LogOp};
use quorate_core::reached;
use quorate_core::segment::checkpoint::Marks;
use quorate_core::segment::cleaned::CLEANED_FILE;
use quorate_core::segment::frame::{FRAME_HEADER_BYTES, frame_chunks};
use quorate_core::segment::journal::{Entry, GroupBuilder};
use tokio::sync::{mpsc, oneshot};

pub(super) use self::checkpoint::{sync_all, sync_dirty};
use self::cut::{CutRequest, Cutting};
use self::group::{After, Group, Members, completed};
pub(super) use self::segments::{Segments, Unsynced, Writing};
pub(super) use self::sides::{UNFINISHED, unfinished, write_side};
pub(super) use self::unlink::unlink_all;
use self::unlink::{Lane, Leaving};
use super::Shared;
use super::cut::CutDone;
use super::error::StorageError;
use super::journal::Journal;
use super::log::Log;
use super::queue::{Command, Completions, WriteRequest};
use crate::disk::Disk;

/// Commands taken from the queue before the segments are written.
const DRAIN_MAX: usize = 1024;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Done = oneshot::Sender<Result<(), StorageError>>;

/// A group on its way to the disk, and the journal with it.
struct InFlight {
    members: Members,
    after: Vec<After>,
    /// It syncs segments too.
    is_direct: bool,
    /// It brings what compaction left: see `Writer::is_replacing`.
    is_replacing: bool,
    work: Work<(Journal, io::Result<()>)>,
}

/// See the file's comment.
pub(super) struct Writer {
    shared: Arc<Shared>,
    completions: Arc<dyn Completions>,
    commands: mpsc::Receiver<Command>,
    logs: BTreeMap<PartitionId, Writing>,
    segments: Segments,
    /// Logs with frames that are not in their segments yet.
    touched: BTreeSet<PartitionId>,
    group: Group,
    /// `None` while a group is in flight.
    journal: Option<Journal>,
    in_flight: Option<InFlight>,
    checkpoint: Option<Work<io::Result<Marks>>>,
    /// A segment that is synced before a checkpoint does it.
    ahead: Option<Work<io::Result<()>>>,
    /// Logs to be cut once all that was written to them before is done.
    cuts: Vec<CutRequest>,
    /// What is being cut. Never beside a checkpoint: both write the marks.
    cutting: Option<Cutting>,
    /// The marks as they stand on the disk.
    marked: Marks,
    /// Unlinked once the running checkpoint is done.
    leaving: Vec<Leaving>,
    unlinking: Lane,
    /// Groups below it are needed no more; told to the journal when it is at home.
    released: u64,
    /// Told when the running checkpoint is done.
    checkpoint_done: Vec<Done>,
    closing: Option<Done>,
    /// A write or a sync failed: nothing is written any more.
    poisoned: bool,
}

enum Event {
    Synced(Journal, io::Result<()>),
    Ahead(io::Result<()>),
    Checkpointed(io::Result<Marks>),
    Cut(io::Result<CutDone>),
    Unlinked(io::Result<()>),
    Command(Command),
    Abandoned,
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        completions: Arc<dyn Completions>,
        commands: mpsc::Receiver<Command>,
        journal: Journal,
    ) -> Self {
        let group = Group::new(shared.journal, journal.next_sequence());
        let logs = shared.marks().values().copied().collect();
        let marked = Marks { journal_sequence: group.sequence, logs };
        Self {
            segments: Segments::new(Arc::clone(&shared)),
            shared,
            completions,
            commands,
            logs: BTreeMap::new(),
            touched: BTreeSet::new(),
            group,
            journal: Some(journal),
            in_flight: None,
            checkpoint: None,
            ahead: None,
            cuts: Vec::new(),
            cutting: None,
            marked,
            leaving: Vec::new(),
            unlinking: Lane::default(),
            released: 0,
            checkpoint_done: Vec::new(),
            closing: None,
            poisoned: false,
        }
    }

    /// Runs until it is closed, or until nobody can send any more (which is a kill: nothing is
    /// tidied up).
    pub(super) async fn run(mut self) {
        loop {
            self.start_cuts_if_due();
            self.start_checkpoint_if_due();
            self.start_group_if_due();
            self.start_ahead_if_due();
            if self.is_idle()
                && let Some(done) = self.closing.take()
            {
                let closed = self.close().await;
                let _ = done.send(closed);
                return;
            }
            let takes = self.takes_more();
            let event = tokio::select! {
                biased;
                result = ready(&mut self.ahead) => Event::Ahead(result),
                (journal, result) = in_flight(&mut self.in_flight) => {
                    Event::Synced(journal, result)
                }
                result = ready(&mut self.checkpoint) => Event::Checkpointed(result),
                result = cutting(&mut self.cutting) => Event::Cut(result),
                result = ready(&mut self.unlinking.work) => Event::Unlinked(result),
                command = self.commands.recv(), if takes => {
                    command.map_or(Event::Abandoned, Event::Command)
                }
            };
            match event {
                Event::Synced(journal, result) => self.on_synced(journal, result).await,
                Event::Ahead(result) => self.on_synced_ahead(result),
                Event::Checkpointed(result) => self.on_checkpointed(result),
                Event::Cut(result) => self.on_cut_done(result),
                Event::Unlinked(result) => self.on_unlinked(result),
                Event::Command(command) => self.on_commands(command).await,
                Event::Abandoned => return,
            }
        }
    }

    fn is_idle(&self) -> bool {
        let quiet = self.in_flight.is_none() && self.checkpoint.is_none();
        let quiet = quiet && self.unlinking.work.is_none() && self.ahead.is_none();
        let quiet = quiet && self.cutting.is_none() && self.cuts.is_empty();
        quiet && (self.poisoned || self.group.is_empty())
    }

    /// A full group waits for the sync in flight; so do those who would add to it.
    fn takes_more(&self) -> bool {
        let config = &self.shared.config;
        let room = self.group.bytes < config.group_bytes_max
            && self.group.journal_bytes() < config.journal_file_bytes as usize / 2
            && !self.segments.is_full();
        self.closing.is_none() && (room || self.poisoned)
    }

    /// Takes a command and what stands behind it, then writes the segments once.
    async fn on_commands(&mut self, first: Command) {
        let mut next = Some(first);
        for _ in 0..DRAIN_MAX {
            let Some(command) = next.take() else { break };
            self.on_command(command).await;
            if self.takes_more() && !self.segments.is_full_with(self.touched.len()) {
                next = self.commands.try_recv().ok();
            }
        }
        if let Some(command) = next {
            self.on_command(command).await;
        }
        self.write_segments().await;
    }

    async fn on_command(&mut self, command: Command) {
        match command {
            Command::Write(request) if self.poisoned => {
                self.completions.write_failed(request.partition, request.write);
            }
            Command::Write(request) => self.on_write(request).await,
            Command::Attach { log, changed } => {
                if changed {
                    self.segments.changed(log.partition);
                }
                self.logs.insert(log.partition, Writing::new(log));
            }
            Command::Remove { done, .. } | Command::Checkpoint { done } if self.poisoned => {
                let _ = done.send(Err(StorageError::Stopped));
            }
            Command::Remove { partition, directory, done } => {
                self.on_remove(partition, directory, done);
            }
            Command::Checkpoint { done } => {
                self.segments.wanted = true;
                self.checkpoint_done.push(done);
            }
            Command::Close { done } => self.closing = Some(done),
            Command::Tidy if self.poisoned => {}
            Command::Tidy => self.unlinking.push(&self.shared, vec![Leaving::Orphans]),
        }
    }

    async fn on_write(&mut self, request: WriteRequest) {
        let WriteRequest { partition, write, op, flush } = request;
        if !self.logs.contains_key(&partition) {
            // Its topic was removed meanwhile: nobody waits for the answer.
            reached!("write-to-removed-log");
            return self.completions.write_failed(partition, write);
        }
        let done = match op {
            LogOp::Append { batch, levels } => {
                self.on_append(partition, write, batch, levels, flush);
                return;
            }
            LogOp::Roll { base, snapshot } => {
                self.write_segments().await;
                let Some(writing) = self.logs.get_mut(&partition) else { return };
                let rolled = self.segments.roll(writing, base, &snapshot).await;
                self.group.builder.note(&Entry::Roll { partition, base });
                rolled
            }
            LogOp::DeleteBefore { offset } => {
                let Some(writing) = self.logs.get_mut(&partition) else { return };
                writing.start = writing.start.max(offset);
                self.segments.changed(partition);
                self.group.builder.note(&Entry::DeleteBefore { partition, offset });
                self.group.after.push(After::Start { partition, offset });
                Ok(())
            }
            LogOp::Checkpoint { snapshot } => {
                let Some(writing) = self.logs.get_mut(&partition) else { return };
                let end = writing.end();
                let bytes = snapshot.len() as u64;
                let before = writing.resume.tell(end, snapshot);
                self.segments.told_bytes =
                    (self.segments.told_bytes + bytes).saturating_sub(before);
                self.segments.changed(partition);
                Ok(())
            }
            LogOp::Replace(cleaned) => {
                let directory = self.shared.log_directory(partition);
                self.group.cleaned.push((directory, cleaned.encode()));
                self.group.after.push(After::Replaced { partition, cleaned });
                Ok(())
            }
            LogOp::TruncateTo { .. } | LogOp::ResetTo { .. } => {
                self.write_segments().await;
                self.cuts.push(CutRequest { partition, write, op });
                return;
            }
        };
        match done {
            Ok(()) => self.group.join(partition, write),
            Err(error) => self.fail(&error, Some((partition, write))),
        }
    }

    fn on_append(
        &mut self,
        partition: PartitionId,
        write: WriteId,
        batch: Batch,
        levels: Levels,
        flush: Flush,
    ) {
        let config = &self.shared.config;
        let bytes = (FRAME_HEADER_BYTES + batch.len()) as u64;
        assert!(bytes <= config.batch_bytes_max, "a batch above batch_bytes_max was let through");
        let durable = flush == Flush::Durable && !config.ephemeral;
        let room = config.journal_file_bytes as usize / 4 * 3;
        let fits = self.group.journal_bytes() + GroupBuilder::append_bytes(&batch) <= room;
        let direct = self.group.sync_first.contains(&partition);
        let alone = {
            let in_group = self.group.members.contains_key(&partition);
            let flying = self.in_flight.as_ref();
            let in_flight = flying.is_some_and(|group| group.members.contains_key(&partition));
            !in_group && !in_flight
        };
        let Some(writing) = self.logs.get_mut(&partition) else { return };
        if writing.group != self.group.sequence {
            (writing.group, writing.group_bytes) = (self.group.sequence, 0);
        }
        writing.group_bytes += bytes;
        let direct = direct
            || writing.unjournaled
            || writing.group_bytes >= config.direct_bytes_min
            || !fits;
        let chunks = if durable && !direct {
            self.group.builder.append(partition, &batch, levels)
        } else {
            frame_chunks(partition, &batch, levels)
        };
        if durable && direct {
            self.group.sync_first.insert(partition);
        }
        writing.unjournaled |= !durable;
        writing.push(*batch.header(), levels, chunks, bytes);
        self.touched.insert(partition);
        if durable || !alone {
            self.group.bytes += bytes;
            self.group.join(partition, write);
        } else {
            writing.done = Some(write);
        }
    }

    fn on_remove(&mut self, partition: PartitionId, directory: PathBuf, done: Done) {
        self.touched.remove(&partition);
        self.cuts.retain(|cut| cut.partition != partition);
        self.segments.removed(partition);
        if let Some(writing) = self.logs.remove(&partition) {
            writing.log.state().removed = true;
        }
        self.group.sync_first.remove(&partition);
        self.group.members.remove(&partition);
        self.group.builder.note(&Entry::Remove { partition });
        self.group.after.push(After::Removed { directory, done });
    }

    /// Brings what was taken from the queue into the segments. What waits for nothing else is
    /// complete with that.
    async fn write_segments(&mut self) {
        let mut written = Vec::new();
        for partition in std::mem::take(&mut self.touched) {
            let Some(writing) = self.logs.get_mut(&partition) else { continue };
            if let Err(error) = self.segments.append(writing).await {
                let failed = writing.done.take().map(|write| (partition, write));
                self.fail(&error, failed);
                if self.poisoned {
                    break;
                }
                continue;
            }
            written.extend(writing.done.take().map(|write| (partition, write)));
        }
        if !written.is_empty() {
            self.completions.written(&written);
        }
    }

    fn start_group_if_due(&mut self) {
        let bytes = self.group.journal_bytes();
        if self.poisoned || self.in_flight.is_some() || self.group.is_empty() {
            return;
        }
        let is_direct = !self.group.sync_first.is_empty();
        if is_direct && self.ahead.is_some() {
            return;
        }
        let Some(journal) = self.journal.as_mut() else { return };
        journal.release(self.released);
        if !journal.has_room(bytes) {
            reached!("journal-full");
            self.segments.wanted = true;
            self.start_checkpoint_for_room();
            return;
        }
        let Some(mut journal) = self.journal.take() else { return };
        let directory = |partition| self.shared.log_directory(partition);
        let (files, directories) = self.segments.unsynced(&self.group.sync_first, directory);
        for &partition in &self.group.sync_first {
            if let Some(writing) = self.logs.get_mut(&partition) {
                writing.unjournaled = false;
                let offset = writing.log.state().end;
                self.group.builder.note(&Entry::Synced { partition, offset });
            }
        }
        let Group { mut members, after, builder, cleaned, .. } = self.group.close();
        if mutant!("answer-before-sync") {
            self.completions.written(&completed(&std::mem::take(&mut members)));
        }
        let disk = Arc::clone(&self.shared.disk);
        let is_replacing = !cleaned.is_empty();
        let work = Box::pin(async move {
            let result = async {
                sync_all(&*disk, &files, &directories).await?;
                write_cleaned(&*disk, cleaned).await?;
                if builder.is_empty() { Ok(()) } else { journal.commit(builder).await }
            };
            let result = result.await;
            (journal, result)
        });
        self.in_flight = Some(InFlight { members, after, is_direct, is_replacing, work });
    }

    async fn on_synced(&mut self, journal: Journal, result: io::Result<()>) {
        self.journal = Some(journal);
        let Some(InFlight { members, after, .. }) = self.in_flight.take() else { return };
        // After a failure elsewhere this sync proves nothing: the system tells of lost pages once,
        // and the other sync, of the same file, may have been the one that it told.
        let result = match result {
            Ok(()) if self.poisoned => Err(io::Error::other("another sync has failed")),
            result => result,
        };
        if let Err(error) = result {
            for (&partition, &(first, _)) in &members {
                self.completions.write_failed(partition, first);
            }
            self.refuse_after(after);
            return self.fail(&error, None);
        }
        let written = completed(&members);
        if !written.is_empty() {
            self.completions.written(&written);
        }
        for after in after {
            if let Err(error) = self.do_after(after).await {
                self.fail(&error, None);
            }
        }
    }

    async fn do_after(&mut self, after: After) -> io::Result<()> {
        match after {
            After::Start { partition, offset } => {
                let Some(writing) = self.logs.get(&partition) else { return Ok(()) };
                let log = Arc::clone(&writing.log);
                self.raise_start(&log, offset).await
            }
            After::Replaced { partition, cleaned } => {
                let Some(writing) = self.logs.get(&partition) else { return Ok(()) };
                let log = Arc::clone(&writing.log);
                let gone = log.state().put_cleaned(&cleaned);
                reached!("segments-replaced");
                self.segments.leave(&log, gone);
                Ok(())
            }
            After::Removed { directory, done } => {
                self.segments.leave_log(directory, Some(done));
                Ok(())
            }
        }
    }

    /// The start is raised before a file goes, so that no reader is told that an offset is there
    /// and then finds it gone.
    async fn raise_start(&mut self, log: &Arc<Log>, offset: Offset) -> io::Result<()> {
        if mutant!("delete-then-advance-start") {
            let gone = {
                let mut state = log.state();
                let start = std::mem::replace(&mut state.start, offset);
                let gone = state.drop_below_start();
                state.start = start;
                gone
            };
            let leaving = Leaving::Segments { log: Arc::clone(log), segments: gone };
            unlink_all(Arc::clone(&self.shared), vec![leaving]).await?;
        }
        let gone = {
            let mut state = log.state();
            state.start = state.start.max(offset);
            state.drop_below_start()
        };
        self.segments.leave(log, gone);
        Ok(())
    }

    /// Nothing is written after this, and all who wait are told.
    fn fail(&mut self, error: &io::Error, write: Option<(PartitionId, WriteId)>) {
        tracing::error!(%error, "a write to the disk failed; nothing is written any more");
        if !mutant!("append-after-write-error") {
            self.poisoned = true;
        }
        let group = self.group.close();
        // Somebody must hear of it for the node to halt, even if nobody waits for a write.
        let told = write.or_else(|| {
            let open = self.logs.first_key_value().filter(|_| group.members.is_empty());
            open.map(|(&partition, _)| (partition, WriteId::default()))
        });
        if let Some((partition, write)) = told {
            self.completions.write_failed(partition, write);
        }
        for (partition, (first, _)) in group.members {
            self.completions.write_failed(partition, first);
        }
        self.refuse_after(group.after);
        self.refuse_cuts();
        // The system tells an error once: the sync of a checkpoint may say that all is well with
        // pages that are lost, and its marks would make the journal's copy superfluous.
        self.checkpoint = None;
        self.segments.syncing = None;
        self.ahead = None;
        // With these go the answers to those who wait for files to be unlinked.
        self.leaving.clear();
        self.segments.leaving.clear();
        self.unlinking.clear();
        for done in self.checkpoint_done.drain(..) {
            let _ = done.send(Err(StorageError::Stopped));
        }
    }

    fn refuse_after(&self, after: Vec<After>) {
        for after in after {
            if let After::Removed { done, .. } = after {
                let _ = done.send(Err(StorageError::Stopped));
            }
        }
    }
}

/// From here on other segments count. One step, however many there are.
async fn write_cleaned(disk: &dyn Disk, cleaned: Vec<(PathBuf, Bytes)>) -> io::Result<()> {
    for (directory, bytes) in cleaned {
        write_side(disk, &directory.join(CLEANED_FILE), 0, bytes).await?;
        disk.sync_directory(&directory).await?;
        reached!("cleaned-file-written");
    }
    Ok(())
}

async fn ready<T>(work: &mut Option<Work<T>>) -> T {
    match work {
        Some(work) => work.await,
        None => pending().await,
    }
}

async fn cutting(cutting: &mut Option<Cutting>) -> io::Result<CutDone> {
    match cutting {
        Some(cutting) => (&mut cutting.work).await,
        None => pending().await,
    }
}

async fn in_flight(group: &mut Option<InFlight>) -> (Journal, io::Result<()>) {
    match group {
        Some(group) => (&mut group.work).await,
        None => pending().await,
    }
}
