//! The command line of the reality tests; `run.sh` installs what they need and calls this.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use jepsen_like_tests::process::{Broker, Kind, Recipe, disk_bytes, free_address};
use jepsen_like_tests::trio::Trio;
use jepsen_like_tests::{
    alerts, clients, exactly_once, kill_nine, many, namespaces, probe, robustness, rounds,
};

#[derive(Debug, Parser)]
#[command(about = "Real processes, real clients, real faults")]
struct Arguments {
    #[command(subcommand)]
    what: What,
    /// Whose broker to start.
    #[arg(long, global = true, value_enum, default_value = "quorate")]
    broker: Kind,
    /// Use a broker that runs already, where the test allows it.
    #[arg(long, global = true)]
    bootstrap: Option<SocketAddr>,
    /// Where data goes; a temporary directory otherwise.
    #[arg(long, global = true)]
    data: Option<PathBuf>,
    /// Keep data in memory (ours only).
    #[arg(long, global = true)]
    ephemeral: bool,
    /// The only core the broker may use.
    #[arg(long, global = true)]
    pin: Option<u32>,
    /// Further settings of the broker, as key=value.
    #[arg(long = "set", global = true)]
    settings: Vec<String>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Every foreign client through every scenario.
    Clients {
        /// Only these clients.
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
    },
    /// SIGKILL under load, many times on one directory.
    KillNine {
        #[arg(long, default_value_t = 20)]
        rounds: u32,
        #[arg(long, default_value_t = 8)]
        partitions: i32,
        #[arg(long, default_value_t = 4)]
        writers: u32,
        #[arg(long, default_value_t = 1000)]
        value_bytes: usize,
    },
    /// Hostile and unlucky clients.
    Robustness {
        /// What the broker may keep resident, in MiB: the limits below and as much again as a
        /// third of them for 10,000 connections and the code.
        #[arg(long, default_value_t = 384)]
        bound: u64,
    },
    /// A cluster of three processes, one fault after the other.
    Rounds {
        /// Only these faults.
        #[arg(long, value_delimiter = ',', value_enum)]
        only: Vec<rounds::Fault>,
        /// How long a node is down, or stopped, in milliseconds.
        #[arg(long, default_value_t = 20_000)]
        struck: u64,
        /// How long to write before a fault and after it, in milliseconds.
        #[arg(long, default_value_t = 5000)]
        calm: u64,
        #[arg(long, default_value_t = 3)]
        partitions: i32,
        /// Kafka's own idempotent producer writes as well.
        #[arg(long)]
        java: bool,
        /// How often.
        #[arg(long, default_value_t = 1)]
        times: usize,
        /// The binary; the released one otherwise.
        #[arg(long)]
        binary: Option<PathBuf>,
    },
    /// Consume, transform and produce in transactions, while everybody is struck.
    ExactlyOnce {
        /// How long faults strike.
        #[arg(long, default_value_t = 120)]
        seconds: u64,
        #[arg(long, default_value_t = 3)]
        producers: i32,
        #[arg(long, default_value_t = 3)]
        copiers: i32,
        #[arg(long, default_value_t = 1)]
        readers: i32,
        /// Which faults strike when.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Whoever writes speaks the protocol before KIP-890, which can lose a transaction
        /// (docs/older-protocol.md): what is found may be its own.
        #[arg(long)]
        older: bool,
        /// A bug of the clients, to show that it is found: offsets-apart, offsets-early or
        /// half-abort.
        #[arg(long)]
        planted: Option<String>,
    },
    /// A cluster of three processes with many partitions, which loses its controller.
    Many {
        #[arg(long, default_value_t = 1000)]
        partitions: i32,
    },
    /// A consumer stalls and goes on; Prometheus, which scrapes the node, says so.
    Alerts,
    /// Time from exec to the first acknowledged record.
    Probe {
        #[arg(long, default_value_t = 5)]
        times: u32,
    },
    /// Runs a broker, or a cluster of several, until standard input ends, and prints addresses and
    /// process ids, separated by commas.
    Host {
        #[arg(long, default_value_t = 1)]
        nodes: i32,
    },
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Requests 128 MiB, answers 128 MiB, a batch at most 32 MiB after decompression.
const MEMORY_LIMITS: [&str; 4] = [
    "request.memory_max=134217728",
    "request.bytes_max=67108864",
    "request.answer_memory_max=134217728",
    "request.uncompressed_bytes_max=33554432",
];

type Failure = Box<dyn std::error::Error>;

fn say(text: &str) {
    eprintln!("… {text}");
}

fn recipe(arguments: &Arguments, folder: &Path) -> Result<Recipe, Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no repository")?.to_owned();
    let data = arguments.data.clone().unwrap_or_else(|| folder.join("data"));
    Ok(Recipe {
        core: arguments.pin,
        kind: arguments.broker,
        root,
        data: (!arguments.ephemeral).then_some(data),
        address: free_address()?,
        log: folder.join("broker.log"),
        settings: arguments.settings.clone(),
    })
}

fn start(recipe: &Recipe) -> Result<Broker, Failure> {
    Ok(recipe.start(Duration::from_secs(60))?)
}

fn run(arguments: &Arguments) -> Result<bool, Failure> {
    let folder = tempfile::tempdir()?;
    let recipe = recipe(arguments, folder.path())?;
    match &arguments.what {
        What::Clients { only } => {
            let broker = if arguments.bootstrap.is_none() { Some(start(&recipe)?) } else { None };
            let address = arguments.bootstrap.unwrap_or(recipe.address).to_string();
            let table = clients::run(&recipe.root, &address, only, say);
            drop(broker);
            let table = table.map_err(|failure| failure.0)?;
            println!("{table}");
            Ok(table.counts().1 == 0)
        }
        What::KillNine { rounds, partitions, writers, value_bytes } => {
            let load = kill_nine::Load {
                rounds: *rounds,
                partitions: *partitions,
                writers: *writers,
                in_flight: 4,
                records_per_batch: 20,
                value_bytes: *value_bytes,
            };
            let report = kill_nine::run(&recipe, load, say)?;
            println!("{report}");
            Ok(report.violations.is_empty())
        }
        What::Robustness { bound } => {
            let mut recipe = recipe;
            if recipe.kind == Kind::Quorate && recipe.settings.is_empty() {
                recipe.settings = MEMORY_LIMITS.map(str::to_owned).into();
            }
            let mut broker = start(&recipe)?;
            let report = robustness::run(&mut broker, bound << 20, say)?;
            println!("{report}");
            Ok(report.passed())
        }
        What::Rounds { .. } => play_rounds(arguments, &recipe, folder.path()),
        What::ExactlyOnce { .. } => play_exactly_once(arguments, &recipe, folder.path()),
        What::Many { partitions } => {
            let (root, settings) = (&recipe.root, &arguments.settings);
            let mut trio = Trio::new(recipe.kind, root, folder.path(), 3, settings)?;
            println!("{}", many::run(&mut trio, *partitions, say)?);
            Ok(true)
        }
        What::Alerts => {
            println!("{}", alerts::run(&recipe, folder.path(), say)?);
            Ok(true)
        }
        What::Probe { times } => probe_times(&recipe, *times),
        What::Host { nodes: 2.. } => host_cluster(arguments, &recipe, folder.path()),
        What::Host { .. } => {
            let broker = start(&recipe)?;
            println!("{} {}", recipe.address, broker.pid());
            std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
            broker.terminate(Duration::from_secs(30))?;
            Ok(true)
        }
    }
}

fn play_rounds(arguments: &Arguments, recipe: &Recipe, folder: &Path) -> Result<bool, Failure> {
    let What::Rounds { only, struck, calm, partitions, java, times, binary } = &arguments.what
    else {
        return Ok(false);
    };
    let faults = if only.is_empty() { rounds::Fault::ALL } else { only.as_slice() };
    let size = rounds::Size {
        calm: Duration::from_millis(*calm),
        struck: Duration::from_millis(*struck),
        partitions: *partitions,
        java: *java,
    };
    let faults = faults.repeat(*times);
    // A fourth node only where one is to take another's place.
    let count = if faults.contains(&rounds::Fault::Replace) { 4 } else { 3 };
    let mut trio = Trio::new(recipe.kind, &recipe.root, folder, count, &arguments.settings)?;
    if let Some(binary) = binary {
        trio = trio.with_binary(binary);
    }
    if faults.iter().any(|fault| fault.wants_network()) {
        trio = trio.in_namespaces(namespaces::ROUNDS, 0)?;
    }
    let report = rounds::run(&mut trio, &faults, size, say)?;
    println!("{report}");
    Ok(report.violations.is_empty())
}

/// With `--data`, everything stays there: events of clients, faults, logs, the nodes' data.
fn play_exactly_once(
    arguments: &Arguments,
    recipe: &Recipe,
    folder: &Path,
) -> Result<bool, Failure> {
    let What::ExactlyOnce { seconds, producers, copiers, readers, seed, older, planted } =
        &arguments.what
    else {
        return Ok(false);
    };
    let folder = arguments.data.as_deref().unwrap_or(folder);
    std::fs::create_dir_all(folder)?;
    let size = exactly_once::Size {
        storm: Duration::from_secs(*seconds),
        producers: *producers,
        copiers: *copiers,
        readers: *readers,
        seed: *seed,
        older: *older,
        planted: planted.clone(),
    };
    let trio = Trio::new(recipe.kind, &recipe.root, folder, 3, &arguments.settings)?;
    let mut trio = trio.in_namespaces(namespaces::EXACTLY_ONCE, size.clients())?;
    let report = exactly_once::run(&mut trio, &recipe.root, folder, &size, say)?;
    println!("{report}");
    Ok(report.violations.is_empty())
}

fn host_cluster(arguments: &Arguments, recipe: &Recipe, folder: &Path) -> Result<bool, Failure> {
    let What::Host { nodes } = arguments.what else { return Ok(false) };
    let data = recipe.data.as_deref().unwrap_or(folder);
    std::fs::create_dir_all(data)?;
    let trio = Trio::new(recipe.kind, &recipe.root, data, nodes, &recipe.settings)?;
    let mut trio = trio.on_core(recipe.core);
    trio.start_all(Duration::from_secs(60), "started")?;
    let list = |all: Vec<String>| all.join(",");
    let addresses = list(trio.addresses().iter().map(ToString::to_string).collect());
    println!("{addresses} {}", list(trio.pids().iter().map(ToString::to_string).collect()));
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    let wrong = trio.stop(Duration::from_secs(60))?;
    wrong.iter().for_each(|sentence| eprintln!("{sentence}"));
    Ok(wrong.is_empty())
}

/// Starts on a prepared directory, as a restart would; the first start is not counted.
fn probe_times(recipe: &Recipe, times: u32) -> Result<bool, Failure> {
    let mut all = Vec::new();
    for round in 0..=times {
        let (broker, took) = probe::first_acknowledgement(recipe)?;
        if round > 0 {
            all.push(took.as_secs_f64() * 1000.0);
        }
        broker.terminate(Duration::from_secs(30))?;
    }
    all.sort_by(f64::total_cmp);
    let data = recipe.data.as_deref().map_or(0, disk_bytes);
    let (low, high) = (all[0], all[all.len() - 1]);
    println!("{:.0} ms ({low:.0} to {high:.0}), {data} bytes on disk", all[all.len() / 2]);
    Ok(true)
}
