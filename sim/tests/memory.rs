//! A campaign does not grow with its seeds: what a run held is freed when it ends.
#![cfg(madsim)]

use std::time::Duration;

use quorate_sim::plan::draw::draw;
use quorate_sim::run::{Options, Verdict, World, run};

/// What this process has in memory, in bytes.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let resident = pages.split_whitespace().nth(1).expect("the second number");
    resident.parse::<u64>().expect("a number") * 4096
}

fn live(seed: u64) {
    let mut plan = draw(seed);
    plan.faults.clear();
    plan.run.safety = Duration::from_millis(200);
    plan.node.journal_file_bytes = 64 << 10;
    plan.node.journal_files = 2;
    let report = run(&plan, World::Nodes, Options::default());
    assert_eq!(report.verdict, Verdict::Passed, "seed {seed}: {:?}", report.sentences());
}

#[test]
fn sixty_lives_leave_nothing_behind() {
    // What is kept for ever is there after some of them.
    for seed in 0..20 {
        live(seed);
    }
    let before = resident_bytes();
    for seed in 20..80 {
        live(seed);
    }
    let grown = resident_bytes().saturating_sub(before) / 60;
    println!("{grown} bytes a seed");
    assert!(grown < 100 << 10, "{grown} bytes a seed are kept");
}
