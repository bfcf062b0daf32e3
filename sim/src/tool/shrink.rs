//! `shrink`: the command around the search, with its file, its progress and its last word.
#![allow(clippy::print_stdout)]
// How long it takes is real time; no simulated world sees it.
#![allow(clippy::disallowed_methods)]

use std::fs;
use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, UNIX_EPOCH};

use super::single::read_plan;
use super::worker::Workers;
use super::{HARNESS_BROKE, USAGE, flags};
use crate::plan::{Found, Plan};
use crate::run::{Verdict, World};
use crate::shrink::kept::Kept;
use crate::shrink::{Oracle, Shrunk, Size, shrink};
use crate::symptom::Symptom;
use crate::told::Told;

/// How much longer than the first run one may take before it counts as hung.
const PATIENCE_TIMES: u32 = 20;
const PATIENCE_MIN: Duration = Duration::from_secs(5);
const PATIENCE_MAX: Duration = Duration::from_secs(120);

/// Of the patience of a plan that waits for ever, a search takes one part of so many,
const PATIENCE_PARTS: u32 = 6;
/// and no less than this: after the healing, much waits for a session or a retry to run out.
const PATIENCE_LEAST: Duration = Duration::from_secs(10);

/// Endings of the files that know what was found out: with a part of the patience, and with all.
const STATES: [&str; 2] = ["state", "whole.state"];
/// The same of the search for another object.
const ELSEWHERE: [&str; 2] = ["any.state", "any.whole.state"];

/// What is to become simple, and how that is judged.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) plan: &'a Plan,
    pub(super) world: World,
    pub(super) mutant: Option<&'a str>,
    pub(super) symptom: &'a Symptom,
    pub(super) any_object: bool,
}

struct Runs<'a> {
    subject: &'a Subject<'a>,
    workers: &'a Workers,
    deadline: Instant,
    begun: Instant,
    said: Mutex<Instant>,
}

impl Subject<'_> {
    fn is_same(&self, told: &Told) -> bool {
        if self.any_object {
            self.symptom.is_shown_somewhere_by(told)
        } else {
            self.symptom.is_shown_by(told)
        }
    }

    /// A partition keeps all topics and partitions before it, and the work on them; a node those
    /// before it.
    fn may_be_simpler_elsewhere(&self) -> bool {
        let Symptom { object, .. } = self.symptom;
        let has_siblings = self.symptom.kind() != *object;
        !self.any_object && has_siblings && object != "t0-0" && object != "n1"
    }
}

impl Oracle for Runs<'_> {
    fn fails(&self, plan: &Plan) -> bool {
        let subject = self.subject;
        subject.is_same(&self.workers.run(plan, subject.world, subject.mutant))
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    fn tell(&self, best: &Plan, tried: usize) {
        let mut said = self.said.lock().expect("a lock");
        let is_terminal = io::stdout().is_terminal();
        let every = Duration::from_millis(if is_terminal { 200 } else { 10_000 });
        if said.elapsed() < every {
            return;
        }
        *said = Instant::now();
        let line = format!("{}; {tried} tried in {} s", Size(best), self.begun.elapsed().as_secs());
        if is_terminal {
            print!("\r\x1b[2K{line}");
            let _ = io::stdout().flush();
        } else {
            println!("{line}");
        }
    }
}

pub(super) fn run(flags: &flags::Shrink) -> u8 {
    let plan = match (&flags.file, flags.seed) {
        (Some(file), _) => match read_plan(file) {
            Ok(plan) => plan,
            Err(error) => {
                println!("{}: {error}", file.display());
                return USAGE;
            }
        },
        (None, seed) => flags.how.plan(seed.unwrap_or_default()),
    };
    let out = flags.out.clone().unwrap_or_else(|| match &flags.file {
        Some(file) => file.with_extension("shrunk.plan"),
        None => PathBuf::from(format!("seed-{}.shrunk.plan", plan.seed)),
    });
    let (world, mutant) = flags.how.place_of(&plan);
    let mut workers = Workers::new(PATIENCE_MAX);
    let begun = Instant::now();
    let told = workers.run(&plan, world, mutant.as_deref());
    workers.set_patience((begun.elapsed() * PATIENCE_TIMES).clamp(PATIENCE_MIN, PATIENCE_MAX));
    let kept_for = plan.found.as_ref().map(Found::symptom).filter(|found| found.is_shown_by(&told));
    let Some(symptom) = kept_for.or_else(|| Symptom::first(&told)) else {
        println!("it passes in {}: there is nothing to shrink", world.name());
        return Verdict::Inconclusive.exit_code();
    };
    println!("{symptom}");
    println!("  {}, {}", Size(&plan), told.counts());
    let (mutant, symptom) = (mutant.as_deref(), &symptom);
    let subject = Subject { plan: &plan, world, mutant, symptom, any_object: flags.any_object };
    match to_file(&subject, &workers, &out, flags.jobs, flags.time) {
        Ok(true) => 0,
        Ok(false) => Verdict::Nondeterministic.exit_code(),
        Err(error) => {
            println!("{}: {error}", out.display());
            HARNESS_BROKE
        }
    }
}

/// Writes the simplest plan, and whether it fails as it should when it is run once more.
pub(super) fn to_file(
    subject: &Subject<'_>,
    workers: &Workers,
    out: &Path,
    jobs: usize,
    time: Duration,
) -> io::Result<bool> {
    let begun = Instant::now();
    let search = Search { workers, out, jobs, begun, deadline: begun + time };
    let mut found = search.patiently(subject, STATES)?;
    let mut subject = *subject;
    if found.is_minimal && subject.may_be_simpler_elsewhere() && Instant::now() < search.deadline {
        let other = Subject { plan: &found.plan, any_object: true, ..subject };
        let elsewhere = search.patiently(&other, ELSEWHERE)?;
        if elsewhere.plan != found.plan {
            let object = &subject.symptom.object;
            println!("  {}: {} plans tried", Size(&found.plan), found.tried);
            println!("  {object} keeps what stands before it, so another one may do:");
            subject.any_object = true;
        }
        found = Shrunk { tried: found.tried + elsewhere.tried, ..elsewhere };
    }
    let mut plan = found.plan;
    let told = workers.run(&plan, subject.world, subject.mutant);
    let is_same = subject.is_same(&told);
    plan.story = story(&subject, &told);
    let symptom = Symptom::all(&told).into_iter().find(|symptom| {
        symptom.property == subject.symptom.property && symptom.kind() == subject.symptom.kind()
    });
    let mutant = subject.mutant.map(str::to_owned);
    plan.found = symptom.as_ref().map(|symptom| Found::new(subject.world, mutant, symptom));
    plan.trace = Some(told.hash);
    fs::write(out, plan.print())?;
    let seconds = begun.elapsed().as_secs();
    let (size, tried) = (Size(&plan), found.tried);
    println!("  {size}, {}: {tried} plans tried in {seconds} s", told.counts());
    if let Some(other) = symptom.filter(|symptom| symptom.object != subject.symptom.object) {
        println!("  it is {other} now");
    }
    if found.is_minimal {
        println!("  nothing simpler fails so");
        search.forget()?;
    } else {
        let state = search.state(STATES[0]);
        println!("  time was over: the same command goes on, from {}", state.display());
    }
    if is_same {
        println!("  run once more: the same failure");
    } else {
        println!("  run once more: another one; two runs of a plan differ");
    }
    println!("  cargo sim explain {}", out.display());
    println!("  cargo sim replay {} --trace", out.display());
    Ok(is_same)
}

/// One or several searches for one plan, until a time.
struct Search<'a> {
    workers: &'a Workers,
    out: &'a Path,
    jobs: usize,
    begun: Instant,
    deadline: Instant,
}

impl Search<'_> {
    /// A plan that waits for ever has its whole patience only in the end: while it becomes simple,
    /// a part of that is enough. What passes within a part passes, so nothing that could go is
    /// kept; and what waits longer than a part only is found out in the end, and begun anew.
    fn patiently(&self, subject: &Subject<'_>, [state, whole]: [&str; 2]) -> io::Result<Shrunk> {
        let patience = subject.plan.run.liveness;
        let part = (patience / PATIENCE_PARTS).max(PATIENCE_LEAST);
        if subject.symptom.property != "liveness" || part >= patience {
            return self.run(subject, state);
        }
        let with = |plan: &Plan, patience| {
            let mut plan = plan.clone();
            plan.run.liveness = patience;
            plan
        };
        let hurried = with(subject.plan, part);
        let hurried = Subject { plan: &hurried, ..*subject };
        let fails =
            |plan: &Plan| subject.is_same(&self.workers.run(plan, subject.world, subject.mutant));
        if fails(hurried.plan) {
            let found = self.run(&hurried, state)?;
            let plan = with(&found.plan, patience);
            if fails(&plan) {
                return Ok(Shrunk { plan, ..found });
            }
        }
        println!(
            "  it does not wait for ever in {} s, so each plan is given {}",
            part.as_secs(),
            patience.as_secs()
        );
        self.run(subject, whole)
    }

    fn run(&self, subject: &Subject<'_>, state: &str) -> io::Result<Shrunk> {
        let state = self.state(state);
        let mut kept = Kept::open(&state, &identity(subject)?)?;
        if !kept.is_empty() {
            println!("goes on: {} plans are known from {}", kept.len(), state.display());
        }
        let Self { workers, begun, deadline, .. } = *self;
        let said = Mutex::new(begun);
        let oracle = Runs { subject, workers, deadline, begun, said };
        let shrunk = shrink(subject.plan, &oracle, self.jobs, &mut kept);
        if io::stdout().is_terminal() {
            print!("\r\x1b[2K");
        }
        Ok(shrunk)
    }

    /// The file that knows what a search has found out.
    fn state(&self, name: &str) -> PathBuf {
        self.out.with_extension(name)
    }

    fn forget(&self) -> io::Result<()> {
        for name in [STATES, ELSEWHERE].concat() {
            match fs::remove_file(self.state(name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// What a search is for: a plan, a failure and a build.
fn identity(subject: &Subject<'_>) -> io::Result<String> {
    let program = fs::metadata(std::env::current_exe()?)?;
    let built = program.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let Subject { plan, world, mutant, symptom, any_object } = subject;
    Ok(format!(
        "{} {built:?} {} {mutant:?} {any_object} {symptom:?}\n{}",
        program.len(),
        world.name(),
        plan.print()
    ))
}

fn story(subject: &Subject<'_>, told: &Told) -> Vec<String> {
    let property = &subject.symptom.property;
    let sentences = told.sentences();
    let found = sentences.iter().find(|sentence| sentence.starts_with(property.as_str()));
    let mut story = subject.plan.story.clone();
    story.push(format!(
        "Shrunk from seed {} in the world of {}.",
        subject.plan.seed,
        subject.world.name()
    ));
    story.extend(found.cloned());
    story
}
