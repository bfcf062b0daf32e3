//! One run of a plan in one of the worlds, on a thread of its own, and what came of it.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::panic;
use std::sync::Once;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::check::{self, Struck, Violation};
use crate::coverage::{self, After};
use crate::history::{History, Tally};
use crate::log::Log;
use crate::plan::Plan;
use crate::plan::text::Value;
use crate::spec;
use crate::trace::{self, Finished, Sink};
use crate::waiting;

/// Where a plan runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum World {
    /// The pure machines in a loop of discrete events.
    Cores,
    /// The shipping node under a deterministic runtime.
    Nodes,
    /// Members of the metadata quorum alone, and an adversary.
    Quorum,
}

/// What a run says; each has an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Passed,
    Safety,
    Liveness,
    Nondeterministic,
    Inconclusive,
}

/// What a world gives back.
#[derive(Debug, Default)]
pub struct Observed {
    pub history: History,
    pub struck: Struck,
    /// What the world itself saw to be wrong: machines, recovery.
    pub violations: Vec<Violation>,
    /// What still waits although everything is healed.
    pub stuck: Vec<String>,
    /// Faults carried out, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    pub simulated: Duration,
    /// Steps of machines (cores), events (nodes).
    pub steps: u64,
}

/// A run and its verdict.
#[derive(Debug)]
pub struct Report {
    pub verdict: Verdict,
    pub violations: Vec<Violation>,
    pub stuck: Vec<String>,
    pub tally: Tally,
    pub faults: BTreeMap<&'static str, u64>,
    /// How often each mark of the product was passed.
    pub marks: BTreeMap<&'static str, u64>,
    /// The same, by the kind of the last fault before.
    pub after: After,
    pub history: History,
    pub trace: Finished,
    /// What was seen of the specifications; violations stand among the others.
    pub spec: spec::Seen,
    pub simulated: Duration,
    pub steps: u64,
    /// How often the chosen mutant's line was passed.
    pub mutant_asked: u64,
}

/// How to run.
#[derive(Debug, Default)]
pub struct Options {
    pub mutant: Option<String>,
    pub sink: Sink,
    /// For measuring only: nothing is checked, neither the machines of the world of cores nor the
    /// history.
    pub unchecked: bool,
    /// What is done about the specifications.
    pub spec: spec::Wanted,
    /// What the nodes say, if somebody listens.
    pub log: Option<Log>,
}

impl World {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cores => "cores",
            Self::Nodes => "nodes",
            Self::Quorum => "quorum",
        }
    }
}

impl Value for World {
    fn print(&self) -> String {
        self.name().to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let all = [Self::Cores, Self::Nodes, Self::Quorum];
        let found = all.into_iter().find(|world| world.name() == text);
        found.ok_or_else(|| format!("{text:?} is no world"))
    }
}

impl Verdict {
    pub const ALL: [Self; 5] =
        [Self::Passed, Self::Safety, Self::Liveness, Self::Nondeterministic, Self::Inconclusive];

    /// In files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Safety => "safety",
            Self::Liveness => "liveness",
            Self::Nondeterministic => "nondeterministic",
            Self::Inconclusive => "inconclusive",
        }
    }

    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Passed => 0,
            Self::Safety => 1,
            Self::Liveness => 2,
            Self::Nondeterministic => 3,
            Self::Inconclusive => 4,
        }
    }
}

impl Value for Verdict {
    fn print(&self) -> String {
        self.word().to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|verdict| verdict.word() == text);
        found.ok_or_else(|| format!("{text:?} is no verdict"))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passed => "passed",
            Self::Safety => "safety violated",
            Self::Liveness => "no progress",
            Self::Nondeterministic => "not deterministic",
            Self::Inconclusive => "inconclusive",
        })
    }
}

impl Report {
    /// Which property failed first, for counting; `-` for none.
    pub fn property(&self) -> &str {
        match self.verdict {
            Verdict::Liveness => "liveness",
            _ => self.violations.first().map_or("-", |violation| violation.property),
        }
    }

    /// What went wrong, one sentence each.
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences: Vec<String> = self.violations.iter().map(ToString::to_string).collect();
        sentences.extend(self.stuck.iter().map(|stuck| format!("liveness: {stuck}")));
        sentences
    }
}

/// Runs a plan on a fresh thread: a used one remembers hash seeds and generators.
pub fn run(plan: &Plan, world: World, options: Options) -> Report {
    hear_panics();
    let plan = plan.clone();
    let name = format!("seed {}", plan.seed);
    let thread = thread::Builder::new().name(name).stack_size(4 << 20);
    let joined =
        thread.spawn(move || on_this_thread(&plan, world, options)).map(thread::JoinHandle::join);
    match joined {
        Ok(Ok(report)) => report,
        Ok(Err(_)) | Err(_) => panic!("the harness itself failed"),
    }
}

fn on_this_thread(plan: &Plan, world: World, options: Options) -> Report {
    choose_mutant(options.mutant.as_deref());
    coverage::begin();
    trace::begin(options.sink);
    spec::begin(options.spec);
    let checks = !options.unchecked;
    let outcome = panic::catch_unwind(|| match world {
        World::Cores => crate::cores::run(plan, checks),
        World::Nodes => run_nodes(plan, options.log.as_ref()),
        World::Quorum => crate::quorum::run(plan, checks),
    });
    let trace = trace::end();
    let mut spec = spec::end();
    let (marks, after) = coverage::end();
    let observed = outcome.unwrap_or_else(|payload| Observed {
        violations: vec![Violation {
            property: "panic",
            place: PANIC_PLACE.take(),
            sentence: panic_text(&*payload),
        }],
        ..Observed::default()
    });
    let mut violations = observed.violations;
    if checks {
        violations.extend(check::check(&observed.history, plan, observed.struck));
    }
    violations.append(&mut spec.violations);
    for violation in &mut violations {
        violation.place = trace.names.named(std::mem::take(&mut violation.place));
        violation.sentence = trace.names.named(std::mem::take(&mut violation.sentence));
    }
    let stuck = observed.stuck.iter().map(|it| waiting::named(it, &observed.history));
    let mut stuck: Vec<String> = stuck.collect();
    // What became of a node explains what its clients complain of.
    stuck.sort_by_key(|sentence| !sentence.starts_with('n'));
    let verdict = match (violations.is_empty(), stuck.is_empty()) {
        (false, _) => Verdict::Safety,
        (true, false) => Verdict::Liveness,
        (true, true) => Verdict::Passed,
    };
    Report {
        verdict,
        violations,
        stuck,
        tally: observed.history.tally(),
        faults: observed.faults,
        marks,
        after,
        history: observed.history,
        trace,
        spec,
        simulated: observed.simulated,
        steps: observed.steps,
        mutant_asked: mutant_asked(),
    }
}

#[cfg(madsim)]
fn run_nodes(plan: &Plan, log: Option<&Log>) -> Observed {
    let shown = log.map(crate::world::observe::show).transpose();
    let _shown = shown.expect("the filter was read before");
    crate::world::run(plan)
}

#[cfg(not(madsim))]
fn run_nodes(_: &Plan, _: Option<&Log>) -> Observed {
    panic!("the world of nodes exists in simulator builds only: use `cargo sim`")
}

#[cfg(mutants)]
fn choose_mutant(slug: Option<&str>) {
    quorate_core::mutant::choose(slug);
}

#[cfg(not(mutants))]
fn choose_mutant(slug: Option<&str>) {
    assert!(slug.is_none(), "mutants exist in simulator builds only: use `cargo sim`");
}

fn mutant_asked() -> u64 {
    #[cfg(mutants)]
    let asked = quorate_core::mutant::asked();
    #[cfg(not(mutants))]
    let asked = 0;
    asked
}

thread_local! {
    static PANIC_PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps a run's panics from the terminal; they are verdicts.
fn hear_panics() {
    static HEARD: Once = Once::new();
    HEARD.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if thread::current().name().is_some_and(|name| name.starts_with("seed ")) {
                let place = info.location().map(ToString::to_string).unwrap_or_default();
                PANIC_PLACE.set(place);
            } else {
                usual(info);
            }
        }));
    });
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a text".to_owned()).replace('\n', " ")
}
