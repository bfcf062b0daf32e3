//! Whether a node is to be given work, and whether it may be stopped: from what it knows itself.

use quorate_core::id::NodeId;
use quorate_core::metadata::Image;
use quorate_core::metadata::config::TopicConfigs;

use super::Answer;
use crate::listener::stop::Pace;
use crate::node::Node;

/// Partitions that are named in an answer.
const NAMED_MAX: usize = 10;

/// It serves, and the cluster counts it as there.
pub(super) fn is_ready(node: &Node, pace: Pace) -> Result<(), &'static str> {
    if pace != Pace::Serve {
        return Err("the node stops");
    }
    let state = node.catalog.read();
    match state.image.node(node.id) {
        _ if !state.is_current => Err("the node starts"),
        None => Err("the node has not registered yet"),
        Some(found) if found.fenced => Err("the controller does not hear of the node"),
        Some(_) => Ok(()),
    }
}

pub(super) fn ready(node: &Node, pace: Pace) -> Answer {
    match is_ready(node, pace) {
        Ok(()) => Answer::text(200, "the node serves"),
        Err(why) => Answer::text(503, why),
    }
}

pub(super) fn safe_to_stop(node: &Node) -> Answer {
    let state = node.catalog.read();
    let needed: Vec<String> = needs(&state.image, node.id).collect();
    if needed.is_empty() {
        return Answer::text(200, "without this node everything can be read and written");
    }
    let named = needed[..needed.len().min(NAMED_MAX)].join(", ");
    let more = match needed.len() - needed.len().min(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Answer::text(
        503,
        format!("without this node, too few in-sync copies would be left of {named}{more}"),
    )
}

/// Partitions that could not be written, or not be read either, without `node`: those of which it
/// has an in-sync copy that cannot be missed.
fn needs(image: &Image, node: NodeId) -> impl Iterator<Item = String> {
    image.topics().flat_map(move |topic| {
        let configs = TopicConfigs::from_stored(&topic.configs);
        let partitions = (0..).zip(&topic.partitions);
        let needed = partitions.filter(move |(_, partition)| {
            let is_there = |id: &&NodeId| image.node(**id).is_some_and(|found| !found.fenced);
            let others = partition.in_sync.iter().filter(|id| **id != node).filter(is_there);
            let wanted = configs.min_insync_replicas(partition.copies()).max(1);
            partition.in_sync.contains(&node) && others.count() < wanted
        });
        needed.map(|(index, _): (i32, _)| format!("{}-{index}", topic.name))
    })
}
