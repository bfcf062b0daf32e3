//! A reader that waits is woken by what it waits for: where nothing is disturbed and there is
//! something to read, no fetch sleeps to its end.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::time::Instant;

use super::{Evidence, Reading, Violation, blame};
use crate::fault::{Fault, Kind};
use crate::history::Partition;
use crate::plan::{Acks, Plan};

/// Fetches that wait less than this cannot be told from slow ones.
const WAIT_MIN: Duration = Duration::from_millis(200);
/// From the last stop to the first operation of the last reading, at most.
const CLOSING: Duration = Duration::from_secs(5);

pub(super) fn check(evidence: &Evidence<'_>, violations: &mut Vec<Violation>) {
    let wait = evidence.plan.workload.wait;
    if wait < WAIT_MIN || transfer(evidence.plan) > wait / 4 {
        return;
    }
    // Whoever asks for no answer sends faster than the disk writes, and readers stand behind it in
    // the shard's queue. Our library does; the other writers pause.
    let workload = &evidence.plan.workload;
    if workload.acks == Acks::None && workload.library_writers > 0 {
        return;
    }
    let disturbed: Vec<(Duration, Duration)> =
        evidence.plan.faults.iter().filter_map(disturbance).chain(closing(evidence)).collect();
    let mut by_partition: BTreeMap<Partition, Vec<Reading<'_>>> = BTreeMap::new();
    let (_, library) = evidence.plan.library_clients();
    for reading in evidence.reads() {
        // What our library asks for, and when, it does not tell.
        if library.contains(&evidence.history.operations[reading.id.0].client) {
            continue;
        }
        by_partition.entry(reading.partition).or_default().push(reading);
    }
    for (partition, readings) in by_partition {
        let known = known(evidence, partition, &readings);
        for reading in &readings {
            let slept = reading.completed.saturating_since(reading.invoked);
            let first = known.partition_point(|(_, end)| *end <= reading.from);
            let Some((since, end)) = known.get(first).filter(|_| slept >= wait) else { continue };
            let late = reading.completed.saturating_since((*since).max(reading.invoked));
            let (from, to) = (reading.invoked.as_duration(), reading.completed.as_duration());
            let is_quiet = disturbed.iter().all(|(begin, end)| to < *begin || *end < from);
            if late > wait / 2 && is_quiet {
                let sentence = format!(
                    "operation {} read from {} and was answered {} ms after {end} was known",
                    reading.id.0,
                    reading.from,
                    late.as_millis()
                );
                blame(violations, "late-fetch", partition, sentence);
            }
        }
    }
}

/// The stop or the power loss that the last reading follows, which no plan names: what was known
/// before may be lost by it, and the node has to start.
fn closing(evidence: &Evidence<'_>) -> Option<(Duration, Duration)> {
    let first = evidence.history.operations.get(evidence.history.last_phase?)?;
    Some((first.invoked.as_duration().saturating_sub(CLOSING), Duration::MAX))
}

/// What was known of the end of a partition, and since when; both rise.
fn known(
    evidence: &Evidence<'_>,
    partition: Partition,
    readings: &[Reading<'_>],
) -> Vec<(Instant, i64)> {
    let mut known: Vec<(Instant, i64)> =
        readings.iter().map(|reading| (reading.completed, reading.high_watermark)).collect();
    for (append, base) in evidence.acknowledged(partition) {
        if let Some(completed) = evidence.history.operations[append.id.0].completed {
            known.push((completed, base + append.values.len() as i64));
        }
    }
    known.sort_unstable();
    let mut highest = i64::MIN;
    known.retain(|(_, end)| {
        *end > highest && {
            highest = *end;
            true
        }
    });
    known
}

/// How long the largest answer may be under way.
fn transfer(plan: &Plan) -> Duration {
    let (link, workload) = (&plan.link, &plan.workload);
    let batch = workload.records.high * (workload.value_bytes.high + 64);
    let bytes = u64::from(plan.partitions()) * (u64::from(workload.read_bytes) + batch);
    let round = 2 * link.latency.high;
    let windows = bytes / u64::from(link.window) + 1;
    let sent = bytes.saturating_mul(1_000_000).checked_div(link.bandwidth).unwrap_or(0);
    round * windows as u32 + Duration::from_micros(sent) + 4 * plan.disk.read.high
}

/// While a fault and what follows from it may delay an answer; `None` for never.
fn disturbance(fault: &Fault) -> Option<(Duration, Duration)> {
    let seconds = Duration::from_secs;
    let length = match &fault.kind {
        Kind::ClockJump(_) => return None,
        Kind::Crash(fault) => fault.down + seconds(5),
        Kind::PowerLoss(fault) => fault.down + seconds(15),
        Kind::Restart(fault) => fault.down + seconds(45),
        Kind::Pause(fault) => fault.during + seconds(5),
        Kind::Cut(fault) => fault.during + seconds(15),
        Kind::SlowLink(fault) => fault.during + seconds(15),
        Kind::LoseReplies(fault) => fault.during + seconds(15),
        Kind::Reset(_) | Kind::ResetPeers(_) => seconds(5),
        Kind::CutPeers(fault) => fault.during + seconds(15),
        Kind::SlowPeers(fault) => fault.during + seconds(15),
        // Each of up to seven nodes stops, and starts.
        Kind::RollingRestart(fault) => (fault.down * 2 + seconds(45)) * 7,
        Kind::Blackout(fault) => fault.down + seconds(15),
        Kind::Wipe(fault) => fault.down + seconds(30),
        Kind::DiskSlow(fault) => fault.during + seconds(15),
        Kind::DiskStuck(fault) => fault.during + seconds(5),
        Kind::SyncFails(fault) => fault.down + seconds(15),
        // The write, or the read, that fails may come long after.
        Kind::ReadFails(_) | Kind::WriteFails(_) => seconds(3600),
        Kind::DiskFull(fault) => fault.during + fault.down + seconds(15),
        // The partition's leader may change.
        Kind::Reassign(_)
        | Kind::Decommission(_)
        | Kind::Maintenance(_)
        | Kind::ElectPreferred(_)
        | Kind::ElectUnclean(_) => seconds(60),
        Kind::RemoveVoter(_) | Kind::AddVoter(_) | Kind::AddPartitions(_) => seconds(15),
        // What cannot be read is told at once; but nobody knows when it is found.
        Kind::BitFlip(_) | Kind::JournalGone(_) | Kind::MisdirectedWrite(_) => seconds(3600),
    };
    Some((fault.at, fault.at + length))
}
