//! The command line of the simulator: what it is asked, and what it says with its exit code.

#[cfg(madsim)]
mod bench;
#[cfg(madsim)]
mod campaign;
#[cfg(madsim)]
mod single;
#[cfg(madsim)]
pub mod zoo;

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::log;
use crate::plan::Plan;
use crate::plan::draw::{draw, draw_cluster, draw_quorum};
use crate::run::World;

/// The exit code for a command line that makes no sense (sysexits' `EX_USAGE`).
pub const USAGE: u8 = 64;
/// The exit code when the harness itself failed (sysexits' `EX_SOFTWARE`).
pub const HARNESS_BROKE: u8 = 70;

/// Simulates Quorate: the same seed gives the same life, to the last event.
///
/// Exit codes: 0 all properties held, 1 safety violated, 2 no progress, 3 not deterministic,
/// 4 inconclusive, 64 usage, 70 the harness itself broke.
#[derive(Debug, Parser)]
#[command(name = "cargo sim", bin_name = "cargo sim")]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// One run.
    Run {
        #[arg(long)]
        seed: u64,
        #[command(flatten)]
        how: How,
        /// Run it again, on another thread and in two processes, and compare every event.
        #[arg(long)]
        twice: bool,
        #[command(flatten)]
        show: Show,
    },
    /// Print the plan of a seed.
    Plan {
        #[arg(long)]
        seed: u64,
        #[command(flatten)]
        how: How,
    },
    /// Many runs.
    Campaign {
        /// For example 0..2000.
        #[arg(long, value_parser = parse_seeds, default_value = "0..1000")]
        seeds: Range<u64>,
        /// Stop after this time, for example 10m.
        #[arg(long, value_parser = parse_time)]
        time: Option<Duration>,
        /// Seeds that run at once; by default one a core.
        #[arg(long)]
        jobs: Option<usize>,
        #[command(flatten)]
        how: How,
    },
    /// Run a plan from a file.
    Replay {
        file: PathBuf,
        #[command(flatten)]
        how: How,
        #[command(flatten)]
        show: Show,
    },
    /// Run every plan that once found a bug, in both worlds.
    Corpus,
    /// Measure how fast the worlds are, on one core.
    Bench {
        /// For example 0..40.
        #[arg(long, value_parser = parse_seeds, default_value = "0..40")]
        seeds: Range<u64>,
    },
    /// Plant known bugs, and see whether the checkers notice.
    Zoo(Hunt),
}

/// How to hunt.
#[derive(Clone, Debug, clap::Args)]
pub struct Hunt {
    /// Only these, by slug or by entry (A1). All otherwise.
    #[arg(long = "mutant", num_args = 1..)]
    pub only: Vec<String>,
    /// Only in this world.
    #[arg(long, value_enum)]
    pub world: Option<WorldName>,
    /// Only where there are so many nodes.
    #[arg(long)]
    pub nodes: Option<u32>,
    /// Seeds per mutant, world and campaign, at most.
    #[arg(long, default_value_t = 200)]
    pub budget: u64,
    /// The same for whole nodes, whose lives are long.
    #[arg(long)]
    pub budget_nodes: Option<u64>,
    /// Hunt a mutant in one world after the other, until one has caught it.
    #[arg(long)]
    pub anywhere: bool,
    /// Campaigns, each with seeds of its own; their median counts.
    #[arg(long, default_value_t = 1)]
    pub campaigns: u64,
    /// Seeds that run at once; by default one a core.
    #[arg(long)]
    pub jobs: Option<usize>,
    /// A file of what was found out. The hunt goes on where it says that the last one was.
    #[arg(long)]
    pub keep: Option<PathBuf>,
    /// Print the list of all historic bugs, and what became of each, as a page; with `--keep`,
    /// from that file.
    #[arg(long)]
    pub markdown: bool,
    /// The same as JSON.
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub struct How {
    /// Where to run: the machines alone, the whole node, or members of a quorum alone.
    #[arg(long, value_enum, default_value_t = WorldName::Nodes)]
    pub world: WorldName,
    /// Plant this bug.
    #[arg(long)]
    pub mutant: Option<String>,
    /// So many nodes; 0 lets each seed draw its own number. In the world of quorums, so many
    /// voters; fewer than 2 let each seed draw.
    #[arg(long, default_value_t = 1)]
    pub nodes: u32,
}

impl How {
    /// The plan of a seed, as it is to be run.
    pub fn plan(&self, seed: u64) -> Plan {
        match (self.world, self.nodes) {
            (WorldName::Quorum, voters) => draw_quorum(seed, voters),
            (_, 1) => draw(seed),
            (_, nodes) => draw_cluster(seed, nodes),
        }
    }
}

#[derive(Clone, Debug, clap::Args)]
pub struct Show {
    /// Print a line for each change of state, or for each event.
    #[arg(long, num_args = 0..=1, default_missing_value = "changes", value_enum)]
    pub trace: Option<Trace>,
    #[command(flatten)]
    pub flags: log::Flags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WorldName {
    Cores,
    Nodes,
    Quorum,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Trace {
    Changes,
    All,
}

impl From<WorldName> for World {
    fn from(name: WorldName) -> Self {
        match name {
            WorldName::Cores => Self::Cores,
            WorldName::Nodes => Self::Nodes,
            WorldName::Quorum => Self::Quorum,
        }
    }
}

fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("{text:?} is not a range of seeds such as 0..2000");
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let range = from.parse().map_err(|_| wrong())?..to.parse().map_err(|_| wrong())?;
    if range.is_empty() { Err(format!("{text:?} has no seed")) } else { Ok(range) }
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let seconds = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(format!("{text:?} is not a time such as 90s, 10m or 8h")),
    };
    let number: u64 = digits.parse().map_err(|error| format!("{text:?}: {error}"))?;
    Ok(Duration::from_secs(number.saturating_mul(seconds)))
}

/// Does what the command line says; returns the exit code.
#[cfg(madsim)]
pub fn main() -> std::process::ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { USAGE } else { 0 }.into();
        }
    };
    let code = match arguments.command {
        Command::Run { seed, how, twice, show } => single::run(seed, &how, twice, &show),
        Command::Plan { seed, how } => single::print_plan(seed, &how),
        Command::Campaign { seeds, time, jobs, how } => campaign::run(seeds, time, jobs, &how),
        Command::Replay { file, how, show } => single::replay(&file, &how, &show),
        Command::Corpus => single::corpus(),
        Command::Bench { seeds } => bench::run(seeds),
        Command::Zoo(hunt) => zoo::run(&hunt),
    };
    code.into()
}
