//! A value stands once in the log, unless its writer sent it more than once without idempotence:
//! at one offset, whenever somebody looks, also where it has been deleted since.

use std::collections::BTreeMap;

use super::dense::ByValue;
use super::{Evidence, Violation, blame};
use crate::history::{Partition, Value};

/// Where a value was seen first, and how often it was sent.
type Places = BTreeMap<Partition, ByValue<(Option<i64>, u32)>>;

pub(super) fn check(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let mut places = Places::new();
    for (partition, appends) in &evidence.appends {
        let places = places.entry(*partition).or_default();
        for append in appends {
            if append.producer.is_some() || append.attempts <= 1 {
                for value in append.values {
                    places.or_insert(*value, (None, append.attempts));
                }
            }
        }
    }
    let mut see = |partition: Partition, offset: i64, value: Value| {
        let found = places.get_mut(&partition).and_then(|places| places.get_mut(value));
        let Some((first, attempts)) = found else { return };
        let earlier = *first.get_or_insert(offset);
        if earlier != offset {
            let sentence = format!(
                "{value:x} stands at {earlier} and at {offset}; it was sent {attempts} times"
            );
            blame(violations, "duplicate", partition, sentence);
        }
    };
    for (partition, log) in &evidence.finals {
        for (offset, value) in log.records.iter() {
            if let Some(value) = value {
                see(*partition, offset, *value);
            }
        }
    }
    // Where the tail may be lost, what was read there may be appended again.
    for reading in evidence.reads() {
        if evidence.promise(reading.partition).survives {
            for seen in reading.records {
                if let Some(value) = seen.value {
                    see(reading.partition, seen.offset, value);
                }
            }
        }
    }
    for partition in evidence.appends.keys() {
        if evidence.promise(*partition).unread_survives {
            for (append, base) in evidence.acknowledged(*partition) {
                for (offset, value) in (base..).zip(append.values) {
                    see(*partition, offset, *value);
                }
            }
        }
    }
}
