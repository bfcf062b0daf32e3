//! What was acknowledged, and what was read, is still there at the end, where it was said to be;
//! and nothing is deleted that nobody asked to delete.

use std::collections::BTreeMap;

use super::{Evidence, FinalLog, Violation, blame};
use crate::history::{Call, End, Partition};

pub(super) fn check(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    for (partition, log) in &evidence.finals {
        start_is_wanted(evidence, *partition, log, violations);
        if evidence.promise(*partition).survives {
            final_is_whole(evidence, *partition, log, violations);
        }
        if evidence.promise(*partition).unread_survives {
            acknowledged_survives(evidence, *partition, log, violations);
        }
    }
    read_survives(evidence, violations);
}

fn acknowledged_survives(
    evidence: &Evidence<'_>,
    partition: Partition,
    log: &FinalLog,
    violations: &mut Vec<Violation>,
) {
    for (append, base) in evidence.acknowledged(partition) {
        for (offset, value) in (base..).zip(append.values) {
            if offset < log.start {
                continue;
            }
            let found = log.records.get(offset);
            if found != Some(&Some(*value)) && !evidence.is_superseded(partition, offset, *value) {
                let found =
                    found.map_or_else(|| "nothing".to_owned(), |found| format!("{found:x?}"));
                let sentence = format!(
                    "operation {} was told that {value:x} is at {offset}; there is {found} \
                     (the log is {}..{})",
                    append.id.0, log.start, log.end
                );
                blame(violations, "lost-write", partition, sentence);
            }
        }
    }
}

fn read_survives(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    for reading in evidence.reads() {
        let Some(log) = evidence.finals.get(&reading.partition) else { continue };
        if !evidence.promise(reading.partition).survives {
            continue;
        }
        for seen in reading.records {
            let partition = reading.partition;
            let gone = |value| evidence.is_superseded(partition, seen.offset, value);
            if seen.offset >= log.start
                && log.records.get(seen.offset) != Some(&seen.value)
                && !seen.value.is_some_and(gone)
            {
                let sentence = format!(
                    "operation {} read {:x?} at {}; it is not there at the end (the log is {}..{})",
                    reading.id.0, seen.value, seen.offset, log.start, log.end
                );
                blame(violations, "lost-read", reading.partition, sentence);
            }
        }
    }
}

/// Between its start and its end, the log has no hole, unless compaction made it.
fn final_is_whole(
    evidence: &Evidence<'_>,
    partition: Partition,
    log: &FinalLog,
    violations: &mut Vec<Violation>,
) {
    if evidence.is_compacted(partition) {
        return;
    }
    let hole = (log.start..log.end).find(|offset| log.records.get(*offset).is_none());
    if let Some(hole) = hole {
        let sentence = format!("the log is {}..{}, but has no record {hole}", log.start, log.end);
        blame(violations, "hole", partition, sentence);
    }
}

/// Whether retention may have raised the start. What has no date is never old.
fn may_be_retired(evidence: &Evidence<'_>, partition: Partition) -> bool {
    let Some(topic) = evidence.plan.topics.get(partition.topic as usize) else { return false };
    let undated = evidence.plan.workload.undated;
    let is_dated = topic.log_append_time || undated.hits < undated.of;
    topic.retention_bytes.is_some() || (topic.retention_time.is_some() && is_dated)
}

/// The log starts at 0, or where a `DeleteRecords` may have put the start.
fn start_is_wanted(
    evidence: &Evidence<'_>,
    partition: Partition,
    log: &FinalLog,
    violations: &mut Vec<Violation>,
) {
    let mut wanted: BTreeMap<Partition, i64> = BTreeMap::new();
    for operation in &evidence.history.operations {
        if let Call::Delete { partition, before } = operation.call
            && operation.end != End::Failed
        {
            let before = before.unwrap_or(i64::MAX);
            let highest = wanted.entry(partition).or_default();
            *highest = before.max(*highest);
        }
    }
    let highest = wanted.get(&partition).copied().unwrap_or(0);
    if log.start > highest && !may_be_retired(evidence, partition) {
        let sentence = format!("the log starts at {}; nobody deleted beyond {highest}", log.start);
        blame(violations, "deleted-unasked", partition, sentence);
    }
    for operation in &evidence.history.operations {
        if let (Call::Delete { partition: other, .. }, End::Deleted { log_start }) =
            (&operation.call, &operation.end)
            && *other == partition
            && log.start < *log_start
            && evidence.promise(partition).survives
        {
            let sentence = format!("the start was said to be {log_start}, now it is {}", log.start);
            blame(violations, "undeleted", partition, sentence);
        }
    }
}
