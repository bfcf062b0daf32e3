//! A run as one page of HTML that explains a failure to somebody who was not there: what each node
//! and client did, what struck them, who led, what was committed, and what is wrong with it.
//!
//! Here is what the page knows, as one object of JSON; `timeline/page.html` is the page, which
//! loads nothing else.

mod story;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

pub use self::story::story;
use crate::check::Violation;
use crate::check::anomalies::ANOMALIES;
use crate::history::{Call, End, History, client_name};
use crate::plan::Plan;
use crate::plan::text::{Item as _, Line};
use crate::run::{Report, World};
use crate::trace::{Aside, Event, Mark, Moment};

const PAGE: &str = include_str!("timeline/page.html");
/// In the page, where the object goes.
const PLACE: &str = "/*DATA*/null";

/// All that the page shows. Times are microseconds; `lane` is a place in `lanes`.
#[derive(Debug, Serialize)]
struct Picture {
    title: String,
    verdict: String,
    seed: u64,
    world: &'static str,
    mutant: Option<String>,
    story: Vec<String>,
    plan: String,
    end: u64,
    healed: Option<u64>,
    lanes: Vec<Lane>,
    partitions: Vec<String>,
    faults: Vec<Struck>,
    bands: Vec<Band>,
    lives: Vec<Life>,
    operations: Vec<Operation>,
    /// Of each partition: when, log start, high watermark, as leaders and readers say.
    levels: Vec<Vec<(u64, i64, i64)>>,
    events: Vec<(u64, u64, i32, char, String)>,
    /// Messages among nodes, where events tell who sent them: event, from lane, to lane.
    messages: Vec<(u64, i32, i32)>,
    wrong: Vec<Wrong>,
}

#[derive(Debug, Serialize)]
struct Lane {
    name: String,
    is_node: bool,
    what: String,
}

/// A fault, for as long as the plan says.
#[derive(Debug, Serialize)]
struct Struck {
    from: u64,
    to: u64,
    lane: i32,
    kind: &'static str,
    text: String,
}

/// A leadership.
#[derive(Debug, Serialize)]
struct Band {
    from: u64,
    to: u64,
    lane: i32,
    /// In `partitions`; -1 is the metadata.
    partition: i32,
    epoch: u64,
}

/// While a node is there.
#[derive(Debug, Serialize)]
struct Life {
    from: u64,
    to: u64,
    lane: i32,
}

#[derive(Debug, Serialize)]
struct Operation {
    from: u64,
    /// `None`: it never ended.
    to: Option<u64>,
    lane: i32,
    /// `a` append, `r` read, `d` delete, `l` latest.
    call: char,
    partition: i32,
    /// `o` ok, `f` failed, `u` unknown.
    end: char,
    text: String,
    /// Of the event with which it began; 0 if none is known.
    event: u64,
}

/// What is wrong, and what shows it.
#[derive(Debug, Serialize)]
struct Wrong {
    property: String,
    place: String,
    sentence: String,
    /// Operations.
    witnesses: Vec<usize>,
    at: u64,
    event: u64,
    /// What came later has no part in it.
    #[serde(skip)]
    until: u64,
}

/// The page of a run that was watched (`Sink::Events`).
pub fn page(plan: &Plan, world: World, mutant: Option<&str>, report: &Report) -> String {
    let picture = Draft::new(plan, report).picture(plan, world, mutant, report);
    let json = serde_json::to_string(&picture).expect("it is plain data");
    // Nothing in it ends the script.
    let json = json.replace("</", "<\\/").replace("<!--", "<\\!--");
    PAGE.replace(PLACE, &json)
}

/// What the parts of a picture have in common.
struct Draft<'a> {
    lanes: Vec<Lane>,
    places: BTreeMap<String, i32>,
    partitions: Vec<String>,
    /// Of topics, as nodes name them, and as the plan does.
    names: BTreeMap<String, String>,
    events: &'a [Event],
    asides: &'a [(Moment, &'static str, Aside)],
    end: u64,
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

impl<'a> Draft<'a> {
    fn new(plan: &Plan, report: &'a Report) -> Self {
        let kept = &report.trace.kept;
        let mut lanes: Vec<Lane> = (1..=plan.cluster.nodes)
            .map(|n| {
                let what = if n <= plan.cluster.voters { "node, votes" } else { "node" };
                Lane { name: format!("n{n}"), is_node: true, what: what.to_owned() }
            })
            .collect();
        for client in 0..plan.clients_end() {
            let name = client_name(client);
            let speaks = kept.events.iter().any(|event| event.who == name);
            if speaks && lanes.iter().all(|lane| lane.name != name) {
                let what = role(plan, client).to_owned();
                lanes.push(Lane { name: name.to_owned(), is_node: false, what });
            }
        }
        let places = lanes.iter().zip(0..).map(|(lane, place)| (lane.name.clone(), place));
        let partitions = crate::workload::writer::partitions(plan);
        let names = kept.asides.iter().filter_map(|(_, _, aside)| match aside {
            Aside::Copy { partition, topic: Some(topic), .. } => {
                Some((format!("{topic}/"), partition.rsplit_once('-')?.0.to_owned() + "-"))
            }
            _ => None,
        });
        let last = kept.events.last().map_or(Duration::ZERO, |event| event.moment.at);
        Self {
            places: places.collect(),
            lanes,
            partitions: partitions.iter().map(ToString::to_string).collect(),
            names: names.collect(),
            events: &kept.events,
            asides: &kept.asides,
            end: micros(report.simulated.max(last)).max(1),
        }
    }

    fn lane(&self, who: &str) -> i32 {
        self.places.get(who).copied().unwrap_or(-1)
    }

    /// A text with the plan's names of partitions.
    fn named(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (id, name) in &self.names {
            if text.contains(id.as_str()) {
                text = text.replace(id.as_str(), name);
            }
        }
        text
    }

    fn messages(&self) -> Vec<(u64, i32, i32)> {
        let segments = self.events.iter().filter(|event| event.mark == Mark::Segment);
        let told = segments.filter_map(|event| {
            let sender = event.text.split_once(" says ")?.0;
            let (from, to) = (self.lane(sender), self.lane(&event.who));
            (from >= 0 && to >= 0 && from != to).then_some((event.moment.ordinal, from, to))
        });
        told.collect()
    }

    fn partition(&self, name: &str) -> i32 {
        self.partitions.iter().position(|known| known == name).map_or(-1, |place| place as i32)
    }

    fn picture(self, plan: &Plan, world: World, mutant: Option<&str>, report: &Report) -> Picture {
        let healed =
            self.events.iter().find(|event| event.mark == Mark::Run && event.text == "healed");
        let events = self.events.iter().map(|event| {
            let Moment { at, ordinal } = event.moment;
            let text = self.named(&event.text);
            (micros(at), ordinal, self.lane(&event.who), event.mark.sign(), text)
        });
        let events = events.collect();
        Picture {
            title: format!("seed {} in {}", plan.seed, world.name()),
            verdict: report.verdict.to_string(),
            seed: plan.seed,
            world: world.name(),
            mutant: mutant.map(str::to_owned),
            story: plan.story.clone(),
            plan: plan.print(),
            end: self.end,
            healed: healed.map(|event| micros(event.moment.at)),
            faults: self.faults(plan),
            bands: self.bands(),
            lives: self.lives(),
            operations: self.operations(&report.history),
            levels: self.levels(&report.history),
            events,
            messages: self.messages(),
            wrong: self.wrong(report),
            lanes: self.lanes,
            partitions: self.partitions,
        }
    }

    /// Those that struck: a run may end before the others.
    fn faults(&self, plan: &Plan) -> Vec<Struck> {
        let faults = plan.faults.iter().filter(|fault| micros(fault.at) <= self.end);
        faults
            .map(|fault| {
                let mut line = Line::default();
                fault.print(&mut line);
                let text = line.finish().trim().to_owned();
                let length = longest(&text);
                let from = micros(fault.at);
                let to = (from + micros(length)).min(self.end);
                let lane = self.lane(&format!("n{}", fault.node));
                Struck { from, to, lane, kind: fault.kind.name(), text }
            })
            .collect()
    }

    fn bands(&self) -> Vec<Band> {
        let mut open: BTreeMap<(i32, i32), Band> = BTreeMap::new();
        let mut bands = Vec::new();
        for (moment, who, aside) in self.asides {
            let (at, lane) = (micros(moment.at), self.lane(who));
            let (partition, leads, epoch) = match aside {
                Aside::Copy { partition, leads, leader_epoch, .. } => {
                    (self.partition(partition), *leads, (*leader_epoch).max(0) as u64)
                }
                Aside::Controls { term } => {
                    // Whoever led the metadata before does so no more.
                    let others: Vec<(i32, i32)> =
                        open.keys().copied().filter(|(_, of)| *of == -1).collect();
                    for key in others {
                        bands.extend(open.remove(&key).map(|band| Band { to: at, ..band }));
                    }
                    (-1, true, *term)
                }
                Aside::Blames { .. } => continue,
            };
            if partition == -1 && !matches!(aside, Aside::Controls { .. }) {
                continue;
            }
            let key = (lane, partition);
            if open.get(&key).is_some_and(|band| leads && band.epoch == epoch) {
                continue;
            }
            bands.extend(open.remove(&key).map(|band| Band { to: at, ..band }));
            if leads {
                open.insert(key, Band { from: at, to: self.end, lane, partition, epoch });
            }
        }
        bands.extend(open.into_values());
        self.end_with_their_lives(&mut bands);
        bands
    }

    /// A node that is gone leads nothing.
    fn end_with_their_lives(&self, bands: &mut [Band]) {
        let lives = self.lives();
        for band in bands {
            let life = lives
                .iter()
                .find(|life| life.lane == band.lane && (life.from..life.to).contains(&band.from));
            if let Some(life) = life {
                band.to = band.to.min(life.to);
            }
        }
    }

    /// From one start to the next end, as the events tell.
    fn lives(&self) -> Vec<Life> {
        let mut since: BTreeMap<i32, u64> = BTreeMap::new();
        let mut lives = Vec::new();
        for event in self.events {
            let (at, lane) = (micros(event.moment.at), self.lane(&event.who));
            let text = event.text.as_str();
            let starts = event.mark == Mark::Node && text == "starts";
            let ends = event.mark == Mark::Fault && text.starts_with("dies")
                || event.mark == Mark::Node && ENDS.iter().any(|end| text.starts_with(end));
            if (starts || ends)
                && let Some(from) = since.remove(&lane)
            {
                lives.push(Life { from, to: at, lane });
            }
            if starts {
                since.insert(lane, at);
            }
        }
        lives.extend(since.into_iter().map(|(lane, from)| Life { from, to: self.end, lane }));
        lives
    }

    fn operations(&self, history: &History) -> Vec<Operation> {
        let mut begins: BTreeMap<(u64, i32), Vec<u64>> = BTreeMap::new();
        for event in self.events.iter().rev().filter(|event| event.mark == Mark::Invoke) {
            let key = (micros(event.moment.at), self.lane(&event.who));
            begins.entry(key).or_default().push(event.moment.ordinal);
        }
        let operations = history.operations.iter().map(|operation| {
            let from = micros(operation.invoked.as_duration());
            let lane = self.lane(client_name(operation.client));
            let call = match &operation.call {
                Call::Append { .. } => 'a',
                Call::Read { .. } => 'r',
                Call::Delete { .. } => 'd',
                Call::Latest { .. } => 'l',
            };
            let end = match &operation.end {
                End::Unknown => 'u',
                End::Failed => 'f',
                _ => 'o',
            };
            Operation {
                from,
                to: operation.completed.map(|at| micros(at.as_duration())),
                lane,
                call,
                partition: self.partition(&operation.call.partition().to_string()),
                end,
                text: format!("{}: {}", operation.call, operation.end),
                event: begins.get_mut(&(from, lane)).and_then(Vec::pop).unwrap_or(0),
            }
        });
        operations.collect()
    }

    /// What leaders say; where no leader is watched, what readers are told.
    fn levels(&self, history: &History) -> Vec<Vec<(u64, i64, i64)>> {
        let mut levels = vec![Vec::new(); self.partitions.len()];
        for (moment, _, aside) in self.asides {
            if let Aside::Copy { partition, leads: true, log_start, high_watermark, .. } = aside
                && let Ok(place) = usize::try_from(self.partition(partition))
            {
                levels[place].push((micros(moment.at), *log_start, *high_watermark));
            }
        }
        if levels.iter().all(Vec::is_empty) {
            for operation in &history.operations {
                if let (End::Read { high_watermark, log_start, .. }, Some(at)) =
                    (&operation.end, operation.completed)
                    && let Ok(place) =
                        usize::try_from(self.partition(&operation.call.partition().to_string()))
                {
                    levels[place].push((micros(at.as_duration()), *log_start, *high_watermark));
                }
            }
            levels.iter_mut().for_each(|levels| levels.sort_unstable());
        }
        for levels in &mut levels {
            levels.dedup_by_key(|(_, start, high)| (*start, *high));
        }
        levels
    }

    fn wrong(&self, report: &Report) -> Vec<Wrong> {
        let stuck = report.stuck.iter().map(|stuck| {
            let (property, place) = ("liveness", String::new());
            Violation { property, place, sentence: stuck.clone() }
        });
        let all = report.violations.iter().cloned().chain(stuck);
        all.map(|mut violation| {
            violation.place = self.named(&violation.place);
            let witnesses = witnesses(&violation, &report.history);
            let blamed = self.asides.iter().find(|(_, _, aside)| {
                matches!(aside, Aside::Blames { property } if *property == violation.property)
            });
            let ends = |place: &usize| {
                let completed = report.history.operations[*place].completed?;
                Some(micros(completed.as_duration()))
            };
            let shown = witnesses.iter().filter_map(ends).max();
            let at = blamed.map(|(moment, ..)| micros(moment.at)).or(shown).unwrap_or(self.end);
            let place = self.events.partition_point(|event| micros(event.moment.at) <= at);
            let event = blamed.map_or_else(
                || place.checked_sub(1).map_or(0, |place| self.events[place].moment.ordinal),
                |(moment, ..)| moment.ordinal,
            );
            let Violation { property, place, sentence } = violation;
            // Clients' answers show an anomaly by themselves, but for what is missing: that was
            // there when its witnesses ended. What the world looked at only in the end may have
            // come about at any time.
            let is_missing = matches!(property, "lost-write" | "lost-read" | "torn-transaction");
            let is_anomaly = ANOMALIES.iter().any(|known| known.here.contains(&property));
            let is_shown = blamed.is_some() || (is_anomaly && !is_missing);
            let until = if is_shown { at } else { self.end };
            let sentence = self.named(&sentence);
            Wrong { property: property.to_owned(), place, sentence, witnesses, at, event, until }
        })
        .collect()
    }
}

/// What a node says when it ends.
const ENDS: &[&str] = &["has stopped", "goes down", "halts", "dies", "crash", "loses power"];

fn role(plan: &Plan, client: u32) -> &'static str {
    let (library_writers, library_readers) = plan.library_clients();
    match client {
        client if client < plan.workload.writers => "writes",
        client if client < plan.last_client() => "reads",
        client if client == plan.last_client() => "sets up, reads at the end",
        client if library_writers.contains(&client) => "writes, our library",
        client if library_readers.contains(&client) => "reads, our library",
        client if plan.membership(client).is_some() => "member of a group",
        _ => "operator",
    }
}

/// The longest of the times on a fault's line, but for when it begins.
fn longest(text: &str) -> Duration {
    use crate::plan::text::Value as _;
    let times = text.split_whitespace().filter_map(|word| {
        let (key, value) = word.split_once('=')?;
        let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
        (key != "at" && key != "latency" && !is_number).then(|| Duration::parse(value).ok())?
    });
    times.max().unwrap_or_default()
}

/// The operations that a violation speaks of: by number, or by a value that they wrote or read.
fn witnesses(violation: &Violation, history: &History) -> Vec<usize> {
    const MOST: usize = 40;
    let words: Vec<&str> = violation
        .sentence
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let mut found: Vec<usize> = Vec::new();
    for pair in words.windows(2) {
        if pair[0].starts_with("operation")
            && let Ok(place) = pair[1].parse::<usize>()
            && place < history.operations.len()
        {
            found.push(place);
        }
    }
    // What stands at an offset was written by somebody.
    for pair in words.windows(2) {
        if matches!(pair[0], "at" | "Offset" | "offset" | "base")
            && let Ok(offset) = pair[1].parse::<i64>()
        {
            found.extend(written_at(offset, &violation.place, history));
        }
    }
    // A value names its writer in its upper half, so it is no small number.
    let values: Vec<u64> = words
        .iter()
        .filter(|word| word.len() > 9)
        .filter_map(|word| u64::from_str_radix(word, 16).ok())
        .collect();
    if !values.is_empty() {
        for (place, operation) in history.operations.iter().enumerate() {
            let speaks = match (&operation.call, &operation.end) {
                (Call::Append { values: written, .. }, _) => {
                    written.iter().any(|value| values.contains(value))
                }
                (_, End::Read { records, .. }) => records
                    .iter()
                    .any(|seen| seen.value.is_some_and(|value| values.contains(&value))),
                _ => false,
            };
            if speaks && found.len() < MOST {
                found.push(place);
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The append that was told to stand at this offset.
fn written_at(offset: i64, place: &str, history: &History) -> Option<usize> {
    history.operations.iter().position(|operation| match (&operation.call, &operation.end) {
        (Call::Append { partition, values, .. }, End::Appended { base: Some(base), .. }) => {
            (*base..*base + values.len() as i64).contains(&offset) && partition.to_string() == place
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests;
