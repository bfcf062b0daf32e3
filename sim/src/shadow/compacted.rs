//! Copies of a log that each node compacts by itself: they need not be equal byte for byte, as
//! Kafka's are not. What must be equal is what compaction means: where both have a record it is the
//! same, and where one has none, it has a later one of the same key.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_core::batch::checksum::checksum;
use quorate_core::batch::{Batch, Records};
use quorate_core::id::Offset;
use quorate_core::reached;

/// A batch is decompressed to so much at most.
const UNCOMPRESSED_MAX: usize = 64 << 20;

/// A record, as far as compaction cares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub key: Option<Bytes>,
    /// Of time, key and value.
    pub content: u32,
    /// It may go for good after its time.
    pub is_tombstone: bool,
}

/// Records by their offsets.
pub type Survivors = BTreeMap<Offset, Kept>;

/// Adds the records of a batch. One that cannot be read adds nothing: recovery judges it.
pub fn gather(batch: &Batch, survivors: &mut Survivors) {
    let Ok(bytes) = batch.uncompressed(UNCOMPRESSED_MAX) else { return };
    for record in Records::new(&bytes, batch.header().record_count()).flatten() {
        let mut said = batch.timestamp_of(&record).0.to_be_bytes().to_vec();
        said.extend_from_slice(record.key.unwrap_or_default());
        said.extend_from_slice(record.value.unwrap_or_default());
        let kept = Kept {
            key: record.key.map(Bytes::copy_from_slice),
            content: checksum(&said),
            is_tombstone: record.value.is_none(),
        };
        survivors.insert(batch.offset_of(&record), kept);
    }
}

/// Takes what the `other` copy has for what stood where this one has rotted: at those offsets for
/// which it has no frame. So nothing is missed there, nor what compaction took in favour of that.
pub fn fill(survivors: &mut Survivors, other: &Survivors, has_frame: impl Fn(Offset) -> bool) {
    for (offset, kept) in other.iter().filter(|(offset, _)| !has_frame(**offset)) {
        reached!("rotten-stretch-filled");
        survivors.entry(*offset).or_insert_with(|| kept.clone());
    }
}

/// The first record at which two copies differ, of those from `start` on, and how; `start` is
/// where the shorter one begins. `jumps`: wall clocks were moved, by more than a tombstone's time
/// perhaps, so that one copy may have lost a tombstone before another lost what that deleted.
pub fn difference(
    one: &Survivors,
    other: &Survivors,
    start: Offset,
    jumps: bool,
) -> Option<(Offset, String)> {
    let lacks = |here: &Survivors, there: &Survivors| {
        let mut last: BTreeMap<&Bytes, Offset> = BTreeMap::new();
        for (offset, kept) in there {
            if let Some(key) = &kept.key {
                last.insert(key, *offset);
            }
        }
        let tombstones = here.iter().filter(|(_, kept)| kept.is_tombstone);
        let buried: BTreeMap<&Bytes, Offset> =
            tombstones.filter_map(|(offset, kept)| Some((kept.key.as_ref()?, *offset))).collect();
        let is_lost = |(offset, kept): &(&Offset, &Kept)| {
            let key = kept.key.as_ref();
            let later = key.and_then(|key| last.get(key));
            // With the tombstone that replaced it, which has had its time there, as it seems.
            let is_buried =
                key.and_then(|key| buried.get(key)).is_some_and(|at| jumps && at > *offset);
            !kept.is_tombstone
                && !there.contains_key(*offset)
                && later.map_or(!is_buried, |later| later < *offset)
        };
        here.range(start..).find(is_lost).map(|(offset, kept)| (*offset, kept.clone()))
    };
    let unequal = one.range(start..).find_map(|(offset, kept)| {
        let there = other.get(offset).filter(|there| *there != kept)?;
        Some((*offset, format!("{kept:?} is {there:?} in the other")))
    });
    let lost = || {
        let missing = lacks(one, other).map(|lost| (lost, "only the first copy has"));
        missing.or_else(|| lacks(other, one).map(|lost| (lost, "only the second copy has")))
    };
    unequal.or_else(|| lost().map(|((offset, kept), who)| (offset, format!("{who} {kept:?}"))))
}

/// Whether what two nodes appended at one place under one leader epoch may be the same batch, of
/// which either has lost what a later record replaced.
pub fn may_be_one(one: &Survivors, other: &Survivors) -> bool {
    one.iter().all(|(offset, kept)| other.get(offset).is_none_or(|there| there == kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(records: &[(i64, &'static str, u32)]) -> Survivors {
        let kept = |&(offset, key, content): &(i64, &'static str, u32)| {
            let key = Some(Bytes::from_static(key.as_bytes()));
            (Offset(offset), Kept { key, content, is_tombstone: content == 0 })
        };
        records.iter().map(kept).collect()
    }

    fn differ(one: &Survivors, other: &Survivors) -> Option<i64> {
        difference(one, other, Offset(0), false).map(|(offset, _)| offset.0)
    }

    #[test]
    fn what_a_later_record_replaced_may_be_gone() {
        let whole = copy(&[(0, "a", 1), (1, "b", 2), (2, "a", 3)]);
        let compacted = copy(&[(1, "b", 2), (2, "a", 3)]);
        assert_eq!((differ(&whole, &compacted), differ(&compacted, &whole)), (None, None));
        let lossy = copy(&[(0, "a", 1), (2, "a", 3)]);
        assert_eq!((differ(&whole, &lossy), differ(&lossy, &whole)), (Some(1), Some(1)));
        let shadowed = copy(&[(0, "a", 1), (1, "b", 2)]);
        assert_eq!(differ(&whole, &shadowed), Some(2), "the older one does not stand for it");
    }

    /// Seed 534 of as many nodes as it draws: one copy had all of a member, two had forgotten it.
    #[test]
    fn where_clocks_jump_what_a_tombstone_replaced_may_be_gone_with_it() {
        let differ = |one, other| difference(one, other, Offset(0), true).map(|(at, _)| at.0);
        let whole = copy(&[(0, "a", 1), (1, "a", 2), (2, "b", 3), (3, "a", 0)]);
        let forgotten = copy(&[(2, "b", 3)]);
        assert_eq!((differ(&whole, &forgotten), differ(&forgotten, &whole)), (None, None));
        let risen = copy(&[(0, "a", 1), (2, "b", 3)]);
        assert_eq!(differ(&whole, &risen), Some(1), "the older one is there again");
        let written_again = copy(&[(0, "a", 1), (3, "a", 0), (4, "a", 5)]);
        assert_eq!(differ(&written_again, &copy(&[(2, "b", 3)])), Some(4));
    }

    #[test]
    fn one_offset_holds_one_record() {
        let one = copy(&[(0, "a", 1), (1, "a", 2)]);
        assert_eq!(differ(&one, &copy(&[(0, "a", 9), (1, "a", 2)])), Some(0));
        assert!(!may_be_one(&one, &copy(&[(0, "a", 9)])));
        assert!(may_be_one(&one, &copy(&[(1, "a", 2)])));
    }

    #[test]
    fn a_tombstone_goes_in_its_time() {
        let with = copy(&[(0, "a", 1), (1, "a", 0)]);
        assert_eq!(differ(&with, &copy(&[])), Some(0), "what it deleted goes first");
        assert_eq!(differ(&copy(&[(1, "a", 0)]), &copy(&[])), None);
    }

    #[test]
    fn what_has_rotted_is_not_missed() {
        let whole = copy(&[(0, "a", 1), (1, "b", 2), (2, "c", 3), (3, "a", 4)]);
        let read = |records: &[(i64, &'static str, u32)]| {
            let mut rotten = copy(records);
            fill(&mut rotten, &whole, |offset| offset < Offset(2));
            rotten
        };
        let compacted = read(&[(1, "b", 2)]);
        assert_eq!((differ(&whole, &compacted), differ(&compacted, &whole)), (None, None));
        let lossy = read(&[(0, "a", 1)]);
        assert_eq!(differ(&whole, &lossy), Some(1), "what can be read is judged");
    }

    #[test]
    fn what_lies_below_the_start_is_all_one() {
        let with = copy(&[(0, "a", 1), (3, "b", 1)]);
        assert_eq!(difference(&with, &copy(&[(3, "b", 1)]), Offset(1), false), None);
    }
}
