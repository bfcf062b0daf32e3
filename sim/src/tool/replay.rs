//! `replay`: a plan from a file, and the answer to the question what it is worth today.
#![allow(clippy::print_stdout)]

use std::fs;
use std::path::Path;

use super::single::{print, read_plan, run_one};
use super::{How, Show, USAGE, picture};
use crate::plan::Plan;
use crate::replay::{answer, parting};
use crate::run::{self, Options, Report, Verdict, World};
use crate::timeline;
use crate::told::Told;
use crate::trace::Sink;

/// Beside a plan with this ending stands the trace that it was kept with.
pub(super) const TRACE: &str = "trace";

pub(super) fn run(file: &Path, how: &How, show: &Show, timeline: Option<&Path>) -> u8 {
    if let Some(error) = show.wrong() {
        println!("{error}");
        return USAGE;
    }
    let Some(plan) = plan_of(file) else { return USAGE };
    let (world, mutant) = how.place_of(&plan);
    let report = run_one(&plan, world, mutant.clone(), show);
    print(&plan, world, &report);
    judge(file, &plan, (world, mutant.as_deref()), &report);
    let drawn = timeline.map(|page| picture::write(&plan, world, mutant.as_deref(), page));
    match drawn {
        Some(code) if code != 0 => code,
        _ => report.verdict.exit_code(),
    }
}

/// The plan in the file; says why, if there is none.
fn plan_of(file: &Path) -> Option<Plan> {
    let plan = read_plan(file);
    if let Err(error) = &plan {
        println!("{}: {error}", file.display());
    }
    plan.ok()
}

/// Tells how the failure of the plan came about; an exit code.
pub(super) fn explain(file: &Path, how: &How) -> u8 {
    let Some(plan) = plan_of(file) else { return USAGE };
    let (world, mutant) = how.place_of(&plan);
    let report = picture::watch(&plan, world, mutant.as_deref());
    print!("{}", timeline::story(&plan, world, mutant.as_deref(), &report));
    if report.verdict != Verdict::Passed {
        let file = file.display();
        println!();
        println!("  cargo sim replay {file} --trace                 every change of state");
        println!("  cargo sim replay {file} --timeline run.html     the same as a page");
        println!(
            "  cargo sim shrink {file}                         the simplest plan that fails alike"
        );
    }
    report.verdict.exit_code()
}

/// Says which of the answers it is.
fn judge(file: &Path, plan: &Plan, (world, mutant): (World, Option<&str>), report: &Report) {
    let mut otherwise = "the code has changed, or the plan";
    if let Some(found) = &plan.found {
        println!("  {}", answer(&found.symptom(), &Told::from(report)));
        if (found.world, found.mutant.as_deref()) != (world, mutant) {
            otherwise = "it runs otherwise than it was kept";
            let kept = found.mutant.as_deref().unwrap_or("no mutant");
            let now = mutant.unwrap_or("no mutant");
            println!(
                "  kept in {} with {kept}, run in {} with {now}",
                found.world.name(),
                world.name()
            );
        }
    }
    match plan.trace {
        Some(hash) if hash == report.trace.hash => {
            println!("  the trace is the one it was kept with")
        }
        Some(hash) => {
            println!("  it was kept with another trace, {hash:016x}: {otherwise}");
            if let Ok(kept) = fs::read_to_string(file.with_extension(TRACE)) {
                let sink = Sink::Lines(Vec::new());
                let mutant = mutant.map(str::to_owned);
                let options = Options { mutant, sink, ..Options::default() };
                let again = run::run(plan, world, options);
                match parting(&kept, &again.trace.lines) {
                    Some(parting) => println!("  {parting}"),
                    None => println!("  the lines are the same: what they do not show differs"),
                }
            }
        }
        None => {}
    }
}
