//! With `LogAppendTime`, timestamps never fall within a partition, across crashes and clock jumps.

use std::collections::BTreeMap;

use super::{Evidence, Violation, blame};
use crate::history::Partition;

pub(super) fn check(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let from = evidence.history.last_phase.unwrap_or(usize::MAX);
    let mut stamps: BTreeMap<Partition, BTreeMap<i64, i64>> = BTreeMap::new();
    for reading in evidence.reads().filter(|reading| reading.id.0 >= from) {
        let topic = evidence.plan.topics.get(reading.partition.topic as usize);
        if topic.is_some_and(|topic| topic.log_append_time) {
            let records = reading.records.iter().map(|seen| (seen.offset, seen.timestamp));
            stamps.entry(reading.partition).or_default().extend(records);
        }
    }
    for (partition, stamps) in stamps {
        let mut last = i64::MIN;
        for (offset, stamp) in stamps {
            if stamp < last {
                let sentence = format!("{stamp} at {offset} follows {last}");
                blame(violations, "append-time", partition, sentence);
            }
            last = stamp;
        }
    }
}
