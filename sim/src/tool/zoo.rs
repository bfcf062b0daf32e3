//! The zoo: bugs that real systems had, planted one at a time, and whether the checkers notice.
//! The list names each mutant of the product; a mutant without a row is a failure of
//! `tests/zoo.rs`.
#![allow(clippy::print_stdout)]

use super::USAGE;
use crate::plan::draw::draw;
use crate::run::{self, Options, Verdict, World};

/// A planted bug.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    pub slug: &'static str,
    /// Where its line is compiled in and can be passed.
    pub worlds: &'static [World],
}

const CORES: &[World] = &[World::Cores];
const NODES: &[World] = &[World::Nodes];
const BOTH: &[World] = &[World::Cores, World::Nodes];

/// All mutants of the product.
pub const MUTANTS: &[Mutant] = &[
    Mutant { slug: "answer-before-sync", worlds: NODES },
    Mutant { slug: "ignore-torn-tail", worlds: NODES },
];

/// Seeds apart from those that plans are tuned with.
const FIRST_SEED: u64 = 0;

pub(super) fn run(only: Option<&str>, budget: u64) -> u8 {
    let _ = (CORES, BOTH);
    let wanted = |mutant: &&Mutant| only.is_none_or(|slug| slug == mutant.slug);
    let mutants: Vec<&Mutant> = MUTANTS.iter().filter(wanted).collect();
    if mutants.is_empty() {
        println!("no mutant is called {}", only.unwrap_or_default());
        return USAGE;
    }
    let mut missed = 0;
    for mutant in &mutants {
        let mut caught = false;
        for world in mutant.worlds {
            let (line, found) = hunt(mutant.slug, *world, budget);
            caught |= found;
            println!("{:<32} {:<6} {line}", mutant.slug, world.name());
        }
        missed += usize::from(!caught);
    }
    println!("{} of {} mutants caught", mutants.len() - missed, mutants.len());
    if missed == 0 { 0 } else { Verdict::Inconclusive.exit_code() }
}

fn hunt(slug: &str, world: World, budget: u64) -> (String, bool) {
    let mut asked = 0;
    for seed in FIRST_SEED..FIRST_SEED + budget {
        let options = Options { mutant: Some(slug.to_owned()), ..Options::default() };
        let report = run::run(&draw(seed), world, options);
        asked += report.mutant_asked;
        if report.verdict != Verdict::Passed {
            let sentence = report.sentences().into_iter().next().unwrap_or_default();
            let seeds = seed - FIRST_SEED + 1;
            return (format!("caught, {seeds} seeds, by {}: {sentence}", report.property()), true);
        }
    }
    (format!("NOT caught in {budget} seeds; its line was passed {asked} times"), false)
}
