//! Which stretches of a log belong to aborted transactions, so that who reads committed records
//! only can leave them out. Kafka's `TransactionIndex`, held with the log's state
//! (docs/decisions/0127).

use serde::{Deserialize, Serialize};

use crate::id::{Offset, ProducerId};

/// One aborted transaction: what the producer wrote from `first` on, up to the marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aborted {
    pub producer: ProducerId,
    /// Its first record.
    pub first: Offset,
    /// The marker that aborted it.
    pub last: Offset,
}

/// All of a log whose marker is not deleted, and whose data compaction may have left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbortedTransactions {
    /// Ascending by marker.
    ranges: Vec<Aborted>,
}

impl AbortedTransactions {
    /// A marker that aborts stands behind all that were noted before.
    pub fn note(&mut self, aborted: Aborted) {
        self.ranges.push(aborted);
    }

    /// Ascending by marker.
    pub fn ranges(&self) -> &[Aborted] {
        &self.ranges
    }

    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Behind the last marker; 0 if there is none. Who reads from there on meets no aborted record.
    pub fn end(&self) -> Offset {
        self.ranges.last().map_or(Offset::ZERO, |last| last.last.plus(1))
    }

    /// Takes out those whose marker stands below `offset`: nothing of them is left there.
    pub fn take_below(&mut self, offset: Offset) -> Vec<Aborted> {
        let count = self.ranges.partition_point(|aborted| aborted.last < offset);
        self.ranges.drain(..count).collect()
    }

    /// Those that overlap `from` to below `to`, of these and of `more`, ascending by first record,
    /// as clients expect them.
    pub fn within(&self, from: Offset, to: Offset, more: &[Aborted]) -> Vec<Aborted> {
        let passed = self.ranges.partition_point(|aborted| aborted.last < from);
        let all = more.iter().chain(&self.ranges[passed..]);
        let mut found: Vec<_> =
            all.filter(|it| it.last >= from && it.first < to).copied().collect();
        found.sort_unstable_by_key(|aborted| (aborted.first, aborted.last));
        found
    }

    /// Whether this is possible for a log that ends at `end`.
    pub(super) fn holds(&self, end: Offset) -> bool {
        let possible = |aborted: &Aborted| {
            aborted.producer.is_some()
                && Offset::ZERO <= aborted.first
                && aborted.first < aborted.last
                && aborted.last < end
        };
        self.ranges.iter().all(possible)
            && self.ranges.is_sorted_by(|one, next| one.last < next.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_that_overlap_are_told_by_their_first_record() {
        let mut aborted = AbortedTransactions::default();
        let range = |producer, first, last| Aborted {
            producer: ProducerId(producer),
            first: Offset(first),
            last: Offset(last),
        };
        for (producer, first, last) in [(1, 5, 9), (2, 3, 12), (3, 20, 30)] {
            aborted.note(range(producer, first, last));
        }
        let within = |from, to| -> Vec<i64> {
            let found = aborted.within(Offset(from), Offset(to), &[]);
            found.iter().map(|aborted| aborted.producer.0).collect()
        };
        assert_eq!(within(0, 3), [], "none begins below the end");
        assert_eq!(within(0, 4), [2]);
        assert_eq!(within(9, 40), [2, 1, 3], "a marker belongs to its range");
        assert_eq!(within(10, 20), [2]);
        assert_eq!(within(31, 90), []);
        assert_eq!(aborted.end(), Offset(31));
        assert_eq!(aborted.take_below(Offset(12)), [range(1, 5, 9)]);
        assert_eq!(aborted.within(Offset(0), Offset(90), &[range(1, 5, 9)]).len(), 3);
    }
}
