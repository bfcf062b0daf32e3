//! Consume, transform, produce, once and only once, on three real nodes. Clients by franz-go write
//! in transactions, and copy in transactions with their offsets; clients by librdkafka read what is
//! committed; nodes and clients are killed, stopped and cut off meanwhile. What they did and were
//! told, and what stands there at the end, goes before the simulator's checkers.

mod crew;
mod judge;
mod storm;
mod told;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crew::{Crew, Part};
use quorate_sim::history::transactions::{Place, Stamp, Stamped, Topic};
use storm::{Storm, ask};
use told::Told;

use crate::rounds;
use crate::stopwatch::{Stopwatch, retry};
use crate::trio::Trio;
use crate::wire::Connection;

/// Where producers write, and where copiers do; as the simulator's checkers name them.
const TOPICS: [&str; 2] = ["x0", "x1"];
const GROUP: &str = "xg";
/// Of each topic; as client.py has it.
const PARTITIONS: i32 = 4;
const TICK: Duration = Duration::from_millis(20);
/// How often it is looked whether copies get on.
const SAMPLE: Duration = Duration::from_secs(5);
/// From the end of all faults until everything is in sync; until each producer has committed
/// something; and until everything is copied, and nothing is open.
const PATIENCE: Duration = Duration::from_secs(150);
const STOP_WITHIN: Duration = Duration::from_secs(40);

/// How much, how long, and by which chance.
#[derive(Debug)]
pub struct Size {
    pub storm: Duration,
    pub producers: i32,
    pub copiers: i32,
    pub readers: i32,
    pub seed: u64,
    /// Whoever writes speaks the protocol before KIP-890.
    pub older: bool,
    /// A bug of the clients that must be found; those of the older protocol have it.
    pub planted: Option<String>,
}

impl Size {
    #[must_use]
    pub const fn clients(&self) -> i32 {
        self.producers + self.copiers + self.readers
    }
}

#[derive(Debug, Default)]
pub struct Report {
    pub inputs: usize,
    pub outputs: usize,
    outcomes: BTreeMap<&'static str, usize>,
    lives: usize,
    processes: u32,
    views: usize,
    faults: BTreeMap<(storm::Target, storm::Kind), usize>,
    /// The longest time in which nothing was written to the copies.
    still: Duration,
    /// From the end of the faults until all was copied and nothing open.
    settled_after: Duration,
    pub violations: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "| struck | how | times |\n|---|---|---|")?;
        for ((target, kind), times) in &self.faults {
            writeln!(out, "| {target:?} | {kind:?} | {times} |")?;
        }
        let all: usize = self.outcomes.values().sum();
        let outcomes: Vec<String> =
            self.outcomes.iter().map(|(name, count)| format!("{count} {name}")).collect();
        let Self { inputs, outputs, lives, processes, views, .. } = self;
        writeln!(
            out,
            "\n{inputs} committed inputs, {outputs} committed outputs; {all} transactions ({}) in \
             {lives} lives of {processes} processes; {views} readings; {} strikes.",
            outcomes.join(", "),
            self.faults.values().sum::<usize>(),
        )?;
        let (still, settled) = (self.still.as_secs(), self.settled_after.as_secs());
        writeln!(
            out,
            "Nothing was copied for {still} s at most; all was settled {settled} s after the last \
             fault.\n\n{} violations.",
            self.violations.len()
        )?;
        self.violations.iter().take(20).try_for_each(|violation| writeln!(out, "- {violation}"))
    }
}

/// Plays it on a cluster whose nodes, each with a network of its own, do not run yet.
///
/// # Errors
/// If processes or networks do not obey. What was broken is in the report.
pub fn run(
    trio: &mut Trio,
    root: &Path,
    folder: &Path,
    size: &Size,
    progress: impl Fn(&str),
) -> io::Result<Report> {
    let mut report = Report::default();
    trio.ids().into_iter().try_for_each(|id| trio.start(id))?;
    let created = retry(PATIENCE, || {
        ask(trio, &[], |connection| {
            let configs = [("min.insync.replicas", "2")];
            let mut create = |topic| connection.create_replicated(topic, PARTITIONS, 3, &configs);
            TOPICS.into_iter().try_for_each(&mut create)
        })
    });
    if created.is_none() || whole(trio).is_none() {
        report.violations.push(format!("no cluster came to be\n{}", trio.last_words()));
        return Ok(report);
    }
    let bootstrap: Vec<String> = trio.addresses().iter().map(ToString::to_string).collect();
    let parts = [
        (Part::Produces, size.producers),
        (Part::Copies, size.copiers),
        (Part::Reads, size.readers),
    ];
    let nodes = i32::try_from(trio.ids().len()).expect("few nodes");
    let mut crew = Crew::new(root, folder, bootstrap.join(","), &parts, nodes, size);
    let mut storm = Storm::new(size.seed);
    weather(trio, &mut crew, &mut storm, size, folder, &mut report, &progress)?;
    report.faults.clone_from(&storm.counts);
    progress("the storm is over");
    settle(trio, &mut crew, &mut report, &progress)?;
    report.processes = crew.begun;
    let mut told = Told::default();
    for (number, (_, text)) in crew.told()? {
        told.take(number, &text).map_err(io::Error::other)?;
    }
    read_last(trio, &crew, &mut told)?;
    let stopped = trio.stop(STOP_WITHIN)?;
    report.violations.extend(stopped);
    report.violations.extend(rounds::compare(trio, &[], true, &TOPICS)?);
    conclude(told, &mut report);
    Ok(report)
}

/// Faults strike, and clients go on as they can.
fn weather(
    trio: &mut Trio,
    crew: &mut Crew,
    storm: &mut Storm,
    size: &Size,
    folder: &Path,
    report: &mut Report,
    progress: impl Fn(&str),
) -> io::Result<()> {
    let mut log = fs::File::create(folder.join("storm.log"))?;
    let watch = Stopwatch::start();
    let mut copied = [0; PARTITIONS as usize];
    let (mut grew, mut sampled, mut minute) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    while watch.elapsed() < size.storm {
        let now = watch.elapsed();
        let network = trio.network().ok_or_else(|| io::Error::other("no network"))?;
        crew.revive(network, now)?;
        for line in storm.blow(now, trio, crew)? {
            writeln!(log, "{now:.3?} {line}")?;
        }
        if now >= sampled + SAMPLE {
            sampled = now;
            for (partition, copied) in (0..PARTITIONS).zip(&mut copied) {
                let end = end_of_copies(trio, &storm.struck_nodes(), partition);
                if let Some(end) = end.filter(|end| end > copied) {
                    (*copied, grew) = (end, now);
                }
            }
            report.still = report.still.max(now.saturating_sub(grew));
        }
        if now >= minute {
            minute += Duration::from_secs(60);
            let strikes: usize = storm.counts.values().sum();
            let copied: i64 = copied.iter().sum();
            progress(&format!("{} s: {strikes} strikes, copies to {copied}", now.as_secs()));
        }
        std::thread::sleep(TICK);
    }
    storm.calm(trio, crew)
}

/// Everything works again: all copies are in sync, each producer commits, everything is copied.
fn settle(
    trio: &Trio,
    crew: &mut Crew,
    report: &mut Report,
    progress: impl Fn(&str),
) -> io::Result<()> {
    let watch = Stopwatch::start();
    let network = trio.network().ok_or_else(|| io::Error::other("no network"))?;
    let marks = crew.marks()?;
    if whole(trio).is_none() {
        let words = trio.last_words();
        report.violations.push(format!("liveness: not whole within {PATIENCE:?}\n{words}"));
    }
    let working = retry(PATIENCE, || {
        crew.revive(network, watch.elapsed()).ok()?;
        std::thread::sleep(SAMPLE / 10);
        let done = crew.committed_since(&marks).ok()?;
        let is_done = |part: Part, all: bool| {
            let mut own = (0..crew.slots.len()).filter(|slot| crew.slots[*slot].part == part);
            if all {
                own.all(|slot| done.contains(&slot))
            } else {
                own.any(|slot| done.contains(&slot))
            }
        };
        (is_done(Part::Produces, true) && is_done(Part::Copies, false)).then_some(())
    });
    if working.is_none() {
        let done = crew.committed_since(&marks)?;
        let sentence = format!("liveness: only the clients {done:?} commit after the healing");
        report.violations.push(sentence);
    }
    progress("all works; producers and readers are dismissed");
    for part in [Part::Produces, Part::Reads] {
        report.violations.extend(crew.dismiss(part)?);
    }
    let copied = retry(PATIENCE, || {
        crew.revive(network, watch.elapsed()).ok()?;
        std::thread::sleep(SAMPLE / 10);
        if open(trio).is_some() {
            return None;
        }
        let mut told = Told::default();
        told.take(0, &crew.read_last(network).ok()?).ok()?;
        (told::behind(&told.all) == 0).then_some(())
    });
    if copied.is_none() {
        let sentence = format!("liveness: not everything is copied within {PATIENCE:?}");
        report.violations.push(sentence);
    }
    // Nobody writes any more when the last reading begins.
    report.violations.extend(crew.dismiss(Part::Copies)?);
    if retry(PATIENCE, || open(trio).is_none().then_some(())).is_none() {
        let place = open(trio).unwrap_or_default();
        report.violations.push(format!("hanging-transaction {place}: it is not ended"));
    }
    report.violations.extend(hanging(trio)?);
    report.settled_after = watch.elapsed();
    Ok(())
}

/// What `quorate txn list --hanging` says, if it names any.
fn hanging(trio: &Trio) -> io::Result<Vec<String>> {
    let Some(binary) = trio.binary() else { return Ok(Vec::new()) };
    let bootstrap: Vec<String> = trio.addresses().iter().map(ToString::to_string).collect();
    let arguments = ["--bootstrap", &bootstrap.join(","), "--json", "txn", "list", "--hanging"];
    let output = Command::new(binary).args(arguments).output()?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let listed: Option<Vec<serde_json::Value>> = serde_json::from_str(&said).ok();
    if listed.is_some_and(|listed| listed.is_empty()) {
        return Ok(Vec::new());
    }
    let complaints = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Ok(vec![format!("hanging-transaction: {said}{complaints}")])
}

/// Waits until every partition has three copies in sync.
fn whole(trio: &Trio) -> Option<()> {
    retry(PATIENCE, || {
        std::thread::sleep(TICK);
        let are_whole = |topic: &str| {
            let seen = trio.describe(topic).unwrap_or_default().partitions;
            seen.len() == PARTITIONS as usize
                && seen.iter().all(|it| it.leader >= 0 && it.in_sync.len() == 3)
        };
        TOPICS.into_iter().all(are_whole).then_some(())
    })
}

/// A connection to the leader of a partition.
fn leader(trio: &Trio, struck: &[i32], topic: &str, partition: i32) -> Option<Connection> {
    let seen = ask(trio, struck, |connection| connection.describe(topic))?;
    let placed = seen.partitions.iter().find(|placed| placed.index == partition)?;
    if struck.contains(&placed.leader) {
        return None;
    }
    Connection::brief(*seen.addresses.get(&placed.leader)?).ok()
}

/// Up to where copies are decided in a partition, if it can be asked for.
fn end_of_copies(trio: &Trio, struck: &[i32], partition: i32) -> Option<i64> {
    leader(trio, struck, TOPICS[1], partition)?.last_stable(TOPICS[1], partition).ok()
}

/// A partition in which a transaction is open, or of which nobody knows.
fn open(trio: &Trio) -> Option<String> {
    let is_open = |(topic, partition): &(&str, i32)| {
        let ends = leader(trio, &[], topic, *partition).and_then(|mut connection| {
            let stable = connection.last_stable(topic, *partition).ok()?;
            Some((stable, connection.list_offset(topic, *partition, -1).ok()?))
        });
        ends.is_none_or(|(stable, end)| stable != end)
    };
    let all = TOPICS.iter().flat_map(|topic| (0..PARTITIONS).map(|index| (*topic, index)));
    all.filter(is_open).map(|(topic, index)| format!("{topic}-{index}")).next()
}

/// All that stands there, by a foreign client, and who wrote it, by our own eyes.
fn read_last(trio: &Trio, crew: &Crew, told: &mut Told) -> io::Result<()> {
    let network = trio.network().ok_or_else(|| io::Error::other("no network"))?;
    told.take(0, &crew.read_last(network)?).map_err(io::Error::other)?;
    for (topic, name) in [(Topic::Input, TOPICS[0]), (Topic::Output, TOPICS[1])] {
        for index in 0..PARTITIONS {
            let batches = stamps(trio, name, index)?;
            let place = Place { topic, index: index.unsigned_abs() };
            told.all.last.entry(place).or_default().batches = batches;
        }
    }
    Ok(())
}

fn stamps(trio: &Trio, topic: &str, partition: i32) -> io::Result<Vec<Stamped>> {
    let nobody = || io::Error::other(format!("{topic}-{partition} has no leader"));
    let mut connection = leader(trio, &[], topic, partition).ok_or_else(nobody)?;
    let end = connection.list_offset(topic, partition, -1)?;
    let (mut next, mut all) = (0, Vec::new());
    while next < end {
        let found = connection.stamps(topic, partition, next)?;
        let last = found.last().ok_or_else(|| io::Error::other("nothing comes"))?;
        next = last.last + 1;
        all.extend(found.iter().map(|it| Stamped {
            offset: it.base,
            producer: it.producer,
            epoch: it.epoch,
            kind: match it.coordinator_epoch {
                Some(coordinator_epoch) => Stamp::Marker { coordinator_epoch, committed: None },
                None => Stamp::Records { sequence: it.sequence, count: it.count },
            },
        }));
    }
    Ok(all)
}

/// The checkers' word, and the numbers.
fn conclude(told: Told, report: &mut Report) {
    report.outcomes = told.outcomes();
    report.violations.extend(told.odd.iter().map(|odd| format!("an answer: {odd}")));
    let (all, violations) = judge::judge(told.all);
    report.violations.extend(violations.iter().map(ToString::to_string));
    report.inputs = told::committed(&all, Topic::Input);
    report.outputs = told::committed(&all, Topic::Output);
    report.lives = all.lives.len();
    report.views = all.views.len();
    if report.inputs == 0 {
        report.violations.push("nothing was committed".to_owned());
    }
}
