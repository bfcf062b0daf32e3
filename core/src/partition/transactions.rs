//! What a replica does about transactions: who may begin one, how one ends, and what is told of
//! those that were aborted. KIP-98, KIP-890. Who has one open is the log's to say
//! (`open_transactions.rs`), what ends it the coordinator's.

use super::interface::{
    Aborted, Acks, Effect, EndTransaction, Outcome, ProducerStatus, Refusal, Verify,
};
use super::producers::MarkerVerdict;
use super::undecided::Ended;
use super::waiting::{Kind, Release, Waiter};
use super::{Replica, State, reply};
use crate::batch::control::Marker;
use crate::batch::{Batch, Header, Levels};
use crate::id::{Offset, RequestId, VerificationGuard, WriteId};
use crate::time::{Instant, Now};
use crate::{mutant, reached};

impl Replica {
    /// Everything below is decided for good.
    pub(super) fn last_stable(&self) -> Offset {
        let open = self.log.open.first();
        self.undecided.last_stable(self.durable_start, self.high_watermark, open)
    }

    pub(super) fn on_verify(&mut self, now: Now, verify: Verify, effects: &mut Vec<Effect>) {
        let outcome = match self.verify(now.monotonic, &verify) {
            Ok(guard) => Outcome::Verified(guard),
            Err(refusal) => Outcome::Refused(refusal),
        };
        reply(verify.request, outcome, effects);
    }

    fn verify(
        &mut self,
        now: Instant,
        verify: &Verify,
    ) -> Result<Option<VerificationGuard>, Refusal> {
        self.admit(Acks::None)?;
        let id = verify.producer;
        if let Some(known) = self.log.producers.producer(id) {
            if verify.epoch < known.epoch {
                let current = known.epoch;
                return Err(Refusal::StaleProducerEpoch { producer: id, current });
            }
            if verify.epoch == known.epoch && self.log.open.of(id).is_some() {
                return Ok(None);
            }
        }
        let guard = self.verifying.begin(now, verify, self.limits.verifying_max);
        guard.map(Some).ok_or_else(|| {
            reached!("verifying-full");
            Refusal::Busy
        })
    }

    /// Whether a batch may be appended as far as transactions go. That it is not of another
    /// transaction than the one that is open was judged before.
    pub(super) fn check_transaction(
        &self,
        now: Now,
        header: &Header,
        guard: Option<VerificationGuard>,
    ) -> Result<(), Refusal> {
        let id = header.producer_id();
        if !header.is_transactional() || self.log.open.of(id).is_some() {
            return Ok(());
        }
        // zoo F3: the coordinator's word is believed although a marker has come since. zoo F1: or
        // nobody asks it, and a batch that is late begins a transaction that nobody will end.
        let believes = (guard.is_some() && mutant!("verified-then-raced"))
            || mutant!("late-produce-joins-next-txn");
        let who = (id, header.producer_epoch());
        let Some(asked) = self.verifying.of(now.monotonic, who, guard) else {
            if believes {
                return Ok(());
            }
            reached!("transaction-not-verified");
            return Err(Refusal::InvalidTransactionState { producer: id });
        };
        let found = header.base_sequence();
        let is_known = self.log.producers.producer(id).is_some();
        let expected = if asked.from_zero && !is_known { 0 } else { asked.sequence };
        if found >= 0 && found > expected {
            reached!("transaction-begins-before");
            return Err(Refusal::OutOfOrderSequence { producer: id, expected, found });
        }
        let may_abort = self.log.open.len() + self.undecided.len() + self.log.aborted.len();
        if may_abort >= self.limits.aborted_max {
            reached!("aborted-full");
            return Err(Refusal::Busy);
        }
        Ok(())
    }

    pub(super) fn on_end_transaction(
        &mut self,
        now: Now,
        end: EndTransaction,
        effects: &mut Vec<Effect>,
    ) {
        if let Err(refusal) = self.admit(Acks::All) {
            reply(end.request, Outcome::Refused(refusal), effects);
            return;
        }
        let marker = match self.log.producers.judge_marker(&end, &self.log.open) {
            MarkerVerdict::Refuse(refusal) => {
                reply(end.request, Outcome::Refused(refusal), effects);
                return;
            }
            MarkerVerdict::Duplicate(marker) => marker,
            MarkerVerdict::Append => {
                let Some(marker) = self.append_marker(now, &end, effects) else {
                    reply(end.request, Outcome::Refused(Refusal::Busy), effects);
                    return;
                };
                marker
            }
        };
        self.verifying.forget_ended(&end);
        let stands = marker.plus(1);
        if self.high_watermark >= stands {
            reply(end.request, Outcome::TransactionEnded, effects);
            return;
        }
        let (release, kind) = (Release::Committed(stands), Kind::EndTransaction);
        self.waiting.insert(end.request, Waiter { release, until: end.until, kind });
    }

    /// Where the marker stands then. `None`: its producer is not known, and there is no room for
    /// one more.
    fn append_marker(
        &mut self,
        now: Now,
        end: &EndTransaction,
        effects: &mut Vec<Effect>,
    ) -> Option<Offset> {
        let EndTransaction { producer, epoch, ending, coordinator_epoch, .. } = *end;
        let marker = Marker { ending, coordinator_epoch };
        let mut batch = marker.batch(producer, epoch, now.wall);
        if !self.knows_or_has_room(now, batch.header()) {
            reached!("no-room-for-a-marker");
            return None;
        }
        let at = self.log.end;
        self.stamp_time(now, &mut batch);
        batch.stamp(at, self.leader_epoch());
        self.keep_for_followers(now, &batch, Levels::DEFAULT);
        self.store(now, batch, Levels::DEFAULT, effects);
        self.send_to_all(now, effects);
        Some(at)
    }

    /// A batch is about to be put at the end of the log.
    pub(super) fn note_transaction(&mut self, batch: &Batch) -> Option<Marker> {
        let header = batch.header();
        let (producer, marker) = (header.producer_id(), Marker::of(batch));
        if let Some(Marker { ending, .. }) = marker {
            if let Some(first) = self.log.open.of(producer) {
                let marker = header.base_offset();
                self.undecided.note(Ended { producer, ending, first, marker });
            }
        } else if header.is_transactional() {
            self.verifying.forget(producer);
        }
        marker
    }

    pub(super) fn on_aborted(
        &self,
        request: RequestId,
        (from, to): (Offset, Offset),
        effects: &mut Vec<Effect>,
    ) {
        let refusal = match self.state {
            State::Halted => Some(Refusal::Storage),
            _ if !self.is_leader() && !self.follows() => Some(Refusal::NotLeader),
            _ => None,
        };
        let outcome = refusal.map_or_else(
            || {
                let leaving: Vec<Aborted> =
                    self.leaving.iter().flat_map(|(_, aborted)| aborted).copied().collect();
                let transactions = self.log.aborted.within(from, to, &leaving);
                Outcome::Aborted { view: self.view(), transactions }
            },
            Outcome::Refused,
        );
        reply(request, outcome, effects);
    }

    /// `write` takes the records of these away. Until it is done, they may be read.
    pub(super) fn leave_aborted(&mut self, write: WriteId, aborted: Vec<Aborted>) {
        if !aborted.is_empty() {
            self.leaving.push((write, aborted));
        }
    }

    /// Everything up to `write` is done.
    pub(super) fn forget_aborted(&mut self, write: WriteId) {
        let before = self.leaving.len();
        self.leaving.retain(|(takes, _)| *takes > write);
        self.removals += u64::from(self.leaving.len() < before);
    }

    /// Behind the last of those that are about to leave.
    pub(super) fn leaving_end(&self) -> Offset {
        let ends = self.leaving.iter().flat_map(|(_, aborted)| aborted);
        ends.map(|aborted| aborted.last.plus(1)).max().unwrap_or_default()
    }

    /// Panics if the last stable offset is where it cannot be.
    pub(super) fn check_transactions(&self) {
        let stable = self.last_stable();
        self.undecided.check(self.log.end, self.high_watermark);
        assert!(self.durable_start <= stable && stable <= self.high_watermark, "{self}");
        let open =
            self.log.open.first().is_none_or(|first| stable <= first.max(self.durable_start));
        assert!(open || mutant!("lso-inclusive"), "an open transaction is decided: {self}");
        assert!(self.verifying.len() <= self.limits.verifying_max, "{self}");
        let in_flight = |(write, _): &(WriteId, _)| self.writes.iter().any(|it| it.write == *write);
        assert!(self.state != State::Open || self.leaving.iter().all(in_flight), "{self}");
    }

    pub(super) fn on_describe_producers(&self, request: RequestId, effects: &mut Vec<Effect>) {
        let status = |(producer, known): (_, &super::producers::Producer)| ProducerStatus {
            producer,
            epoch: known.epoch,
            last_sequence: known.batches.last().map_or(-1, |batch| batch.last_sequence),
            seen: known.seen,
            coordinator_epoch: known.coordinator_epoch,
            transaction: self.log.open.of(producer),
        };
        let outcome = match self.admit(Acks::None) {
            Err(Refusal::Busy) | Ok(()) => {
                Outcome::Producers(self.log.producers.iter().map(status).collect())
            }
            Err(refusal) => Outcome::Refused(refusal),
        };
        reply(request, outcome, effects);
    }
}
