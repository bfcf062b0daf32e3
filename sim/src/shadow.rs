//! What the nodes of a cluster hold and say, put side by side after each of their steps: who leads,
//! what is committed, and whether everybody has it who must. It believes nobody's arithmetic: it
//! counts copies on disks itself.

pub mod compacted;
mod coordinated;
mod decided;
mod enlisted;
pub(crate) mod replicated;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use quorate_core::id::{NodeId, PartitionId, TopicId, WriteId};
use quorate_core::metadata::Topic;
use quorate_core::partition::Recovered;
use quorate_core::partition::interface::LogOp;
use quorate_core::shard::Shard;
use quorate_core::shard::seat::Seat;

use self::coordinated::{Coordinated, TOPIC};
use self::decided::Decided;
use self::enlisted::Enlisted;
use self::replicated::Replicated;
use crate::check::Violation;
use crate::trace::{self, Aside};

/// All nodes of a cluster. What each of them does is told as it happens.
#[derive(Debug, Default)]
pub struct Shadow(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    decided: Decided,
    replicated: Replicated,
    coordinated: Coordinated,
    enlisted: Enlisted,
    blamed: Blamed,
    /// Of topics, for whoever looks at the run.
    names: BTreeMap<TopicId, String>,
}

/// What was wrong: the first of each property, since one wrong decision leads to many.
#[derive(Debug, Default)]
struct Blamed(Vec<Violation>);

impl Blamed {
    fn blame(&mut self, property: &'static str, place: String, sentence: String) {
        if self.0.iter().all(|violation| violation.property != property) {
            trace::aside("all", || Aside::Blames { property });
            self.0.push(Violation { property, place, sentence });
        }
    }
}

/// As plans have it.
fn node_name(node: NodeId) -> &'static str {
    const NAMES: [&str; 8] = ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n+"];
    NAMES[(node.0.max(1) as usize - 1).min(NAMES.len() - 1)]
}

impl Shadow {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("one thread")
    }

    /// The log is served from here on, as it was recovered.
    pub fn opened(&self, node: NodeId, partition: PartitionId, recovered: &Recovered) {
        let State { decided, replicated, coordinated, .. } = &mut *self.state();
        match partition {
            PartitionId::METADATA => decided.opened(node),
            partition => {
                replicated.opened(node, partition, recovered);
                coordinated.forget(node, partition);
            }
        }
    }

    /// The node wants this on its disk.
    pub fn wants(&self, node: NodeId, partition: PartitionId, write: WriteId, op: &LogOp) {
        let State { decided, replicated, coordinated, enlisted, blamed, names } =
            &mut *self.state();
        if partition == PartitionId::METADATA {
            return decided.wants(node, write, op, blamed);
        }
        replicated.wants(node, partition, write, op);
        if let (LogOp::Append { batch, .. }, Some(topic)) = (op, names.get(&partition.topic)) {
            if topic == TOPIC {
                coordinated.wants(partition, batch);
            } else {
                enlisted.wants(topic, partition, batch);
            }
        }
    }

    /// Everything up to `through` is on the node's disk.
    pub fn written(&self, node: NodeId, partition: PartitionId, through: WriteId) {
        let State { decided, replicated, .. } = &mut *self.state();
        match partition {
            PartitionId::METADATA => decided.written(node, through),
            partition => replicated.written(node, partition, through),
        }
    }

    /// The log was cut; this is what it is now.
    pub fn truncated(
        &self,
        node: NodeId,
        partition: PartitionId,
        write: WriteId,
        recovered: &Recovered,
    ) {
        let State { replicated, coordinated, blamed, .. } = &mut *self.state();
        replicated.truncated(node, partition, write, recovered, blamed);
        coordinated.forget(node, partition);
    }

    /// The log is gone with its topic.
    pub fn dropped(&self, node: NodeId, partition: PartitionId) {
        let State { replicated, coordinated, .. } = &mut *self.state();
        replicated.dropped(node, partition);
        coordinated.forget(node, partition);
    }

    /// A node has applied what the controller decided, and its shards are about to hear of it. It
    /// is not left to `stepped`: while the round waits for room in the queue of writes, a leader on
    /// another shard may have taken a smaller in-sync set, and committed by it (seed 1286 of three
    /// nodes).
    pub fn decided(&self, seat: &Seat) {
        let State { replicated, blamed, .. } = &mut *self.state();
        replicated.assigned(seat.image(), blamed);
    }

    /// A round of the node's steps is over.
    pub fn stepped(&self, node: NodeId, shard: &Shard) {
        let State { decided, replicated, coordinated, enlisted, blamed, names } =
            &mut *self.state();
        if let Some(seat) = shard.seat() {
            decided.stepped(node, seat, blamed);
            replicated.assigned(seat.image(), blamed);
            let image = seat.image().0;
            let is_new = |topic: &Topic| !names.contains_key(&topic.id);
            if image.topics_count() != names.len() || image.topics().any(is_new) {
                *names = image.topics().map(|topic| (topic.id, topic.name.to_string())).collect();
                names.iter().for_each(|(id, name)| trace::name_topic(id, name));
            }
        }
        for (partition, replica) in shard.stepped() {
            replicated.stepped(node, partition, replica, blamed);
            let is_coordinators = names.get(&partition.topic).is_some_and(|it| it == TOPIC);
            if is_coordinators && let Some(known) = replicated.committed(partition) {
                enlisted.committed(partition, known, &coordinated.said);
            }
            trace::aside(node_name(node), || {
                let partition = named(names, partition);
                let view = replica.view();
                Aside::Copy {
                    partition,
                    leads: view.is_leader,
                    leader_epoch: view.leader_epoch.0,
                    log_start: view.log_start.0,
                    high_watermark: view.high_watermark.0,
                }
            });
        }
        for (partition, coordinator) in shard.stepped_transactions() {
            if let Some(copy) = replicated.copy(node, partition) {
                coordinated.stepped((node, partition), coordinator, copy, blamed);
            }
        }
    }

    /// The node's disk is an empty one from here on.
    pub fn wiped(&self, node: NodeId) {
        let State { decided, replicated, coordinated, .. } = &mut *self.state();
        let lost = decided.wiped(node);
        replicated.wiped(node, lost);
        coordinated.forget_all(node);
    }

    /// Durable bytes of the node were changed: what it has is not known any more.
    pub fn doubt(&self, node: NodeId) {
        let State { decided, replicated, .. } = &mut *self.state();
        decided.doubt(node);
        replicated.doubt(node);
    }

    /// Whether anything was wrong so far.
    pub fn is_blamed(&self) -> bool {
        !self.state().blamed.0.is_empty()
    }

    /// What was wrong.
    pub fn take(&self) -> Vec<Violation> {
        let State { replicated, enlisted, blamed, .. } = &mut *self.state();
        enlisted.judge(|partition| replicated.committed(partition), blamed);
        std::mem::take(&mut blamed.0)
    }

    /// Calls partitions what the plan calls them.
    pub fn rename(&self, violations: &mut [Violation]) {
        let names = &self.state().names;
        for violation in violations {
            for (id, name) in names {
                let Some(index) = violation.place.strip_prefix(&format!("{id}/")) else { continue };
                violation.place = format!("{name}-{index}");
                break;
            }
        }
    }
}

/// A partition as the plan calls it, if that is known.
fn named(names: &BTreeMap<TopicId, String>, partition: PartitionId) -> String {
    let name = names.get(&partition.topic);
    name.map_or_else(|| partition.to_string(), |name| format!("{name}-{}", partition.index))
}
