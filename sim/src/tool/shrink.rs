//! `shrink`: the command around the search, with its file, its progress and its last word.
#![allow(clippy::print_stdout)]
// How long it takes is real time; no simulated world sees it.
#![allow(clippy::disallowed_methods)]

use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, UNIX_EPOCH};

use super::single::read_plan;
use super::worker::Workers;
use super::{HARNESS_BROKE, USAGE, flags};
use crate::plan::{Found, Plan};
use crate::run::{Verdict, World};
use crate::shrink::kept::Kept;
use crate::shrink::{Oracle, Size, shrink};
use crate::symptom::Symptom;
use crate::told::Told;

/// How much longer than the first run one may take before it counts as hung.
const PATIENCE_TIMES: u32 = 20;
const PATIENCE_MIN: Duration = Duration::from_secs(5);
const PATIENCE_MAX: Duration = Duration::from_secs(120);

/// What is to become simple, and how that is judged.
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
    let state = out.with_extension("state");
    let mut kept = Kept::open(&state, &identity(subject)?)?;
    if !kept.is_empty() {
        println!("goes on: {} plans are known from {}", kept.len(), state.display());
    }
    let begun = Instant::now();
    let said = Mutex::new(begun);
    let oracle = Runs { subject, workers, deadline: begun + time, begun, said };
    let shrunk = shrink(subject.plan, &oracle, jobs, &mut kept);
    if io::stdout().is_terminal() {
        print!("\r\x1b[2K");
    }
    let mut plan = shrunk.plan;
    let told = workers.run(&plan, subject.world, subject.mutant);
    let is_same = subject.is_same(&told);
    plan.story = story(subject, &told);
    let symptom = Symptom::all(&told).into_iter().find(|symptom| {
        symptom.property == subject.symptom.property && symptom.kind() == subject.symptom.kind()
    });
    let mutant = subject.mutant.map(str::to_owned);
    plan.found = symptom.map(|symptom| Found::new(subject.world, mutant, &symptom));
    plan.trace = Some(told.hash);
    fs::write(out, plan.print())?;
    let seconds = begun.elapsed().as_secs();
    let (size, tried) = (Size(&plan), shrunk.tried);
    println!("  {size}, {}: {tried} plans tried in {seconds} s", told.counts());
    if shrunk.is_minimal {
        println!("  nothing simpler fails so");
        fs::remove_file(&state)?;
    } else {
        println!("  time was over: the same command goes on, from {}", state.display());
    }
    if is_same {
        println!("  run once more: the same failure");
    } else {
        println!("  run once more: another one; two runs of a plan differ");
    }
    println!("  cargo sim explain {}", out.display());
    println!("  cargo sim replay {} --trace", out.display());
    // A partition keeps those before it, and the work on them.
    if is_same && shrunk.is_minimal && !subject.any_object && has_siblings(subject.symptom) {
        println!(
            "  perhaps simpler on another one: cargo sim shrink {} --any-object",
            out.display()
        );
    }
    Ok(is_same)
}

/// Whether the same may happen to another object of its kind.
fn has_siblings(symptom: &Symptom) -> bool {
    symptom.kind() != symptom.object
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
