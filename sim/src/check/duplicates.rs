//! A value stands once in the log, unless its writer sent it more than once without idempotence:
//! at one offset, whenever somebody looks, also where it has been deleted since. But a replica that
//! began anew behind a deletion does not know who wrote what was deleted: if it leads when that
//! comes again, it is appended again, as in Kafka (the price in decision 0085).

use std::collections::BTreeMap;

use super::dense::ByValue;
use super::{Evidence, Violation, blame};
use crate::history::{End, Partition, Value};

/// Where a value was seen first, and how often it was sent.
type Places = BTreeMap<Partition, ByValue<(Option<i64>, u32)>>;

pub(super) fn check(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let mut places = Places::new();
    for (partition, appends) in &evidence.appends {
        let room = || ByValue::with_room(&evidence.numbers);
        let places = places.entry(*partition).or_insert_with(room);
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
        if earlier == offset {
            return;
        }
        if may_be_forgotten(evidence, (partition, value), earlier, offset) {
            // The next one is compared with the one that stands.
            *first = Some(earlier.max(offset));
        } else {
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

/// Whether a leader need not have known the first of two copies: some replica began anew, and
/// somebody saw that the first was deleted while the second was not there yet, and while its writer
/// still waited: whoever has an answer does not ask again.
fn may_be_forgotten(
    evidence: &Evidence<'_>,
    (partition, value): (Partition, Value),
    one: i64,
    other: i64,
) -> bool {
    let (first, second) = (one.min(other), one.max(other));
    let answered = evidence.writers.get(value).and_then(|id| {
        let operation = &evidence.history.operations[id.0];
        let is_told = matches!(operation.end, End::Appended { base: Some(_), .. });
        operation.completed.filter(|_| is_told)
    });
    evidence.struck.began_anew
        && evidence.reads().any(|reading| {
            reading.partition == partition
                && answered.is_none_or(|at| reading.invoked < at)
                && reading.log_start > first
                && reading.high_watermark <= second
        })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quorate_core::time::Instant;

    use super::*;
    use crate::check::{Struck, check};
    use crate::history::{Call, History, Producer, Seen};
    use crate::plan::draw::draw;
    use crate::plan::{Acks, Flush};
    use crate::workload::values;

    const PARTITION: Partition = Partition { topic: 0, index: 0 };

    /// One value that stands at 0 and is read at `again`. Before, somebody saw a log with this
    /// start and this end. The writer is answered after all that, or `early`.
    fn is_blamed(began_anew: bool, seen: (i64, i64), again: &[i64], early: bool) -> bool {
        let mut history = History::default();
        let value = values::value(0, 16, 1);
        let at = |millis: u64| Instant::ZERO + Duration::from_millis(millis);
        let (partition, acks, producer) = (PARTITION, Acks::All, None);
        let append = Call::Append { partition, values: vec![value], acks, producer, attempts: 1 };
        let written = history.invoke(0, at(0), append);
        let answer = End::Appended { base: Some(0), append_time: None };
        if early {
            history.complete(written, at(1), answer.clone());
        }
        let (log_start, high_watermark) = seen;
        let record = |offset| vec![Seen { offset, value: Some(value), timestamp: 0 }];
        let first = std::iter::once((vec![], high_watermark));
        let later = again.iter().map(|&offset| (record(offset), offset + 1));
        for (millis, (records, high_watermark)) in (2..).zip(first.chain(later)) {
            let call = Call::Read { partition, from: log_start };
            let id = history.invoke(1, at(millis), call);
            history.complete(id, at(millis), End::Read { records, high_watermark, log_start });
        }
        if !early {
            history.complete(written, at(100), answer);
        }
        let struck = Struck { began_anew, ..Struck::default() };
        let mut plan = draw(0);
        plan.workload.acks = Acks::All;
        plan.topics.iter_mut().for_each(|topic| topic.flush = Flush::Durable);
        check(&history, &plan, struck).iter().any(|violation| violation.property == "duplicate")
    }

    #[test]
    fn only_what_was_deleted_before_may_come_again() {
        assert!(!is_blamed(true, (5, 9), &[9], false));
        // No replica has forgotten anything.
        assert!(is_blamed(false, (5, 9), &[9], false));
        // The first copy was still there.
        assert!(is_blamed(true, (0, 9), &[9], false));
        // The second one may have been there before.
        assert!(is_blamed(true, (5, 10), &[9], false));
        // Nobody asked again.
        assert!(is_blamed(true, (5, 9), &[9], true));
        // It comes again once.
        assert!(is_blamed(true, (5, 9), &[9, 12], false));
    }

    /// Seed 584 of three cores. What an idempotent writer sends stands at 1, and is deleted before
    /// it has its answer, which says `again`; meanwhile another one writes at 2.
    fn order_told(began_anew: bool, again: i64) -> Vec<&'static str> {
        let mut history = History::default();
        let at = |millis: u64| Instant::ZERO + Duration::from_millis(millis);
        let (partition, acks) = (PARTITION, Acks::All);
        let producer = Some(Producer { id: 7, epoch: 0, sequence: 0 });
        let other = values::value(1, 16, 1);
        let slow = values::value(0, 16, 1);
        let append = |value, producer| Call::Append {
            partition,
            values: vec![value],
            acks,
            producer,
            attempts: 2,
        };
        let waits = history.invoke(0, at(0), append(slow, producer));
        let read = |history: &mut History, millis, log_start, offset, value| {
            let id = history.invoke(2, at(millis), Call::Read { partition, from: offset });
            let records = vec![Seen { offset, value: Some(value), timestamp: 0 }];
            let high_watermark = offset + 1;
            history.complete(id, at(millis), End::Read { records, high_watermark, log_start });
        };
        read(&mut history, 1, 0, 1, slow);
        let quick = history.invoke(1, at(2), append(other, producer));
        history.complete(quick, at(3), End::Appended { base: Some(2), append_time: None });
        read(&mut history, 4, 2, 2, other);
        let answer = End::Appended { base: Some(again), append_time: None };
        history.complete(waits, at(5), answer);
        let struck = Struck { began_anew, ..Struck::default() };
        let mut plan = draw(0);
        plan.workload.acks = Acks::All;
        plan.topics.iter_mut().for_each(|topic| topic.flush = Flush::Durable);
        let told = check(&history, &plan, struck);
        let told = told.iter().map(|violation| violation.property);
        told.filter(|property| *property == "duplicate" || property.starts_with("G1c")).collect()
    }

    #[test]
    fn what_may_come_again_has_no_place_in_the_order() {
        assert_eq!(order_told(true, 1), [] as [&str; 0]);
        assert_eq!(order_told(true, 3), [] as [&str; 0]);
        assert_eq!(order_told(false, 3), ["duplicate"]);
    }
}
