//! Hunting in the zoo: each planted bug is set loose on fresh seeds, in every place that has its
//! line, until something is not passed that is passed without it; in several campaigns, of which
//! the median counts.
#![allow(clippy::print_stdout)]
// Hunting measures real time; no simulated world sees it.
#![allow(clippy::disallowed_methods)]

mod hunt;
mod kept;
mod page;

pub use super::Hunt;
use super::USAGE;
use crate::run::{Verdict, World};
use crate::zoo::{MUTANTS, Mutant, Place};

impl Hunt {
    fn wants(&self, mutant: &Mutant) -> bool {
        let named = |name: &String| name == mutant.slug || name == mutant.entry;
        self.only.is_empty() || self.only.iter().any(named)
    }

    fn goes_to(&self, place: Place) -> bool {
        self.nodes.is_none_or(|nodes| nodes == place.nodes)
            && self.world.is_none_or(|world| World::from(world) == place.world)
    }

    /// Seeds per campaign there, at most.
    fn budget_at(&self, place: Place) -> u64 {
        match place.world {
            World::Nodes => self.budget_nodes.unwrap_or(self.budget),
            World::Cores | World::Quorum => self.budget,
        }
    }

    fn jobs(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.jobs.unwrap_or_else(cores).max(1)
    }

    /// Nothing is told while it goes on: what is printed in the end is for a file.
    const fn is_quiet(&self) -> bool {
        self.markdown || self.json
    }
}

/// One campaign against one mutant in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    slug: String,
    place: Place,
    campaign: u64,
    /// Seeds that were looked at, or were needed.
    seeds: u64,
    /// What was said when it was caught; empty if it was not.
    sentence: String,
}

/// What the campaigns against one mutant in one place came to.
struct Score {
    mutant: &'static Mutant,
    place: Place,
    /// Seeds needed, ascending; `None` for not caught.
    needed: Vec<Option<u64>>,
    /// Looked at in vain, at most.
    in_vain: u64,
    sentence: String,
}

impl Score {
    fn new(mutant: &'static Mutant, place: Place, outcomes: &[Outcome]) -> Option<Self> {
        let of = |outcome: &&Outcome| outcome.slug == mutant.slug && outcome.place == place;
        let found: Vec<&Outcome> = outcomes.iter().filter(of).collect();
        let caught = |outcome: &&Outcome| !outcome.sentence.is_empty();
        let mut needed: Vec<Option<u64>> =
            found.iter().map(|found| caught(&found).then_some(found.seeds)).collect();
        needed.sort_by_key(|seeds| seeds.unwrap_or(u64::MAX));
        let sentence = found.iter().copied().find(caught);
        let in_vain = found.iter().map(|found| found.seeds).max()?;
        let sentence = sentence.map_or_else(String::new, |found| found.sentence.clone());
        Some(Self { mutant, place, needed, in_vain, sentence })
    }

    /// Half of the campaigns needed no more seeds than this.
    fn median(&self) -> Option<u64> {
        self.needed.get(self.needed.len() / 2).copied().flatten()
    }

    fn checker(&self) -> &str {
        self.sentence.split(' ').next().unwrap_or_default()
    }
}

pub(super) fn run(hunt: &Hunt) -> u8 {
    let is_wanted = |mutant: &&Mutant| {
        // Where it cannot be passed it is not missed.
        let is_there = mutant.places.iter().any(|place| hunt.goes_to(*place));
        hunt.wants(mutant) && (is_there || !mutant.not_yet.is_empty())
    };
    let mutants: Vec<&Mutant> = MUTANTS.iter().filter(is_wanted).collect();
    if mutants.is_empty() {
        println!("no mutant is called {}", hunt.only.join(" or "));
        return USAGE;
    }
    let kept = match hunt.keep.as_deref().map(kept::read).transpose() {
        Ok(kept) => kept.unwrap_or_default(),
        Err(error) => {
            println!("{error}");
            return USAGE;
        }
    };
    if hunt.is_quiet() && hunt.keep.is_some() {
        page::print(&scores(&kept), hunt);
        return 0;
    }
    if !hunt.is_quiet() {
        for mutant in mutants.iter().filter(|mutant| !mutant.not_yet.is_empty()) {
            println!("{:<40} not applicable: {}", mutant.slug, mutant.not_yet);
        }
    }
    let outcomes = hunt::all(&mutants, kept, hunt);
    let scores = scores(&outcomes);
    if hunt.is_quiet() {
        page::print(&scores, hunt);
        return 0;
    }
    sum_up(&mutants, &scores)
}

fn scores(outcomes: &[Outcome]) -> Vec<Score> {
    let all = MUTANTS.iter().flat_map(|mutant| mutant.places.iter().map(move |at| (mutant, *at)));
    all.filter_map(|(mutant, place)| Score::new(mutant, place, outcomes)).collect()
}

/// How many are caught somewhere, and with how many seeds.
fn sum_up(mutants: &[&Mutant], scores: &[Score]) -> u8 {
    let (caught, hunted, sentence) = summary(mutants, scores);
    println!("{sentence}");
    if caught == hunted { 0 } else { Verdict::Inconclusive.exit_code() }
}

/// How many were caught, of how many that were hunted; and that in words.
fn summary(mutants: &[&Mutant], scores: &[Score]) -> (usize, usize, String) {
    let hunted = mutants.iter().filter(|mutant| mutant.not_yet.is_empty());
    let best = |mutant: &Mutant| {
        let of = scores.iter().filter(|score| score.mutant.slug == mutant.slug);
        of.filter_map(Score::median).min()
    };
    let hunted: Vec<Option<u64>> = hunted.map(|mutant| best(mutant)).collect();
    let mut seeds: Vec<u64> = hunted.iter().copied().flatten().collect();
    seeds.sort_unstable();
    let median = seeds.get(seeds.len() / 2).map_or_else(|| "-".to_owned(), u64::to_string);
    let (caught, all) = (seeds.len(), hunted.len());
    (caught, all, format!("{caught} of {all} mutants caught; median {median} seeds"))
}
