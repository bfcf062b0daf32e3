//! Copies that are catching up: how much they lack, how fast they come, and how long that will
//! take, judged by two looks at the sizes on the disks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quorate_core::id::NodeId;
use quorate_net::client::{Client, PartitionName};
use serde::Serialize;

use super::picture::Picture;
use super::shown;
use crate::command::Context;
use crate::failure::Failure;
use crate::output::human;
use crate::output::table::Table;

/// Between the two looks.
const APART: Duration = Duration::from_secs(1);
/// Repairs that are listed one by one.
const LISTED_MAX: usize = 20;

/// One copy on its way.
#[derive(Serialize)]
pub(super) struct Repair {
    pub partition: String,
    pub node: i32,
    /// A move brings it there, or it only has to catch up.
    pub is_move: bool,
    pub bytes: Option<u64>,
    /// Of the leader's log.
    pub bytes_of: Option<u64>,
    pub bytes_per_second: Option<u64>,
    /// `None`: it is not known, or nothing comes.
    pub seconds_left: Option<u64>,
}

struct Wanted {
    name: PartitionName,
    leader: NodeId,
    node: NodeId,
    is_move: bool,
}

type Sizes = BTreeMap<(NodeId, String, i32), u64>;

/// What is being repaired; nothing where no node would tell sizes.
pub(super) async fn of(context: &Context, client: &Client, picture: &Picture) -> Vec<Repair> {
    let wanted = wanted(picture);
    if wanted.is_empty() {
        return Vec::new();
    }
    let nodes: BTreeSet<NodeId> =
        wanted.iter().flat_map(|wanted| [wanted.leader, wanted.node]).collect();
    let before = sizes(client, picture, &nodes).await;
    let began = context.clock.now().monotonic;
    context.clock.sleep(APART).await;
    let after = sizes(client, picture, &nodes).await;
    let took = context.clock.now().monotonic.saturating_since(began);
    wanted.into_iter().map(|wanted| repair(&wanted, &before, &after, took)).collect()
}

/// Copies that are not in sync on nodes that are heard of.
fn wanted(picture: &Picture) -> Vec<Wanted> {
    let is_heard =
        |node: &NodeId| picture.cluster.nodes.get(node).is_some_and(|known| !known.fenced);
    let mut wanted = Vec::new();
    for (topic, partition) in picture.partitions() {
        let Some(leader) = partition.leader else { continue };
        let running = picture.move_of(&topic.name, partition.index);
        let late = partition.replicas.iter().filter(|node| !partition.in_sync.contains(node));
        for node in late.filter(|node| is_heard(node)) {
            let is_move = running.is_some_and(|running| running.adding.contains(node));
            let name = PartitionName { topic: topic.name.clone(), partition: partition.index };
            wanted.push(Wanted { name, leader, node: *node, is_move });
        }
    }
    wanted
}

async fn sizes(client: &Client, picture: &Picture, nodes: &BTreeSet<NodeId>) -> Sizes {
    let mut sizes = Sizes::new();
    for id in nodes {
        let Some(known) = picture.cluster.nodes.get(id) else { continue };
        // One that does not answer is left out: what is not known is not told.
        let directories = client.log_directories_of(&known.address).await.unwrap_or_default();
        for found in directories.into_iter().flat_map(|directory| directory.partitions) {
            sizes.insert((*id, found.topic, found.partition), found.bytes);
        }
    }
    sizes
}

fn repair(wanted: &Wanted, before: &Sizes, after: &Sizes, took: Duration) -> Repair {
    let at = |sizes: &Sizes, node: NodeId| {
        sizes.get(&(node, wanted.name.topic.clone(), wanted.name.partition)).copied()
    };
    let (have, had) = (at(after, wanted.node), at(before, wanted.node));
    let of = at(after, wanted.leader);
    let rate = had.zip(have).map(|(had, have)| rate(have.saturating_sub(had), took));
    let seconds_left = match (have.zip(of), rate) {
        (Some((have, of)), Some(rate)) if rate > 0 => Some(of.saturating_sub(have).div_ceil(rate)),
        (Some((have, of)), _) if have >= of => Some(0),
        _ => None,
    };
    Repair {
        partition: shown(&wanted.name),
        node: wanted.node.0,
        is_move: wanted.is_move,
        bytes: have,
        bytes_of: of,
        bytes_per_second: rate,
        seconds_left,
    }
}

/// Bytes a second.
fn rate(bytes: u64, took: Duration) -> u64 {
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
    bytes.saturating_mul(1000) / millis
}

pub(super) fn print(context: &Context, repairs: &[Repair]) -> Result<(), Failure> {
    if repairs.is_empty() {
        return Ok(());
    }
    context.output.line("")?;
    let mut table =
        Table::new(&["REPAIR", "ON NODE", "WHY", "HAS", "OF", "A SECOND", "LEFT"]).indented(2);
    let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), human::bytes);
    for repair in repairs.iter().take(LISTED_MAX) {
        let left = repair.seconds_left.map(|seconds| human::duration(Duration::from_secs(seconds)));
        table.row([
            repair.partition.clone(),
            repair.node.to_string(),
            if repair.is_move { "moves there" } else { "catches up" }.to_owned(),
            bytes(repair.bytes),
            bytes(repair.bytes_of),
            bytes(repair.bytes_per_second),
            left.unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    context.output.table(&table)?;
    if repairs.len() > LISTED_MAX {
        context.output.line(&format!("  and {} more", repairs.len() - LISTED_MAX))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(had: u64, have: u64, of: u64) -> Repair {
        let name = PartitionName { topic: "t".to_owned(), partition: 0 };
        let (leader, node) = (NodeId(1), NodeId(2));
        let wanted = Wanted { name, leader, node, is_move: true };
        let sizes = |bytes| Sizes::from([((node, "t".to_owned(), 0), bytes)]);
        let mut after = sizes(have);
        after.insert((leader, "t".to_owned(), 0), of);
        repair(&wanted, &sizes(had), &after, Duration::from_secs(2))
    }

    #[test]
    fn what_is_left_follows_from_two_looks() {
        let running = one(100, 300, 1000);
        assert_eq!((running.bytes_per_second, running.seconds_left), (Some(100), Some(7)));
        assert_eq!(one(300, 300, 1000).seconds_left, None, "nothing comes");
        assert_eq!(one(1000, 1000, 1000).seconds_left, Some(0), "it only has to be told");
    }
}
