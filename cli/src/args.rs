//! The command line: what can be asked, and the sentences of `--help`.

mod group;
mod txn;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use quorate_core::partition::interface::Isolation;

pub(crate) use self::group::{GroupCommand, Partitions, ResetArgs};
pub(crate) use self::txn::{AbortArgs, TxnCommand};
use crate::output::human::{parse_bytes, parse_count, parse_duration};

/// A message queue that Kafka's clients use as it is.
#[derive(Debug, Parser)]
#[command(
    name = "quorate",
    version,
    propagate_version = true,
    max_term_width = 100,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub global: Global,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// A node to ask, as host:port[,host:port...]
    #[arg(
        long,
        short = 'b',
        global = true,
        value_name = "ADDRESSES",
        env = "QUORATE_BOOTSTRAP",
        default_value = "127.0.0.1:9092",
        hide_env_values = true
    )]
    pub bootstrap: String,
    /// JSON instead of tables and sentences
    #[arg(long, global = true)]
    pub json: bool,
    /// How long to try before giving up
    #[arg(
        long, global = true, value_name = "TIME", value_parser = parse_duration,
        default_value = "10s", hide_default_value = true
    )]
    pub timeout: Duration,
    /// What to trace: a level, or module=level[,...] such as node::storage=debug
    #[arg(long, global = true, value_name = "FILTER", env = "QUORATE_LOG", hide_env_values = true)]
    pub log: Option<String>,
    /// How traces are written: text, json
    #[arg(
        long,
        global = true,
        value_name = "FORM",
        env = "QUORATE_LOG_FORMAT",
        hide_env_values = true,
        default_value = "text",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a local node that is ready in less than a second
    Up(UpArgs),
    /// Run one node from its configuration file
    Serve(ServeArgs),
    /// Create, look at and change topics
    #[command(subcommand)]
    Topic(TopicCommand),
    /// Send lines from standard input as records
    Produce(ProduceArgs),
    /// Print the records of a topic
    Consume(ConsumeArgs),
    /// Look at consumer groups, and move their offsets
    #[command(subcommand)]
    Group(GroupCommand),
    /// Look at transactions, and end those that hang
    #[command(subcommand)]
    Txn(TxnCommand),
    /// Look at the cluster, and move things in it
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Whether all is well, for monitors: exits 0 well, 1 degraded, 2 critical, 3 unreachable
    Check(CheckArgs),
    /// Look into the files of a node
    #[command(subcommand)]
    Log(LogCommand),
    /// Measure throughput and latency
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Write alerts, a dashboard, shell completions and the manual
    #[command(subcommand)]
    Generate(GenerateCommand),
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// How many nodes, a cluster in one process; each has its data in a directory of its own, and
    /// the ports count up
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub nodes: u32,
    /// Where the data are kept
    #[arg(long, value_name = "DIRECTORY", default_value = "quorate-data")]
    pub data: PathBuf,
    /// Keep everything in memory; it is gone when the node stops
    #[arg(long, conflicts_with = "data")]
    pub ephemeral: bool,
    /// How much memory that may take
    #[arg(
        long, value_name = "SIZE", value_parser = parse_bytes, default_value = "1GiB",
        requires = "ephemeral"
    )]
    pub memory: u64,
    /// Where clients connect; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9092")]
    pub listen: SocketAddr,
    /// Where monitors are answered by HTTP: /metrics, /lag, /readyz ... [default: nowhere; with no
    /// address 127.0.0.1:9644]
    #[arg(
        long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true,
        default_missing_value = "127.0.0.1:9644"
    )]
    pub http: Option<SocketAddr>,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The configuration, a TOML file
    #[arg(long, short, value_name = "FILE")]
    pub config: PathBuf,
    /// Say whether the configuration is valid, and do not start
    #[arg(long)]
    pub check: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TopicCommand {
    /// Create a topic
    Create {
        name: String,
        /// How many partitions [default: the cluster's]
        #[arg(long, short, value_name = "NUMBER")]
        partitions: Option<i32>,
        /// How many replicas of each partition [default: the cluster's]
        #[arg(long, short, value_name = "NUMBER")]
        replicas: Option<i16>,
        /// Kafka's names; times and sizes may have units: retention.ms=7d
        #[arg(long, short, value_name = "KEY=VALUE")]
        config: Vec<String>,
        /// A topic that exists is fine
        #[arg(long)]
        if_not_exists: bool,
    },
    /// List topics
    List {
        /// With the cluster's own topics
        #[arg(long)]
        internal: bool,
    },
    /// Show a topic: what an acknowledgement survives, partitions, configuration
    Describe {
        name: String,
        /// The whole configuration, defaults too
        #[arg(long, short)]
        all: bool,
    },
    /// Change a topic's configuration
    Alter {
        name: String,
        /// Times and sizes may have units: retention.ms=7d
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Back to the default
        #[arg(long, value_name = "KEY")]
        unset: Vec<String>,
    },
    /// Delete topics and all their records
    Delete {
        #[arg(required = true)]
        names: Vec<String>,
        #[command(flatten)]
        sure: Sure,
    },
    /// Raise the number of partitions; the keys of new records move
    AddPartitions {
        name: String,
        /// How many there shall be
        #[arg(long, value_name = "NUMBER")]
        total: i32,
        #[command(flatten)]
        sure: Sure,
    },
    /// Delete the oldest records
    DeleteRecords {
        name: String,
        /// Of this partition only
        #[arg(long, short, value_name = "PARTITION")]
        partition: Option<i32>,
        /// Up to, not including: an offset, `end`, or @TIME as for `consume --offset`
        #[arg(long, value_name = "POSITION")]
        before: String,
        #[command(flatten)]
        sure: Sure,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Who leads, what is under-replicated, what is being repaired and how long that takes
    Status,
    /// What is wrong, and which loss the cluster would not bear; exits 1 if something is wrong
    Health,
    /// How many partitions each node leads, and elections by hand
    Leaders {
        /// Elections for these only: TOPIC or TOPIC:PARTITION
        partitions: Vec<String>,
        /// Bring leaders back to where they belong
        #[arg(long)]
        preferred: bool,
        /// Let any replica lead where nobody may: acknowledged records may be lost
        #[arg(long, conflicts_with = "preferred")]
        unclean: bool,
        #[command(flatten)]
        sure: Sure,
    },
    /// Who votes on the metadata
    Quorum {
        /// One voter more, a node that follows already: NODE or NODE/DIRECTORY
        #[arg(long, value_name = "NODE")]
        add: Option<String>,
        /// One voter less: NODE or NODE/DIRECTORY
        #[arg(long, value_name = "NODE", conflicts_with = "add")]
        remove: Option<String>,
        #[command(flatten)]
        sure: Sure,
    },
    /// Move partitions to other nodes; without --to list what moves
    Reassign {
        /// TOPIC or TOPIC:PARTITION
        partitions: Vec<String>,
        /// The nodes that shall keep the copies, the preferred leader first
        #[arg(long, value_name = "NODES", value_delimiter = ',')]
        to: Vec<i32>,
        /// Take running moves back
        #[arg(long, conflicts_with = "to")]
        cancel: bool,
        #[command(flatten)]
        sure: Sure,
    },
    /// Move all copies of a node away, so that it can leave
    Decommission {
        node: i32,
        /// It stays after all
        #[arg(long)]
        cancel: bool,
        /// It is gone and keeps nothing: forget it
        #[arg(long, conflicts_with = "cancel")]
        forget: bool,
        /// Until it keeps nothing
        #[arg(long, conflicts_with_all = ["cancel", "forget"])]
        wait: bool,
        #[command(flatten)]
        sure: Sure,
    },
    /// Take all leaderships from a node; it keeps its copies even while it is away
    Maintenance {
        node: i32,
        /// It serves again
        #[arg(long)]
        end: bool,
        /// Until it leads nothing
        #[arg(long, conflicts_with = "end")]
        wait: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// text, json, prometheus, nagios
    #[arg(long, value_name = "FORM", default_value = "text", hide_possible_values = true)]
    pub form: CheckForm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckForm {
    Text,
    Json,
    Prometheus,
    Nagios,
}

#[derive(Debug, Args)]
pub(crate) struct Sure {
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ProduceArgs {
    pub topic: String,
    /// A line is KEY, this delimiter, and the value
    #[arg(long = "key-delimiter", short = 'k', value_name = "DELIMITER")]
    pub key_delimiter: Option<String>,
    /// A header for each record; may be given several times
    #[arg(long = "header", short = 'H', value_name = "NAME=VALUE")]
    pub headers: Vec<String>,
    /// To this partition, whatever the key
    #[arg(long, short)]
    pub partition: Option<i32>,
    /// Who must have a record before it counts: all, 1, 0
    #[arg(long, default_value = "all", value_name = "ACKS")]
    pub acks: String,
    /// The priority header, 0 to 9; higher goes first in share groups
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(0..=9))]
    pub priority: Option<u8>,
    /// Compress batches: none, gzip, snappy, lz4, zstd
    #[arg(long, short = 'z', default_value = "none", value_name = "CODEC")]
    pub codec: String,
    /// Print partition, offset and timestamp of each record
    #[arg(long)]
    pub receipts: bool,
    /// How a line reads, in kcat's letters: %k key, %s value, %h headers, %p partition,
    /// %T timestamp
    #[arg(
        long, short = 'f', value_name = "FORMAT",
        conflicts_with_all = ["key_delimiter", "json_lines"]
    )]
    pub format: Option<String>,
    /// A line is a JSON object as `consume -J` writes it
    #[arg(long = "json-lines", short = 'J', conflicts_with = "key_delimiter")]
    pub json_lines: bool,
    /// An empty value is null: a tombstone for a compacted topic
    #[arg(long = "empty-is-null", short = 'Z')]
    pub empty_is_null: bool,
    /// Wait so long for a batch to fill
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5ms")]
    pub linger: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct ConsumeArgs {
    pub topic: String,
    /// Where to begin: beginning, end, an offset, -N for the last N, @TIME (Unix milliseconds,
    /// or `@1h` ago) [default: beginning, or the group's offsets]
    #[arg(long, short, value_name = "POSITION", allow_hyphen_values = true)]
    pub offset: Option<String>,
    /// These partitions only
    #[arg(long, short, value_name = "PARTITION", value_delimiter = ',')]
    pub partition: Vec<i32>,
    /// As a member of a group, which shares the partitions and remembers offsets
    #[arg(long, short, conflicts_with_all = ["partition", "merge"])]
    pub group: Option<String>,
    /// Stop after so many records
    #[arg(long, short, value_name = "NUMBER", value_parser = parse_count)]
    pub count: Option<u64>,
    /// Stop at the end of what is there now
    #[arg(long, short)]
    pub exit: bool,
    /// In kcat's letters: %t topic, %p partition, %o offset, %k key, %s value, %h headers,
    /// %T timestamp, %K %S lengths, \n \t
    #[arg(long, short, value_name = "FORMAT", conflicts_with = "json_lines")]
    pub format: Option<String>,
    /// A JSON object a line, with kcat's names
    #[arg(long = "json-lines", short = 'J')]
    pub json_lines: bool,
    /// All partitions in one order: time (then partition, then offset)
    #[arg(long, value_name = "ORDER", hide_possible_values = true)]
    pub merge: Option<Merge>,
    /// What is read of transactions: committed (what is open or aborted is left out), uncommitted
    #[arg(long, value_name = "LEVEL", default_value = "uncommitted", hide_possible_values = true)]
    pub isolation: IsolationLevel,
    /// When a group's offsets are stored: after (what was written out), auto=TIME, none
    #[arg(long, default_value = "after", value_name = "WHEN", requires = "group")]
    pub commit: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Merge {
    Time,
}

/// Kafka's long names are understood too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IsolationLevel {
    #[value(alias = "read_committed")]
    Committed,
    #[value(alias = "read_uncommitted")]
    Uncommitted,
}

impl IsolationLevel {
    pub(crate) const fn of(self) -> Isolation {
        match self {
            Self::Committed => Isolation::ReadCommitted,
            Self::Uncommitted => Isolation::ReadUncommitted,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Print the batches of a segment file, or of a file of orphans
    Inspect {
        file: PathBuf,
        /// With each record
        #[arg(long)]
        records: bool,
    },
    /// Check every checksum of a stopped node's data directory; of several, that they hold the same
    Verify {
        #[arg(required = true)]
        directories: Vec<PathBuf>,
    },
    /// List the records that were cut off a log when its leader's turned out to be another
    Orphans { directory: PathBuf },
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Records a second and the time to their acknowledgement
    Produce(BenchArgs),
    /// Records a second out of a topic; it is filled first if it is empty
    Consume(BenchArgs),
    /// The time from sending a record to reading it
    EndToEnd(BenchArgs),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct BenchArgs {
    /// The topic; one of its own is made, and deleted at the end, if none is named
    #[arg(long)]
    pub topic: Option<String>,
    /// Partitions of the topic that is made
    #[arg(long, short, default_value_t = 1)]
    pub partitions: i32,
    /// Configuration of the topic that is made
    #[arg(long, short, value_name = "KEY=VALUE")]
    pub config: Vec<String>,
    /// How many records
    #[arg(long, short = 'n', value_parser = parse_count, default_value = "100k")]
    pub records: u64,
    /// Bytes of a record's value
    #[arg(long, short, value_parser = parse_bytes, default_value = "1KiB")]
    pub size: u64,
    /// Records a second; without it as fast as possible
    #[arg(long, short, value_parser = parse_count)]
    pub rate: Option<u64>,
    /// Who must have a record before it counts: all, 1, 0
    #[arg(long, default_value = "all")]
    pub acks: String,
    /// Each record once and in order (needs --acks all)
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub idempotent: bool,
    /// none, gzip, snappy, lz4, zstd
    #[arg(long, short = 'z', default_value = "none")]
    pub codec: String,
    /// Bytes of a batch
    #[arg(long, value_parser = parse_bytes, default_value = "128KiB")]
    pub batch: u64,
    /// Records of a batch, at most
    #[arg(long, value_parser = parse_count, default_value = "100k")]
    pub batch_records: u64,
    /// How long a batch waits to fill
    #[arg(long, value_parser = parse_duration, default_value = "0ms")]
    pub linger: Duration,
    /// Producers, each with connections of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub producers: u32,
    /// In transactions that are committed after so long, 100ms if no time is given; latencies count
    /// to the commit (`produce` only)
    #[arg(
        long, value_name = "TIME", value_parser = parse_duration, num_args = 0..=1,
        require_equals = true, default_missing_value = "100ms"
    )]
    pub transactional: Option<Duration>,
    /// Records sent before measuring begins
    #[arg(long, value_parser = parse_count, default_value = "0")]
    pub warmup: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GenerateCommand {
    /// Prometheus's alert rules, to standard output
    Alerts {
        /// A group that gets nowhere for so long, with something to read, is stalled
        #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "2m")]
        stalled_after: Duration,
        /// A group that is so far behind is behind
        #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10m")]
        behind: Duration,
        /// How long the other things may last
        #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1m")]
        patience: Duration,
        /// The name of the scrape job
        #[arg(long, value_name = "JOB", default_value = "quorate")]
        job: String,
    },
    /// Grafana's dashboard, to standard output
    Dashboard,
    /// Completions for a shell, to standard output
    Completion { shell: clap_complete::Shell },
    /// The manual's pages, one a command
    Man {
        /// Where to
        #[arg(default_value = ".")]
        directory: PathBuf,
    },
}
