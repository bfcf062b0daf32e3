//! Reading goes forward: a read begins where it was asked to, has no gap, and stays below the high
//! watermark; watermark and start never go back for whoever asks later; what was acknowledged is
//! readable at once.

use std::collections::BTreeMap;

use quorate_core::time::Instant;

use super::{Evidence, Reading, Violation, blame};
use crate::history::Partition;

pub(super) fn check(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let mut by_partition: BTreeMap<Partition, Vec<Reading<'_>>> = BTreeMap::new();
    for reading in evidence.reads() {
        goes_forward(&reading, violations);
        by_partition.entry(reading.partition).or_default().push(reading);
    }
    for (partition, readings) in by_partition {
        if evidence.promise(partition).survives {
            watermarks_rise(evidence, partition, readings, violations);
        }
    }
}

fn goes_forward(reading: &Reading<'_>, violations: &mut Vec<Violation>) {
    let mut wanted = reading.from;
    for seen in reading.records {
        let offset = seen.offset;
        if offset < wanted {
            let sentence = format!("operation {} got {offset} after {wanted}", reading.id.0);
            blame(violations, "nonmonotonic-poll", reading.partition, sentence);
        } else if offset > wanted {
            let sentence = format!("operation {} got {offset}, not {wanted}", reading.id.0);
            blame(violations, "poll-skip", reading.partition, sentence);
        }
        if offset >= reading.high_watermark {
            let sentence = format!(
                "operation {} got {offset}; the high watermark is {}",
                reading.id.0, reading.high_watermark
            );
            blame(violations, "precommitted-read", reading.partition, sentence);
        }
        wanted = offset + 1;
    }
}

/// One thing known about a partition from some time on.
#[derive(Clone, Copy)]
struct Known {
    since: Instant,
    high_watermark: i64,
    log_start: i64,
}

fn watermarks_rise(
    evidence: &Evidence<'_>,
    partition: Partition,
    mut readings: Vec<Reading<'_>>,
    violations: &mut Vec<Violation>,
) {
    let known = |since, high_watermark, log_start| Known { since, high_watermark, log_start };
    let mut told: Vec<Known> = readings
        .iter()
        .map(|reading| known(reading.completed, reading.high_watermark, reading.log_start))
        .collect();
    for (append, base) in evidence.acknowledged(partition) {
        if let Some(completed) = evidence.history.operations[append.id.0].completed {
            told.push(known(completed, base + append.values.len() as i64, 0));
        }
    }
    told.sort_by_key(|known| known.since);
    readings.sort_by_key(|reading| reading.invoked);
    let (mut place, mut high_watermark, mut log_start) = (0, 0, 0);
    for reading in readings {
        while told.get(place).is_some_and(|known| known.since < reading.invoked) {
            high_watermark = high_watermark.max(told[place].high_watermark);
            log_start = log_start.max(told[place].log_start);
            place += 1;
        }
        // A leader that is new learns what is committed, and tells less until then.
        let alone = evidence.plan.cluster.nodes == 1;
        if reading.high_watermark < high_watermark && alone {
            let sentence = format!(
                "operation {} was told {}, although {high_watermark} was known before",
                reading.id.0, reading.high_watermark
            );
            blame(violations, "high-watermark", partition, sentence);
        }
        if reading.log_start < log_start {
            let sentence = format!(
                "operation {} was told {}, although {log_start} was known before",
                reading.id.0, reading.log_start
            );
            blame(violations, "log-start", partition, sentence);
        }
    }
}
