//! How fast the simulator is, on one core: the machines alone, with everything checked and with
//! nothing, whole nodes, and the checkers of histories.
//!
//! Time is what the processor spent, so that a busy machine does not matter much. Each row is a
//! process of its own: what one has left in memory would be there, and not counted, in the next.
#![allow(clippy::print_stdout)]
// Speed is measured in real time; no simulated world sees it.
#![allow(clippy::disallowed_methods)]

use std::ops::Range;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

use super::{How, WorldName, worker};
use crate::check::{self, Struck};
use crate::history::example;
use crate::plan::draw::draw;
use crate::run::{self, Options, Verdict, World};
use crate::spec::Wanted;

/// Operations of the history that is checked.
const OPERATIONS: usize = 1_000_000;
/// Whole nodes live long: only one in so many of the seeds.
const ONE_IN: u64 = 4;

/// What is looked at on the way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Checks {
    All,
    /// All but the specifications.
    NoSpec,
    None,
}

/// What some seeds came to.
#[derive(Default)]
struct Sum {
    steps: u64,
    events: u64,
    simulated: Duration,
    took: Duration,
    failed: u64,
    /// The most that was in memory, in bytes, above what was there before.
    peak: u64,
}

impl Checks {
    const fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::NoSpec => "no spec",
            Self::None => "none",
        }
    }

    fn options(self) -> Options {
        let spec = Wanted { refine: self == Self::All, ..Wanted::default() };
        Options { unchecked: self == Self::None, spec, ..Options::default() }
    }
}

const ROWS: [(WorldName, u32, Checks); 11] = [
    (WorldName::Cores, 1, Checks::All),
    (WorldName::Cores, 1, Checks::None),
    (WorldName::Cores, 3, Checks::All),
    (WorldName::Cores, 3, Checks::NoSpec),
    (WorldName::Cores, 3, Checks::None),
    (WorldName::Cores, 5, Checks::All),
    (WorldName::Quorum, 0, Checks::All),
    (WorldName::Quorum, 0, Checks::NoSpec),
    (WorldName::Nodes, 1, Checks::All),
    (WorldName::Nodes, 3, Checks::All),
    (WorldName::Nodes, 5, Checks::All),
];

pub(super) fn run(seeds: &Range<u64>) -> u8 {
    println!("world     checks   steps/s  events/s  simulated s/s  ms per 60 s  peak MiB");
    let mut all_passed = true;
    for row in 0..ROWS.len() {
        all_passed &= start_row(seeds, row);
    }
    all_passed &= histories();
    if all_passed { 0 } else { Verdict::Safety.exit_code() }
}

/// Whether all seeds of the row have passed.
fn start_row(seeds: &Range<u64>, row: usize) -> bool {
    let this = env::current_exe().expect("the simulator knows where it is");
    let seeds = format!("{}..{}", seeds.start, seeds.end);
    let row = row.to_string();
    let mut command = Command::new(this);
    worker::give_small_pages(&mut command);
    let ended = command.args(["bench", "--seeds", &seeds, "--row", &row]).status();
    ended.is_ok_and(|status| status.success())
}

pub(super) fn run_row(seeds: Range<u64>, row: usize) -> u8 {
    let Some((world, nodes, checks)) = ROWS.get(row).copied() else { return super::USAGE };
    let how = How { world: Some(world), mutant: None, nodes, only: None };
    let few = seeds.start..seeds.start + (seeds.end - seeds.start).div_ceil(ONE_IN);
    let sum = measure(if world == WorldName::Nodes { few } else { seeds }, &how, checks);
    let per_second = |count: f64| count / sum.took.as_secs_f64();
    let simulated = per_second(sum.simulated.as_secs_f64());
    let name = format!("{nodes} {}", World::from(world).name());
    println!(
        "{name:<9} {:<7} {:>8.0} {:>9.0} {simulated:>14.0} {:>12.0} {:>9.1}",
        checks.word(),
        per_second(sum.steps as f64),
        per_second(sum.events as f64),
        60_000.0 / simulated,
        sum.peak as f64 / f64::from(1 << 20),
    );
    if sum.failed == 0 { 0 } else { Verdict::Safety.exit_code() }
}

fn measure(seeds: Range<u64>, how: &How, checks: Checks) -> Sum {
    let mut sum = Sum::default();
    let before = memory("VmRSS:");
    // The peak is that of what comes from here on.
    let is_reset = fs::write("/proc/self/clear_refs", "5").is_ok();
    let begun = processor_time();
    for seed in seeds {
        let plan = how.plan(seed);
        let report = run::run(&plan, how.world(), checks.options());
        sum.steps += report.steps;
        sum.events += report.trace.events;
        sum.simulated += report.simulated;
        sum.failed += u64::from(report.verdict != Verdict::Passed);
    }
    sum.took = processor_time() - begun;
    sum.peak = if is_reset { memory("VmHWM:").saturating_sub(before) } else { 0 };
    sum
}

/// What this process has spent, its threads that are gone included; zero where the system does not
/// say. In units of 10 ms, as Linux counts.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name, in parentheses, may hold anything.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Of this process, in bytes; 0 where the system does not say.
fn memory(what: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// A long history through all checkers: a good one, and the same with one record lost. Whether
/// they say so.
fn histories() -> bool {
    let mut plan = draw(0);
    plan.topics.iter_mut().for_each(|topic| topic.compact = false);
    let good = example::history(OPERATIONS, None);
    let begun = Instant::now();
    let violations = check::check(&good, &plan, Struck::default());
    let took = begun.elapsed().as_secs_f64();
    let operations = good.operations.len();
    println!("{operations} operations through the checkers in {took:.1} s");
    drop(good);
    let lost = example::history(OPERATIONS, Some(OPERATIONS as u64 / 20));
    let found = check::check(&lost, &plan, Struck::default());
    let names: Vec<_> = found.iter().map(|violation| violation.property).collect();
    println!("  with one record lost: {}", names.join(", "));
    if let Some(wrong) = violations.first() {
        println!("  a good history is blamed: {wrong}");
    }
    violations.is_empty() && !found.is_empty()
}
