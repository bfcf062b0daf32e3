//! Order: one offset holds one value, whoever looks; what was acknowledged earlier stands earlier;
//! one producer's batches stand in the order of their sequence numbers; a batch stands together.

use std::collections::BTreeMap;

use quorate_core::time::Instant;

use super::dense::{ByValue, Dense};
use super::{Evidence, FinalLog, Violation, blame};
use crate::history::{Partition, Value};

pub(super) fn check(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    for partition in evidence.appends.keys() {
        // Where the tail may be lost, its offsets are used again.
        if evidence.promise(*partition).unread_survives {
            offsets_agree(evidence, *partition, violations);
            acknowledged_in_order(evidence, *partition, violations);
            sent_in_order(evidence, *partition, violations);
        }
    }
    for (partition, log) in &evidence.finals {
        sequences_rise(evidence, *partition, log, violations);
        batches_stand_together(evidence, *partition, log, violations);
    }
}

fn offsets_agree(evidence: &Evidence<'_>, partition: Partition, violations: &mut Vec<Violation>) {
    let mut holds: Dense<Value> = Dense::default();
    let mut see = |offset: i64, value: Value, operation: usize| {
        let first = *holds.or_insert(offset, value);
        if first != value {
            let sentence =
                format!("offset {offset} held {first:x}; operation {operation} saw {value:x}");
            blame(violations, "inconsistent-offsets", partition, sentence);
        }
    };
    for reading in evidence.reads().filter(|reading| reading.partition == partition) {
        for seen in reading.records {
            if let Some(value) = seen.value {
                see(seen.offset, value, reading.id.0);
            }
        }
    }
    for (append, base) in evidence.acknowledged(partition) {
        for (offset, value) in (base..).zip(append.values) {
            see(offset, *value, append.id.0);
        }
    }
}

/// An append that began after another was acknowledged stands behind it.
fn acknowledged_in_order(
    evidence: &Evidence<'_>,
    partition: Partition,
    violations: &mut Vec<Violation>,
) {
    // (when, offset): acknowledgements that nobody may fall behind.
    let mut told: Vec<(Instant, i64)> = Vec::new();
    let mut asked: Vec<(Instant, i64, usize)> = Vec::new();
    for (append, base) in evidence.acknowledged(partition) {
        let operation = &evidence.history.operations[append.id.0];
        if let Some(completed) = operation.completed {
            told.push((completed, base));
            asked.push((operation.invoked, base, append.id.0));
        }
    }
    told.sort_unstable();
    asked.sort_unstable();
    let (mut place, mut highest) = (0, i64::MIN);
    for (invoked, base, id) in asked {
        while told.get(place).is_some_and(|(completed, _)| *completed < invoked) {
            highest = highest.max(told[place].1);
            place += 1;
        }
        if base <= highest {
            let sentence = format!(
                "operation {id} was put at {base}, although {highest} was acknowledged before it \
                 began"
            );
            blame(violations, "realtime-order", partition, sentence);
        }
    }
}

/// What one client sent later, and never again, does not stand before what it sent earlier: only
/// whoever sends without numbers and again may overtake itself.
fn sent_in_order(evidence: &Evidence<'_>, partition: Partition, violations: &mut Vec<Violation>) {
    let mut last: BTreeMap<u32, (i64, usize)> = BTreeMap::new();
    for (append, base) in evidence.acknowledged(partition) {
        if append.producer.is_none() && append.attempts > 1 {
            continue;
        }
        let client = evidence.history.operations[append.id.0].client;
        if let Some((before, earlier)) = last.insert(client, (base, append.id.0))
            && before >= base
        {
            let id = append.id.0;
            let sentence = format!(
                "operation {id} of c{client} was put at {base}, operation {earlier} before it at \
                 {before}"
            );
            blame(violations, "nonmonotonic-send", partition, sentence);
        }
    }
}

fn sequences_rise(
    evidence: &Evidence<'_>,
    partition: Partition,
    log: &FinalLog,
    violations: &mut Vec<Violation>,
) {
    let mut places: ByValue<i64> = ByValue::with_room(&evidence.numbers);
    for (offset, value) in log.records.iter() {
        if let Some(value) = value {
            places.or_insert(*value, offset);
        }
    }
    let mut found: Vec<_> = evidence.appends.get(&partition).into_iter().flatten().collect();
    // Sequence numbers begin again at 0; a producer's appends do not.
    found.sort_by_key(|append| {
        (append.producer.map(|producer| (producer.id, producer.epoch)), append.id)
    });
    let mut last: Option<(i64, i16, i64)> = None;
    for append in found {
        let Some(producer) = append.producer else { continue };
        let Some(offset) = append.values.first().and_then(|value| places.get(*value)) else {
            continue;
        };
        if let Some((id, epoch, before)) = last
            && (id, epoch) == (producer.id, producer.epoch)
            && before > *offset
        {
            let sentence = format!(
                "producer {id}'s sequence {} stands at {offset}, behind a later one at {before}",
                producer.sequence
            );
            blame(violations, "nonmonotonic-send", partition, sentence);
        }
        last = Some((producer.id, producer.epoch, *offset));
    }
}

fn batches_stand_together(
    evidence: &Evidence<'_>,
    partition: Partition,
    log: &FinalLog,
    violations: &mut Vec<Violation>,
) {
    for (offset, value) in log.records.iter() {
        let Some(value) = value else { continue };
        let Some(writer) = evidence.writers.get(*value) else { continue };
        let appends = evidence.appends.get(&partition).map_or(&[][..], Vec::as_slice);
        let Ok(found) = appends.binary_search_by_key(writer, |append| append.id) else {
            continue;
        };
        let values = appends[found].values;
        let Some(place) = values.iter().position(|other| other == value) else { continue };
        let base = offset - place as i64;
        for (at, wanted) in (base..).zip(values) {
            if at >= log.start
                && log.records.get(at) != Some(&Some(*wanted))
                && !evidence.is_superseded(partition, at, *wanted)
            {
                let sentence = format!("{value:x} stands at {offset} without {wanted:x} at {at}");
                blame(violations, "torn-batch", partition, sentence);
                return;
            }
        }
    }
}
