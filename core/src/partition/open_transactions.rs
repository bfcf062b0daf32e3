//! Which producers have a transaction open in a log, and where each began: what the last stable
//! offset rests on. KIP-98; Kafka's `ProducerStateManager.ongoingTxns`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{Offset, ProducerId};

/// One transaction a producer at most, by the offset of its first record. Opened by a producer's
/// transactional batch, closed by its marker; the same fold wherever the log is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<Offset, ProducerId>", into = "BTreeMap<Offset, ProducerId>")]
pub struct OpenTransactions {
    by_first: BTreeMap<Offset, ProducerId>,
    by_producer: BTreeMap<ProducerId, Offset>,
}

impl OpenTransactions {
    /// A record of the producer's transaction stands at `offset`: the first one, unless it has one
    /// open.
    pub fn begin(&mut self, producer: ProducerId, offset: Offset) {
        if self.by_producer.contains_key(&producer) {
            return;
        }
        self.by_producer.insert(producer, offset);
        self.by_first.insert(offset, producer);
    }

    /// A marker of the producer's stands in the log. Where its transaction began, if one was open.
    pub fn end(&mut self, producer: ProducerId) -> Option<Offset> {
        let first = self.by_producer.remove(&producer)?;
        self.by_first.remove(&first);
        Some(first)
    }

    /// Where the producer's open transaction began.
    pub fn of(&self, producer: ProducerId) -> Option<Offset> {
        self.by_producer.get(&producer).copied()
    }

    /// Where the oldest one began: what stands from there on is not decided yet.
    pub fn first(&self) -> Option<Offset> {
        self.by_first.first_key_value().map(|(&first, _)| first)
    }

    /// Ascending by the offset of the first record.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Offset, ProducerId)> {
        self.by_first.iter().map(|(&first, &producer)| (first, producer))
    }

    pub fn len(&self) -> usize {
        self.by_first.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_first.is_empty()
    }

    /// Whether this is possible for a log that ends at `end`.
    pub(super) fn holds(&self, end: Offset) -> bool {
        let possible = |(&first, producer): (&Offset, &ProducerId)| {
            producer.is_some() && Offset::ZERO <= first && first < end
        };
        self.by_first.iter().all(possible) && self.by_first.len() == self.by_producer.len()
    }
}

impl From<BTreeMap<Offset, ProducerId>> for OpenTransactions {
    fn from(by_first: BTreeMap<Offset, ProducerId>) -> Self {
        let by_producer = by_first.iter().map(|(&first, &producer)| (producer, first)).collect();
        Self { by_first, by_producer }
    }
}

impl From<OpenTransactions> for BTreeMap<Offset, ProducerId> {
    fn from(open: OpenTransactions) -> Self {
        open.by_first
    }
}
