//! `quorate cluster health`: what is wrong now, and which loss the cluster would not bear.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::id::NodeId;
use serde::Serialize;

use super::picture::Picture;
use super::quorum::survives;
use crate::command::Context;
use crate::failure::Failure;
use crate::output::table::Table;

#[derive(Serialize)]
struct Health {
    healthy: bool,
    problems: Vec<String>,
    quorum: Option<String>,
    losses: Vec<Loss>,
}

/// What the loss of a node, or of all nodes in a rack, would cost.
#[derive(Serialize)]
struct Loss {
    of: String,
    /// Nothing could be decided any more.
    stops_quorum: bool,
    /// Partitions of which no other copy is in sync.
    stops_partitions: usize,
}

pub(super) async fn run(context: &Context) -> Result<(), Failure> {
    let client = context.connect().await?;
    let picture = Picture::of(&client).await?;
    let problems = problems(&picture);
    let quorum = picture.quorum.as_ref().map(|quorum| survives(quorum.voters.len()));
    let losses = losses(&picture);
    let health = Health { healthy: problems.is_empty(), problems, quorum, losses };
    if context.output.json {
        context.output.json(&health)?;
    } else {
        print(context, &health)?;
    }
    if health.healthy {
        return Ok(());
    }
    Err(Failure::new("the cluster is not healthy"))
}

fn print(context: &Context, health: &Health) -> Result<(), Failure> {
    let output = context.output;
    if health.healthy {
        output.line(&output.style.green("all is well"))?;
    }
    for problem in &health.problems {
        output.line(&output.style.red(problem))?;
    }
    if let Some(quorum) = &health.quorum {
        output.line(quorum)?;
    }
    output.line("")?;
    let mut table = Table::new(&["LOSS OF", "STOPS DECISIONS", "STOPS PARTITIONS"]).indented(2);
    for loss in &health.losses {
        let stops = if loss.stops_quorum { "yes" } else { "no" };
        table.row([loss.of.clone(), stops.to_owned(), loss.stops_partitions.to_string()]);
    }
    output.table(&table)
}

/// What is wrong now, in sentences, the worst first.
pub(crate) fn problems(picture: &Picture) -> Vec<String> {
    let ailing: Vec<_> = picture.ailing().collect();
    let count = |holds: &dyn Fn(&super::picture::Ailing<'_>) -> bool| {
        ailing.iter().filter(|ailing| holds(ailing)).count()
    };
    let leaderless = count(&|ailing| !ailing.has_leader());
    let below = count(&|ailing| ailing.is_below_least);
    let missing = count(&|ailing| !ailing.missing.is_empty());
    let mut problems = Vec::new();
    if picture.quorum.as_ref().is_some_and(|quorum| quorum.leader.is_none()) {
        problems.push("nobody leads the metadata quorum: nothing can be decided".to_owned());
    }
    if leaderless > 0 {
        problems.push(format!("{leaderless} partitions have no leader"));
    }
    if below > 0 {
        problems.push(format!("{below} partitions refuse acks=all: too few replicas in sync"));
    }
    if missing > 0 {
        problems.push(format!("{missing} partitions are under-replicated"));
    }
    let fenced: Vec<String> = picture
        .cluster
        .nodes
        .values()
        .filter(|node| node.fenced)
        .map(|node| node.id.to_string())
        .collect();
    if !fenced.is_empty() {
        problems.push(format!("not heard of: node {}", fenced.join(", ")));
    }
    problems
}

fn losses(picture: &Picture) -> Vec<Loss> {
    let mut parts: Vec<(String, BTreeSet<NodeId>)> = Vec::new();
    let mut racks: BTreeMap<&str, BTreeSet<NodeId>> = BTreeMap::new();
    for (id, node) in &picture.cluster.nodes {
        parts.push((format!("node {id}"), BTreeSet::from([*id])));
        if let Some(rack) = &node.rack {
            racks.entry(rack).or_default().insert(*id);
        }
    }
    let racks = racks.into_iter().filter(|(_, nodes)| nodes.len() > 1);
    parts.extend(racks.map(|(rack, nodes)| (format!("rack {rack}"), nodes)));
    parts.into_iter().map(|(of, nodes)| loss(picture, of, &nodes)).collect()
}

fn loss(picture: &Picture, of: String, nodes: &BTreeSet<NodeId>) -> Loss {
    let stops_quorum = picture.quorum.as_ref().is_some_and(|quorum| {
        let is_there = |node: &NodeId| {
            let known = picture.cluster.nodes.get(node);
            !nodes.contains(node) && known.is_some_and(|known| !known.fenced)
        };
        let left = quorum.voters.iter().filter(|voter| is_there(&voter.node)).count();
        left < quorum.voters.len() / 2 + 1
    });
    let stops = picture.partitions().filter(|(_, partition)| {
        let in_sync = &partition.in_sync;
        !in_sync.is_empty() && in_sync.iter().all(|node| nodes.contains(node))
    });
    Loss { of, stops_quorum, stops_partitions: stops.count() }
}
