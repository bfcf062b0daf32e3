//! `quorate cluster status`: at a glance, who leads, what is under-replicated, what is being
//! repaired, and how long that will take.

use serde::Serialize;

use super::picture::{Picture, Standing};
use super::repairs::{self, Repair};
use super::{list, shown};
use crate::command::Context;
use crate::failure::Failure;
use crate::output::human;
use crate::output::table::Table;

/// Ailing partitions that are listed one by one; of more, the number is told.
const LISTED_MAX: usize = 20;

#[derive(Serialize)]
struct Status {
    cluster: String,
    healthy: bool,
    controller: Option<i32>,
    topics: usize,
    partitions: usize,
    without_leader: usize,
    below_minimum: usize,
    under_replicated: usize,
    nodes: Vec<NodeRow>,
    ailing: Vec<AilingRow>,
    repairs: Vec<Repair>,
}

#[derive(Serialize)]
struct NodeRow {
    node: i32,
    address: String,
    rack: Option<String>,
    state: String,
    controller: bool,
    leads: usize,
    replicas: usize,
    in_sync: usize,
}

#[derive(Serialize)]
struct AilingRow {
    partition: String,
    leader: Option<i32>,
    replicas: Vec<i32>,
    in_sync: Vec<i32>,
    missing: Vec<i32>,
    below_minimum: bool,
}

impl From<Standing> for NodeRow {
    fn from(standing: Standing) -> Self {
        Self {
            node: standing.node.0,
            address: standing.address,
            rack: standing.rack,
            state: standing.state,
            controller: standing.is_controller,
            leads: standing.leads,
            replicas: standing.replicas,
            in_sync: standing.in_sync,
        }
    }
}

pub(super) async fn run(context: &Context) -> Result<(), Failure> {
    let client = context.connect().await?;
    let picture = Picture::of(&client).await?;
    let repairs = repairs::of(context, &client, &picture).await;
    let status = status(&picture, repairs);
    if context.output.json {
        return context.output.json(&status);
    }
    print(context, &picture, &status)
}

fn status(picture: &Picture, repairs: Vec<Repair>) -> Status {
    let ids = |nodes: &[quorate_core::id::NodeId]| nodes.iter().map(|node| node.0).collect();
    let ailing: Vec<AilingRow> = picture
        .ailing()
        .map(|ailing| AilingRow {
            partition: shown(&ailing.name),
            leader: ailing.partition.leader.map(|leader| leader.0),
            replicas: ids(&ailing.partition.replicas),
            in_sync: ids(&ailing.partition.in_sync),
            missing: ids(&ailing.missing),
            below_minimum: ailing.is_below_least,
        })
        .collect();
    Status {
        cluster: picture.cluster.id.clone(),
        healthy: ailing.is_empty() && picture.cluster.nodes.values().all(|node| !node.fenced),
        controller: picture.controller().map(|node| node.0),
        topics: picture.topics.len(),
        partitions: picture.partitions().count(),
        without_leader: ailing.iter().filter(|row| row.leader.is_none()).count(),
        below_minimum: ailing.iter().filter(|row| row.below_minimum).count(),
        under_replicated: ailing.iter().filter(|row| !row.missing.is_empty()).count(),
        nodes: picture.standings().into_iter().map(NodeRow::from).collect(),
        ailing,
        repairs,
    }
}

fn print(context: &Context, picture: &Picture, status: &Status) -> Result<(), Failure> {
    let output = context.output;
    let style = output.style;
    output.line(&format!(
        "cluster {}: {} nodes, {} partitions of {} topics",
        style.bold(&status.cluster),
        status.nodes.len(),
        status.partitions,
        status.topics
    ))?;
    let verdict = verdict(status);
    let verdict = if status.without_leader > 0 || status.below_minimum > 0 {
        style.red(&verdict)
    } else if status.healthy {
        style.green(&verdict)
    } else {
        style.yellow(&verdict)
    };
    output.line(&format!("  {verdict}"))?;
    output.line("")?;
    let mut table =
        Table::new(&["NODE", "ADDRESS", "RACK", "STATE", "LEADS", "REPLICAS", "IN SYNC"])
            .indented(2);
    for node in &status.nodes {
        let controller = if node.controller { ", controller" } else { "" };
        table.row([
            node.node.to_string(),
            node.address.clone(),
            node.rack.clone().unwrap_or_else(|| "-".to_owned()),
            format!("{}{controller}", node.state),
            node.leads.to_string(),
            node.replicas.to_string(),
            node.in_sync.to_string(),
        ]);
    }
    output.table(&table)?;
    print_ailing(context, picture)?;
    repairs::print(context, &status.repairs)
}

fn print_ailing(context: &Context, picture: &Picture) -> Result<(), Failure> {
    let count = picture.ailing().count();
    if count == 0 {
        return Ok(());
    }
    context.output.line("")?;
    let mut table =
        Table::new(&["PARTITION", "LEADER", "REPLICAS", "IN SYNC", "MISSING", ""]).indented(2);
    for ailing in picture.ailing().take(LISTED_MAX) {
        let note = match () {
            () if !ailing.has_leader() => "no leader: nothing is served",
            () if ailing.is_below_least => "too few in sync: acks=all is refused",
            () => "",
        };
        table.row([
            shown(&ailing.name),
            ailing.partition.leader.map_or_else(|| "none".to_owned(), |leader| leader.to_string()),
            list(&ailing.partition.replicas),
            list(&ailing.partition.in_sync),
            list(&ailing.missing),
            note.to_owned(),
        ]);
    }
    context.output.table(&table)?;
    if count > LISTED_MAX {
        context.output.line(&format!("  and {} more", count - LISTED_MAX))?;
    }
    Ok(())
}

/// In a sentence how the cluster stands.
fn verdict(status: &Status) -> String {
    let fenced = status.nodes.iter().filter(|node| node.state.contains("not heard of")).count();
    let mut parts = Vec::new();
    if status.without_leader > 0 {
        parts.push(format!("{} without a leader", partitions(status.without_leader)));
    }
    if status.below_minimum > 0 {
        let many = partitions(status.below_minimum);
        parts.push(format!("{many} with too few replicas in sync for acks=all"));
    }
    if status.under_replicated > 0 {
        parts.push(format!("{} under-replicated", partitions(status.under_replicated)));
    }
    if fenced > 0 {
        parts.push(format!("{fenced} of {} nodes not heard of", status.nodes.len()));
    }
    if parts.is_empty() {
        parts.push("all partitions are led and fully replicated".to_owned());
    }
    let longest = status.repairs.iter().filter_map(|repair| repair.seconds_left).max();
    if let Some(seconds) = longest {
        // Nothing is left to copy: they join as soon as their leaders have heard of them.
        let left = match seconds {
            0 => "a moment".to_owned(),
            seconds => human::duration(std::time::Duration::from_secs(seconds)),
        };
        parts.push(format!("repaired in about {left}"));
    } else if !status.repairs.is_empty() {
        parts.push(format!("{} being repaired", partitions(status.repairs.len())));
    }
    parts.join("; ")
}

fn partitions(count: usize) -> String {
    if count == 1 { "1 partition".to_owned() } else { format!("{count} partitions") }
}
