//! A value stands once in the log, unless its writer sent it more than once without idempotence.

use std::collections::BTreeMap;

use super::{Evidence, Violation, blame};
use crate::history::Value;

pub(super) fn check(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    for (partition, log) in &evidence.finals {
        let appends = evidence.appends.get(partition).map_or(&[][..], Vec::as_slice);
        let once: BTreeMap<Value, u32> = appends
            .iter()
            .filter(|append| append.producer.is_some() || append.attempts <= 1)
            .flat_map(|append| append.values.iter().map(|value| (*value, append.attempts)))
            .collect();
        let mut first: BTreeMap<Value, i64> = BTreeMap::new();
        for (offset, value) in &log.records {
            let Some(value) = value else { continue };
            let earlier = *first.entry(*value).or_insert(*offset);
            if earlier != *offset
                && let Some(attempts) = once.get(value)
            {
                let sentence = format!(
                    "{value:x} stands at {earlier} and at {offset}; it was sent {attempts} times"
                );
                blame(violations, "duplicate", *partition, sentence);
            }
        }
    }
}
