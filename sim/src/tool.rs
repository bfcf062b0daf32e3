//! The command line of the simulator: what it is asked, and what it says with its exit code.

#[cfg(madsim)]
mod bench;
#[cfg(madsim)]
mod campaign;
pub mod flags;
#[cfg(madsim)]
mod picture;
#[cfg(madsim)]
mod replay;
#[cfg(madsim)]
mod shrink;
#[cfg(madsim)]
mod single;
#[cfg(madsim)]
mod specs;
#[cfg(madsim)]
mod worker;
#[cfg(madsim)]
pub mod zoo;

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::log;
use crate::plan::Plan;
use crate::plan::draw::{Only, draw_cluster_only, draw_only, draw_quorum};
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
        /// Write the run as a page to look at.
        #[arg(long, value_name = "FILE.html")]
        timeline: Option<PathBuf>,
        /// Write what the specifications see of the run there, a file of JSON lines for the quorum
        /// and for each partition.
        #[arg(long, value_name = "DIR")]
        export: Option<PathBuf>,
    },
    /// Print the plan of a seed.
    Plan {
        #[arg(long)]
        seed: u64,
        #[command(flatten)]
        how: How,
    },
    /// Many runs: the corpus first, then a planted bug that must be noticed, then seeds.
    Campaign(flags::Campaign),
    /// Run a plan from a file, and say whether it still fails as it did.
    Replay {
        file: PathBuf,
        #[command(flatten)]
        how: How,
        #[command(flatten)]
        show: Show,
        /// Write the run as a page to look at.
        #[arg(long, value_name = "FILE.html")]
        timeline: Option<PathBuf>,
    },
    /// Run a plan from a file, and tell how its failure came about: what struck, who led, and the
    /// operations that show it.
    Explain {
        file: PathBuf,
        #[command(flatten)]
        how: How,
    },
    /// The simplest plan that fails alike. Exit code 0 if it does when it is run once more.
    Shrink(flags::Shrink),
    /// Run what standard input asks for; other commands use it.
    #[command(hide = true)]
    Worker,
    /// Run every plan that once found a bug, in both worlds.
    Corpus,
    /// Measure how fast the worlds are, on one core.
    Bench {
        /// For example 0..40.
        #[arg(long, value_parser = parse_seeds, default_value = "0..40")]
        seeds: Range<u64>,
        /// Only this row: what a row starts for itself.
        #[arg(long, hide = true)]
        row: Option<usize>,
    },
    /// Explore the specifications to the end within small bounds.
    Spec,
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
    /// Where to run: the machines alone, the whole node, or members of a quorum alone. A plan that
    /// was kept for a failure runs where it failed, and with that mutant.
    #[arg(long, value_enum)]
    pub world: Option<WorldName>,
    /// Plant this bug, by its slug or its entry (A1).
    #[arg(long, value_parser = parse_mutant)]
    pub mutant: Option<String>,
    /// So many nodes; 0 lets each seed draw its own number. In the world of quorums, so many
    /// voters; fewer than 2 let each seed draw.
    #[arg(long, default_value_t = 1)]
    pub nodes: u32,
    /// Draw plans of which every one has transactions, or groups, and little else.
    #[arg(long, value_parser = parse_only, value_name = "transactions|groups")]
    pub only: Option<Only>,
}

impl How {
    /// The plan of a seed, as it is to be run.
    pub fn plan(&self, seed: u64) -> Plan {
        match (self.world, self.nodes) {
            (Some(WorldName::Quorum), voters) => draw_quorum(seed, voters),
            (_, 1) => draw_only(seed, self.only),
            (_, nodes) => draw_cluster_only(seed, nodes, self.only),
        }
    }

    /// Where to run what is no kept failure.
    pub fn world(&self) -> World {
        self.world.map_or(World::Nodes, World::from)
    }

    /// Where to run a plan, and with which mutant.
    pub fn place_of(&self, plan: &Plan) -> (World, Option<String>) {
        let found = plan.found.as_ref();
        let world = self.world.map(World::from).or_else(|| found.map(|found| found.world));
        // Such a plan means something in one world only.
        let world = if plan.quorum.is_some() { Some(World::Quorum) } else { world };
        let mutant = self.mutant.clone().or_else(|| found.and_then(|found| found.mutant.clone()));
        (world.unwrap_or(World::Nodes), mutant)
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

fn parse_only(text: &str) -> Result<Only, String> {
    let found = Only::ALL.iter().copied().find(|only| only.name() == text);
    found.ok_or_else(|| {
        let known: Vec<_> = Only::ALL.iter().map(|only| only.name()).collect();
        format!("{text:?} is none of {}", known.join(", "))
    })
}

fn parse_mutant(text: &str) -> Result<String, String> {
    crate::zoo::named(text)
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

/// What a shell says of a program that was ended because nobody reads its output (128 + SIGPIPE).
#[cfg(madsim)]
const NOBODY_READS: i32 = 141;

/// `cargo sim … | head` ends when `head` has what it wants, without a story about it.
#[cfg(madsim)]
fn end_when_nobody_reads() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let said = info.payload_as_str().unwrap_or_default();
        if said.starts_with("failed printing to stdout") && said.contains("os error 32") {
            std::process::exit(NOBODY_READS);
        }
        usual(info);
    }));
}

/// Does what the command line says; returns the exit code.
#[cfg(madsim)]
pub fn main() -> std::process::ExitCode {
    end_when_nobody_reads();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { USAGE } else { 0 }.into();
        }
    };
    let code = match arguments.command {
        Command::Run { seed, how, twice, show, timeline, export } => {
            single::run(seed, &how, twice, &show, timeline.as_deref(), export.as_deref())
        }
        Command::Plan { seed, how } => single::print_plan(seed, &how),
        Command::Campaign(flags) => campaign::run(&flags),
        Command::Replay { file, how, show, timeline } => {
            replay::run(&file, &how, &show, timeline.as_deref())
        }
        Command::Explain { file, how } => replay::explain(&file, &how),
        Command::Shrink(flags) => shrink::run(&flags),
        Command::Worker => worker::serve(),
        Command::Corpus => single::corpus(),
        Command::Bench { seeds, row: None } => bench::run(&seeds),
        Command::Bench { seeds, row: Some(row) } => bench::run_row(seeds, row),
        Command::Spec => specs::run(),
        Command::Zoo(hunt) => zoo::run(&hunt),
    };
    code.into()
}
