//! Which batches of an idempotent producer are in the log already, and which may come next. KIP-98;
//! Kafka's `ProducerStateManager`, with all five batches kept through a restart.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::interface::{EPOCH_A_TRANSACTION, EndTransaction, Refusal};
use super::open_transactions::OpenTransactions;
use crate::batch::control::Marker;
use crate::batch::{Header, TimestampType, sequence_plus};
use crate::id::{CoordinatorEpoch, Offset, ProducerEpoch, ProducerId};
use crate::time::Timestamp;
use crate::{mutant, reached};

/// A producer may have so many requests in flight, hence retry so many batches.
pub const BATCHES_MAX: usize = 5;

/// All producers that have written to one log and are not forgotten yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Producers {
    known: BTreeMap<ProducerId, Producer>,
}

/// What one producer has in the log.
#[derive(Clone, Debug, Eq, Serialize, Deserialize)]
pub struct Producer {
    pub epoch: ProducerEpoch,
    /// The newest batches of this epoch, oldest first; at most `BATCHES_MAX`. None if only a marker
    /// is of this epoch, or if its batches have no sequence numbers (offsets of a group).
    pub batches: Vec<Appended>,
    /// Which leadership of its coordinator wrote the newest marker; `NONE` if there is none.
    pub coordinator_epoch: CoordinatorEpoch,
    /// Where the newest marker stands.
    pub marker: Option<Offset>,
    /// When the leader last appended for it; `Timestamp::NONE` if only the log is known, which
    /// does not say. Not part of what two states must agree on.
    pub seen: Timestamp,
}

impl PartialEq for Producer {
    fn eq(&self, other: &Self) -> bool {
        let of = |it: &Self| (it.epoch, it.coordinator_epoch, it.marker);
        of(self) == of(other) && self.batches == other.batches
    }
}

/// One batch of a producer, as it stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Appended {
    pub base_sequence: i32,
    pub last_sequence: i32,
    pub base_offset: Offset,
    pub last_offset: Offset,
    /// Set where the log set the records' time.
    pub append_time: Option<Timestamp>,
}

/// What is to become of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Append,
    /// It is in the log already, though perhaps not committed.
    Duplicate(Appended),
    Refuse(Refusal),
}

/// What is to become of a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkerVerdict {
    Append,
    /// It stands there already, though perhaps not committed.
    Duplicate(Offset),
    Refuse(Refusal),
}

impl Producers {
    /// Those of a log in which there was no transaction yet.
    pub(super) fn idempotent(
        known: impl Iterator<Item = (ProducerId, ProducerEpoch, Vec<Appended>, Timestamp)>,
    ) -> Self {
        let (coordinator_epoch, marker) = (CoordinatorEpoch::NONE, None);
        let producer = |(id, epoch, batches, seen)| {
            (id, Producer { epoch, batches, coordinator_epoch, marker, seen })
        };
        Self { known: known.map(producer).collect() }
    }

    /// Ascending by id.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (ProducerId, &Producer)> {
        self.known.iter().map(|(&id, producer)| (id, producer))
    }

    pub fn len(&self) -> usize {
        self.known.len()
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub fn producer(&self, id: ProducerId) -> Option<&Producer> {
        self.known.get(&id)
    }

    /// What is to become of a client's batch, in a log with these transactions open. Nothing
    /// changes. Whether a transaction may begin is not judged here.
    pub fn judge(&self, header: &Header, open: &OpenTransactions) -> Verdict {
        let id = header.producer_id();
        let Some(producer) = self.known.get(&id).filter(|_| id.is_some()) else {
            // A producer that is not known may go on where it stands: retention or expiry may
            // have taken what it wrote before. Kafka since 2.5.
            return Verdict::Append;
        };
        let epoch = header.producer_epoch();
        if epoch < producer.epoch {
            reached!("stale-producer-epoch");
            let current = producer.epoch;
            return Verdict::Refuse(Refusal::StaleProducerEpoch { producer: id, current });
        }
        // Only a marker ends a transaction: neither another incarnation of its producer nor a batch
        // beside it may join.
        let is_other = epoch > producer.epoch || !header.is_transactional();
        if is_other && open.of(id).is_some() {
            reached!("batch-beside-a-transaction");
            return Verdict::Refuse(Refusal::InvalidTransactionState { producer: id });
        }
        if header.base_sequence() < 0 {
            return Verdict::Append;
        }
        let found = header.base_sequence();
        let expected = if epoch > producer.epoch { 0 } else { producer.next_sequence() };
        if epoch == producer.epoch
            && let Some(&appended) = producer.batches.iter().find(|batch| {
                batch.base_sequence == found && batch.last_sequence == header.last_sequence()
            })
        {
            return Verdict::Duplicate(appended);
        }
        if found == expected {
            return Verdict::Append;
        }
        if epoch > producer.epoch {
            reached!("new-producer-epoch-not-from-zero");
        } else {
            reached!("sequence-gap");
        }
        Verdict::Refuse(Refusal::OutOfOrderSequence { producer: id, expected, found })
    }

    /// What is to become of a marker, in a log with these transactions open. Nothing changes.
    ///
    /// Where each transaction has an epoch of its own, a marker has that of the next one: one that
    /// comes late cannot end what it does not belong to (KAFKA-19999). Else it has that of its
    /// transaction, and a late one cannot be told.
    pub fn judge_marker(&self, end: &EndTransaction, open: &OpenTransactions) -> MarkerVerdict {
        let id = end.producer;
        let Some(producer) = self.known.get(&id) else { return MarkerVerdict::Append };
        let (current, epoch) = (producer.epoch, producer.coordinator_epoch);
        if end.coordinator_epoch < epoch {
            reached!("marker-of-an-older-coordinator");
            let refusal = Refusal::CoordinatorFenced { producer: id, current: epoch };
            return MarkerVerdict::Refuse(refusal);
        }
        let is_open = open.of(id).is_some();
        let by_epoch = end.transaction_version >= EPOCH_A_TRANSACTION
            && !mutant!("late-marker-ends-next-transaction");
        if end.epoch < current || (by_epoch && is_open && end.epoch == current) {
            reached!("marker-of-an-older-epoch");
            let refusal = Refusal::StaleProducerEpoch { producer: id, current };
            return MarkerVerdict::Refuse(refusal);
        }
        let is_same = end.epoch == current && end.coordinator_epoch == epoch;
        match producer.marker.filter(|_| is_same && !is_open) {
            Some(marker) => {
                reached!("marker-is-there-already");
                MarkerVerdict::Duplicate(marker)
            }
            None => MarkerVerdict::Append,
        }
    }

    /// A batch was appended, by this leader at `seen` or, with `Timestamp::NONE`, by whoever wrote
    /// the log; with the `marker` in it, if it is one. No judgement: what stands in the log stands.
    pub fn note(&mut self, header: &Header, marker: Option<Marker>, seen: Timestamp) {
        let id = header.producer_id();
        let has_sequence = header.base_sequence() >= 0;
        let is_noted = if header.is_control() {
            marker.is_some()
        } else {
            has_sequence || header.is_transactional()
        };
        if !id.is_some() || !is_noted {
            return;
        }
        let epoch = header.producer_epoch();
        let producer = self.known.entry(id).or_insert_with(|| Producer {
            epoch,
            batches: Vec::new(),
            coordinator_epoch: CoordinatorEpoch::NONE,
            marker: None,
            seen,
        });
        // zoo E10: what an earlier epoch has written is taken for what this one repeats.
        if producer.epoch != epoch && !mutant!("dedup-across-transactions") {
            producer.batches.clear();
        }
        producer.epoch = epoch;
        // zoo F13: with a marker's time, the memory of who wrote it is lost too early.
        if marker.is_none() || !mutant!("coordinator-epoch-goes-back") {
            producer.seen = seen;
        }
        if let Some(marker) = marker {
            producer.coordinator_epoch = producer.coordinator_epoch.max(marker.coordinator_epoch);
            producer.marker = Some(header.base_offset());
            return;
        }
        if !has_sequence {
            return;
        }
        // zoo E2: with a window of one, a retry of four batches in flight is an error.
        let window = if mutant!("dedup-window-too-small") { 1 } else { BATCHES_MAX };
        while producer.batches.len() >= window {
            producer.batches.remove(0);
        }
        producer.batches.push(Appended::of(header));
    }

    /// Producers whose last append is not dated count as seen now: forgetting too late is safe.
    pub fn date(&mut self, now: Timestamp) {
        for producer in self.known.values_mut() {
            if producer.seen == Timestamp::NONE {
                producer.seen = now;
            }
        }
    }

    /// Forgets who has not written for `expiration` and has no transaction open. Returns how many
    /// were forgotten.
    pub fn expire(
        &mut self,
        now: Timestamp,
        expiration: Duration,
        open: &OpenTransactions,
    ) -> usize {
        let before = self.known.len();
        let expiration = i64::try_from(expiration.as_millis()).unwrap_or(i64::MAX);
        self.known.retain(|&id, producer| {
            now.0.saturating_sub(producer.seen.0) < expiration || open.of(id).is_some()
        });
        before - self.known.len()
    }

    /// When the one that has been silent longest was last seen.
    pub fn seen_first(&self) -> Option<Timestamp> {
        self.known.values().map(|producer| producer.seen).min()
    }

    /// The mutant's: forgets producers whose batches all lie below `log_start`.
    pub(super) fn forget_below(&mut self, log_start: Offset) {
        let stands = |batch: &Appended| batch.last_offset >= log_start;
        self.known.retain(|_, producer| producer.batches.last().is_some_and(stands));
    }

    /// Whether this is possible for a log that ends at `end` and has these transactions open.
    pub(super) fn holds(&self, end: Offset, open: &OpenTransactions) -> bool {
        let all_known = open.iter().all(|(_, producer)| self.known.contains_key(&producer));
        all_known
            && self.known.iter().all(|(id, producer)| {
                let batches = &producer.batches;
                let rising = |pair: &[Appended]| pair[0].last_offset < pair[1].base_offset;
                let possible = |batch: &Appended| {
                    batch.base_sequence >= 0
                        && batch.last_sequence >= 0
                        && Offset::ZERO <= batch.base_offset
                        && batch.base_offset <= batch.last_offset
                        && batch.last_offset < end
                };
                id.is_some()
                    && batches.len() <= BATCHES_MAX
                    && producer.marker.is_none_or(|marker| marker < end)
                    && batches.iter().all(possible)
                    && batches.windows(2).all(rising)
            })
    }
}

impl Producer {
    /// The sequence number that comes next; after 2^31 - 1 comes 0, and an epoch begins with 0.
    pub fn next_sequence(&self) -> i32 {
        let Some(last) = self.batches.last() else { return 0 };
        // zoo E5: plain arithmetic stops a producer for ever after 2^31 records.
        if mutant!("sequence-wrap") {
            return last.last_sequence.wrapping_add(1);
        }
        sequence_plus(last.last_sequence, 1)
    }
}

impl Appended {
    fn of(header: &Header) -> Self {
        let log_append_time = header.timestamp_type() == TimestampType::LogAppendTime;
        Self {
            base_sequence: header.base_sequence(),
            last_sequence: header.last_sequence(),
            base_offset: header.base_offset(),
            last_offset: header.last_offset(),
            append_time: log_append_time.then(|| header.max_timestamp()),
        }
    }
}
