//! Markers on their way: what the coordinators of a shard decide in one round goes to each leader
//! together, and what becomes of it is told to the coordinator, which asks again for what failed.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use quorate_core::batch::control::Ending;
use quorate_core::id::{NodeId, PartitionId};
use quorate_core::shard::interface::Input as ShardInput;
use quorate_core::transaction::interface::{Input, Marker, MarkerResult};
use tokio::sync::mpsc;

use super::errand::{Done, Errand, MARKS_MAX, Mark, Marked};
use crate::catalog::{State, TRANSACTIONS_TOPIC};
use crate::driver::Command;
use crate::driver::ask::{ShardClient, Stopped};
use crate::node::Node;

/// Rounds that may wait. Beyond, markers are lost: their coordinators send them again.
const WAITING_MAX: usize = 1024;

/// What the coordinators of one shard have decided in one round.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) shard: ShardClient,
    /// With the index of the coordinator.
    pub(crate) markers: Vec<(i32, Marker)>,
}

/// Where shards leave their rounds. Never waits.
#[derive(Clone, Debug)]
pub(crate) struct Rounds(mpsc::Sender<Round>);

pub(crate) fn channel() -> (Rounds, mpsc::Receiver<Round>) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    (Rounds(sender), receiver)
}

impl Rounds {
    pub(crate) fn leave(&self, round: Round) {
        // What is lost is sent again after `marker_patience`.
        let _ = self.0.try_send(round);
    }
}

/// Until all shards are gone.
pub(crate) async fn carry(node: Weak<Node>, mut rounds: mpsc::Receiver<Round>) {
    while let Some(Round { shard, markers }) = rounds.recv().await {
        let Some(node) = node.upgrade() else { return };
        let (bundles, known) = address(&node.catalog.read(), markers);
        if tell(&shard, known).await.is_err() {
            return;
        }
        for (leader, bundle) in bundles {
            tokio::spawn(bring(Arc::clone(&node), shard.clone(), leader, bundle));
        }
    }
}

/// A marker, whose it is, and how the leader's node is asked for it.
type Addressed = (i32, Marker, Mark);
type Told = (i32, Marker, MarkerResult);

/// What goes to which leader; and what is known without asking.
fn address(
    state: &State,
    markers: Vec<(i32, Marker)>,
) -> (Vec<(NodeId, Vec<Addressed>)>, Vec<Told>) {
    let (mut leaders, mut known) = (BTreeMap::<NodeId, Vec<Addressed>>::new(), Vec::new());
    for (coordinator, marker) in markers {
        let topic = state.image.topic_named(&marker.partition.topic);
        let partition = topic.map(|topic| topic.id).map(|topic| {
            let index = marker.partition.partition;
            PartitionId { topic, index }
        });
        let assignment = partition.and_then(|partition| state.image.partition(partition));
        match (partition, assignment) {
            (Some(partition), Some(assignment)) => match assignment.leader {
                Some(leader) => {
                    let mark = mark(partition, &marker);
                    leaders.entry(leader).or_default().push((coordinator, marker, mark));
                }
                None => known.push((coordinator, marker, MarkerResult::Failed)),
            },
            _ if is_behind(state, coordinator, &marker) => {
                known.push((coordinator, marker, MarkerResult::Failed));
            }
            _ => known.push((coordinator, marker, MarkerResult::Gone)),
        }
    }
    let mut bundles = Vec::new();
    for (leader, mut bundle) in leaders {
        while bundle.len() > MARKS_MAX {
            let rest = bundle.split_off(MARKS_MAX);
            bundles.push((leader, std::mem::replace(&mut bundle, rest)));
        }
        bundles.push((leader, bundle));
    }
    (bundles, known)
}

/// Whether the catalog has not come to the election of this coordinator. Once it has, it knows
/// every topic of which an earlier coordinator has taken a partition, unless it was deleted: the
/// node of that coordinator knew it (`Office::join`) before it heard of the election.
fn is_behind(state: &State, coordinator: i32, marker: &Marker) -> bool {
    let topic = state.image.topic_named(TRANSACTIONS_TOPIC);
    let partition = topic.map(|topic| PartitionId { topic: topic.id, index: coordinator });
    let assignment = partition.and_then(|partition| state.image.partition(partition));
    assignment.is_none_or(|assignment| assignment.leader_epoch < marker.coordinator_epoch)
}

fn mark(partition: PartitionId, marker: &Marker) -> Mark {
    Mark {
        partition,
        producer: marker.producer,
        epoch: marker.epoch,
        committed: marker.ending == Ending::Committed,
        coordinator_epoch: marker.coordinator_epoch.0,
        version: marker.version.0,
    }
}

async fn bring(node: Arc<Node>, shard: ShardClient, leader: NodeId, bundle: Vec<Addressed>) {
    let marks = bundle.iter().map(|(_, _, mark)| mark.clone()).collect();
    let done = match node.errand(leader, Errand::Mark(marks)).await {
        Ok(Some(Done::Marked(marked))) if marked.len() == bundle.len() => marked,
        Ok(_) => vec![Marked::Failed; bundle.len()],
        Err(Stopped) => return,
    };
    let told = bundle.into_iter().zip(done).map(|((coordinator, marker, _), marked)| {
        let result = match marked {
            Marked::Done => MarkerResult::Done,
            Marked::CoordinatorFenced => MarkerResult::CoordinatorFenced,
            Marked::ProducerFenced | Marked::NotLeader | Marked::Failed => MarkerResult::Failed,
        };
        (coordinator, marker, result)
    });
    // The node stops if nobody hears it.
    let _ = tell(&shard, told.collect()).await;
}

async fn tell(shard: &ShardClient, told: Vec<Told>) -> Result<(), Stopped> {
    for (coordinator, marker, result) in told {
        let input = Input::MarkerAnswered { marker, result };
        shard.tell(Command::Tell(ShardInput::Transaction { coordinator, input })).await?;
    }
    Ok(())
}
