//! What can be asked of `quorate txn`.

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};

use super::Sure;
use crate::output::human::parse_duration;

#[derive(Debug, Subcommand)]
pub(crate) enum TxnCommand {
    /// List transactional ids, or transactions that hang
    List {
        /// Those in this state only: Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, ...
        #[arg(long, value_name = "STATE")]
        state: Vec<String>,
        /// Those that have been open for longer
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        longer_than: Option<Duration>,
        /// What is open in partitions and no coordinator knows of; asks the leader of every
        /// partition
        #[arg(long, conflicts_with_all = ["state", "longer_than"])]
        hanging: bool,
    },
    /// Show a transaction: what it waits for, and what is in it
    Describe {
        #[arg(required = true, value_name = "TRANSACTIONAL-ID")]
        ids: Vec<String>,
    },
    /// End a transaction that hangs in a partition: its records there are lost
    Abort(AbortArgs),
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").required(true).args(["start_offset", "producer"])))]
pub(crate) struct AbortArgs {
    /// TOPIC:PARTITION
    #[arg(value_name = "TOPIC:PARTITION")]
    pub partition: String,
    /// The one that begins at this offset
    #[arg(long, value_name = "OFFSET")]
    pub start_offset: Option<i64>,
    /// The one of this producer id
    #[arg(long, value_name = "ID")]
    pub producer: Option<i64>,
    /// A coordinator that cannot be asked, since its partition has no leader, will never come back
    #[arg(long)]
    pub coordinator_is_lost: bool,
    #[command(flatten)]
    pub sure: Sure,
}
