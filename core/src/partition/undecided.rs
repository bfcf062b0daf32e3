//! Up to where a log is decided: the last stable offset. Below it every transaction has ended, and
//! its marker is committed, so that no election takes the ending back. KIP-98.

use std::collections::{BTreeSet, VecDeque};

use super::interface::Ending;
use crate::id::{Offset, ProducerId};
use crate::mutant;

/// A transaction whose marker stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) producer: ProducerId,
    pub(super) ending: Ending,
    /// Its first record.
    pub(super) first: Offset,
    /// Its marker.
    pub(super) marker: Offset,
}

/// Transactions whose marker stands in the log, and is not known to be committed.
#[derive(Clone, Debug, Default)]
pub(super) struct Undecided {
    /// Ascending by marker.
    ended: VecDeque<Ended>,
    firsts: BTreeSet<Offset>,
    /// What an earlier life has written ends here. Which of its markers are committed is not known
    /// before all of them are.
    before: Offset,
}

impl Undecided {
    /// Of a log that was recovered, of which everything below `committed` is known to be.
    pub(super) fn recovered(end: Offset, committed: Offset) -> Self {
        let before = if committed < end { end } else { Offset::ZERO };
        Self { before, ..Self::default() }
    }

    /// A marker stands behind all that were noted before.
    pub(super) fn note(&mut self, ended: Ended) {
        self.firsts.insert(ended.first);
        self.ended.push_back(ended);
    }

    /// The log was cut, or begun anew, and reaches from `start` to `end`: what ended elsewhere has
    /// not.
    pub(super) fn cut(&mut self, start: Offset, end: Offset) {
        self.ended.retain(|ended| start <= ended.marker && ended.marker < end);
        self.firsts = self.ended.iter().map(|ended| ended.first).collect();
        self.before = self.before.min(end);
    }

    /// The first marker below `high_watermark`.
    pub(super) fn next(&self, high_watermark: Offset) -> Option<Ended> {
        self.ended.front().copied().filter(|ended| ended.marker < high_watermark)
    }

    /// That one is committed.
    pub(super) fn commit_next(&mut self) {
        if let Some(ended) = self.ended.pop_front() {
            self.firsts.remove(&ended.first);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ended.len()
    }

    /// The last stable offset of a log that starts at `start` and whose oldest open transaction
    /// begins at `open`.
    pub(super) fn last_stable(
        &self,
        start: Offset,
        high_watermark: Offset,
        open: Option<Offset>,
    ) -> Offset {
        if high_watermark < self.before {
            return start;
        }
        let first = [open, self.firsts.first().copied()].into_iter().flatten().min();
        // zoo F11: the first record of an open transaction shown as the last stable one.
        let first = first.map(|first| if mutant!("lso-inclusive") { first.plus(1) } else { first });
        first.map_or(high_watermark, |first| first.min(high_watermark)).max(start)
    }

    /// Panics if the two views of it disagree, or if a marker is known to be committed.
    pub(super) fn check(&self, end: Offset, high_watermark: Offset) {
        let firsts = self.ended.iter().map(|ended| ended.first).collect::<BTreeSet<_>>();
        assert_eq!(firsts, self.firsts);
        let possible = |ended: &Ended| ended.first < ended.marker && ended.marker < end;
        assert!(self.ended.iter().all(possible), "{self:?} in a log that ends at {end}");
        assert!(self.ended.front().is_none_or(|it| it.marker >= high_watermark), "{self:?}");
    }
}
