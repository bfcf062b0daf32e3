//! The zoo: bugs that real systems had, planted one at a time, and whether the checkers notice.
//! The list names each mutant of the product; a mutant without a row is a failure of
//! `tests/zoo.rs`.
#![allow(clippy::print_stdout)]
// Hunting measures real time; no simulated world sees it.
#![allow(clippy::disallowed_methods)]

use std::io::{self, Read as _};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::USAGE;
use crate::run::{Verdict, World};

/// Real time after which a run counts as hung.
const HUNG: Duration = Duration::from_secs(20);

/// A planted bug.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    pub slug: &'static str,
    /// Where its line is compiled in and can be passed.
    pub worlds: &'static [World],
    /// Why no plan can show it yet; empty if some can.
    pub not_yet: &'static str,
}

const CORES: &[World] = &[World::Cores];
const NODES: &[World] = &[World::Nodes];
const BOTH: &[World] = &[World::Cores, World::Nodes];

const fn mutant(slug: &'static str, worlds: &'static [World]) -> Mutant {
    Mutant { slug, worlds, not_yet: "" }
}

const fn not_yet(slug: &'static str, why: &'static str) -> Mutant {
    Mutant { slug, worlds: &[], not_yet: why }
}

const NO_GROUPS: &str = "the workload has no groups; core's random walks catch it";
const NO_RETENTION: &str = "the plans have no retention by time or size; core's scripts catch it";

/// All mutants of the product.
pub const MUTANTS: &[Mutant] = &[
    mutant("answer-before-sync", NODES),
    mutant("ignore-torn-tail", NODES),
    mutant("answer-before-written", BOTH),
    mutant("append-after-write-error", NODES),
    mutant("append-time-falls", BOTH),
    mutant("cached-wrong-offset", BOTH),
    mutant("checksum-mismatch-means-truncate", NODES),
    mutant("clean-marker-survives-crash-in-recovery", NODES),
    mutant("dedup-window-too-small", CORES),
    mutant("delete-then-advance-start", NODES),
    mutant("lost-wakeup-in-purgatory", CORES),
    mutant("new-file-dir-not-synced", NODES),
    mutant("pid-block-issued-twice", NODES),
    mutant("recovery-point-ahead", NODES),
    mutant("side-file-not-forced", NODES),
    mutant("state-before-append", BOTH),
    mutant("state-dies-with-log", BOTH),
    not_yet("misdirected-write", "no fault writes to a wrong place yet"),
    not_yet("sequence-wrap", "no run has 2^31 records; core's scripts catch it"),
    not_yet("retention-past-hw", NO_RETENTION),
    not_yet("unknown-timestamp-is-old", NO_RETENTION),
    not_yet("serve-before-load", NO_GROUPS),
    not_yet("group-answer-before-log", NO_GROUPS),
    not_yet("commit-epoch-forgotten", NO_GROUPS),
    not_yet("offsets-expire-in-use", NO_GROUPS),
    not_yet("offsets-outlive-topic", NO_GROUPS),
    not_yet("static-double-owner", NO_GROUPS),
];

/// Seeds apart from those that plans are tuned with.
const FIRST_SEED: u64 = 0;

pub(super) fn run(only: Option<&str>, budget: u64) -> u8 {
    let wanted = |mutant: &&Mutant| only.is_none_or(|slug| slug == mutant.slug);
    let mutants: Vec<&Mutant> = MUTANTS.iter().filter(wanted).collect();
    if mutants.is_empty() {
        println!("no mutant is called {}", only.unwrap_or_default());
        return USAGE;
    }
    let (mut missed, mut applicable) = (0, 0);
    for mutant in &mutants {
        if !mutant.not_yet.is_empty() {
            println!("{:<40} not applicable: {}", mutant.slug, mutant.not_yet);
            continue;
        }
        applicable += 1;
        let mut caught = false;
        for world in mutant.worlds {
            let (line, found) = hunt(mutant.slug, *world, budget);
            caught |= found;
            println!("{:<40} {:<6} {line}", mutant.slug, world.name());
        }
        missed += usize::from(!caught);
    }
    println!("{} of {applicable} mutants caught", applicable - missed);
    if missed == 0 { 0 } else { Verdict::Inconclusive.exit_code() }
}

/// Tries seeds until one is not passed.
fn hunt(slug: &str, world: World, budget: u64) -> (String, bool) {
    for seed in FIRST_SEED..FIRST_SEED + budget {
        let seeds = seed - FIRST_SEED + 1;
        match run_apart(slug, world, seed) {
            Ok(None) => {}
            Ok(Some(sentence)) => return (format!("caught, {seeds} seeds, {sentence}"), true),
            Err(error) => return (format!("cannot run seed {seed}: {error}"), false),
        }
    }
    (format!("NOT caught in {budget} seeds"), false)
}

/// Runs a seed in a process of its own, since a planted bug may never come to an end. What was
/// wrong, in a sentence.
fn run_apart(slug: &str, world: World, seed: u64) -> io::Result<Option<String>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["run", "--world", world.name(), "--mutant", slug, "--seed", &seed.to_string()]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > HUNG {
            child.kill()?;
            child.wait()?;
            return Ok(Some(format!("by its hanging for {} s", HUNG.as_secs())));
        }
        thread::sleep(Duration::from_millis(2));
    };
    if status.success() {
        return Ok(None);
    }
    let mut text = String::new();
    child.stdout.take().map(|mut stdout| stdout.read_to_string(&mut text)).transpose()?;
    // After what the run did comes what was wrong with it.
    let wrong = text.lines().skip(2).find(|line| !line.starts_with("  faults:"));
    Ok(Some(wrong.unwrap_or("without a word").trim().to_owned()))
}
