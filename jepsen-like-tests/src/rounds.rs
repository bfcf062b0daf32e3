//! Rounds against a cluster of processes: each strikes one fault while writers write, waits until
//! the cluster is whole again, and looks whether everything acknowledged is there, once, in order.
//! At the end all nodes stop, and their logs must be the same, byte for byte.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::java_load;
use crate::stopwatch::{Stopwatch, retry, wall_milliseconds};
use crate::trio::Trio;
use crate::wire::{Cluster, Connection, Fetched, Placed, batch};

const TOPIC: &str = "rounds";
/// That of the Java producer.
const JAVA_TOPIC: &str = "java";
/// What we do by default.
const CONFIGS: [(&str, &str); 1] = [("min.insync.replicas", "2")];
const RECORDS_PER_BATCH: usize = 5;
const VALUE_BYTES: usize = 200;
/// From the end of a fault until everything is led and in sync.
const WHOLE_WITHIN: Duration = Duration::from_secs(90);
/// How long it must stay so.
const WHOLE_FOR: Duration = Duration::from_secs(3);
const STOP_WITHIN: Duration = Duration::from_secs(40);

/// What strikes in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Fault {
    /// SIGKILL of the node that leads partition 0.
    Leader,
    /// ... of the one that leads the metadata.
    Controller,
    /// ... of both at once, or of two nodes if one is both.
    Two,
    /// SIGSTOP of a leader for a while.
    Pause,
    /// Nothing passes between a leader and the other nodes; clients reach all.
    Cut,
    /// The others hear nothing of a leader, which hears them.
    Mute,
    /// SIGKILL of every node.
    All,
    /// SIGKILL of a follower, whose disk is empty when it comes back.
    Wipe,
    /// SIGKILL of a leader that never comes back: a fourth node takes over its copies.
    Replace,
}

impl Fault {
    /// Whether each node must have a network of its own.
    #[must_use]
    pub const fn wants_network(self) -> bool {
        matches!(self, Self::Cut | Self::Mute)
    }

    pub const ALL: &[Self] = &[
        Self::Leader,
        Self::Controller,
        Self::Two,
        Self::Pause,
        Self::Cut,
        Self::Mute,
        Self::All,
        Self::Wipe,
        Self::Replace,
    ];
}

/// How long things last.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Of writing, before a fault and after the healing.
    pub calm: Duration,
    /// Of being down, or stopped.
    pub struck: Duration,
    pub partitions: i32,
    /// Kafka's own idempotent producer writes as well.
    pub java: bool,
}

impl Size {
    const fn topics(&self) -> &'static [&'static str] {
        if self.java { &[TOPIC, JAVA_TOPIC] } else { &[TOPIC] }
    }
}

/// What the rounds on one cluster have come to so far.
#[derive(Debug, Default)]
struct Course {
    /// Of batches; no two have the same.
    ids: AtomicU64,
    all: BTreeMap<i32, Vec<Acknowledged>>,
    java: java_load::Acknowledged,
    /// Rounds begun.
    begun: usize,
    /// Nodes that never come back.
    gone: Vec<i32>,
    /// Nodes whose disk was emptied: the next one is another's.
    wiped: Vec<i32>,
}

/// An acknowledged batch of a writer, which has one partition to itself and one batch under way.
#[derive(Debug, Clone, Copy)]
struct Acknowledged {
    base: i64,
    id: u64,
    at: Duration,
}

#[derive(Debug)]
pub struct Round {
    pub fault: Fault,
    pub acknowledged: usize,
    /// From the fault to the next acknowledgement of the partition that it struck.
    pub next_after: Option<Duration>,
    /// From the end of the fault until all was in sync.
    pub whole_after: Option<Duration>,
}

#[derive(Debug, Default)]
pub struct Report {
    pub rounds: Vec<Round>,
    pub violations: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |time: Option<Duration>| {
            time.map_or_else(|| "never".to_owned(), |time| time.as_millis().to_string())
        };
        writeln!(out, "| fault | batches acknowledged | next after (ms) | whole after (ms) |")?;
        writeln!(out, "|---|---|---|---|")?;
        for Round { fault, acknowledged, next_after, whole_after } in &self.rounds {
            let (next, whole) = (millis(*next_after), millis(*whole_after));
            writeln!(out, "| {fault:?} | {acknowledged} | {next} | {whole} |")?;
        }
        for fault in Fault::ALL {
            let of = self.rounds.iter().filter(|round| round.fault == *fault);
            let mut times: Vec<Duration> = of.filter_map(|round| round.next_after).collect();
            times.sort_unstable();
            if times.len() > 1 {
                let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
                let (half, most) = (at(50).as_millis(), at(99).as_millis());
                writeln!(out, "\n{fault:?}, {} times: p50 {half} ms, p99 {most} ms", times.len())?;
            }
        }
        writeln!(out, "\n{} violations.", self.violations.len())?;
        self.violations.iter().take(20).try_for_each(|violation| writeln!(out, "- {violation}"))
    }
}

/// Plays the rounds one after the other on one cluster, whose nodes do not run yet.
///
/// # Errors
/// If processes cannot be started or stopped. What a fault broke is in the report.
pub fn run(
    trio: &mut Trio,
    faults: &[Fault],
    size: Size,
    progress: impl Fn(&str),
) -> io::Result<Report> {
    let mut report = Report::default();
    for id in trio.ids() {
        trio.start(id)?;
    }
    let created = retry(Duration::from_secs(30), || {
        trio.addresses().into_iter().find_map(|address| {
            let mut connection = Connection::brief(address).ok()?;
            let create = |topic| connection.create_replicated(topic, size.partitions, 3, &CONFIGS);
            size.topics().iter().copied().try_for_each(create).ok()
        })
    });
    if created.is_none() || whole(trio, size, &[]).is_none() {
        report.violations.push(format!("no cluster came to be\n{}", trio.last_words()));
        return Ok(report);
    }
    let mut course = Course { ids: AtomicU64::new(1), ..Course::default() };
    for fault in faults {
        let round = play(trio, *fault, size, &mut course)?;
        if round.whole_after.is_none() {
            let seen = trio.describe(TOPIC);
            let sentence = format!("{fault:?}: not whole within {WHOLE_WITHIN:?}: {seen:?}");
            report.violations.push(format!("{sentence}\n{}", trio.last_words()));
        }
        if round.next_after.is_none() {
            report.violations.push(format!("{fault:?}: nothing was acknowledged afterwards"));
        }
        let mut wrong = verify(trio, &course.all);
        if size.java {
            wrong.extend(verify_java(trio, size.partitions, &course.java));
        }
        // The nodes run, and a copy may be a moment behind another.
        wrong.extend(compare(trio, &course.gone, false, &[TOPIC, JAVA_TOPIC])?);
        report.violations.extend(wrong.into_iter().map(|v| format!("{fault:?}: {v}")));
        let (next, whole) = (round.next_after, round.whole_after);
        progress(&format!("{fault:?}: next {next:?}, whole {whole:?}"));
        report.rounds.push(round);
        if !report.violations.is_empty() {
            break;
        }
    }
    let stopped = trio.stop(STOP_WITHIN)?;
    if !stopped.is_empty() {
        progress(&trio.last_words());
    }
    report.violations.extend(stopped);
    report.violations.extend(compare(trio, &course.gone, true, &[TOPIC, JAVA_TOPIC])?);
    if size.java {
        let java_load::Acknowledged { count, given_up, .. } = &course.java;
        progress(&format!("the Java producer: {count} records acknowledged, {given_up} given up"));
    }
    Ok(report)
}

fn play(trio: &mut Trio, fault: Fault, size: Size, course: &mut Course) -> io::Result<Round> {
    course.begun += 1;
    let java = if size.java { Some(trio.java(JAVA_TOPIC, course.begun)?) } else { None };
    let Course { ids, gone, wiped, .. } = &mut *course;
    let ids = &*ids;
    let (stop, fresh, watch) = (AtomicBool::new(false), Mutex::new(Vec::new()), Stopwatch::start());
    let addresses = trio.addresses();
    let mut struck_at = Duration::ZERO;
    let mut whole_after = None;
    std::thread::scope(|scope| {
        for partition in 0..size.partitions {
            let (stop, fresh, addresses) = (&stop, &fresh, &addresses);
            scope.spawn(move || {
                let mine = write(addresses, partition, ids, stop, watch);
                fresh.lock().expect("no writer panics").push((partition, mine));
            });
        }
        let outcome = (|| {
            std::thread::sleep(size.calm);
            struck_at = strike(trio, fault, size, gone, wiped, watch)?;
            whole_after = whole(trio, size, gone);
            if fault == Fault::Wipe {
                trio.all_vote()?;
            }
            std::thread::sleep(size.calm);
            io::Result::Ok(())
        })();
        stop.store(true, Ordering::Relaxed);
        outcome
    })?;
    java.map_or(Ok(()), |java| java.stop(&mut course.java))?;
    let mut round = Round { fault, acknowledged: 0, next_after: None, whole_after };
    for (partition, mine) in fresh.into_inner().expect("no writer panics") {
        round.acknowledged += mine.len();
        if partition == 0 {
            // One that was under way when the fault struck tells nothing of what came after it.
            let later = mine.iter().map(|one| one.at).find(|at| *at > struck_at + GRACE);
            round.next_after = later.map(|at| at - struck_at);
        }
        course.all.entry(partition).or_default().extend(mine);
    }
    Ok(round)
}

/// Answers that were on their way already.
const GRACE: Duration = Duration::from_millis(5);

/// Strikes, waits, and ends the fault. Says when it struck.
fn strike(
    trio: &mut Trio,
    fault: Fault,
    size: Size,
    gone: &mut Vec<i32>,
    wiped: &mut Vec<i32>,
    watch: Stopwatch,
) -> io::Result<Duration> {
    let seen = trio.describe(TOPIC).unwrap_or_default();
    let leader = seen.partitions.first().map_or(1, |partition| partition.leader.max(1));
    let followers: Vec<i32> =
        trio.ids().into_iter().filter(|id| *id != leader && !gone.contains(id)).collect();
    let follower = followers.first().copied();
    let struck: Vec<i32> = match fault {
        Fault::Leader | Fault::Pause | Fault::Cut | Fault::Mute | Fault::Replace => vec![leader],
        Fault::Controller => vec![seen.controller.max(1)],
        Fault::Two if seen.controller != leader => vec![leader, seen.controller.max(1)],
        Fault::Two => [Some(leader), follower].into_iter().flatten().collect(),
        Fault::All => trio.ids().into_iter().filter(|id| !gone.contains(id)).collect(),
        Fault::Wipe => {
            let other = followers.iter().copied().find(|id| !wiped.contains(id));
            other.or(follower).into_iter().collect()
        }
    };
    if fault == Fault::Pause {
        trio.signal(leader, "-STOP")?;
        let at = watch.elapsed();
        std::thread::sleep(size.struck);
        return trio.signal(leader, "-CONT").map(|()| at);
    }
    if let (true, Some(network)) = (fault.wants_network(), trio.network()) {
        let others: Vec<i32> = trio.ids().into_iter().filter(|id| *id != leader).collect();
        let mut ways: Vec<(i32, i32)> = others.iter().map(|other| (leader, *other)).collect();
        if fault == Fault::Cut {
            ways.extend(others.iter().map(|other| (*other, leader)));
        }
        ways.iter().try_for_each(|(from, to)| network.cut(*from, *to))?;
        let at = watch.elapsed();
        std::thread::sleep(size.struck);
        ways.iter().try_for_each(|(from, to)| network.heal(*from, *to))?;
        return Ok(at);
    }
    for id in &struck {
        trio.kill(*id)?;
    }
    let at = watch.elapsed();
    if fault == Fault::Replace {
        gone.extend(struck);
        return Ok(at);
    }
    std::thread::sleep(size.struck);
    for id in &struck {
        if fault == Fault::Wipe {
            trio.wipe(*id)?;
            wiped.push(*id);
        }
        trio.start(*id)?;
    }
    Ok(at)
}

/// Waits until every partition is led, and in sync on three nodes that are not gone, and stays so:
/// a cluster that has not noticed yet looks whole too. Says when that began.
fn whole(trio: &Trio, size: Size, gone: &[i32]) -> Option<Duration> {
    let watch = Stopwatch::start();
    let mut since = None;
    retry(WHOLE_WITHIN, || {
        if is_whole(trio, size, gone).is_none() {
            since = None;
            return None;
        }
        let began = *since.get_or_insert_with(|| watch.elapsed());
        (watch.elapsed() >= began + WHOLE_FOR).then_some(began)
    })
}

fn is_whole(trio: &Trio, size: Size, gone: &[i32]) -> Option<()> {
    std::thread::sleep(Duration::from_millis(20));
    let is_well = |partition: &Placed| {
        let here = partition.in_sync.iter().filter(|id| !gone.contains(id)).count();
        partition.leader >= 0 && here == 3
    };
    let count = usize::try_from(size.partitions).ok()?;
    let is_whole = |topic: &str| {
        let seen = trio.describe(topic).unwrap_or_default();
        seen.partitions.len() == count && seen.partitions.iter().all(is_well)
    };
    size.topics().iter().all(|topic| is_whole(topic)).then_some(())
}

/// One batch after the other, each sent once: what has no answer is not sent again, so that
/// nothing may stand twice.
fn write(
    addresses: &[SocketAddr],
    partition: i32,
    ids: &AtomicU64,
    stop: &AtomicBool,
    watch: Stopwatch,
) -> Vec<Acknowledged> {
    let mut acknowledged = Vec::new();
    let (mut link, mut turn) = (None, 0);
    while !stop.load(Ordering::Relaxed) {
        let Some(connection) = &mut link else {
            // A node that was cut off believes for a while that it leads: others are asked too.
            turn += 1;
            let mut addresses = addresses.to_vec();
            let places = addresses.len();
            addresses.rotate_left(turn % places);
            link =
                leader_of(&addresses, TOPIC, partition).and_then(|at| Connection::brief(at).ok());
            if link.is_none() {
                std::thread::sleep(Duration::from_millis(10));
            }
            continue;
        };
        let id = ids.fetch_add(1, Ordering::Relaxed);
        let values: Vec<Vec<u8>> = (0..RECORDS_PER_BATCH).map(|place| value(id, place)).collect();
        let sent = connection.send_produce(TOPIC, partition, &batch(&values, wall_milliseconds()));
        match sent.and_then(|()| connection.receive_produced()) {
            Ok(Ok(base)) => acknowledged.push(Acknowledged { base, id, at: watch.elapsed() }),
            Ok(Err(_)) => {
                link = None;
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(_) => link = None,
        }
    }
    acknowledged
}

fn leader_of(addresses: &[SocketAddr], topic: &str, partition: i32) -> Option<SocketAddr> {
    addresses.iter().find_map(|address| {
        let seen: Cluster = Connection::brief(*address).ok()?.describe(topic).ok()?;
        let placed = seen.partitions.iter().find(|placed| placed.index == partition)?;
        seen.addresses.get(&placed.leader).copied()
    })
}

fn value(id: u64, place: usize) -> Vec<u8> {
    let mut value = id.to_be_bytes().to_vec();
    value.extend((place as u64).to_be_bytes());
    value.resize(VALUE_BYTES, id as u8);
    value
}

fn parse(value: &[u8]) -> Option<(u64, u64)> {
    let id = u64::from_be_bytes(value.get(..8)?.try_into().ok()?);
    let place = u64::from_be_bytes(value.get(8..16)?.try_into().ok()?);
    value[16..].iter().all(|byte| *byte == id as u8).then_some((id, place))
}

/// Reads everything, and compares with what was acknowledged so far.
fn verify(trio: &Trio, all: &BTreeMap<i32, Vec<Acknowledged>>) -> Vec<String> {
    let mut violations = Vec::new();
    for (partition, acknowledged) in all {
        let found = retry(Duration::from_secs(20), || {
            let address = leader_of(&trio.addresses(), TOPIC, *partition)?;
            read(address, *partition).ok()
        });
        let Some(found) = found else {
            violations.push(format!("{TOPIC}-{partition} cannot be read"));
            continue;
        };
        let mut last = -1;
        for one in acknowledged {
            if one.base <= last {
                violations.push(format!(
                    "{TOPIC}-{partition}: batch {} stands at {}, sent after {last} was told",
                    one.id, one.base
                ));
            }
            last = one.base;
            for (offset, place) in (one.base..).zip(0..RECORDS_PER_BATCH as u64) {
                let there = found.get(&offset);
                if there != Some(&(one.id, place)) {
                    let id = one.id;
                    violations.push(format!(
                        "{TOPIC}-{partition}@{offset}: acknowledged {id}.{place}, found {there:?}"
                    ));
                }
            }
        }
        let mut seen: Vec<_> = found.values().collect();
        seen.sort_unstable();
        if let Some(twice) = seen.windows(2).find(|pair| pair[0] == pair[1]) {
            violations.push(format!("{TOPIC}-{partition}: {:?} stands twice", twice[0]));
        }
    }
    violations
}

fn verify_java(trio: &Trio, partitions: i32, java: &java_load::Acknowledged) -> Vec<String> {
    let of_partition = |partition| {
        let found = retry(Duration::from_secs(20), || {
            let address = leader_of(&trio.addresses(), JAVA_TOPIC, partition)?;
            read_all(address, JAVA_TOPIC, partition).ok()
        });
        match found {
            Some(found) => java.verify(JAVA_TOPIC, partition, &found),
            None => vec![format!("{JAVA_TOPIC}-{partition} cannot be read")],
        }
    };
    (0..partitions).flat_map(of_partition).collect()
}

fn read(address: SocketAddr, partition: i32) -> io::Result<BTreeMap<i64, (u64, u64)>> {
    let found = read_all(address, TOPIC, partition)?;
    let parsed = found.into_iter().map(|found| (found.offset, parse(&found.value)));
    Ok(parsed.map(|(offset, found)| (offset, found.unwrap_or_default())).collect())
}

fn read_all(address: SocketAddr, topic: &str, partition: i32) -> io::Result<Vec<Fetched>> {
    let mut connection = Connection::open(address)?;
    let end = connection.list_offset(topic, partition, -1)?;
    let (mut next, mut found) = (0, Vec::new());
    while next < end {
        let records = connection.fetch(topic, partition, next)?;
        let last = records.last().ok_or_else(|| io::Error::other("nothing comes"))?;
        next = last.offset + 1;
        found.extend(records);
    }
    Ok(found)
}

/// The logs of `topics` on all nodes that are there. Of nodes that have stopped in good order they
/// are of one length.
pub(crate) fn compare(
    trio: &Trio,
    gone: &[i32],
    are_stopped: bool,
    topics: &[&str],
) -> io::Result<Vec<String>> {
    let ids = trio.ids().into_iter().filter(|id| !gone.contains(id));
    let directories: Vec<_> = ids.map(|id| trio.data(id).to_owned()).collect();
    let Some(binary) = trio.binary() else { return Ok(Vec::new()) };
    let output =
        Command::new(binary).args(["log", "verify", "--json"]).args(&directories).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Ok(vec![format!("the copies: {said}")]);
    }
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let compared = report["compared"].as_array().cloned().unwrap_or_default();
    let is_ours = |topic: &serde_json::Value| topics.iter().any(|ours| topic == ours);
    let mut logs = compared.iter().filter(|log| is_ours(&log["topic"])).peekable();
    if logs.peek().is_none() {
        return Ok(vec!["no log has copies to compare".to_owned()]);
    }
    let short = logs.filter(|log| are_stopped && (log["ahead"] != 0 || log["copies"] != 3));
    Ok(short.map(|log| format!("the copies are not of one length: {log}")).collect())
}
