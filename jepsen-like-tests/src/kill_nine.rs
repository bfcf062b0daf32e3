//! SIGKILL under load, again and again on one data directory: what was acknowledged is there.
//!
//! A process that is killed loses nothing that it gave to the kernel, so this is not the test of
//! syncs (the simulator's power loss is). It is the test of recovery: that a log cut anywhere is
//! taken up again, whole, in order, and how long that takes as the log grows.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::process::{Broker, Recipe, disk_bytes};
use crate::stopwatch::{Stopwatch, retry, wall_milliseconds};
use crate::wire::{Connection, batch};

const TOPIC: &str = "killed";
/// Rounds in a row that may end before anything was acknowledged.
const IDLE_MAX: u32 = 3;

/// How the load looks.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub rounds: u32,
    pub partitions: i32,
    pub writers: u32,
    /// Requests a writer keeps unanswered.
    pub in_flight: usize,
    pub records_per_batch: usize,
    pub value_bytes: usize,
}

/// An acknowledged batch: `count` records of batch `id` from offset `base` on.
#[derive(Debug, Clone, Copy)]
struct Acknowledged {
    partition: i32,
    base: i64,
    id: u64,
    count: i64,
}

#[derive(Debug, Default)]
pub struct Report {
    pub rounds: u32,
    pub acknowledged: u64,
    /// Records that were written but whose answer the kill cut off.
    pub unanswered: u64,
    /// (bytes on disk, time from exec until every partition answered), a round each.
    pub recoveries: Vec<(u64, Duration)>,
    pub violations: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "| kills | data on disk (MiB) | exec to every partition served (ms) |")?;
        writeln!(out, "|---|---|---|")?;
        for (index, chunk) in self.recoveries.chunks(self.recoveries.len().div_ceil(10)).enumerate()
        {
            let bytes = chunk.iter().map(|(bytes, _)| bytes).max().unwrap_or(&0) >> 20;
            let mut times: Vec<u128> = chunk.iter().map(|(_, time)| time.as_millis()).collect();
            times.sort_unstable();
            let (low, middle) = (times[0], times[times.len() / 2]);
            let last = times[times.len() - 1];
            let kills = (index + 1) * chunk.len();
            writeln!(out, "| {kills} | {bytes} | {middle} ({low} to {last}) |")?;
        }
        let Self { rounds, acknowledged, unanswered, violations, .. } = self;
        writeln!(
            out,
            "\n{rounds} kills, {acknowledged} records acknowledged and found, {unanswered} found \
             that were not acknowledged, {} violations.",
            violations.len()
        )?;
        violations.iter().take(20).try_for_each(|violation| writeln!(out, "- {violation}"))
    }
}

/// Kills and restarts the broker `load.rounds` times.
///
/// # Errors
/// If the broker cannot be started or does not come back. Lost records are in the report.
pub fn run(recipe: &Recipe, load: Load, progress: impl Fn(&str)) -> io::Result<Report> {
    let limit = Duration::from_secs(60);
    let mut report = Report::default();
    let mut broker = recipe.start(limit)?;
    Connection::open(recipe.address)?.create_topic(TOPIC, load.partitions, &[])?;
    let ids = AtomicU64::new(0);
    let refused = Mutex::new(None);
    let (mut verified, mut idle) = (BTreeMap::new(), 0);
    for round in 1..=load.rounds {
        let until = Duration::from_millis(150 + u64::from(round) * 7919 % 900);
        let acknowledged =
            load_until_killed(broker, recipe.address, load, (&ids, &refused), until)?;
        let bytes = recipe.data.as_deref().map_or(0, disk_bytes);
        let watch = Stopwatch::start();
        broker = recipe.start(limit)?;
        served(recipe.address, load.partitions, limit)?;
        report.recoveries.push((bytes, watch.elapsed()));
        report.rounds = round;
        report.acknowledged += acknowledged.iter().map(|a| a.count.unsigned_abs()).sum::<u64>();
        verify(recipe.address, load, &acknowledged, &mut verified, &mut report)?;
        idle = if acknowledged.is_empty() { idle + 1 } else { 0 };
        if idle == IDLE_MAX {
            // Kills of a node that takes nothing prove nothing; a full disk did so twice.
            let why = match *refused.lock().expect("no writer panics") {
                Some(code) => format!("the last refusal was error code {code}"),
                None => "and nothing was refused".to_owned(),
            };
            let sentence =
                format!("nothing was acknowledged in {IDLE_MAX} rounds to {round}; {why}");
            report.violations.push(sentence);
        }
        if round % 10 == 0 || !report.violations.is_empty() {
            progress(&format!("{round} kills, {} acknowledged", report.acknowledged));
        }
        if !report.violations.is_empty() {
            break;
        }
    }
    reread(recipe.address, load, &verified, &mut report)?;
    broker.terminate(Duration::from_secs(20))?;
    Ok(report)
}

/// Writers on threads, a kill in the midst of them; what they saw acknowledged.
fn load_until_killed(
    broker: Broker,
    address: SocketAddr,
    load: Load,
    (ids, refused): (&AtomicU64, &Mutex<Option<i16>>),
    until: Duration,
) -> io::Result<Vec<Acknowledged>> {
    let all = Mutex::new(Vec::new());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..load.writers {
            let (all, stop) = (&all, &stop);
            scope.spawn(move || {
                let mut mine = Vec::new();
                // The connection ends by the kill; that is not a failure.
                let _ = write(address, load, writer, (ids, refused), stop, &mut mine);
                all.lock().expect("no writer panics").extend(mine);
            });
        }
        std::thread::sleep(until);
        let killed = broker.kill_nine();
        stop.store(true, Ordering::Relaxed);
        killed
    })?;
    Ok(all.into_inner().expect("no writer panics"))
}

fn write(
    address: SocketAddr,
    load: Load,
    writer: u32,
    (ids, refused): (&AtomicU64, &Mutex<Option<i16>>),
    stop: &AtomicBool,
    mine: &mut Vec<Acknowledged>,
) -> io::Result<()> {
    let mut connection = Connection::open(address)?;
    let mut waiting = std::collections::VecDeque::new();
    let mut turn = i32::try_from(writer).expect("few writers");
    while !stop.load(Ordering::Relaxed) {
        while waiting.len() < load.in_flight {
            let id = ids.fetch_add(1, Ordering::Relaxed);
            let partition = turn % load.partitions;
            turn += 1;
            let values: Vec<Vec<u8>> =
                (0..load.records_per_batch).map(|i| value(id, i, load.value_bytes)).collect();
            connection.send_produce(TOPIC, partition, &batch(&values, wall_milliseconds()))?;
            waiting.push_back((partition, id));
        }
        let (partition, id) = waiting.pop_front().expect("just filled");
        match connection.receive_produced()? {
            Ok(base) => {
                let count = i64::try_from(load.records_per_batch).expect("few");
                mine.push(Acknowledged { partition, base, id, count });
            }
            Err(code) => *refused.lock().expect("no writer panics") = Some(code),
        }
    }
    Ok(())
}

/// The batch's id, the place in the batch, and filling.
fn value(id: u64, index: usize, bytes: usize) -> Vec<u8> {
    let mut value = id.to_be_bytes().to_vec();
    value.extend((index as u64).to_be_bytes());
    value.resize(bytes.max(16), id as u8);
    value
}

fn parse(value: &[u8]) -> Option<(u64, u64)> {
    let id = u64::from_be_bytes(value.get(..8)?.try_into().ok()?);
    let index = u64::from_be_bytes(value.get(8..16)?.try_into().ok()?);
    value[16..].iter().all(|byte| *byte == id as u8).then_some((id, index))
}

fn served(address: SocketAddr, partitions: i32, limit: Duration) -> io::Result<()> {
    retry(limit, || {
        let mut connection = Connection::open(address).ok()?;
        (0..partitions).try_for_each(|p| connection.list_offset(TOPIC, p, -1).map(|_| ())).ok()
    })
    .ok_or_else(|| io::Error::other(format!("not every partition came back within {limit:?}")))
}

/// What was read and checked of a partition: how far, and a fingerprint of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Verified {
    end: i64,
    fingerprint: u64,
}

fn mix(fingerprint: u64, id: u64, index: u64) -> u64 {
    (fingerprint ^ id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index)
        .rotate_left(23)
        .wrapping_mul(0xff51_afd7_ed55_8ccd)
}

/// Reads each partition from where the last check ended, and compares with the acknowledgements.
fn verify(
    address: SocketAddr,
    load: Load,
    acknowledged: &[Acknowledged],
    verified: &mut BTreeMap<i32, Verified>,
    report: &mut Report,
) -> io::Result<()> {
    let mut connection = Connection::open(address)?;
    for partition in 0..load.partitions {
        let state = verified.entry(partition).or_default();
        let mut found = BTreeMap::new();
        let end = connection.list_offset(TOPIC, partition, -1)?;
        read(&mut connection, partition, state, end, |offset, id, index| {
            found.insert(offset, (id, index));
        })?;
        let mine = acknowledged.iter().filter(|a| a.partition == partition);
        let mut expected = 0_u64;
        for a in mine {
            for index in 0..a.count {
                expected += 1;
                let (offset, wanted) = (a.base + index, (a.id, index.unsigned_abs()));
                if found.get(&offset) != Some(&wanted) {
                    report.violations.push(format!(
                        "{TOPIC}-{partition}@{offset}: acknowledged {wanted:?}, found {:?}, \
                         end {end}",
                        found.get(&offset)
                    ));
                }
            }
        }
        let mut ids: Vec<_> = found.values().collect();
        ids.sort_unstable();
        if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            report.violations.push(format!("{TOPIC}-{partition}: {:?} stands twice", twice[0]));
        }
        report.unanswered += (found.len() as u64).saturating_sub(expected);
    }
    Ok(())
}

/// Reads on from `state` to `end`, gapless, and folds it into the fingerprint.
fn read(
    connection: &mut Connection,
    partition: i32,
    state: &mut Verified,
    end: i64,
    mut each: impl FnMut(i64, u64, u64),
) -> io::Result<()> {
    while state.end < end {
        let records = connection.fetch(TOPIC, partition, state.end)?;
        if records.is_empty() {
            let at = state.end;
            return Err(io::Error::other(format!("{TOPIC}-{partition}: nothing at {at} of {end}")));
        }
        for record in records {
            let Some((id, index)) = parse(&record.value).filter(|_| record.offset == state.end)
            else {
                let (at, found) = (state.end, record.offset);
                return Err(io::Error::other(format!(
                    "{TOPIC}-{partition}@{at}: a gap or a foreign record at {found}"
                )));
            };
            each(record.offset, id, index);
            state.fingerprint = mix(state.fingerprint, id, index);
            state.end += 1;
        }
    }
    Ok(())
}

/// At the end everything once more from the beginning: nothing verified may have changed since.
fn reread(
    address: SocketAddr,
    load: Load,
    verified: &BTreeMap<i32, Verified>,
    report: &mut Report,
) -> io::Result<()> {
    let mut connection = Connection::open(address)?;
    for partition in 0..load.partitions {
        let expected = verified.get(&partition).copied().unwrap_or_default();
        let mut again = Verified::default();
        read(&mut connection, partition, &mut again, expected.end, |_, _, _| {})?;
        if again != expected {
            report.violations.push(format!("{TOPIC}-{partition}: what was verified has changed"));
        }
    }
    Ok(())
}
