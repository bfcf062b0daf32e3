//! `quorate cluster`: how the cluster stands, and what is to move in it. Everything is asked by
//! Kafka's requests, of any node.

mod health;
mod leaders;
mod moves;
mod nodes;
pub(crate) mod picture;
mod quorum;
mod repairs;
mod status;

use quorate_core::id::NodeId;
use quorate_net::client::PartitionName;

use super::Context;
use crate::args::ClusterCommand;
use crate::failure::Failure;

pub(crate) async fn run(context: &Context, command: ClusterCommand) -> Result<(), Failure> {
    match command {
        ClusterCommand::Status => status::run(context).await,
        ClusterCommand::Health => health::run(context).await,
        ClusterCommand::Leaders { partitions, preferred, unclean, sure } => {
            leaders::run(context, &partitions, (preferred, unclean), sure.yes).await
        }
        ClusterCommand::Quorum { add, remove, sure } => {
            quorum::run(context, add.as_deref(), remove.as_deref(), sure.yes).await
        }
        ClusterCommand::Reassign { partitions, to, cancel, sure } => {
            moves::run(context, &partitions, &to, cancel, sure.yes).await
        }
        ClusterCommand::Decommission { node, cancel, forget, wait, sure } => {
            let node = NodeId(node);
            if forget {
                return nodes::forget(context, node, sure.yes).await;
            }
            nodes::decommission(context, node, cancel, wait, sure.yes).await
        }
        ClusterCommand::Maintenance { node, end, wait } => {
            nodes::maintenance(context, NodeId(node), end, wait).await
        }
    }
}

/// `TOPIC` or `TOPIC:PARTITION`; without a partition all that the topic has.
fn parse_partitions(
    picture: &picture::Picture,
    given: &[String],
) -> Result<Vec<PartitionName>, Failure> {
    let mut named = Vec::new();
    for text in given {
        let (topic, index) = match text.rsplit_once(':') {
            Some((topic, index)) => match index.parse::<i32>() {
                Ok(index) => (topic, Some(index)),
                Err(_) => {
                    let failure = Failure::usage(format!("`{text}` names no partition"));
                    return Err(failure.hint("write TOPIC or TOPIC:PARTITION"));
                }
            },
            None => (text.as_str(), None),
        };
        let Some(known) = picture.topics.get(topic) else {
            return Err(Failure::new(format!("there is no topic {topic}")));
        };
        let count = known.partition_count();
        match index {
            Some(index) if !(0..count).contains(&index) => {
                let failure = Failure::new(format!("topic {topic} has no partition {index}"));
                return Err(failure.hint(format!("its partitions are 0 to {}", count - 1)));
            }
            Some(partition) => named.push(PartitionName { topic: topic.to_owned(), partition }),
            None => named.extend(
                (0..count).map(|partition| PartitionName { topic: topic.to_owned(), partition }),
            ),
        }
    }
    named.sort();
    named.dedup();
    Ok(named)
}

/// `1,2,3`.
fn list(nodes: &[NodeId]) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn shown(name: &PartitionName) -> String {
    format!("{}-{}", name.topic, name.partition)
}

/// What was refused of single partitions, as one failure.
fn refused(done: &[(PartitionName, Result<(), quorate_net::client::Error>)]) -> Option<Failure> {
    let reasons: Vec<String> =
        done.iter().filter_map(|(_, done)| done.as_ref().err().map(ToString::to_string)).collect();
    match reasons.as_slice() {
        [] => None,
        [only] => Some(Failure::new(only)),
        [first, ..] => Some(Failure::new(format!("{first}, and {} more", reasons.len() - 1))),
    }
}
