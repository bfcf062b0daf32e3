//! Hunting in the zoo: each planted bug is set loose on fresh seeds, in every world that has its
//! line, until something is not passed; in several campaigns, of which the median counts.
#![allow(clippy::print_stdout)]
// Hunting measures real time; no simulated world sees it.
#![allow(clippy::disallowed_methods)]

use std::io::{self, Read as _};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::USAGE;
use crate::run::{Verdict, World};
use crate::zoo::entries::ENTRIES;
use crate::zoo::{MUTANTS, Mutant};

/// Real time after which a run counts as hung.
const HUNG: Duration = Duration::from_secs(60);

/// Between the first seeds of two campaigns.
const APART: u64 = 100_000;

/// How to hunt.
pub(super) struct Hunt<'a> {
    pub(super) only: Option<&'a str>,
    /// Seeds per mutant, world and campaign, at most.
    pub(super) budget: u64,
    pub(super) campaigns: u64,
    /// Print the whole list as a page instead.
    pub(super) markdown: bool,
}

/// What the campaigns against one mutant in one world came to.
struct Score {
    mutant: &'static Mutant,
    world: World,
    /// Seeds needed, ascending; `None` for not caught.
    seeds: Vec<Option<u64>>,
    /// What was said when it was first caught.
    sentence: String,
}

impl Score {
    /// Half of the campaigns needed no more seeds than this.
    fn median(&self) -> Option<u64> {
        self.seeds.get(self.seeds.len() / 2).copied().flatten()
    }

    fn checker(&self) -> &str {
        self.sentence.split(' ').next().unwrap_or_default()
    }
}

pub(super) fn run(hunt: &Hunt<'_>) -> u8 {
    let wanted = |mutant: &&Mutant| hunt.only.is_none_or(|slug| slug == mutant.slug);
    let mutants: Vec<&Mutant> = MUTANTS.iter().filter(wanted).collect();
    if mutants.is_empty() {
        println!("no mutant is called {}", hunt.only.unwrap_or_default());
        return USAGE;
    }
    let mut scores = Vec::new();
    for mutant in mutants {
        if !mutant.not_yet.is_empty() && !hunt.markdown {
            println!("{:<40} not applicable: {}", mutant.slug, mutant.not_yet);
        }
        for world in mutant.worlds {
            let score = campaigns(mutant, *world, hunt);
            if !hunt.markdown {
                print(&score, hunt);
            }
            scores.push(score);
        }
    }
    if hunt.markdown {
        print_page(&scores, hunt);
    }
    sum_up(&scores, hunt)
}

fn print(score: &Score, hunt: &Hunt<'_>) {
    let (slug, world) = (score.mutant.slug, score.world.name());
    match score.median() {
        Some(seeds) => println!("{slug:<40} {world:<6} caught, {seeds} seeds, {}", score.sentence),
        None => println!("{slug:<40} {world:<6} NOT caught in {} seeds", hunt.budget),
    }
}

/// How many are caught somewhere, and with how many seeds.
fn sum_up(scores: &[Score], hunt: &Hunt<'_>) -> u8 {
    let hunted: Vec<&str> = scores.iter().map(|score| score.mutant.slug).collect();
    let mut best: Vec<u64> = MUTANTS
        .iter()
        .filter(|mutant| hunted.contains(&mutant.slug))
        .filter_map(|mutant| {
            let of = scores.iter().filter(|score| score.mutant.slug == mutant.slug);
            of.filter_map(Score::median).min()
        })
        .collect();
    best.sort_unstable();
    let applicable = MUTANTS.iter().filter(|mutant| hunted.contains(&mutant.slug)).count();
    let median = best.get(best.len() / 2).map_or_else(|| "-".to_owned(), u64::to_string);
    println!(
        "{} of {applicable} mutants caught; median {median} seeds, {} campaigns of {} each",
        best.len(),
        hunt.campaigns,
        hunt.budget
    );
    if best.len() == applicable { 0 } else { Verdict::Inconclusive.exit_code() }
}

/// The list of historic bugs, and what became of each.
fn print_page(scores: &[Score], hunt: &Hunt<'_>) {
    println!("# The zoo: historic bugs, planted\n");
    println!(
        "Made by `cargo sim zoo --markdown --campaigns {} --budget {}`. Seeds are the median over \
         the\ncampaigns; behind them stands which checker spoke first.\n",
        hunt.campaigns, hunt.budget
    );
    println!("| entry | planted as | caught | or why not |\n|---|---|---|---|");
    for entry in ENTRIES {
        if entry.not_yet.is_empty() {
            print_rows(scores, entry.id, entry.slug, hunt);
        } else {
            let planted = MUTANTS.iter().filter(|mutant| mutant.entry == entry.id);
            let slugs: Vec<String> = planted.map(|mutant| format!("`{}`", mutant.slug)).collect();
            let (id, slug, why) = (entry.id, entry.slug, entry.not_yet);
            println!("| {id} `{slug}` | {} | | {why} |", slugs.join(", "));
        }
    }
    print_rows(scores, "-", "our own", hunt);
    println!();
}

fn print_rows(scores: &[Score], id: &str, slug: &str, hunt: &Hunt<'_>) {
    for mutant in MUTANTS.iter().filter(|mutant| mutant.entry == id) {
        let of = scores.iter().filter(|score| score.mutant.slug == mutant.slug);
        let cells: Vec<String> = of
            .map(|score| match score.median() {
                Some(seeds) => {
                    format!("{}: {seeds} seeds, {}", score.world.name(), score.checker())
                }
                None => format!("{}: not in {} seeds", score.world.name(), hunt.budget),
            })
            .collect();
        let (caught, why) = (cells.join("; "), mutant.not_yet);
        println!("| {id} `{slug}` | `{}` | {caught} | {why} |", mutant.slug);
    }
}

fn campaigns(mutant: &'static Mutant, world: World, hunt: &Hunt<'_>) -> Score {
    let mut score = Score { mutant, world, seeds: Vec::new(), sentence: String::new() };
    for campaign in 0..hunt.campaigns {
        let first = campaign * APART;
        let mut needed = None;
        for seed in first..first + hunt.budget {
            match run_apart(mutant.slug, world, seed) {
                Ok(None) => {}
                Ok(Some(sentence)) => {
                    needed = Some(seed - first + 1);
                    if score.sentence.is_empty() {
                        score.sentence = sentence;
                    }
                    break;
                }
                Err(error) => {
                    println!("cannot run seed {seed}: {error}");
                    break;
                }
            }
        }
        score.seeds.push(needed);
    }
    score.seeds.sort_by_key(|seeds| seeds.unwrap_or(u64::MAX));
    score
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
            return Ok(Some(format!("hanging for {} s", HUNG.as_secs())));
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
