//! Commands that run single plans: `run`, `plan`, `corpus`.
#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{HARNESS_BROKE, How, Show, Trace, USAGE, picture, specs};
use crate::plan::Plan;
use crate::run::{self, Options, Report, Verdict, World};
use crate::spec::Wanted;
use crate::trace::Sink;
use crate::world::observe;

pub(super) fn run(
    seed: u64,
    how: &How,
    twice: bool,
    show: &Show,
    timeline: Option<&Path>,
    export: Option<&Path>,
) -> u8 {
    if let Some(error) = show.wrong() {
        println!("{error}");
        return USAGE;
    }
    let plan = how.plan(seed);
    let spec = Wanted { export: export.is_some(), ..Wanted::REFINE };
    let report = run_with(&plan, how.world(), how.mutant.clone(), show, spec);
    print(&plan, how.world(), &report);
    let mut code = report.verdict.exit_code();
    let is_void = report.verdict == Verdict::Passed && report.mutant_asked == 0;
    if let Some(mutant) = how.mutant.as_deref().filter(|_| is_void) {
        println!("  {}", never_passed(mutant));
        code = Verdict::Inconclusive.exit_code();
    }
    if let Some(folder) = export
        && let Err(error) = specs::write(&report.spec, folder)
    {
        println!("{}: {error}", folder.display());
        return HARNESS_BROKE;
    }
    if let Some(page) = timeline
        && picture::write(&plan, how.world(), how.mutant.as_deref(), page) != 0
    {
        return HARNESS_BROKE;
    }
    if !twice {
        return code;
    }
    let again = Options { mutant: how.mutant.clone(), ..Options::default() };
    let again = run::run(&plan, how.world(), again);
    if again.trace.hash != report.trace.hash {
        let (one, two) = (report.trace.hash, again.trace.hash);
        println!("not deterministic: a second run in this process gave {two:016x}, not {one:016x}");
        match compare_with_later(seed, how, &plan) {
            Ok(Some(difference)) => println!("{difference}"),
            Ok(None) => println!("a third run in this process is like the first one again"),
            Err(error) => println!("cannot run a second process: {error}"),
        }
        return Verdict::Nondeterministic.exit_code();
    }
    match compare_processes(seed, how) {
        Ok(None) => {
            let events = report.trace.events;
            println!("four runs, in three processes, gave the same {events} events");
            code
        }
        Ok(Some(difference)) => {
            println!("not deterministic: {difference}");
            Verdict::Nondeterministic.exit_code()
        }
        Err(error) => {
            println!("cannot run a second process: {error}");
            HARNESS_BROKE
        }
    }
}

/// Said where all passes, and a planted bug was nowhere on the way: a slip of the pen, perhaps.
pub(super) fn never_passed(mutant: &str) -> String {
    format!(
        "the line of {mutant} was never passed: `cargo sim zoo --markdown` lists what is planted"
    )
}

pub(super) fn run_one(plan: &Plan, world: World, mutant: Option<String>, show: &Show) -> Report {
    run_with(plan, world, mutant, show, Wanted::REFINE)
}

fn run_with(
    plan: &Plan,
    world: World,
    mutant: Option<String>,
    show: &Show,
    spec: Wanted,
) -> Report {
    let sink = show.trace.map_or(Sink::Nowhere, |trace| Sink::Print { all: trace == Trace::All });
    let log = show.flags.log();
    run::run(plan, world, Options { mutant, sink, log, spec, ..Options::default() })
}

impl Show {
    /// What is wrong with the filter, if it cannot be read.
    pub(super) fn wrong(&self) -> Option<String> {
        let log = self.flags.log()?;
        let error = observe::show(&log).err()?;
        Some(format!("--log {}: {error}", log.filter))
    }
}

/// Runs the seed in two processes of its own and compares their traces line by line. `None` if
/// they agree.
fn compare_processes(seed: u64, how: &How) -> std::io::Result<Option<String>> {
    Ok(first_difference(&run_in_process(seed, how)?, &run_in_process(seed, how)?))
}

/// Where a run that is not the first of its process leaves the path of one that is.
fn compare_with_later(seed: u64, how: &How, plan: &Plan) -> std::io::Result<Option<String>> {
    let sink = Sink::Lines(Vec::new());
    let later = Options { mutant: how.mutant.clone(), sink, ..Options::default() };
    let later = run::run(plan, how.world(), later).trace.lines;
    let first = run_in_process(seed, how)?;
    Ok(first_difference(&first[..later.len().min(first.len())], &later))
}

/// All that a run prints that is the first of its process.
fn run_in_process(seed: u64, how: &How) -> std::io::Result<Vec<String>> {
    let mut command = Command::new(std::env::current_exe()?);
    let world = how.world().name();
    command.args(["run", "--trace=all", "--world", world, "--seed", &seed.to_string()]);
    command.args(["--nodes", &how.nodes.to_string()]);
    if let Some(only) = how.only {
        command.args(["--only", only.name()]);
    }
    if let Some(mutant) = &how.mutant {
        command.args(["--mutant", mutant]);
    }
    let output = command.output()?.stdout;
    Ok(String::from_utf8_lossy(&output).lines().map(str::to_owned).collect())
}

fn first_difference(one: &[String], two: &[String]) -> Option<String> {
    let mut pairs = (1..).zip(one.iter().zip(two));
    let difference = pairs.find(|(_, (one, two))| one != two);
    match difference {
        Some((line, (one, two))) => Some(format!("line {line}\n  {one}\n  {two}")),
        None if one.len() != two.len() => {
            Some(format!("one trace has {} lines, the other {}", one.len(), two.len()))
        }
        None => None,
    }
}

pub(super) fn print_plan(seed: u64, how: &How) -> u8 {
    print!("{}", how.plan(seed).print());
    0
}

/// Prints what a run came to.
pub(super) fn print(plan: &Plan, world: World, report: &Report) {
    let Report { verdict, tally, trace, simulated, steps, .. } = report;
    println!(
        "seed {} in {}: {verdict}; {:.3} simulated seconds, {} events, {steps} steps, \
         trace {:016x}",
        plan.seed,
        world.name(),
        simulated.as_secs_f64(),
        trace.events,
        trace.hash,
    );
    println!(
        "  {}: {} acknowledged, {} failed, {} unknown; {} records read",
        tally.counts(),
        tally.acknowledged,
        tally.failed,
        tally.unknown,
        tally.read
    );
    let faults: Vec<String> =
        report.faults.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    if !faults.is_empty() {
        println!("  faults: {}", faults.join(", "));
    }
    for sentence in report.sentences() {
        println!("  {sentence}");
    }
}

/// The plan in the file.
///
/// # Errors
///
/// It cannot be read, or is no plan of this build.
pub(super) fn read_plan(file: &Path) -> Result<Plan, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot be read: {error}"))?;
    Plan::parse(&text).map_err(|error| format!("the plan no longer applies: {error}"))
}

/// The plans that once found a bug, by name.
///
/// # Errors
///
/// The folder cannot be read.
pub(super) fn corpus_files() -> Result<Vec<PathBuf>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans");
    let entries = std::fs::read_dir(&folder);
    let entries = entries.map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "plan"));
    files.sort();
    Ok(files)
}

pub(super) fn corpus() -> u8 {
    let files = match corpus_files() {
        Ok(files) => files,
        Err(error) => {
            println!("{error}");
            return HARNESS_BROKE;
        }
    };
    let mut worst = Verdict::Passed;
    for file in &files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        match read_plan(file) {
            Err(error) => {
                println!("{name}: {error}");
                return HARNESS_BROKE;
            }
            Ok(plan) => {
                let worlds = match plan.quorum {
                    Some(_) => &[World::Quorum][..],
                    None => &[World::Cores, World::Nodes],
                };
                for &world in worlds {
                    let report = run::run(&plan, world, Options::default());
                    println!("{name} in {}: {}", world.name(), report.verdict);
                    for sentence in report.sentences() {
                        println!("  {sentence}");
                    }
                    if report.verdict != Verdict::Passed && worst == Verdict::Passed {
                        worst = report.verdict;
                    }
                }
            }
        }
    }
    println!("{} plans", files.len());
    worst.exit_code()
}
