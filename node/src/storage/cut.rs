//! A log is cut back to where its leader's log parts from it, or begun anew: what goes is set
//! aside and synced, the marks say that it goes, then it goes, then the marks say that it is gone.
//!
//! Between the two the marks speak of less than stands in the files, so each start begins by doing
//! what they say; before the first the log is whole, after it the rest follows by itself. The marks
//! also say from which group on the journal counts for this log: what was cut stands in earlier
//! ones, and does not come back.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use quorate_core::id::{Offset, WriteId};
use quorate_core::partition::Recovered;
use quorate_core::partition::interface::LogOp;
use quorate_core::segment::checkpoint::{Cut, Mark, Marks};
use quorate_core::segment::cleaned::{CLEANED_FILE, Cleaned};
use quorate_core::segment::{FileKind, directory_name, parse_segment_file_name};
use quorate_core::{mutant, reached};

use super::log::{Log, Place};
use super::reader::LogReader;
use super::recovery::load;
use super::writer::{Unsynced, sync_all, write_side};
use super::{LOGS, Shared, directory, orphans};
use crate::disk::{Disk, Open};

/// One log to be cut. Nothing else is done to it meanwhile, but that it may be removed.
pub(super) struct CutJob {
    pub(super) log: Arc<Log>,
    pub(super) write: WriteId,
    /// `TruncateTo` or `ResetTo`.
    pub(super) op: LogOp,
    /// The first group of the journal that can hold anything that is written after the cut.
    pub(super) from_sequence: u64,
    pub(super) unsynced: Unsynced,
}

/// Logs that were cut, and the marks as they stand on the disk.
pub(super) struct CutDone {
    pub(super) marks: Marks,
    pub(super) logs: Vec<CutLog>,
}

/// See `CutDone`.
pub(super) struct CutLog {
    pub(super) log: Arc<Log>,
    pub(super) write: WriteId,
    pub(super) recovered: Recovered,
}

/// Cuts the logs. `marks` are those that stand on the disk.
pub(super) async fn cut_all(
    shared: Arc<Shared>,
    jobs: Vec<CutJob>,
    mut marks: Marks,
) -> io::Result<CutDone> {
    let data = &shared.config.directory;
    let mut cut_marks = Vec::new();
    for job in &jobs {
        let mark = prepare(&shared, job).await?;
        marks.put(mark);
        cut_marks.push(mark);
    }
    reached!("orphans-synced-not-marked");
    directory::write_marks(&*shared.disk, data, &marks).await?;
    reached!("cut-marked-not-done");
    for (job, mark) in jobs.iter().zip(&cut_marks) {
        // Readers turn back before what they read goes.
        job.log.state().cut(mark);
        shared.files.forget_log(job.log.partition);
        carry_out(&*shared.disk, &job.log.directory, mark).await?;
    }
    let mut logs = Vec::new();
    for (job, mark) in jobs.into_iter().zip(cut_marks) {
        let mark = Mark { cut: Cut::Nothing, ..mark };
        let loaded = load(&shared, job.log.partition, Some(mark), false).await;
        let loaded = loaded.map_err(|error| io::Error::other(error.to_string()))?;
        let (recovered, mut state) = (loaded.recovered, job.log.state());
        state.replace(loaded.state);
        let found = state.mark(job.log.partition, recovered.log_start).unwrap_or(mark);
        marks.put(Mark { from_sequence: mark.from_sequence, ..found });
        drop(state);
        logs.push(CutLog { log: job.log, write: job.write, recovered });
    }
    reached!("cut-done-not-marked");
    directory::write_marks(&*shared.disk, data, &marks).await?;
    Ok(CutDone { marks, logs })
}

/// Sets aside what goes and syncs what stays. The log's mark, with the cut in it.
async fn prepare(shared: &Arc<Shared>, job: &CutJob) -> io::Result<Mark> {
    let log = &job.log;
    let (start, end) = {
        let state = log.state();
        (state.start, state.end)
    };
    let begin_anew = |offset: Offset| Mark {
        partition: log.partition,
        log_start: offset,
        segment: offset,
        segment_bytes: 0,
        end: offset,
        from_sequence: job.from_sequence,
        cut: Cut::All,
    };
    let mark = match job.op {
        LogOp::TruncateTo { offset, reason } => {
            let place = place_of(shared, log, offset.max(start)).await?;
            if let Some(place) = place {
                orphans::set_aside(shared, log, place, reason).await?;
            }
            let known = log.state().mark(log.partition, start);
            match (known, place) {
                _ if offset < start => begin_anew(offset),
                (None, _) => begin_anew(end),
                (Some(mark), None) => {
                    Mark { from_sequence: job.from_sequence, cut: Cut::Tail, ..mark }
                }
                (Some(mark), Some(place)) => Mark {
                    segment: place.segment,
                    segment_bytes: place.position,
                    end: place.offset,
                    from_sequence: job.from_sequence,
                    cut: Cut::Tail,
                    ..mark
                },
            }
        }
        LogOp::ResetTo { offset } => begin_anew(offset),
        ref other => unreachable!("{other:?} does not cut a log"),
    };
    let stays = |base, kind| !goes(&mark, base, kind);
    let files = job.unsynced.files.iter().filter(|(base, _)| stays(*base, FileKind::Segment));
    let files: Vec<_> = files.map(|(_, file)| Arc::clone(file)).collect();
    sync_all(&*shared.disk, &files, &BTreeSet::new()).await?;
    let stays = |path: &Path| {
        let name = path.file_name().and_then(|name| parse_segment_file_name(name.to_str()?));
        name.is_some_and(|(base, _, kind)| stays(base, kind))
    };
    job.unsynced.sides.write_those(&*shared.disk, stays).await?;
    sync_all(&*shared.disk, &[], &job.unsynced.directories).await?;
    Ok(mark)
}

/// Where the first batch begins that reaches beyond `offset`; `None` if none does.
async fn place_of(
    shared: &Arc<Shared>,
    log: &Arc<Log>,
    offset: Offset,
) -> io::Result<Option<Place>> {
    if offset >= log.state().end {
        return Ok(None);
    }
    let reader = LogReader::new(Arc::clone(shared), Arc::clone(log));
    let place = reader.place_of(offset).await;
    place.map_err(|error| io::Error::other(error.to_string()))
}

/// Whether a file of the log goes with the cut that is in its mark.
fn goes(mark: &Mark, base: Offset, kind: FileKind) -> bool {
    match (mark.cut, kind) {
        (Cut::Nothing, _) => false,
        (Cut::All, _) => true,
        (Cut::Tail, FileKind::Snapshot) => base > mark.end && !mutant!("cut-snapshot-survives"),
        (Cut::Tail, FileKind::Segment | FileKind::Index) => {
            base > mark.segment || (base == mark.segment && mark.segment_bytes == 0)
        }
    }
}

/// Brings the files to what the mark says, durably, however far it was done before.
async fn carry_out(disk: &dyn Disk, log: &Path, mark: &Mark) -> io::Result<()> {
    let names = match disk.list(log).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        names => names?,
    };
    // Once more even if all are gone: who removed them may not have come to it.
    for name in &names {
        let Some((base, _, kind)) = name.to_str().and_then(parse_segment_file_name) else {
            continue;
        };
        let path = log.join(name);
        if goes(mark, base, kind) {
            disk.remove(&path).await?;
        } else if base == mark.segment && kind == FileKind::Segment {
            let file = disk.open(&path, Open::Write).await?;
            if file.len() > mark.segment_bytes {
                file.set_len(mark.segment_bytes).await?;
            }
            file.sync().await?;
        }
    }
    cut_cleaned(disk, log, mark).await?;
    reached!("cut-not-synced");
    disk.sync_directory(log).await
}

/// What compaction left of the log is told as far as it stays.
async fn cut_cleaned(disk: &dyn Disk, log: &Path, mark: &Mark) -> io::Result<()> {
    let path = log.join(CLEANED_FILE);
    let Some(bytes) = directory::read(disk, &path).await? else { return Ok(()) };
    if mark.cut == Cut::All {
        return disk.remove(&path).await;
    }
    // What cannot be read is told by whoever loads the log.
    if let Ok(mut cleaned) = Cleaned::decode(&bytes)
        && cleaned.cut(mark.segment, mark.end)
    {
        reached!("cut-into-the-cleaned-part");
        write_side(disk, &path, 0, cleaned.encode()).await?;
    }
    Ok(())
}

/// What a start does before anything else: cuts that were under way are brought to their end.
pub(super) async fn finish(disk: &dyn Disk, data: &Path, marks: &mut Marks) -> io::Result<()> {
    let mut finished = false;
    for mark in marks.logs.iter_mut().filter(|mark| mark.cut != Cut::Nothing) {
        reached!("cut-finished-by-the-next-start");
        let log = data.join(LOGS).join(directory_name(mark.partition));
        carry_out(disk, &log, mark).await?;
        mark.cut = Cut::Nothing;
        finished = true;
    }
    if finished {
        directory::write_marks(disk, data, marks).await?;
    }
    Ok(())
}
