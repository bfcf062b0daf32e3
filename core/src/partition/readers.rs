//! How many bytes a waiting reader would get: a running total of what was appended, known at the
//! newest batches' ends.

use std::collections::VecDeque;

use crate::id::Offset;

/// Committed batches whose ends are remembered. A reader that registers has usually seen all but
/// the last few; one that is further behind has something to read anyway.
const ENDS_KEPT: usize = 64;

/// Bytes appended in this life, by the offset up to which they reach.
#[derive(Clone, Debug)]
pub(super) struct Readable {
    /// Ascending. The first ones are committed, the rest are in flight.
    ends: VecDeque<(Offset, u64)>,
    /// How many of `ends` are committed; at least one.
    committed: usize,
}

impl Readable {
    /// Nothing was appended yet, and everything below `end` is committed.
    pub(super) fn new(end: Offset) -> Self {
        Self { ends: VecDeque::from([(end, 0)]), committed: 1 }
    }

    /// Everything below `high_watermark` is committed, and what follows up to `end` was appended
    /// earlier: a byte for each record, since its bytes are not known.
    pub(super) fn at(high_watermark: Offset, end: Offset) -> Self {
        let mut readable = Self::new(high_watermark);
        if high_watermark < end {
            readable.append(end, records(high_watermark, end));
        }
        readable
    }

    pub(super) fn append(&mut self, end: Offset, bytes: u64) {
        let &(_, total) = self.ends.back().expect("there is always an end");
        self.ends.push_back((end, total + bytes));
    }

    pub(super) fn commit(&mut self, high_watermark: Offset) {
        while self.ends.get(self.committed).is_some_and(|&(end, _)| end <= high_watermark) {
            self.committed += 1;
        }
        // Only within what was appended in an earlier life.
        if let Some(&(end, _)) = self.ends.get(self.committed)
            && let (before, total) = self.ends[self.committed - 1]
            && before < high_watermark
            && high_watermark < end
        {
            let passed = total + records(before, high_watermark);
            self.ends.insert(self.committed, (high_watermark, passed));
            self.committed += 1;
        }
        while self.committed > ENDS_KEPT {
            self.ends.pop_front();
            self.committed -= 1;
        }
    }

    /// The total up to the high watermark.
    pub(super) fn committed_total(&self) -> u64 {
        self.ends[self.committed - 1].1
    }

    /// The total below the batch that holds `offset`. `None` if that is too long ago to know.
    pub(super) fn total_below(&self, offset: Offset) -> Option<u64> {
        let passed = self.ends.partition_point(|&(end, _)| end <= offset);
        Some(self.ends[passed.checked_sub(1)?].1)
    }
}

fn records(from: Offset, to: Offset) -> u64 {
    u64::try_from(to.0 - from.0).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_from_the_batch_that_holds_the_offset() {
        let mut readable = Readable::new(Offset(10));
        readable.append(Offset(13), 100);
        readable.append(Offset(14), 20);
        assert_eq!(readable.committed_total(), 0);
        readable.commit(Offset(13));
        assert_eq!(readable.committed_total(), 100);
        assert_eq!(readable.total_below(Offset(9)), None);
        assert_eq!(readable.total_below(Offset(12)), Some(0), "in the middle of the first batch");
        assert_eq!(readable.total_below(Offset(13)), Some(100));
        assert_eq!(readable.total_below(Offset(14)), Some(120));
    }

    #[test]
    fn what_an_earlier_life_appended_is_committed_bit_by_bit() {
        let mut readable = Readable::at(Offset(10), Offset(20));
        readable.append(Offset(21), 100);
        assert_eq!(readable.total_below(Offset(10)), Some(0));
        readable.commit(Offset(13));
        assert_eq!(readable.committed_total(), 3);
        readable.commit(Offset(13));
        assert_eq!(readable.committed_total(), 3);
        readable.commit(Offset(20));
        assert_eq!(readable.committed_total(), 10);
        readable.commit(Offset(21));
        assert_eq!(readable.committed_total(), 110);
    }

    #[test]
    fn old_ends_are_forgotten_and_those_in_flight_are_not() {
        let mut readable = Readable::new(Offset(0));
        for end in 1..=1000 {
            readable.append(Offset(end), 1);
        }
        readable.commit(Offset(900));
        assert_eq!(readable.ends.len(), ENDS_KEPT + 100);
        assert_eq!(readable.committed_total(), 900);
        assert_eq!(readable.total_below(Offset(900 - ENDS_KEPT as i64)), None);
        assert_eq!(readable.total_below(Offset(999)), Some(999));
    }
}
