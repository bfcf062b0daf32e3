//! The flags of the commands that have many.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use super::{How, parse_mutant, parse_seeds, parse_time};
use crate::campaign::gates::Gate;

/// Seeds of a campaign that only time ends.
const SEEDS_BY_TIME: Range<u64> = 0..1_000_000_000;
const SEEDS: Range<u64> = 0..1000;

#[derive(Clone, Debug, clap::Args)]
pub struct Campaign {
    /// For example 0..2000. By default 0..1000, or as many as there is time for.
    #[arg(long, value_parser = parse_seeds)]
    seeds: Option<Range<u64>>,
    /// Stop after this time, for example 10m.
    #[arg(long, value_parser = parse_time)]
    pub time: Option<Duration>,
    /// Seeds that run at once; by default one a core.
    #[arg(long)]
    pub jobs: Option<usize>,
    /// Only one part of so many, from 1 on: 3/8.
    #[arg(long, value_parser = parse_shard, default_value = "1/1")]
    pub shard: Shard,
    /// Leave report.json, junit.xml, summary.md and a folder for each distinct failure there.
    #[arg(long, value_name = "DIR")]
    pub json: Option<PathBuf>,
    /// With --json: so much time to shrink each distinct failure.
    #[arg(long, value_parser = parse_time, value_name = "TIME", requires = "json")]
    pub shrink: Option<Duration>,
    /// What must be seen: MARK, FAULT or FAULT/MARK, and =COUNT for more than once.
    #[arg(long, value_parser = Gate::parse, value_name = "GOAL", num_args = 1..)]
    pub require: Vec<Gate>,
    /// The planted bug that must be noticed; `none` for none.
    #[arg(long, value_parser = parse_canary, value_name = "MUTANT")]
    pub canary: Option<String>,
    /// Hold each step against the specifications, and say how many of their small states the seeds
    /// pass.
    #[arg(long)]
    pub spec: bool,
    /// Do not run the plans that once found a bug first.
    #[arg(long)]
    pub no_corpus: bool,
    #[command(flatten)]
    pub how: How,
}

/// A part of the seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 1 on.
    pub part: u64,
    pub of: u64,
}

impl Shard {
    /// Seeds are dealt out in turn, so that all parts take the same time.
    pub const fn has(self, seed: u64) -> bool {
        seed % self.of == self.part - 1
    }
}

impl Campaign {
    pub fn seeds(&self) -> Range<u64> {
        let usual = if self.time.is_some() { SEEDS_BY_TIME } else { SEEDS };
        self.seeds.clone().unwrap_or(usual)
    }
}

#[derive(Clone, Debug, clap::Args)]
pub struct Shrink {
    /// A plan that fails.
    #[arg(required_unless_present = "seed")]
    pub file: Option<PathBuf>,
    /// Or a seed that does.
    #[arg(long, conflicts_with = "file")]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub how: How,
    /// Where the simplest plan goes.
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Plans that run at once.
    #[arg(long, default_value_t = 2)]
    pub jobs: usize,
    /// Stop after this time, for example 10m; the same command goes on from there.
    #[arg(long, value_parser = parse_time, default_value = "120s")]
    pub time: Duration,
    /// The same property on whichever partition or node; on the same one otherwise.
    #[arg(long)]
    pub any_object: bool,
}

fn parse_canary(text: &str) -> Result<String, String> {
    if text == "none" { Ok(text.to_owned()) } else { parse_mutant(text) }
}

fn parse_shard(text: &str) -> Result<Shard, String> {
    let numbers = text.split_once('/');
    let numbers = numbers.and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
    match numbers {
        Some((part, of)) if (1..=of).contains(&part) => Ok(Shard { part, of }),
        _ => Err(format!("{text:?} is not a part such as 3/8")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_is_in_one_part() {
        let parts: Vec<Shard> = (1..=3).map(|part| Shard { part, of: 3 }).collect();
        for seed in 0..30 {
            assert_eq!(parts.iter().filter(|part| part.has(seed)).count(), 1, "{seed}");
        }
        assert_eq!(parse_shard("3/8"), Ok(Shard { part: 3, of: 8 }));
        for text in ["0/8", "9/8", "1", "1/0", "a/b"] {
            assert!(parse_shard(text).is_err(), "{text}");
        }
    }
}
