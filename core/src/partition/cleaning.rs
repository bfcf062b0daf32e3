//! When a log is compacted, up to where, and what becomes of the result. Each replica cleans its
//! own copy. How a batch is thinned is `compaction`'s, reading and writing is the storage's.
//!
//! A pass is asked for with `Effect::Clean` and takes as long as it takes. Its result is believed
//! only if it is still wanted: then it goes into the log as a write like any other (`Replace`), in
//! the order of all writes. So a pass that outlives its reason changes nothing (KAFKA-12840).

use std::time::Duration;

use super::interface::{Clean, CleanProblem, Effect, LogOp, PartitionConfig};
use super::recovered::Recovered;
use super::{Replica, State};
use crate::compaction::Rules;
use crate::id::{Offset, WriteId};
use crate::segment::cleaned::Cleaned;
use crate::time::{Instant, Now, Timestamp};
use crate::{mutant, reached};

/// What a replica knows of the passes over its log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cleaning {
    /// The pass under way.
    running: Option<u64>,
    /// Passes that were begun in this life.
    passes: u64,
    /// How often in a row none came about.
    failures: u32,
    /// When to look whether one is due.
    pub(super) look_at: Option<Instant>,
    /// The write that brought the last one into the log.
    replace: Option<WriteId>,
}

/// Whether a pass is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Over all segments below this one.
    Now(Offset),
    /// It may be by then, even if nothing is written.
    In(Duration),
    /// Not before more is written.
    Later,
}

/// Shares are told in millionths.
pub const SHARE_WHOLE: u64 = 1_000_000;

/// Whether a pass over the log is due: the uncleaned share of what may be cleaned is larger than
/// `min.cleanable.dirty.ratio`, or a record is older than `max.compaction.lag.ms`, or a tombstone
/// has had its time. Only closed segments below `decided`, the last stable offset, may be cleaned,
/// and none that is, or comes behind, one with a record younger than `min.compaction.lag.ms`.
///
/// `now` is `None` while the wall clock is not believed; then nothing is due by age.
pub fn due(
    state: &Recovered,
    config: &PartitionConfig,
    decided: Offset,
    now: Option<Timestamp>,
) -> Due {
    if !config.compact {
        return Due::Later;
    }
    let (mut clean, mut dirty) = (0_u64, 0_u64);
    let (mut until, mut oldest, mut wait) = (None, None, None);
    for pair in state.segments.windows(2) {
        let (segment, end) = (&pair[0], pair[1].base);
        if end <= state.cleaned.to {
            clean += segment.bytes;
            until = Some(end);
            continue;
        }
        // zoo I1: a record that is not committed shadows one that is, and is then cut off.
        if end > decided && !mutant!("compact-past-hw") {
            reached!("not-cleaned-before-it-is-committed");
            wait = Some(UNCOMMITTED);
            break;
        }
        if !config.compaction_lag_min.is_zero() {
            let Some(left) = left_until(segment.max_timestamp, config.compaction_lag_min, now)
            else {
                wait = Some(UNCOMMITTED);
                break;
            };
            if !left.is_zero() {
                reached!("too-young-to-be-cleaned");
                wait = Some(left);
                break;
            }
        }
        dirty += segment.bytes;
        until = Some(end);
        oldest = oldest.into_iter().chain([segment.max_timestamp]).min();
    }
    let by_age = oldest
        .zip(config.compaction_lag_max)
        .and_then(|(oldest, lag)| left_until(oldest, lag, now));
    let tombstones =
        state.cleaned.tombstones_due.and_then(|due| left_until(due, Duration::ZERO, now));
    let ratio = u128::from(config.cleanable_share);
    let is_dirty = dirty > 0
        && u128::from(dirty) * u128::from(SHARE_WHOLE) > ratio * u128::from(clean + dirty);
    let is_old = [by_age, tombstones].into_iter().flatten().any(|left| left.is_zero());
    match until {
        Some(until) if is_dirty || is_old => Due::Now(until),
        _ => {
            let waits = [wait, by_age.filter(|_| dirty > 0), tombstones.filter(|_| clean > 0)];
            waits
                .into_iter()
                .flatten()
                .filter(|wait| !wait.is_zero())
                .min()
                .map_or(Due::Later, Due::In)
        }
    }
}

/// When to look again whether more is committed, or the clock is believed again.
const UNCOMMITTED: Duration = Duration::from_secs(15);

/// How long until `at` is `age` ago; `None` if nobody knows.
fn left_until(at: Timestamp, age: Duration, now: Option<Timestamp>) -> Option<Duration> {
    let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    let left = at.0.saturating_add(age).saturating_sub(now?.0);
    Some(Duration::from_millis(u64::try_from(left).unwrap_or(0)))
}

impl Replica {
    /// To be looked at again after `wait` at the latest, and not more often than
    /// `compaction_check_interval`.
    pub(super) fn plan_cleaning(&mut self, now: Now, wait: Duration) {
        let wanted = self.config.compact && self.state == State::Open;
        if !wanted || self.cleaning.running.is_some() {
            return;
        }
        let at = now.monotonic + wait.max(self.limits.compaction_check_interval);
        self.cleaning.look_at = Some(self.cleaning.look_at.map_or(at, |planned| planned.min(at)));
    }

    /// After something was written: more may be closed, or committed.
    pub(super) fn notice_dirt(&mut self, now: Now) {
        let closed = self.log.segments.iter().rev().nth(1);
        if closed.is_some() && self.cleaning.look_at.is_none() {
            self.plan_cleaning(now, Duration::ZERO);
        }
    }

    /// The configuration has changed: a pass that nobody wants any more is forgotten.
    pub(super) fn replan_cleaning(&mut self, now: Now) {
        self.cleaning.look_at = None;
        self.cleaning.failures = 0;
        // zoo I8: what a pass removes after compaction was switched off should have stayed.
        if !self.config.compact && !mutant!("policy-change-races-cleaner") {
            self.forget_pass();
        }
        self.plan_cleaning(now, Duration::ZERO);
    }

    /// The log is not any more what the pass under way is looking at.
    pub(super) fn forget_pass(&mut self) {
        if self.cleaning.running.take().is_some() {
            reached!("pass-forgotten");
        }
    }

    pub(super) fn tick_cleaning(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.cleaning.look_at.is_none_or(|at| at > now.monotonic) {
            return;
        }
        self.cleaning.look_at = None;
        if self.state != State::Open || self.cutting.is_some() || self.cleaning.running.is_some() {
            return;
        }
        if self.is_replacing() {
            reached!("pass-waits-for-the-one-before");
            return self.plan_cleaning(now, Duration::ZERO);
        }
        let wall = self.wall_clock.is_trusted().then_some(now.wall);
        // What is not decided yet is neither kept nor removed.
        match due(&self.log, &self.config, self.last_stable(), wall) {
            Due::Now(until) => self.begin_pass(until, wall, effects),
            Due::In(wait) => self.plan_cleaning(now, wait),
            Due::Later => {}
        }
    }

    /// Storage still has the segments that the last pass replaced: another one would look at those,
    /// and take the part that is compacted here for compacted there.
    fn is_replacing(&self) -> bool {
        let first = self.writes.front().map(|first| first.write);
        self.cleaning.replace.is_some_and(|replace| first.is_some_and(|first| first <= replace))
    }

    fn begin_pass(&mut self, until: Offset, now: Option<Timestamp>, effects: &mut Vec<Effect>) {
        reached!("pass-begun");
        self.cleaning.passes += 1;
        let pass = self.cleaning.passes;
        self.cleaning.running = Some(pass);
        let known = self.log.producers.iter().flat_map(|(_, producer)| {
            let batches = producer.batches.iter().map(|batch| batch.base_offset);
            batches.chain(producer.marker)
        });
        let mut sequences: Vec<_> = known.filter(|&base| base < until).collect();
        sequences.sort_unstable();
        let leaving = self.leaving.iter().flat_map(|(_, aborted)| aborted);
        let aborted = self.log.aborted.ranges().iter().chain(leaving).copied();
        let mut aborted: Vec<_> = aborted.filter(|aborted| aborted.first < until).collect();
        aborted.sort_unstable_by_key(|aborted| (aborted.producer, aborted.first));
        let tombstone_time = self.config.tombstone_time;
        let rules = Rules { now, tombstone_time, sequences, aborted };
        let segment_bytes_max = self.config.segment_bytes_max;
        let dirty = self.log.cleaned.to;
        effects.push(Effect::Clean(Clean { pass, dirty, until, segment_bytes_max, rules }));
    }

    pub(super) fn on_cleaned(
        &mut self,
        now: Now,
        pass: u64,
        result: Result<Box<Cleaned>, CleanProblem>,
        effects: &mut Vec<Effect>,
    ) {
        let is_wanted = self.cleaning.running == Some(pass)
            && self.state == State::Open
            && self.cutting.is_none();
        if self.cleaning.running == Some(pass) {
            self.cleaning.running = None;
        }
        match result {
            Ok(cleaned) if is_wanted && cleaned.until > self.log.log_start => {
                reached!("pass-comes-about");
                self.cleaning.failures = 0;
                let left = self.log.replace(&cleaned);
                self.log_bytes = self.log.bytes();
                let write = self.write(LogOp::Replace(cleaned), None, effects);
                self.cleaning.replace = Some(write);
                self.leave_aborted(write, left);
                self.plan_cleaning(now, Duration::ZERO);
            }
            Ok(cleaned) => {
                reached!("pass-in-vain");
                effects.push(Effect::Discard(cleaned));
                self.plan_cleaning(now, Duration::ZERO);
            }
            Err(CleanProblem::Failed) => {
                reached!("pass-failed");
                let wait = self.limits.compaction_check_interval * (1 << self.cleaning.failures);
                self.cleaning.failures = (self.cleaning.failures + 1).min(FAILURES_MAX);
                self.plan_cleaning(now, wait);
            }
        }
    }
}

/// After so many failures in a row the wait does not grow any more: with 15 s, two hours.
const FAILURES_MAX: u32 = 9;
