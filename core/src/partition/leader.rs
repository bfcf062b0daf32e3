//! What a leader does with a batch, a waiting reader and a request to delete: accept or refuse,
//! stamp, write, answer when it is true.

use std::time::Duration;

use super::interface::{Acks, Effect, Isolation, LogOp, Outcome, Produce, Refusal, Wait};
use super::producers::{Appended, Verdict};
use super::waiting::{Kind, Release, Waiter};
use super::{Replica, State, reply};
use crate::batch::{Batch, Header, Levels};
use crate::id::{LeaderEpoch, Offset, RequestId};
use crate::segment::frame::FRAME_HEADER_BYTES;
use crate::time::{Instant, Now, Timestamp};
use crate::{mutant, reached};

/// A full table of producers is searched at most so often.
const FULL_SEARCH_INTERVAL: Duration = Duration::from_secs(1);

impl Replica {
    pub(super) fn on_produce(&mut self, now: Now, produce: Produce, effects: &mut Vec<Effect>) {
        if let Err(refusal) = self.admit(produce.acks) {
            // zoo K5: the state between two others was forgotten, and success is the default.
            if mutant!("empty-success") && self.state == State::Closing {
                let kind = Kind::Produce { base: self.log.end, append_time: None, copies: 0 };
                reply(produce.request, kind.outcome(self.log.log_start), effects);
                return;
            }
            if refusal != Refusal::Storage {
                self.note_gap(now, produce.batch.header());
            }
            reply(produce.request, Outcome::Refused(refusal), effects);
            return;
        }
        match self.log.producers.judge(produce.batch.header(), &self.log.open) {
            Verdict::Refuse(refusal @ Refusal::OutOfOrderSequence { .. }) => {
                self.refuse_once_confirmed(&produce, refusal, effects);
            }
            Verdict::Refuse(refusal) => {
                reply(produce.request, Outcome::Refused(refusal), effects);
            }
            Verdict::Duplicate(original) => self.answer_duplicate(&produce, original, effects),
            Verdict::Append if !self.may_follow(now, produce.batch.header()) => {
                reached!("producer-may-have-a-gap");
                reply(produce.request, Outcome::Refused(Refusal::Busy), effects);
            }
            Verdict::Append if !self.knows_or_has_room(now, produce.batch.header()) => {
                reached!("producers-full");
                self.note_gap(now, produce.batch.header());
                reply(produce.request, Outcome::Refused(Refusal::Busy), effects);
            }
            Verdict::Append => {
                match self.check_transaction(now, produce.batch.header(), produce.guard) {
                    Ok(()) => self.append(now, produce, effects),
                    Err(refusal) => {
                        reply(produce.request, Outcome::Refused(refusal), effects);
                    }
                }
            }
        }
    }

    pub(super) fn admit(&self, acks: Acks) -> Result<(), Refusal> {
        if self.state == State::Halted {
            return Err(Refusal::Storage);
        }
        if !self.is_leader() {
            return Err(Refusal::NotLeader);
        }
        let needed = match acks {
            Acks::None | Acks::Leader => 0,
            Acks::All => self.config.in_sync_min,
            Acks::AtLeast(copies) => self.config.in_sync_min.max(copies),
        };
        if self.assignment.in_sync.len() < usize::from(needed) {
            reached!("not-enough-replicas");
            return Err(Refusal::NotEnoughReplicas);
        }
        if needed > 0 && !self.config.racks.suffice(&self.assignment.in_sync) {
            reached!("not-enough-racks");
            return Err(Refusal::NotEnoughReplicas);
        }
        if self.waiting.len() >= self.limits.waiting_max {
            reached!("waiting-full");
            return Err(Refusal::Busy);
        }
        Ok(())
    }

    fn answer_duplicate(
        &mut self,
        produce: &Produce,
        original: Appended,
        effects: &mut Vec<Effect>,
    ) {
        let end = original.last_offset.plus(1);
        // zoo E3: the answer names a record that is not the producer's.
        let wrong = mutant!("cached-wrong-offset");
        let base = if wrong { original.last_offset } else { original.base_offset };
        let copies = copies(produce.acks);
        let kind = Kind::Produce { base, append_time: original.append_time, copies };
        if self.high_watermark < end {
            reached!("duplicate-of-a-batch-in-flight");
        } else {
            reached!("duplicate-of-a-committed-batch");
        }
        // zoo E4: what is remembered is not what is stored.
        if mutant!("state-before-append") {
            reply(produce.request, kind.outcome(self.durable_start), effects);
            return;
        }
        self.answer_when_stored(produce, end, kind, effects);
    }

    /// Whether the batch's producer, if it has one, is known or can be remembered.
    pub(super) fn knows_or_has_room(&mut self, now: Now, header: &Header) -> bool {
        let id = header.producer_id();
        if !id.is_some() || self.log.producers.producer(id).is_some() {
            return true;
        }
        let full = |replica: &Self| replica.log.producers.len() >= replica.limits.producers_max;
        if full(self) && self.full_until <= now.monotonic {
            self.expire_producers(now, self.limits.producer_expiration_short);
            self.full_until = now.monotonic + FULL_SEARCH_INTERVAL;
        }
        !full(self)
    }

    /// A batch is refused for what may change before the next one comes, which stands behind it:
    /// a table is full, too few are in sync, another replica leads. It comes again.
    fn note_gap(&mut self, now: Now, header: &Header) {
        let id = header.producer_id();
        if id.is_some() && self.log.producers.producer(id).is_none() {
            let (patience, most) =
                (self.limits.producer_expiration_short, self.limits.producers_max);
            self.refused.note(now.monotonic, header, patience, most);
        }
    }

    /// Whether the batch does not stand behind one of its producer's that was refused.
    fn may_follow(&self, now: Now, header: &Header) -> bool {
        let id = header.producer_id();
        let is_known = !id.is_some() || self.log.producers.producer(id).is_some();
        is_known || self.refused.may_begin(now.monotonic, header)
    }

    fn append(&mut self, now: Now, mut produce: Produce, effects: &mut Vec<Effect>) {
        let append_time = self.stamp_time(now, &mut produce.batch);
        self.refused.forget(produce.batch.header().producer_id());
        let base = self.log.end;
        produce.batch.stamp(base, self.leader_epoch());
        self.keep_for_followers(now, &produce.batch, produce.levels);
        self.store(now, produce.batch.clone(), produce.levels, effects);
        self.send_to_all(now, effects);
        let end = self.log.end;
        let copies = copies(produce.acks);
        let kind = Kind::Produce { base, append_time, copies };
        // zoo B4: the answer does not wait for the disk.
        if mutant!("answer-before-written") && produce.acks != Acks::None {
            reply(produce.request, kind.outcome(self.durable_start), effects);
            return;
        }
        self.answer_when_stored(&produce, end, kind, effects);
    }

    /// Gives the batch the log's own time, where that is what counts.
    pub(super) fn stamp_time(&self, now: Now, batch: &mut Batch) -> Option<Timestamp> {
        if !self.config.log_append_time {
            return None;
        }
        let fallen = mutant!("append-time-falls");
        let time = if fallen { now.wall } else { now.wall.max(self.log.append_time) };
        if now.wall < self.log.append_time {
            reached!("append-time-held");
        }
        batch.set_log_append_time(time);
        Some(time)
    }

    /// Puts a batch that has its place at the end of the log.
    pub(super) fn store(
        &mut self,
        now: Now,
        batch: Batch,
        levels: Levels,
        effects: &mut Vec<Effect>,
    ) {
        let frame_bytes = (FRAME_HEADER_BYTES + batch.len()) as u64;
        if self.is_roll_due(now, frame_bytes, batch.header()) {
            self.roll(effects);
        }
        if self.log.segments.last().is_none_or(|active| active.bytes == 0) {
            self.active_since = now.monotonic;
        }
        // A date from a clock that has jumped would let the producer expire when it is set back.
        let seen = if self.wall_clock.is_trusted() { now.wall } else { Timestamp::NONE };
        let marker = self.note_transaction(&batch);
        self.log
            .append(batch.header(), marker, frame_bytes, seen)
            .expect("a batch is appended at the end of its log");
        self.log_bytes += frame_bytes;
        self.readable.append(self.log.end, batch.len() as u64);
        if self.expiry_at.is_none() {
            self.plan_expiry(now);
        }
        self.write(LogOp::Append { batch, levels }, None, effects);
    }

    /// Whether the active segment ends before a batch of so many bytes. Kafka's
    /// `LogSegment.shouldRoll`, but by the age of the segment on a clock that does not jump.
    fn is_roll_due(&self, now: Now, frame_bytes: u64, header: &Header) -> bool {
        let Some(active) = self.log.segments.last().filter(|active| active.bytes > 0) else {
            return false;
        };
        let age = now.monotonic.saturating_since(self.active_since);
        let last = header.last_offset();
        if active.bytes + frame_bytes > self.config.segment_bytes_max {
            reached!("roll-by-size");
            true
        } else if age >= self.config.segment_time_max {
            reached!("roll-by-age");
            true
        } else {
            // Indexes count offsets from the base in 31 bits.
            last.0 - active.base.0 > i64::from(i32::MAX)
        }
    }

    fn roll(&mut self, effects: &mut Vec<Effect>) {
        let base = self.log.end;
        self.log.roll(base).expect("the active segment holds something");
        // A segment that deletion had emptied but that was the active one goes with the roll.
        self.log_bytes = self.log.bytes();
        let snapshot = self.log.to_snapshot();
        self.write(LogOp::Roll { base, snapshot }, None, effects);
    }

    fn answer_when_stored(
        &mut self,
        produce: &Produce,
        end: Offset,
        kind: Kind,
        effects: &mut Vec<Effect>,
    ) {
        let (release, stored) = match produce.acks {
            Acks::None | Acks::Leader => (Release::Durable(end), self.durable_end >= end),
            Acks::All | Acks::AtLeast(_) => (Release::Committed(end), self.high_watermark >= end),
        };
        if stored {
            reply(produce.request, kind.outcome(self.durable_start), effects);
        } else {
            let waiter = Waiter { release, until: produce.until, kind };
            self.waiting.insert(produce.request, waiter);
        }
    }

    /// A follower serves readers too, of what it knows to be committed. KIP-392.
    fn admit_reader(&self, beyond: Offset) -> Result<(), Refusal> {
        if self.state == State::Open && self.follows() {
            if self.waiting.len() >= self.limits.waiting_max {
                return Err(Refusal::Busy);
            }
            // The leader may have more than has come here.
            return if beyond > self.log.end { Err(Refusal::NotYetKnown) } else { Ok(()) };
        }
        self.admit(Acks::None)
    }

    pub(super) fn on_wait(&mut self, now: Now, wait: Wait, effects: &mut Vec<Effect>) {
        if let Err(refusal) = self.admit_reader(wait.beyond) {
            reply(wait.request, Outcome::Refused(refusal), effects);
            return;
        }
        let (start, high_watermark) = (self.durable_start, self.high_watermark);
        if wait.beyond < start || wait.beyond > self.log.end {
            let refusal = Refusal::OffsetOutOfRange { start, high_watermark };
            reply(wait.request, Outcome::Refused(refusal), effects);
            return;
        }
        if wait.isolation == Isolation::ReadCommitted {
            self.wait_for_decision(now, &wait, effects);
            return;
        }
        let target = self
            .readable
            .total_below(wait.beyond)
            .map_or(0, |total| total.saturating_add(wait.bytes_min.max(1)));
        // zoo K3: who registers without looking sleeps through what has already come.
        let looks = !mutant!("lost-wakeup-in-purgatory");
        let is_readable = target <= self.readable.committed_total();
        if (is_readable && looks) || wait.until <= now.monotonic {
            reply(wait.request, Outcome::Advanced, effects);
            return;
        }
        let kind = Kind::Read { beyond: wait.beyond };
        let release = Release::Bytes(target);
        self.waiting.insert(wait.request, Waiter { release, until: wait.until, kind });
    }

    /// Who reads committed records only waits for the last stable offset, however many bytes that
    /// brings: it moves by whole transactions.
    fn wait_for_decision(&mut self, now: Now, wait: &Wait, effects: &mut Vec<Effect>) {
        if wait.beyond < self.last_stable() || wait.until <= now.monotonic {
            reply(wait.request, Outcome::Advanced, effects);
            return;
        }
        let (release, kind) =
            (Release::Decided(wait.beyond.plus(1)), Kind::Read { beyond: wait.beyond });
        self.waiting.insert(wait.request, Waiter { release, until: wait.until, kind });
    }

    pub(super) fn on_delete_records(
        &mut self,
        request: RequestId,
        before: Option<Offset>,
        until: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let (start, high_watermark) = (self.durable_start, self.high_watermark);
        let before = before.unwrap_or(high_watermark);
        let refusal = match self.admit(Acks::None) {
            Err(refusal) => Some(refusal),
            Ok(()) if !self.config.delete && self.config.compact => Some(Refusal::NotDeletable),
            Ok(()) if self.is_settling() => Some(Refusal::NotYetKnown),
            Ok(()) if before < Offset::ZERO || before > high_watermark => {
                Some(Refusal::OffsetOutOfRange { start, high_watermark })
            }
            Ok(()) => None,
        };
        if let Some(refusal) = refusal {
            reply(request, Outcome::Refused(refusal), effects);
            return;
        }
        if before > self.log.log_start {
            self.delete_before(before, effects);
        }
        self.find_common_start();
        let log_start = self.common_start();
        if before <= log_start {
            reply(request, Outcome::RecordsDeleted { log_start }, effects);
            return;
        }
        // It is on its way to this disk, or to that of another who may lead next.
        let (release, kind) = (Release::Deleted(before), Kind::Delete);
        self.waiting.insert(request, Waiter { release, until, kind });
    }

    /// Raises the log start to `start`, at most the high watermark. Readers hear of it when it is
    /// durable, before storage removes a file.
    pub(super) fn delete_before(&mut self, start: Offset, effects: &mut Vec<Effect>) {
        let is_all = start == self.log.end;
        if is_all && self.log.segments.last().is_some_and(|active| active.bytes > 0) {
            reached!("active-segment-deleted");
            self.roll(effects);
        }
        let left = self.log.aborted.take_below(start);
        self.log.delete_before(start);
        self.log_bytes = self.log.bytes();
        let write = self.write(LogOp::DeleteBefore { offset: start }, None, effects);
        self.leave_aborted(write, left);
    }

    pub(super) fn on_epoch_end(
        &mut self,
        request: RequestId,
        epoch: LeaderEpoch,
        effects: &mut Vec<Effect>,
    ) {
        let outcome = match self.admit(Acks::None) {
            Err(Refusal::Busy) | Ok(()) => {
                let epochs = &self.log.leader_epochs;
                let end = epochs.end_of(epoch, self.leader_epoch(), self.log.end);
                Outcome::EpochEnd { end }
            }
            Err(refusal) => Outcome::Refused(refusal),
        };
        reply(request, outcome, effects);
    }
}

/// How many copies a producer asked for; 0 if only the leader's counts.
const fn copies(acks: Acks) -> u16 {
    match acks {
        Acks::None | Acks::Leader => 0,
        Acks::All => 1,
        Acks::AtLeast(copies) => copies,
    }
}
