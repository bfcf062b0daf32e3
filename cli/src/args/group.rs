//! What can be asked of `quorate group`.

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};

use super::Sure;
use crate::output::human::parse_duration;

#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// List groups
    List {
        /// Those in this state only: stable, empty, preparingrebalance, ...
        #[arg(long, value_name = "STATE")]
        state: Vec<String>,
        /// Those of this type only: classic, consumer
        #[arg(long = "type", value_name = "TYPE")]
        kind: Vec<String>,
    },
    /// Show a group: why it does not get on, who reads what, and how far behind
    Describe {
        #[arg(required = true)]
        groups: Vec<String>,
        /// Its members and what each has, in place of the partitions
        #[arg(long)]
        members: bool,
    },
    /// How far groups are behind, in records, bytes and time; of all groups if none is named
    Lag { groups: Vec<String> },
    /// Move a group's offsets while it has no members; shows what it would do until --execute
    ResetOffsets(ResetArgs),
    /// Forget a group's offsets of topics that no member reads
    DeleteOffsets {
        group: String,
        #[command(flatten)]
        partitions: Partitions,
        #[command(flatten)]
        sure: Sure,
    },
    /// Delete groups without members, and all their offsets
    Delete {
        #[arg(required = true)]
        groups: Vec<String>,
        #[command(flatten)]
        sure: Sure,
    },
}

/// Which of a group's partitions.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("partitions").required(true).args(["topic", "all_topics"])))]
pub(crate) struct Partitions {
    /// TOPIC, or TOPIC:PARTITION[,PARTITION...]; may be given several times
    #[arg(long, short = 't', value_name = "TOPIC[:PARTITIONS]")]
    pub topic: Vec<String>,
    /// All topics of which the group has offsets
    #[arg(long)]
    pub all_topics: bool,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("where_to").required(true)))]
pub(crate) struct ResetArgs {
    pub group: String,
    #[command(flatten)]
    pub partitions: Partitions,
    /// To the oldest record
    #[arg(long, group = "where_to")]
    pub to_earliest: bool,
    /// Behind the newest record
    #[arg(long, group = "where_to")]
    pub to_latest: bool,
    /// To where the group is now: writes its offsets anew
    #[arg(long, group = "where_to")]
    pub to_current: bool,
    /// To this offset
    #[arg(long, value_name = "OFFSET", group = "where_to")]
    pub to_offset: Option<i64>,
    /// To the first record that is not older: 2026-11-30T08:00:00, with Z or +01:00 if not in
    /// UTC, or @MILLISECONDS since 1970
    #[arg(long, value_name = "TIME", group = "where_to")]
    pub to_datetime: Option<String>,
    /// To the first record that is not older than this: 1h30m, 7d
    #[arg(long, value_name = "TIME", value_parser = parse_duration, group = "where_to")]
    pub by_duration: Option<Duration>,
    /// So many records forward, or back if negative
    #[arg(long, value_name = "RECORDS", allow_hyphen_values = true, group = "where_to")]
    pub shift_by: Option<i64>,
    /// To where another group is
    #[arg(long, value_name = "GROUP", group = "where_to")]
    pub to_group: Option<String>,
    /// Do it; without this, only show what would be done
    #[arg(long)]
    pub execute: bool,
}
