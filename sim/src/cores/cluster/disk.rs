//! A node's disk in the world of cores: its logs, one sync at a time for all of them, and what
//! becomes of both when the node's life ends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quorate_core::id::{PartitionId, WriteId};
use quorate_core::partition::interface::LogOp;

use super::log::{Done, Log};
use crate::chance::{Between, Chance};
use crate::history::Value;
use crate::plan::Plan;

/// A write under way.
#[derive(Clone, Copy)]
struct Pending {
    partition: PartitionId,
    born: u64,
    write: WriteId,
}

pub(super) struct Disk {
    logs: BTreeMap<PartitionId, Log>,
    born: u64,
    queued: Vec<Pending>,
    syncing: Vec<Pending>,
    sync: Between<Duration>,
    /// Syncs take so many times longer until then.
    pub(super) slow: u32,
    pub(super) slow_until: Duration,
    pub(super) stuck_until: Duration,
    /// The next sync fails, and how long the node that halts for it is down then.
    pub(super) sync_fails: Option<Duration>,
    /// So many reads fail.
    pub(super) reads_fail: u32,
    pub(super) chance: Chance,
    /// What was cut off its logs and set aside.
    pub(super) orphans: BTreeSet<Value>,
    /// Batches that were.
    pub(super) cuts: u64,
}

/// A sync that has begun: when it ends, and, if it fails, how long its node is down then.
pub(super) struct Sync {
    pub(super) at: Duration,
    pub(super) failed: Option<Duration>,
}

/// What a machine is told of its log.
pub(super) enum Report {
    Done(PartitionId, Done),
    Failed(PartitionId, WriteId),
}

impl Disk {
    pub(super) fn new(plan: &Plan, name: &str) -> Self {
        Self {
            logs: BTreeMap::new(),
            born: 0,
            queued: Vec::new(),
            syncing: Vec::new(),
            sync: plan.disk.sync,
            slow: 1,
            slow_until: Duration::ZERO,
            stuck_until: Duration::ZERO,
            sync_fails: None,
            reads_fail: 0,
            chance: Chance::new(plan.seed, &format!("disk {name}")),
            orphans: BTreeSet::new(),
            cuts: 0,
        }
    }

    pub(super) fn log(&self, partition: PartitionId) -> Option<&Log> {
        self.logs.get(&partition)
    }

    pub(super) fn log_mut(&mut self, partition: PartitionId) -> Option<&mut Log> {
        self.logs.get_mut(&partition)
    }

    pub(super) fn logs(&self) -> impl Iterator<Item = (PartitionId, &Log)> {
        self.logs.iter().map(|(&partition, log)| (partition, log))
    }

    /// The log of this name; an empty one if there is none.
    pub(super) fn open(&mut self, partition: PartitionId) -> &mut Log {
        self.born += 1;
        self.logs.entry(partition).or_insert_with(|| Log::new(partition, self.born))
    }

    pub(super) fn remove(&mut self, partition: PartitionId) {
        self.logs.remove(&partition);
    }

    pub(super) fn write(&mut self, partition: PartitionId, write: WriteId, op: LogOp) {
        let Some(log) = self.logs.get_mut(&partition) else { return };
        log.issue(write, op);
        self.queued.push(Pending { partition, born: log.born, write });
    }

    fn log_of(&mut self, pending: Pending) -> Option<&mut Log> {
        self.logs.get_mut(&pending.partition).filter(|log| log.born == pending.born)
    }

    /// Begins a sync of all that waits for one, if none is under way.
    pub(super) fn begin_sync(&mut self, now: Duration) -> Option<Sync> {
        if !self.syncing.is_empty() || self.queued.is_empty() {
            return None;
        }
        std::mem::swap(&mut self.syncing, &mut self.queued);
        for place in 0..self.syncing.len() {
            let pending = self.syncing[place];
            if let Some(log) = self.log_of(pending) {
                log.on_written(pending.write);
            }
        }
        let times = if now < self.slow_until { self.slow } else { 1 };
        let took = self.chance.duration(self.sync) * times;
        let failed = self.sync_fails.take();
        Some(Sync { at: (now + took).max(self.stuck_until), failed })
    }

    /// The sync is over: what the machines are told.
    pub(super) fn end_sync(&mut self, failed: bool) -> Vec<Report> {
        let mut group = std::mem::take(&mut self.syncing);
        // One report a log, for the last of its writes.
        let log = |pending: &Pending| (pending.partition, pending.born);
        group.sort_by_key(|pending| (log(pending), pending.write));
        let mut reports = Vec::new();
        for (place, pending) in group.iter().enumerate() {
            if group.get(place + 1).is_some_and(|next| log(next) == log(pending)) {
                continue;
            }
            let Pending { partition, write, .. } = *pending;
            let Some(log) = self.log_of(*pending) else { continue };
            if failed {
                reports.push(Report::Failed(partition, write));
                continue;
            }
            log.complete(write, |done| reports.push(Report::Done(partition, done)));
            self.set_aside(partition);
        }
        // Empty, and kept for its memory.
        group.clear();
        self.syncing = group;
        reports
    }

    /// What was cut off goes into the orphan files.
    fn set_aside(&mut self, partition: PartitionId) {
        let Some(log) = self.logs.get_mut(&partition).filter(|log| !log.cut.is_empty()) else {
            return;
        };
        for batch in std::mem::take(&mut log.cut) {
            let mut seen = Vec::new();
            crate::workload::values::records(&batch, 0, &mut seen);
            self.orphans.extend(seen.into_iter().filter_map(|seen| seen.value));
            self.cuts += 1;
        }
    }

    /// The node's life ends. Each log keeps a prefix of what may be lost, as `lose` draws of so
    /// many operations.
    pub(super) fn die(&mut self, power: bool, mut lose: impl FnMut(&mut Chance, usize) -> usize) {
        self.queued.clear();
        self.syncing.clear();
        let partitions: Vec<PartitionId> = self.logs.keys().copied().collect();
        for partition in partitions {
            let Some(log) = self.logs.get_mut(&partition) else { continue };
            let (unwritten, unsynced) = log.at_risk();
            let lost = lose(&mut self.chance, if power { unsynced } else { unwritten });
            log.lose(lost);
            self.set_aside(partition);
        }
    }

    pub(super) fn wipe(&mut self) {
        self.logs.clear();
        self.orphans.clear();
    }

    /// Whether nothing is under way in the logs of replicas, but for these, which were not asked
    /// to close. The quorum goes on to the end.
    pub(super) fn replicas_are_quiet(&self, late: &BTreeSet<PartitionId>) -> bool {
        let goes_on = |it: &PartitionId| *it == PartitionId::METADATA || late.contains(it);
        self.logs.iter().all(|(partition, log)| goes_on(partition) || log.is_quiet())
    }

    /// What is wrong with what was written, if anything.
    pub(super) fn wrong(&mut self) -> Option<(PartitionId, String)> {
        let mut logs = self.logs.iter_mut();
        logs.find_map(|(&partition, log)| Some((partition, log.wrong.take()?)))
    }
}
