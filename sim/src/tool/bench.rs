//! How fast the simulator is, on one core: the machines alone, with everything checked and with
//! nothing, and whole nodes.
#![allow(clippy::print_stdout)]
// Speed is measured in real time; no simulated world sees it.
#![allow(clippy::disallowed_methods)]

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::plan::draw::draw;
use crate::run::{self, Options, Verdict, World};

/// What some seeds came to.
#[derive(Default)]
struct Sum {
    steps: u64,
    events: u64,
    simulated: Duration,
    took: Duration,
    failed: u64,
}

pub(super) fn run(seeds: Range<u64>) -> u8 {
    let checked = measure(seeds.clone(), World::Cores, false);
    let unchecked = measure(seeds.clone(), World::Cores, true);
    let nodes = measure(seeds, World::Nodes, false);
    println!("world  checks  steps/s  events/s  simulated s/s");
    for (world, checks, sum) in
        [("cores", "all", &checked), ("cores", "none", &unchecked), ("nodes", "all", &nodes)]
    {
        let per_second = |count: f64| count / sum.took.as_secs_f64();
        println!(
            "{world}  {checks:<6}  {:>7.0}  {:>8.0}  {:>13.0}",
            per_second(sum.steps as f64),
            per_second(sum.events as f64),
            per_second(sum.simulated.as_secs_f64()),
        );
    }
    if checked.failed + nodes.failed == 0 { 0 } else { Verdict::Safety.exit_code() }
}

fn measure(seeds: Range<u64>, world: World, unchecked: bool) -> Sum {
    let mut sum = Sum::default();
    for seed in seeds {
        let plan = draw(seed);
        let begun = Instant::now();
        let report = run::run(&plan, world, Options { unchecked, ..Options::default() });
        sum.took += begun.elapsed();
        sum.steps += report.steps;
        sum.events += report.trace.events;
        sum.simulated += report.simulated;
        sum.failed += u64::from(report.verdict != Verdict::Passed);
    }
    sum
}
