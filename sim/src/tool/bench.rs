//! How fast the simulator is, on one core: the machines alone, with everything checked and with
//! nothing, whole nodes, and the checkers of histories.
#![allow(clippy::print_stdout)]
// Speed is measured in real time; no simulated world sees it.
#![allow(clippy::disallowed_methods)]

use std::fs;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::{How, WorldName};
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

pub(super) fn run(seeds: Range<u64>) -> u8 {
    use Checks::{All, NoSpec, None};
    use WorldName::{Cores, Nodes, Quorum};
    println!("world     checks   steps/s  events/s  simulated s/s  ms per 60 s  peak MiB");
    let mut failed = 0;
    let rows = [
        (Cores, 1, All),
        (Cores, 1, None),
        (Cores, 3, All),
        (Cores, 3, NoSpec),
        (Cores, 3, None),
        (Cores, 5, All),
        (Quorum, 0, All),
        (Quorum, 0, NoSpec),
        (Nodes, 1, All),
        (Nodes, 3, All),
        (Nodes, 5, All),
    ];
    for (world, nodes, checks) in rows {
        let how = How { world: Some(world), mutant: Option::None, nodes, only: Option::None };
        let count = seeds.end - seeds.start;
        let few = seeds.start..seeds.start + count.div_ceil(ONE_IN);
        let sum = measure(if world == Nodes { few } else { seeds.clone() }, &how, checks);
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
        failed += sum.failed;
    }
    failed += u64::from(!histories());
    if failed == 0 { 0 } else { Verdict::Safety.exit_code() }
}

fn measure(seeds: Range<u64>, how: &How, checks: Checks) -> Sum {
    let mut sum = Sum::default();
    let before = memory("VmRSS:");
    // The peak is that of what comes from here on.
    let is_reset = fs::write("/proc/self/clear_refs", "5").is_ok();
    for seed in seeds {
        let plan = how.plan(seed);
        let begun = Instant::now();
        let report = run::run(&plan, how.world(), checks.options());
        sum.took += begun.elapsed();
        sum.steps += report.steps;
        sum.events += report.trace.events;
        sum.simulated += report.simulated;
        sum.failed += u64::from(report.verdict != Verdict::Passed);
    }
    sum.peak = if is_reset { memory("VmHWM:").saturating_sub(before) } else { 0 };
    sum
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
