//! Which leadership wrote from which offset on, and where each ended. KIP-101, KIP-279.

use serde::{Deserialize, Serialize};

use crate::id::{LeaderEpoch, Offset};

/// Where a leader epoch's first record stands. Both numbers rise strictly along the list, so there
/// is at most one entry a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderEpochs {
    starts: Vec<(LeaderEpoch, Offset)>,
}

impl LeaderEpochs {
    /// Epoch and first offset, ascending.
    pub fn starts(&self) -> &[(LeaderEpoch, Offset)] {
        &self.starts
    }

    /// The epoch of the newest record that is known.
    pub fn latest(&self) -> Option<LeaderEpoch> {
        self.starts.last().map(|&(epoch, _)| epoch)
    }

    /// A batch of `epoch` stands at `offset`, above all that was noted before.
    pub fn note(&mut self, epoch: LeaderEpoch, offset: Offset) {
        if self.latest().is_some_and(|latest| latest >= epoch) {
            return;
        }
        // Only raising the log start leaves an entry at the end of the log.
        while self.starts.last().is_some_and(|&(_, start)| start >= offset) {
            self.starts.pop();
        }
        self.starts.push((epoch, offset));
    }

    /// The log now starts at `log_start`: the entry that reaches across it begins there.
    pub fn raise_start(&mut self, log_start: Offset) {
        let passed = self.starts.partition_point(|&(_, start)| start <= log_start);
        if passed > 0 {
            self.starts.drain(..passed - 1);
            self.starts[0].1 = log_start;
        }
    }

    /// The largest epoch that is not above `epoch`, and where it ended. `current` is the epoch of
    /// the leader that is asked, which may not have written yet, and `end` the end of its log.
    /// `None`: `epoch` is newer than the leader knows. Kafka's `LeaderEpochFileCache.endOffsetFor`.
    pub fn end_of(
        &self,
        epoch: LeaderEpoch,
        current: LeaderEpoch,
        end: Offset,
    ) -> Option<(LeaderEpoch, Offset)> {
        if epoch == current {
            return Some((epoch, end));
        }
        if epoch > current || epoch.0 < 0 {
            return None;
        }
        let above = self.starts.partition_point(|&(known, _)| known <= epoch);
        let ended = self.starts.get(above).map_or(end, |&(_, start)| start);
        let floor = above.checked_sub(1).map_or(epoch, |place| self.starts[place].0);
        Some((floor, ended))
    }

    /// Panics if the list is impossible for a log that reaches from `log_start` to `end`.
    pub fn check(&self, log_start: Offset, end: Offset) {
        assert!(self.holds(log_start, end), "{self:?} within {log_start}..{end}");
    }

    /// Whether the list is possible for a log that reaches from `log_start` to `end`.
    pub(super) fn holds(&self, log_start: Offset, end: Offset) -> bool {
        let rising =
            |pair: &[(LeaderEpoch, Offset)]| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1;
        self.starts.windows(2).all(rising)
            && self.starts.iter().all(|&(_, start)| start <= end && log_start <= start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(starts: &[(i32, i64)]) -> LeaderEpochs {
        let mut epochs = LeaderEpochs::default();
        for &(epoch, start) in starts {
            epochs.note(LeaderEpoch(epoch), Offset(start));
        }
        epochs
    }

    fn end_of(epochs: &LeaderEpochs, epoch: i32, current: i32) -> Option<(i32, i64)> {
        let end = epochs.end_of(LeaderEpoch(epoch), LeaderEpoch(current), Offset(100));
        end.map(|(epoch, end)| (epoch.0, end.0))
    }

    #[test]
    fn an_epoch_ends_where_the_next_larger_began() {
        let epochs = epochs(&[(0, 0), (1, 10), (4, 40)]);
        assert_eq!(end_of(&epochs, 0, 7), Some((0, 10)));
        assert_eq!(end_of(&epochs, 1, 7), Some((1, 40)));
        assert_eq!(end_of(&epochs, 2, 7), Some((1, 40)), "a gap answers with the epoch below");
        assert_eq!(end_of(&epochs, 4, 7), Some((4, 100)));
        assert_eq!(end_of(&epochs, 6, 7), Some((4, 100)));
        assert_eq!(end_of(&epochs, 7, 7), Some((7, 100)), "nothing written in it yet");
        assert_eq!(end_of(&epochs, 8, 7), None);
        assert_eq!(end_of(&epochs, -1, 7), None);
    }

    #[test]
    fn an_epoch_before_all_known_ends_where_they_begin() {
        let epochs = epochs(&[(3, 30), (5, 50)]);
        assert_eq!(end_of(&epochs, 1, 5), Some((1, 30)));
    }

    #[test]
    fn the_order_of_noting_and_of_raising_the_start_does_not_matter() {
        let mut early = epochs(&[(1, 0), (2, 10)]);
        early.raise_start(Offset(20));
        early.note(LeaderEpoch(3), Offset(20));
        let mut late = epochs(&[(1, 0), (2, 10), (3, 20)]);
        late.raise_start(Offset(20));
        assert_eq!(early, late);
        assert_eq!(early.starts(), [(LeaderEpoch(3), Offset(20))]);
        let mut within = epochs(&[(1, 0), (2, 10), (3, 20)]);
        within.raise_start(Offset(15));
        assert_eq!(within.starts(), [(LeaderEpoch(2), Offset(15)), (LeaderEpoch(3), Offset(20))]);
    }

    #[test]
    fn an_older_epoch_never_comes_back() {
        let mut epochs = epochs(&[(5, 0)]);
        epochs.note(LeaderEpoch(4), Offset(10));
        epochs.note(LeaderEpoch(5), Offset(20));
        assert_eq!(epochs, self::epochs(&[(5, 0)]));
    }
}
