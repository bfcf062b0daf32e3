//! Producers whose transaction is not known here, while their coordinator is being asked whether it
//! is open. KIP-890, part 1; Kafka's `VerificationStateEntry`.
//!
//! The guard is good for one batch, and only as long as nothing has changed in between: a marker
//! that came meanwhile says that the transaction has ended, and the coordinator's word of before is
//! worth nothing (KAFKA-14884).

use std::collections::BTreeMap;
use std::time::Duration;

use super::interface::{EPOCH_A_TRANSACTION, EndTransaction, Verify};
use crate::id::{ProducerEpoch, ProducerId, VerificationGuard};
use crate::time::Instant;

/// How long a coordinator is waited for: longer than any request to it.
const PATIENCE: Duration = Duration::from_secs(60);

/// One entry a producer at most.
#[derive(Clone, Debug, Default)]
pub(super) struct Verifying {
    known: BTreeMap<ProducerId, Asked>,
    /// The newest guard; never falls in the life of a replica.
    last: u64,
}

/// What is known of a producer whose coordinator is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    guard: VerificationGuard,
    epoch: ProducerEpoch,
    /// The smallest first sequence number that was asked for: a batch behind it must not become the
    /// first one of its transaction.
    pub(super) sequence: i32,
    /// The producer goes by epochs of its transactions: an unknown one begins with 0.
    pub(super) from_zero: bool,
    until: Instant,
}

impl Verifying {
    /// Takes note of a question. Whoever asks again gets the guard of before. `None` if `most` are
    /// asked about already.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        verify: &Verify,
        most: usize,
    ) -> Option<VerificationGuard> {
        if self.known.len() >= most && !self.known.contains_key(&verify.producer) {
            self.known.retain(|_, asked| now < asked.until);
            if self.known.len() >= most {
                return None;
            }
        }
        let until = now + PATIENCE;
        let before = self.known.get_mut(&verify.producer);
        if let Some(asked) = before.filter(|it| it.epoch == verify.epoch && now < it.until) {
            asked.sequence = asked.sequence.min(verify.sequence);
            asked.until = until;
            return Some(asked.guard);
        }
        self.last += 1;
        let guard = VerificationGuard(self.last);
        let from_zero = verify.transaction_version >= EPOCH_A_TRANSACTION;
        let Verify { epoch, sequence, .. } = *verify;
        self.known.insert(verify.producer, Asked { guard, epoch, sequence, from_zero, until });
        Some(guard)
    }

    /// What was asked for the producer if `guard` is good for a batch of `epoch` now.
    pub(super) fn of(
        &self,
        now: Instant,
        (producer, epoch): (ProducerId, ProducerEpoch),
        guard: Option<VerificationGuard>,
    ) -> Option<Asked> {
        let asked = self.known.get(&producer).copied()?;
        let is_good = Some(asked.guard) == guard && asked.epoch == epoch && now < asked.until;
        is_good.then_some(asked)
    }

    /// A marker has come: no guard of the transaction that it ends, or of one before, is good any
    /// more. Versions by whose rules each transaction has an epoch of its own give the marker the
    /// epoch of the next one, which its producer may have begun before the marker came.
    pub(super) fn forget_ended(&mut self, end: &EndTransaction) {
        let by_epoch = end.transaction_version >= EPOCH_A_TRANSACTION;
        let is_over =
            |asked: &Asked| asked.epoch < end.epoch || !by_epoch && asked.epoch == end.epoch;
        if self.known.get(&end.producer).is_some_and(is_over) {
            self.forget(end.producer);
        }
    }

    /// The producer's transaction has begun here.
    pub(super) fn forget(&mut self, producer: ProducerId) {
        self.known.remove(&producer);
    }

    /// Another leadership begins.
    pub(super) fn forget_all(&mut self) {
        self.known.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}
