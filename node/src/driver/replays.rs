//! Which readings of logs are under way for coordinators, and which of them are still heard.

use std::collections::{BTreeSet, HashMap};

use quorate_core::id::PartitionId;

#[derive(Debug, Default)]
pub(super) struct Replays {
    known: HashMap<PartitionId, Known>,
    /// The last number given. No two readings have the same.
    last: u64,
}

/// Of one coordinator, from when its log was opened.
#[derive(Debug, Default)]
struct Known {
    /// Those that have not begun.
    wanted: u32,
    /// Those whose end has not come.
    under_way: BTreeSet<u64>,
    /// The one whose batches are heard; `None` between the wish for another one and its begin.
    heard: Option<u64>,
}

impl Replays {
    /// Another reading is wanted, and begins at the end of the round: what an earlier one has read
    /// is of a leadership that is over, and no part of this one.
    pub(super) fn wanted(&mut self, partition: PartitionId) {
        let known = self.known.entry(partition).or_default();
        known.wanted += 1;
        known.heard = None;
    }

    /// The number of the reading that begins; `None` if whoever wanted it is gone.
    pub(super) fn begin(&mut self, partition: PartitionId) -> Option<u64> {
        let known = self.known.get_mut(&partition)?;
        known.wanted = known.wanted.checked_sub(1)?;
        self.last += 1;
        known.under_way.insert(self.last);
        known.heard = Some(self.last);
        known.heard
    }

    /// Whether what this one has read is told to the coordinator.
    pub(super) fn is_heard(&self, partition: PartitionId, number: u64) -> bool {
        self.known.get(&partition).is_some_and(|known| known.heard == Some(number))
    }

    /// This one ends. Whether the coordinator is told so: it counts those that it has asked for. A
    /// successor of whoever asked for this one would take it for the end of its own.
    pub(super) fn ended(&mut self, partition: PartitionId, number: u64) -> bool {
        self.known.get_mut(&partition).is_some_and(|known| known.under_way.remove(&number))
    }

    /// The log is closed, and its coordinator gone.
    pub(super) fn forget(&mut self, partition: PartitionId) {
        self.known.remove(&partition);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: PartitionId = PartitionId::METADATA;

    #[test]
    fn the_last_one_is_heard_and_each_has_an_end() {
        let mut replays = Replays::default();
        replays.wanted(LOG);
        let first = replays.begin(LOG).unwrap();
        assert!(replays.is_heard(LOG, first));
        replays.wanted(LOG);
        // A batch that waits behind the election in the same round.
        assert!(!replays.is_heard(LOG, first));
        let second = replays.begin(LOG).unwrap();
        assert!(!replays.is_heard(LOG, first) && replays.is_heard(LOG, second));
        assert!(replays.ended(LOG, first) && replays.ended(LOG, second));
        assert!(!replays.ended(LOG, second));
    }

    #[test]
    fn one_of_a_log_that_was_closed_does_not_end_that_of_its_successor() {
        let mut replays = Replays::default();
        replays.wanted(LOG);
        let before = replays.begin(LOG).unwrap();
        replays.wanted(LOG);
        replays.forget(LOG);
        assert_eq!(replays.begin(LOG), None, "nobody wants it any more");
        replays.wanted(LOG);
        let since = replays.begin(LOG).unwrap();
        assert!(!replays.is_heard(LOG, before) && !replays.ended(LOG, before));
        assert!(replays.is_heard(LOG, since) && replays.ended(LOG, since));
    }
}
