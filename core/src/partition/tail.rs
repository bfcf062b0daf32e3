//! A leader's newest batches, kept in memory for followers until they are written here and there.

use std::collections::VecDeque;

use crate::batch::{Batch, Levels};
use crate::id::Offset;

/// Batches that end where the log ends, without a gap between them.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail {
    entries: VecDeque<Kept>,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Kept {
    /// The log's end before the batch.
    base: Offset,
    batch: Batch,
    levels: Levels,
}

impl Tail {
    pub(super) fn push(&mut self, base: Offset, batch: Batch, levels: Levels) {
        self.bytes += batch.len();
        self.entries.push_back(Kept { base, batch, levels });
    }

    /// Drops what is below `written` and either below `acked` or more than `bytes_max`.
    pub(super) fn trim(&mut self, written: Offset, acked: Offset, bytes_max: usize) {
        while let Some(first) = self.entries.front() {
            let end = first.batch.header().next_offset();
            if end > written || (end > acked && self.bytes <= bytes_max) {
                break;
            }
            self.bytes -= first.batch.len();
            self.entries.pop_front();
        }
        if self.entries.is_empty() {
            // An idle partition keeps no memory for this.
            self.entries = VecDeque::new();
        }
    }

    /// Batches from `from` on, `bytes_max` of them but one at least. `None` if `from` is not the
    /// place before one that is kept.
    pub(super) fn from(&self, from: Offset, bytes_max: usize) -> Option<Vec<(Batch, Levels)>> {
        let first = self.entries.partition_point(|kept| kept.base < from);
        let mut bytes = 0;
        self.entries.get(first).filter(|kept| kept.base == from)?;
        let fits = |kept: &&Kept| {
            bytes += kept.batch.len();
            bytes <= bytes_max || bytes == kept.batch.len()
        };
        let fitting = self.entries.range(first..).take_while(fits);
        Some(fitting.map(|kept| (kept.batch.clone(), kept.levels)).collect())
    }

    /// Panics if there is a gap, or the tail does not end at `end`.
    pub(super) fn check(&self, end: Offset) {
        let ends = self.entries.iter().map(|kept| kept.batch.header().next_offset());
        let bases = self.entries.iter().skip(1).map(|kept| kept.base).chain([end]);
        assert!(ends.eq(bases.take(self.entries.len())), "a gap in the tail that ends at {end}");
        let bytes = self.entries.iter().map(|kept| kept.batch.len()).sum::<usize>();
        assert_eq!(self.bytes, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, Codec};
    use crate::id::LeaderEpoch;
    use crate::time::Timestamp;

    fn tail(count: i64) -> (Tail, usize) {
        let mut tail = Tail::default();
        let mut builder = BatchBuilder::new(Codec::None);
        builder.append(Timestamp(0), None, Some(b"x"), []);
        let batch = builder.build();
        for base in 0..count {
            let mut batch = batch.clone();
            batch.stamp(Offset(base), LeaderEpoch(0));
            tail.push(Offset(base), batch, Levels::DEFAULT);
        }
        (tail, batch.len())
    }

    #[test]
    fn as_many_as_fit_and_one_at_least() {
        let (tail, bytes) = tail(3);
        let count =
            |from, bytes_max| tail.from(Offset(from), bytes_max).map(|batches| batches.len());
        assert_eq!(count(0, 2 * bytes), Some(2));
        assert_eq!(count(0, 2 * bytes - 1), Some(1));
        assert_eq!(count(1, 0), Some(1));
        assert_eq!(count(3, 100), None);
        tail.check(Offset(3));
    }

    #[test]
    fn what_is_not_written_stays_whatever_its_size() {
        let (mut tail, bytes) = tail(4);
        tail.trim(Offset(3), Offset(1), 10 * bytes);
        assert!(tail.from(Offset(0), 1).is_none(), "written and acknowledged");
        assert!(tail.from(Offset(1), 1).is_some());
        tail.trim(Offset(3), Offset(1), bytes);
        assert!(tail.from(Offset(2), 1).is_none(), "written and too much");
        assert!(tail.from(Offset(3), 1).is_some(), "not written");
        tail.check(Offset(4));
    }
}
