//! A cluster of many partitions: how long they take to make, what they cost when nothing happens,
//! and how long the cluster needs when the node that leads its metadata is killed.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::stopwatch::{Stopwatch, retry, wall_milliseconds};
use crate::trio::Trio;
use crate::wire::{Cluster, Connection, batch};

/// Partitions of one topic, at most: a request makes one.
const TOPIC_PARTITIONS: i32 = 500;
const CLUSTER_WITHIN: Duration = Duration::from_secs(60);
const WHOLE_WITHIN: Duration = Duration::from_secs(600);
/// How long nothing happens while the cost of that is taken.
const IDLE: Duration = Duration::from_secs(20);
/// Time between what made work and the taking of that cost.
const SETTLED: Duration = Duration::from_secs(10);
const TICKS_PER_SECOND: f64 = 100.0;
const REPLICAS: i16 = 3;

/// What the nodes use together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Idle {
    /// Of one core.
    pub percent: f64,
    /// Through the loopback device, of everything on this machine.
    pub bytes_per_second: f64,
    /// Resident, all nodes.
    pub resident: u64,
}

/// What was found.
#[derive(Debug)]
pub struct Report {
    pub partitions: i32,
    /// Until the last partition was led and in sync everywhere.
    pub made_after: Duration,
    pub empty: Idle,
    pub full: Idle,
    /// From the kill of the node that leads the metadata to the next topic made.
    pub decides_after: Duration,
    /// ... to a leader that lives for each partition.
    pub led_after: Duration,
    /// ... to a record acknowledged in each partition.
    pub written_after: Duration,
    /// From its new start until everything was in sync again.
    pub whole_after: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{} partitions, three copies each", self.partitions)?;
        writeln!(out, "made and in sync after {:?}", self.made_after)?;
        for (name, idle) in [("without them", self.empty), ("with them", self.full)] {
            let Idle { percent, bytes_per_second, resident } = idle;
            let megabytes = resident >> 20;
            writeln!(
                out,
                "idle {name}: {percent:.1} % of a core, {bytes_per_second:.0} bytes/s, \
                 {megabytes} MiB resident in all"
            )?;
        }
        writeln!(out, "controller killed: next topic after {:?}", self.decides_after)?;
        writeln!(out, "every partition led after {:?}", self.led_after)?;
        writeln!(out, "a record in each acknowledged after {:?}", self.written_after)?;
        writeln!(out, "started again: in sync after {:?}", self.whole_after)
    }
}

fn failed(what: &str, trio: &Trio) -> io::Error {
    io::Error::other(format!("{what}\n{}", trio.last_words()))
}

/// Plays it on a cluster whose nodes do not run yet.
///
/// # Errors
/// If processes cannot be started, or the cluster does not come where it should within minutes.
pub fn run(trio: &mut Trio, partitions: i32, progress: impl Fn(&str)) -> io::Result<Report> {
    trio.start_all(CLUSTER_WITHIN, "first")?;
    std::thread::sleep(SETTLED);
    let empty = idle(trio)?;
    let watch = Stopwatch::start();
    let topics = topics(partitions);
    for (topic, count) in &topics {
        let made = retry(CLUSTER_WITHIN, || make(trio, topic, *count, REPLICAS));
        made.ok_or_else(|| failed(&format!("{topic} could not be made"), trio))?;
    }
    until(trio, &topics, "not all in sync", in_sync)?;
    let made_after = watch.elapsed();
    progress(&format!("{partitions} partitions after {made_after:?}"));
    std::thread::sleep(SETTLED);
    let full = idle(trio)?;
    let before = trio.describe("first").ok_or_else(|| failed("nobody answers", trio))?;
    let controller = before.controller.max(1);
    trio.kill(controller)?;
    let watch = Stopwatch::start();
    let made = retry(CLUSTER_WITHIN, || make(trio, "after", 1, 2));
    made.ok_or_else(|| failed("no topic can be made any more", trio))?;
    let decides_after = watch.elapsed();
    let led = |seen: &Cluster| {
        seen.partitions.iter().all(|one| one.leader >= 0 && one.leader != controller)
    };
    until(trio, &topics, "not all led", led)?;
    let led_after = watch.elapsed();
    write_everywhere(trio, &topics)?;
    let written_after = watch.elapsed();
    progress(&format!("a record in each after {written_after:?}"));
    trio.start(controller)?;
    let watch = Stopwatch::start();
    until(trio, &topics, "not all in sync again", in_sync)?;
    let whole_after = watch.elapsed();
    let wrong = trio.stop(Duration::from_secs(60))?;
    if !wrong.is_empty() {
        return Err(io::Error::other(wrong.join("\n")));
    }
    Ok(Report {
        partitions,
        made_after,
        empty,
        full,
        decides_after,
        led_after,
        written_after,
        whole_after,
    })
}

fn topics(partitions: i32) -> Vec<(String, i32)> {
    let count = (partitions + TOPIC_PARTITIONS - 1) / TOPIC_PARTITIONS;
    let of = |place: i32| (partitions - place * TOPIC_PARTITIONS).min(TOPIC_PARTITIONS);
    (0..count).map(|place| (format!("many{place}"), of(place))).collect()
}

fn make(trio: &Trio, topic: &str, partitions: i32, replicas: i16) -> Option<()> {
    trio.addresses().into_iter().find_map(|address| {
        let mut connection = Connection::brief(address).ok()?;
        connection.create_replicated(topic, partitions, replicas, &[]).ok()
    })
}

fn in_sync(seen: &Cluster) -> bool {
    seen.partitions.iter().all(|one| one.leader >= 0 && one.in_sync.len() == 3)
}

/// Waits until every topic has all its partitions, and they are so.
fn until(
    trio: &Trio,
    topics: &[(String, i32)],
    otherwise: &str,
    so: impl Fn(&Cluster) -> bool,
) -> io::Result<()> {
    let mut place = 0;
    let reached = retry(WHOLE_WITHIN, || {
        while let Some((topic, count)) = topics.get(place) {
            let seen = trio.describe(topic)?;
            if seen.partitions.len() != usize::try_from(*count).ok()? || !so(&seen) {
                return None;
            }
            place += 1;
        }
        Some(())
    });
    reached.ok_or_else(|| failed(otherwise, trio))
}

/// One record in each partition, acknowledged by all in sync; again where it was not.
fn write_everywhere(trio: &Trio, topics: &[(String, i32)]) -> io::Result<()> {
    for (topic, count) in topics {
        let mut missing: BTreeSet<i32> = (0..*count).collect();
        let written = retry(CLUSTER_WITHIN, || {
            let seen = trio.describe(topic)?;
            for (leader, address) in &seen.addresses {
                let led = seen.partitions.iter().filter(|one| one.leader == *leader);
                let wanted = led.map(|one| one.index).filter(|index| missing.contains(index));
                let wanted: Vec<i32> = wanted.collect();
                // A node that is gone, or leads no more: asked for again.
                let done = write_to(*address, topic, &wanted).unwrap_or_default();
                missing.retain(|index| !done.contains(index));
            }
            missing.is_empty().then_some(())
        });
        written.ok_or_else(|| failed(&format!("{topic} {missing:?}: not written"), trio))?;
    }
    Ok(())
}

/// The partitions that acknowledged.
fn write_to(address: SocketAddr, topic: &str, partitions: &[i32]) -> io::Result<Vec<i32>> {
    if partitions.is_empty() {
        return Ok(Vec::new());
    }
    let mut connection = Connection::brief(address)?;
    let record = batch(&[b"one".to_vec()], wall_milliseconds());
    for partition in partitions {
        connection.send_produce(topic, *partition, &record)?;
    }
    let mut done = Vec::new();
    for partition in partitions {
        match connection.receive_produced() {
            Ok(Ok(_)) => done.push(*partition),
            Ok(Err(_)) => {}
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Ticks of all nodes, and bytes through the loopback device.
fn spent(trio: &Trio) -> io::Result<(f64, f64)> {
    let mut ticks = 0.0;
    for pid in trio.pids() {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let numbers = fields.split_whitespace().skip(11).take(2);
        ticks += numbers.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>();
    }
    let devices = fs::read_to_string("/proc/net/dev")?;
    let lo = devices.lines().find_map(|line| line.trim().strip_prefix("lo:"));
    let received = lo.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    Ok((ticks, received.unwrap_or(0.0)))
}

fn idle(trio: &Trio) -> io::Result<Idle> {
    let watch = Stopwatch::start();
    let (ticks, bytes) = spent(trio)?;
    std::thread::sleep(IDLE);
    let (ticks_later, bytes_later) = spent(trio)?;
    let seconds = watch.elapsed().as_secs_f64();
    let resident = trio.pids().iter().map(|pid| resident(*pid)).sum();
    Ok(Idle {
        percent: (ticks_later - ticks) / TICKS_PER_SECOND / seconds * 100.0,
        bytes_per_second: (bytes_later - bytes) / seconds,
        resident,
    })
}

fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) * 1024
}
