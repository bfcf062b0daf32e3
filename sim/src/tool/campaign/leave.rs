//! What a campaign leaves behind in a folder: the report in three forms, and for each distinct
//! failure a folder with all that somebody needs who was not there.
#![allow(clippy::print_stdout)]

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::super::How;
use super::super::picture;
use super::super::replay::TRACE;
use super::super::shrink::{self, Subject};
use super::super::worker::Workers;
use crate::campaign::report::{Distinct, Report};
use crate::campaign::{junit, summary};
use crate::plan::{Found, Plan};
use crate::symptom::Symptom;
use crate::timeline;
use crate::trace::line;

pub(super) fn all(
    report: &Report,
    folder: &Path,
    how: &How,
    shrinking: Option<Duration>,
    workers: &Workers,
) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let json = serde_json::to_string_pretty(report).map_err(io::Error::other)?;
    fs::write(folder.join("report.json"), json + "\n")?;
    fs::write(folder.join("junit.xml"), junit::print(report))?;
    fs::write(folder.join("summary.md"), summary::print(report))?;
    println!("{}", folder.join("summary.md").display());
    for failure in &report.failures {
        let folder = folder.join(&failure.folder);
        fs::create_dir_all(&folder)?;
        leave(report, failure, &folder, how, shrinking, workers)?;
    }
    Ok(())
}

fn leave(
    report: &Report,
    failure: &Distinct,
    folder: &Path,
    how: &How,
    shrinking: Option<Duration>,
    workers: &Workers,
) -> io::Result<()> {
    let (world, mutant) = (report.world, report.mutant.as_deref());
    let mut plan = how.plan(failure.first_seed);
    let symptom = Symptom {
        verdict: failure.verdict,
        property: failure.property.clone(),
        object: failure.object.clone(),
        reason: failure.reason.clone(),
    };
    plan.found = Some(Found::new(world, mutant.map(str::to_owned), &symptom));
    let file = folder.join("failure.plan");
    fs::write(&file, plan.print())?;
    let mut files = vec![("failure.plan", "the plan of the first seed")];
    // What hangs, or takes its process with it, would do so here.
    let is_tame = !matches!(failure.property.as_str(), "hang" | "abort" | "nondeterminism");
    let mut shrunk = None;
    if is_tame {
        plan.trace = Some(trace(&plan, report, folder, "failure")?);
        fs::write(&file, plan.print())?;
        files.push(("failure.trace, failure.jsonl", "its trace and its history"));
        if let Some(time) = shrinking {
            let any_object = false;
            let subject = Subject { plan: &plan, world, mutant, symptom: &symptom, any_object };
            let out = folder.join("shrunk.plan");
            shrink::to_file(&subject, workers, &out, 2, time)?;
            let simplest = Plan::parse(&fs::read_to_string(&out)?).map_err(io::Error::other)?;
            trace(&simplest, report, folder, "shrunk")?;
            files.push(("shrunk.plan", "the simplest plan that was found to fail so"));
            files.push(("shrunk.trace, shrunk.jsonl", "its trace and its history"));
            shrunk = Some(simplest);
        }
        let seen = shrunk.as_ref().unwrap_or(&plan);
        let watched = picture::watch(seen, world, mutant);
        fs::write(folder.join("timeline.html"), timeline::page(seen, world, mutant, &watched))?;
        files.push(("timeline.html", "the simplest run, to look at in a browser"));
    }
    fs::write(folder.join("README.md"), readme(report, failure, folder, &files))
}

/// Runs a plan, and keeps its trace and its history. The trace's hash.
fn trace(plan: &Plan, report: &Report, folder: &Path, stem: &str) -> io::Result<u64> {
    let watched = picture::watch(plan, report.world, report.mutant.as_deref());
    let mut text = String::new();
    for event in &watched.trace.kept.events {
        text.push_str(&line(event));
        text.push('\n');
    }
    fs::write(folder.join(stem).with_extension(TRACE), text)?;
    fs::write(folder.join(stem).with_extension("jsonl"), watched.history.json_lines())?;
    Ok(watched.trace.hash)
}

fn readme(report: &Report, failure: &Distinct, folder: &Path, files: &[(&str, &str)]) -> String {
    let Distinct { property, kind, sentence, seeds, first_seed, replay, .. } = failure;
    let mut text = format!(
        "# {property} on {kind}\n\n{sentence}\n\nIn {seeds} of {} seeds; the first is \
         {first_seed}. Commit {}.\n\n```\n{replay}\n",
        report.runs,
        report.commit.as_deref().unwrap_or("unknown"),
    );
    for (names, _) in files.iter().filter(|(names, _)| names.ends_with(".plan")) {
        let file = folder.join(names);
        let _ = writeln!(text, "cargo sim replay {0}\ncargo sim explain {0}", file.display());
    }
    text.push_str("```\n\n");
    for (names, what) in files {
        let _ = writeln!(text, "- {names}: {what}");
    }
    text
}
