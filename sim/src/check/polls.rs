//! Reading goes forward: a read begins where it was asked to, has no gap, and stays below the high
//! watermark; watermark and start never go back for whoever asks later; what was acknowledged is
//! readable at once.

use std::collections::BTreeMap;

use quorate_core::time::Instant;

use super::{Evidence, Reading, Violation, blame};
use crate::fault::Kind;
use crate::history::{Call, End, Partition};
use crate::plan::{Acks, Plan};

pub(super) fn check(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let mut by_partition: BTreeMap<Partition, Vec<Reading<'_>>> = BTreeMap::new();
    for reading in evidence.reads() {
        goes_forward(evidence, &reading, violations);
        by_partition.entry(reading.partition).or_default().push(reading);
    }
    for (partition, readings) in by_partition {
        if evidence.promise(partition).survives {
            watermarks_rise(evidence, partition, readings, violations);
            ends_rise(evidence, partition, violations);
        }
    }
}

/// An answer of where a log ends.
struct Ended {
    place: usize,
    invoked: Instant,
    completed: Instant,
    leader_epoch: i32,
    at: i64,
}

fn ended(evidence: &Evidence<'_>, partition: Partition) -> Vec<Ended> {
    let operations = evidence.history.operations.iter().enumerate();
    let ended = operations.filter_map(|(place, operation)| {
        match (&operation.call, &operation.end, operation.completed) {
            (
                Call::Latest { partition: other },
                End::Ends { at, leader_epoch },
                Some(completed),
            ) if *other == partition => {
                let (invoked, leader_epoch, at) = (operation.invoked, *leader_epoch, *at);
                Some(Ended { place, invoked, completed, leader_epoch, at })
            }
            _ => None,
        }
    });
    ended.collect()
}

/// Who asks for the end is told no less than anybody was before by the same leader or an earlier
/// one: a new leader that may know less tells nothing yet (KIP-207). One that was deposed and has
/// not noticed may tell what was true. In the last reading nobody is deposed, and the end is no
/// less than anybody was ever told.
fn ends_rise(evidence: &Evidence<'_>, partition: Partition, violations: &mut Vec<Violation>) {
    let mut asked = ended(evidence, partition);
    let mut told: Vec<(Instant, i32, i64)> =
        asked.iter().map(|ended| (ended.completed, ended.leader_epoch, ended.at)).collect();
    told.sort_unstable();
    asked.sort_by_key(|ended| ended.invoked);
    let last = evidence.history.last_phase.unwrap_or(usize::MAX);
    let mut by_epoch: BTreeMap<i32, i64> = BTreeMap::new();
    let mut told = told.into_iter().peekable();
    for ended in asked {
        while let Some((_, epoch, end)) = told.next_if(|(since, ..)| *since < ended.invoked) {
            let known = by_epoch.entry(epoch).or_default();
            *known = end.max(*known);
        }
        let earlier = by_epoch.range(..=ended.leader_epoch).map(|(_, end)| *end);
        let mut known = earlier.max().unwrap_or_default();
        if ended.place >= last {
            let all = watermarks(evidence, partition);
            let before = all.filter(|known| known.since < ended.invoked);
            known = known.max(before.map(|known| known.high_watermark).max().unwrap_or_default());
        }
        if ended.at < known {
            let Ended { place, leader_epoch, at, .. } = ended;
            let sentence = format!(
                "operation {place} was told {at} in e{leader_epoch}, although {known} was known \
                 before"
            );
            blame(violations, "end-falls", partition, sentence);
        }
    }
}

fn goes_forward(evidence: &Evidence<'_>, reading: &Reading<'_>, violations: &mut Vec<Violation>) {
    let has_gaps = evidence.is_compacted(reading.partition);
    let mut wanted = reading.from;
    for seen in reading.records {
        let offset = seen.offset;
        if offset < wanted {
            let sentence = format!("operation {} got {offset} after {wanted}", reading.id.0);
            blame(violations, "nonmonotonic-poll", reading.partition, sentence);
        } else if offset > wanted && !has_gaps {
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
    /// The start was told to who had asked for it: whoever leads next keeps to it.
    is_promised: bool,
}

/// What readers, writers and those who had records deleted were told.
fn watermarks(evidence: &Evidence<'_>, partition: Partition) -> impl Iterator<Item = Known> {
    let alone = evidence.plan.cluster.nodes == 1;
    evidence.history.operations.iter().filter_map(move |operation| {
        let since = operation.completed.filter(|_| operation.call.partition() == partition)?;
        let is_promised = matches!(operation.end, End::Deleted { .. });
        let (high_watermark, log_start) = match (&operation.call, &operation.end) {
            (_, End::Read { high_watermark, log_start, .. }) => (*high_watermark, *log_start),
            // What one of several leaders alone acknowledged may go with it.
            (Call::Append { values, acks, .. }, End::Appended { base: Some(base), .. })
                if alone || *acks == Acks::All =>
            {
                (base + values.len() as i64, 0)
            }
            (_, End::Deleted { log_start }) => (*log_start, *log_start),
            _ => return None,
        };
        Some(Known { since, high_watermark, log_start, is_promised })
    })
}

/// Whether a leader may go on without noticing that it is none, and tell what was true.
fn may_be_deposed_unawares(plan: &Plan) -> bool {
    plan.cluster.nodes > 1
        && plan.faults.iter().any(|fault| {
            matches!(
                fault.kind,
                Kind::CutPeers(_)
                    | Kind::SlowPeers(_)
                    | Kind::ResetPeers(_)
                    | Kind::Pause(_)
                    | Kind::DiskSlow(_)
                    | Kind::DiskStuck(_)
            )
        })
}

fn watermarks_rise(
    evidence: &Evidence<'_>,
    partition: Partition,
    mut readings: Vec<Reading<'_>>,
    violations: &mut Vec<Violation>,
) {
    // A leader that is new learns what is committed, and what an earlier one had begun to delete,
    // and tells less until then.
    let alone = evidence.plan.cluster.nodes == 1;
    let mut told: Vec<Known> = watermarks(evidence, partition).collect();
    if !alone {
        told.retain(|known| known.is_promised);
    }
    told.sort_by_key(|known| known.since);
    readings.sort_by_key(|reading| reading.invoked);
    let knows = !may_be_deposed_unawares(evidence.plan);
    let (mut place, mut high_watermark, mut log_start) = (0, 0, 0);
    for reading in readings {
        while told.get(place).is_some_and(|known| known.since < reading.invoked) {
            high_watermark = high_watermark.max(told[place].high_watermark);
            log_start = log_start.max(told[place].log_start);
            place += 1;
        }
        if reading.high_watermark < high_watermark && alone {
            let sentence = format!(
                "operation {} was told {}, although {high_watermark} was known before",
                reading.id.0, reading.high_watermark
            );
            blame(violations, "high-watermark", partition, sentence);
        }
        let last = evidence.history.last_phase.unwrap_or(usize::MAX);
        if reading.log_start < log_start && (knows || reading.id.0 >= last) {
            let sentence = format!(
                "operation {} was told {}, although {log_start} was known before",
                reading.id.0, reading.log_start
            );
            blame(violations, "log-start", partition, sentence);
        }
    }
}
