//! `group-skip`: whatever a group has committed to be past, one of its members was given.

use std::collections::BTreeMap;

use super::super::{Evidence, Violation};
use super::{Place, blame};
use crate::history::groups::{GroupCall, GroupEnd};

pub(super) fn check(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let groups = &evidence.history.groups;
    let mut ranges: BTreeMap<Place, Vec<(i64, i64)>> = BTreeMap::new();
    for delivery in &groups.deliveries {
        let place = (delivery.group, delivery.partition);
        ranges.entry(place).or_default().push((delivery.from, delivery.next));
    }
    ranges.values_mut().for_each(|ranges| ranges.sort_unstable());
    // The last word on each.
    let mut committed: BTreeMap<Place, i64> = BTreeMap::new();
    for operation in &groups.operations {
        if let (GroupCall::Fetch { partitions }, GroupEnd::Fetched { offsets }) =
            (&operation.call, &operation.end)
        {
            for (partition, found) in partitions.iter().zip(offsets) {
                if let Some(at) = found {
                    committed.insert((operation.who.group, *partition), at.offset);
                }
            }
        }
    }
    for (place, end) in committed {
        // What was read may be gone, and something else in its place.
        if !evidence.promise(place.1).survives {
            continue;
        }
        let Some(log) = evidence.finals.get(&place.1) else { continue };
        let ranges = ranges.get(&place).map_or(&[][..], Vec::as_slice);
        let offsets = log.records.iter().map(|(offset, _)| offset).filter(|offset| *offset < end);
        if let Some(offset) = skipped(ranges, offsets) {
            let sentence = format!("offset {offset} is below the committed {end}, nobody had it");
            blame(violations, "group-skip", place.0, Some(place.1), sentence);
        }
    }
}

/// The first offset that lies in none of the ranges, which are sorted.
fn skipped(ranges: &[(i64, i64)], mut offsets: impl Iterator<Item = i64>) -> Option<i64> {
    let (mut place, mut end) = (0, i64::MIN);
    offsets.find(|offset| {
        while place < ranges.len() && ranges[place].0 <= *offset {
            end = ranges[place].1.max(end);
            place += 1;
        }
        *offset >= end
    })
}

#[cfg(test)]
mod tests {
    use super::skipped;
    use crate::check::groups::story::Story;

    #[test]
    fn ranges_may_overlap_and_are_half_open() {
        assert_eq!(skipped(&[(0, 5), (2, 3), (5, 8)], 0..8), None);
        assert_eq!(skipped(&[(0, 5), (2, 3), (6, 8)], 0..8), Some(5));
        assert_eq!(skipped(&[(0, 5)], 0..6), Some(5));
        assert_eq!(skipped(&[], [3].into_iter()), Some(3));
        assert_eq!(skipped(&[(2, 4)], [2, 3].into_iter()), None);
    }

    #[test]
    fn what_is_committed_was_delivered() {
        let mut story = Story::new("eager");
        story.written(0, 6).assigned("a", 1, &[0]).delivered(0, 0, 3).delivered(0, 3, 5);
        story.committed("a", 1, 0, 5).fetched(0, Some(5));
        assert_eq!(story.blamed(), [""; 0], "5 is still to come");
        story.committed("a", 1, 0, 6).fetched(0, Some(6));
        assert_eq!(story.blamed(), ["group-skip"]);
    }
}
