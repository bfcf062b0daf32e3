//! Whether several data directories hold the same: replicas of one log are equal, byte for byte,
//! wherever both have records and neither is compacted. How far each must reach is not known here.

use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::path::PathBuf;

use quorate_core::id::{Offset, PartitionId};
use serde::Serialize;

/// The batches of one log in one directory, ascending: where each begins, what comes behind it, and
/// a fingerprint of all its bytes.
pub(super) type Batches = Vec<(Offset, Offset, u64)>;

/// What was found of one log that stands in several directories.
#[derive(Debug, Serialize)]
pub(super) struct Compared {
    pub(super) topic: Option<String>,
    pub(super) topic_id: String,
    pub(super) partition: i32,
    pub(super) copies: usize,
    /// Records that every copy has: from here to below `to`.
    pub(super) from: i64,
    pub(super) to: i64,
    /// What some copies have beyond it, in records. After a stop in good order of nodes that are
    /// all in sync, none has.
    pub(super) ahead: i64,
    pub(super) same: bool,
    /// The first difference.
    pub(super) found: Option<String>,
}

pub(super) fn fingerprint(bytes: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// The logs that more than one directory holds, but for the metadata: what a node wrote of its own
/// votes stands among them. One that holds no batch in some copy is compared
/// with nothing, and its records stand in `ahead`.
pub(super) fn compare(directories: &[(PathBuf, BTreeMap<PartitionId, Batches>)]) -> Vec<Compared> {
    let mut copies: BTreeMap<PartitionId, Vec<(&PathBuf, &Batches)>> = BTreeMap::new();
    for (directory, logs) in directories {
        for (partition, batches) in logs.iter().filter(|(log, _)| **log != PartitionId::METADATA) {
            copies.entry(*partition).or_default().push((directory, batches));
        }
    }
    let several = copies.into_iter().filter(|(_, copies)| copies.len() > 1);
    several.map(|(partition, copies)| compare_log(partition, &copies)).collect()
}

fn compare_log(partition: PartitionId, copies: &[(&PathBuf, &Batches)]) -> Compared {
    let start = |batches: &Batches| batches.first().map_or(Offset::ZERO, |(first, ..)| *first);
    let end =
        |batches: &Batches| batches.last().map_or_else(|| start(batches), |(_, next, _)| *next);
    let from = copies.iter().map(|(_, batches)| start(batches)).max().unwrap_or_default();
    let to = copies.iter().map(|(_, batches)| end(batches)).min().unwrap_or_default().max(from);
    let longest = copies.iter().map(|(_, batches)| end(batches)).max().unwrap_or_default();
    let (model_directory, model) = copies[0];
    let difference = copies[1..].iter().find_map(|(directory, batches)| {
        let at = first_difference(between(model, from, to), between(batches, from, to))?;
        let (one, other) = (model_directory.display(), directory.display());
        Some(format!("{one} and {other} differ at offset {at}"))
    });
    Compared {
        topic: None,
        topic_id: partition.topic.to_string(),
        partition: partition.index,
        copies: copies.len(),
        from: from.0,
        to: to.0,
        ahead: longest.0 - to.0,
        same: difference.is_none(),
        found: difference,
    }
}

fn between(batches: &Batches, from: Offset, to: Offset) -> &[(Offset, Offset, u64)] {
    let first = batches.partition_point(|(_, next, _)| *next <= from);
    let last = batches.partition_point(|(base, ..)| *base < to);
    &batches[first.min(last)..last]
}

fn first_difference(
    one: &[(Offset, Offset, u64)],
    other: &[(Offset, Offset, u64)],
) -> Option<Offset> {
    let pair = one.iter().zip(other).find(|(one, other)| one != other);
    match pair {
        Some((one, other)) => Some(one.0.min(other.0)),
        None if one.len() == other.len() => None,
        None => {
            let longer = if one.len() > other.len() { one } else { other };
            longer.get(one.len().min(other.len())).map(|(base, ..)| *base)
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::id::TopicId;

    use super::*;

    fn log(batches: &[(i64, i64, u64)]) -> BTreeMap<PartitionId, Batches> {
        let partition = PartitionId { topic: TopicId([1; 16]), index: 0 };
        let batches =
            batches.iter().map(|(base, next, print)| (Offset(*base), Offset(*next), *print));
        BTreeMap::from([(partition, batches.collect())])
    }

    fn compared(one: &[(i64, i64, u64)], other: &[(i64, i64, u64)]) -> Compared {
        let directories = [("a".into(), log(one)), ("b".into(), log(other))];
        compare(&directories).pop().expect("a log that both hold")
    }

    #[test]
    fn copies_are_compared_where_both_have_records() {
        let same = compared(&[(0, 3, 7), (3, 5, 8)], &[(3, 5, 8), (5, 6, 9)]);
        assert!(same.same && (same.from, same.to, same.ahead) == (3, 5, 1), "{same:?}");
        let other = compared(&[(0, 3, 7), (3, 5, 8)], &[(0, 3, 7), (3, 5, 9)]);
        assert_eq!(other.found.as_deref(), Some("a and b differ at offset 3"));
        let split = compared(&[(0, 3, 7), (3, 5, 8)], &[(0, 5, 7)]);
        assert_eq!(split.found.as_deref(), Some("a and b differ at offset 0"));
        let missing = compared(&[(0, 3, 7), (4, 5, 8)], &[(0, 3, 7), (3, 4, 6), (4, 5, 8)]);
        assert_eq!(missing.found.as_deref(), Some("a and b differ at offset 3"));
        let empty = compared(&[], &[(0, 3, 7)]);
        assert!(empty.same && empty.ahead == 3, "{empty:?}");
        let alone = [("a".into(), log(&[(0, 3, 7)]))];
        assert!(compare(&alone).is_empty());
    }
}
