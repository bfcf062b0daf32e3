//! Which batches of an idempotent producer are in the log already, and which may come next. KIP-98;
//! Kafka's `ProducerStateManager`, with all five batches kept through a restart.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::interface::Refusal;
use crate::batch::{Header, TimestampType, sequence_plus};
use crate::id::{Offset, ProducerEpoch, ProducerId};
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
    /// The newest batches of this epoch, oldest first; at least one, at most `BATCHES_MAX`.
    pub batches: Vec<Appended>,
    /// When the leader last appended for it; `Timestamp::NONE` if only the log is known, which
    /// does not say. Not part of what two states must agree on.
    pub seen: Timestamp,
}

impl PartialEq for Producer {
    fn eq(&self, other: &Self) -> bool {
        (self.epoch, &self.batches) == (other.epoch, &other.batches)
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

impl Producers {
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

    /// What is to become of a client's batch. Nothing changes.
    pub fn judge(&self, header: &Header) -> Verdict {
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

    /// A batch was appended, by this leader at `seen` or, with `Timestamp::NONE`, by whoever wrote
    /// the log. No judgement: what stands in the log stands.
    pub fn note(&mut self, header: &Header, seen: Timestamp) {
        let id = header.producer_id();
        // A marker ends a transaction; it has no sequence number.
        if !id.is_some() || header.is_control() || header.base_sequence() < 0 {
            return;
        }
        let epoch = header.producer_epoch();
        let producer = self.known.entry(id).or_insert_with(|| Producer {
            epoch,
            batches: Vec::with_capacity(1),
            seen,
        });
        if producer.epoch != epoch {
            producer.epoch = epoch;
            producer.batches.clear();
        }
        // zoo E2: with a window of one, a retry of four batches in flight is an error.
        let window = if mutant!("dedup-window-too-small") { 1 } else { BATCHES_MAX };
        while producer.batches.len() >= window {
            producer.batches.remove(0);
        }
        producer.batches.push(Appended::of(header));
        producer.seen = seen;
    }

    /// Producers whose last append is not dated count as seen now: forgetting too late is safe.
    pub fn date(&mut self, now: Timestamp) {
        for producer in self.known.values_mut() {
            if producer.seen == Timestamp::NONE {
                producer.seen = now;
            }
        }
    }

    /// Forgets who has not written for `expiration`. Returns how many were forgotten.
    pub fn expire(&mut self, now: Timestamp, expiration: Duration) -> usize {
        let before = self.known.len();
        let expiration = i64::try_from(expiration.as_millis()).unwrap_or(i64::MAX);
        self.known.retain(|_, producer| now.0.saturating_sub(producer.seen.0) < expiration);
        before - self.known.len()
    }

    /// When the one that has been silent longest was last seen.
    pub fn seen_first(&self) -> Option<Timestamp> {
        self.known.values().map(|producer| producer.seen).min()
    }

    /// The mutant's: forgets producers whose batches all lie below `log_start`.
    pub(super) fn forget_below(&mut self, log_start: Offset) {
        self.known.retain(|_, producer| producer.last().last_offset >= log_start);
    }

    /// Whether this is possible for a log that ends at `end`.
    pub(super) fn holds(&self, end: Offset) -> bool {
        self.known.iter().all(|(id, producer)| {
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
                && (1..=BATCHES_MAX).contains(&batches.len())
                && batches.iter().all(possible)
                && batches.windows(2).all(rising)
        })
    }
}

impl Producer {
    /// The sequence number that comes next; after 2^31 - 1 comes 0.
    pub fn next_sequence(&self) -> i32 {
        // zoo E5: plain arithmetic stops a producer for ever after 2^31 records.
        if mutant!("sequence-wrap") {
            return self.last().last_sequence.wrapping_add(1);
        }
        sequence_plus(self.last().last_sequence, 1)
    }

    fn last(&self) -> &Appended {
        self.batches.last().expect("a producer is known by its batches")
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
