//! When a log is cut: after all that was written to it before, and not beside a checkpoint. Other
//! logs go on meanwhile. How it is done is `storage/cut.rs`.

use std::io;
use std::sync::Arc;

use quorate_core::id::{PartitionId, WriteId};
use quorate_core::partition::interface::LogOp;
use quorate_core::reached;

use super::sides::Resume;
use super::unlink::Leaving;
use super::{Work, Writer};
use crate::storage::cut::{self, CutDone, CutJob};

/// `TruncateTo` or `ResetTo` of one log.
pub(super) struct CutRequest {
    pub(super) partition: PartitionId,
    pub(super) write: WriteId,
    pub(super) op: LogOp,
}

/// Logs that are being cut together, so that they share the marks.
pub(super) struct Cutting {
    writes: Vec<(PartitionId, WriteId)>,
    pub(super) work: Work<io::Result<CutDone>>,
}

impl Writer {
    pub(super) fn start_cuts_if_due(&mut self) {
        let busy = self.checkpoint.is_some() || self.cutting.is_some() || self.ahead.is_some();
        if self.poisoned || busy || self.cuts.is_empty() {
            return;
        }
        let all = std::mem::take(&mut self.cuts);
        let (ready, waiting) = all.into_iter().partition(|cut| self.is_quiet(cut.partition));
        self.cuts = waiting;
        let writes: Vec<_> = ready.iter().map(|cut| (cut.partition, cut.write)).collect();
        let jobs: Vec<_> = ready.into_iter().filter_map(|cut| self.take_job(cut)).collect();
        if !jobs.is_empty() {
            let work = cut::cut_all(Arc::clone(&self.shared), jobs, self.marked.clone());
            self.cutting = Some(Cutting { writes, work: Box::pin(work) });
        }
    }

    /// All that was written to the log before is done, and no file of it is on its way out.
    fn is_quiet(&self, partition: PartitionId) -> bool {
        let in_flight = self.in_flight.as_ref();
        let directory = self.logs.get(&partition).map(|writing| &writing.log.directory);
        !self.group.members.contains_key(&partition)
            && in_flight.is_none_or(|group| !group.members.contains_key(&partition))
            && directory.is_none_or(|directory| !self.unlinking.concerns(directory))
    }

    fn take_job(&mut self, request: CutRequest) -> Option<CutJob> {
        let writing = self.logs.get_mut(&request.partition)?;
        let log = Arc::clone(&writing.log);
        writing.resume = Resume::default();
        // The cut syncs what stays.
        writing.unjournaled = false;
        let unsynced = self.segments.take_unsynced(&log);
        // The group that gathers holds nothing of this log, and comes behind all that do.
        let from_sequence = self.group.sequence;
        let CutRequest { write, op, .. } = request;
        Some(CutJob { log, write, op, from_sequence, unsynced })
    }

    pub(super) fn on_cut_done(&mut self, result: io::Result<CutDone>) {
        let done = match result {
            Ok(done) => done,
            Err(error) => return self.fail(&error, None),
        };
        self.cutting = None;
        reached!("log-cut");
        self.marked = done.marks;
        for cut in done.logs {
            let partition = cut.log.partition;
            // Its topic may have been removed meanwhile.
            let Some(writing) = self.logs.get_mut(&partition) else { continue };
            writing.start = cut.recovered.log_start;
            let mark = self.marked.of(partition).copied();
            self.shared.marks().extend(mark.map(|mark| (partition, mark)));
            self.segments.changed(partition);
            self.completions.truncated(partition, cut.write, Box::new(cut.recovered));
        }
        self.unlinking.push(&self.shared, vec![Leaving::Orphans]);
    }

    /// Nothing is cut any more, and who waits is told.
    pub(super) fn refuse_cuts(&mut self) {
        let cutting = self.cutting.take().map(|cutting| cutting.writes).unwrap_or_default();
        let waiting = std::mem::take(&mut self.cuts);
        let waiting = waiting.into_iter().map(|cut| (cut.partition, cut.write));
        for (partition, write) in cutting.into_iter().chain(waiting) {
            self.completions.write_failed(partition, write);
        }
    }
}
