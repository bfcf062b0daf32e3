//! A run as one page of HTML that explains a failure to somebody who was not there: what each node
//! and client did, what struck them, who led, what was committed, and what is wrong with it.
//!
//! Here is what the page knows, as one object of JSON; `timeline/page.html` is the page, which
//! loads nothing else.

mod operations;
mod shows;
mod story;
mod wrong;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

pub use self::story::story;
use crate::history::transactions::Topic;
use crate::history::{End, History, client_name};
use crate::plan::Plan;
use crate::plan::text::{Item as _, Line};
use crate::plan::transactions::Part;
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
    /// `a` append, `r` read, `d` delete, `l` latest; `g` of a group; `x` a transaction, `i` a life
    /// of a transactional id, `e` a request that comes late, `f` a forgery, `m` what a copier's
    /// member is told, `v` a view of what is committed.
    call: char,
    partition: i32,
    /// More partitions that it has to do with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    others: Vec<i32>,
    /// `o` ok, `f` failed, `u` unknown.
    end: char,
    text: String,
    /// Of the event with which it began; 0 if none is known.
    event: u64,
    /// Its other events.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    more: Vec<u64>,
    /// The same in words.
    #[serde(skip)]
    steps: Vec<Step>,
}

/// A part of an operation.
#[derive(Debug)]
struct Step {
    at: u64,
    sign: char,
    /// 0 if none is known.
    event: u64,
    text: String,
}

/// What is wrong, and what shows it.
#[derive(Debug, Serialize)]
struct Wrong {
    property: String,
    place: String,
    sentence: String,
    /// Operations.
    witnesses: Vec<usize>,
    /// What stands in the log in the end, of one that transactions write to.
    log: Vec<String>,
    at: u64,
    event: u64,
    /// Whose step it was, where one was refused.
    lane: i32,
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
    /// The first of the clients that only commit offsets.
    committing: u32,
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
                let what = role(plan, client);
                lanes.push(Lane { name: name.to_owned(), is_node: false, what });
            }
        }
        let places = lanes.iter().zip(0..).map(|(lane, place)| (lane.name.clone(), place));
        let partitions = crate::workload::writer::partitions(plan);
        let partitions = partitions.iter().map(ToString::to_string);
        let (inputs, outputs) = (Topic::Input.name(), Topic::Output.name());
        let spec = plan.transactions.as_ref();
        let transactional = [inputs, outputs].into_iter().flat_map(|topic| {
            (0..spec.map_or(0, |it| it.partitions)).map(move |index| format!("{topic}-{index}"))
        });
        let partitions = partitions.chain(transactional).collect();
        let last = kept.events.last().map_or(Duration::ZERO, |event| event.moment.at);
        Self {
            places: places.collect(),
            lanes,
            partitions,
            committing: plan.committing().start,
            events: &kept.events,
            asides: &kept.asides,
            end: micros(report.simulated.max(last)).max(1),
        }
    }

    fn lane(&self, who: &str) -> i32 {
        self.places.get(who).copied().unwrap_or(-1)
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
            (micros(at), ordinal, self.lane(&event.who), event.mark.sign(), event.text.clone())
        });
        let events = events.collect();
        let operations = self.operations(&report.history);
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
            levels: self.levels(&report.history),
            events,
            messages: self.messages(),
            wrong: self.wrong(report, &operations),
            operations,
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

    /// How far readers of committed records have come in what transactions write: it does not fall.
    fn levels_of_views(&self, history: &History, levels: &mut [Vec<(u64, i64, i64)>]) {
        for view in &history.transactions.views {
            if let Ok(place) = usize::try_from(self.partition(&view.place.to_string())) {
                let before = levels[place].last().map_or(0, |(_, _, high)| *high);
                let at = micros(view.completed.as_duration());
                levels[place].push((at, 0, view.next.max(before)));
            }
        }
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
            self.levels_of_views(history, &mut levels);
            levels.iter_mut().for_each(|levels| levels.sort_unstable());
        }
        for levels in &mut levels {
            levels.dedup_by_key(|(_, start, high)| (*start, *high));
        }
        levels
    }
}

/// What a node says when it ends.
const ENDS: &[&str] = &["has stopped", "goes down", "halts", "dies", "crash", "loses power"];

fn role(plan: &Plan, client: u32) -> String {
    let (library_writers, library_readers) = plan.library_clients();
    let of_id = |what: &str, id: String| format!("{what} {id}");
    let told = match client {
        client if client < plan.workload.writers => "writes",
        client if client < plan.last_client() => "reads",
        client if client == plan.last_client() => "sets up, reads at the end",
        client if library_writers.contains(&client) => "writes, our library",
        client if library_readers.contains(&client) => "reads, our library",
        client => {
            let spec = plan.transactions.as_ref();
            return match (plan.membership(client), plan.part(client)) {
                (Some((group, _)), _) => format!("member of g{group}"),
                (_, Some(Part::Produces(n))) => {
                    of_id("produces as", format!("x-{}", n % spec.map_or(1, |it| it.ids.max(1))))
                }
                (_, Some(Part::Speaks(n))) => of_id("speaks as", format!("x-{n}")),
                (_, Some(Part::Copies(_))) => of_id("copies as", format!("xc-{client}")),
                (_, Some(Part::Reads(_))) => "reads what is committed".to_owned(),
                _ if plan.committing().contains(&client) => "commits offsets".to_owned(),
                _ => "operator".to_owned(),
            };
        }
    };
    told.to_owned()
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

#[cfg(test)]
mod tests;
