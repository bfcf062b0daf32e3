//! What the nodes of a cluster hold and say, put side by side after each of their steps: who leads,
//! what is committed, and whether everybody has it who must. It believes nobody's arithmetic: it
//! counts copies on disks itself.

mod decided;
mod replicated;

use std::sync::{Mutex, MutexGuard};

use quorate_core::id::{NodeId, PartitionId, WriteId};
use quorate_core::partition::Recovered;
use quorate_core::partition::interface::LogOp;
use quorate_core::shard::Shard;

use self::decided::Decided;
use self::replicated::Replicated;
use crate::check::Violation;

/// All nodes of a cluster. What each of them does is told as it happens.
#[derive(Debug, Default)]
pub struct Shadow(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    decided: Decided,
    replicated: Replicated,
    blamed: Blamed,
}

/// What was wrong: the first of each property, since one wrong decision leads to many.
#[derive(Debug, Default)]
struct Blamed(Vec<Violation>);

impl Blamed {
    fn blame(&mut self, property: &'static str, place: String, sentence: String) {
        if self.0.iter().all(|violation| violation.property != property) {
            self.0.push(Violation { property, place, sentence });
        }
    }
}

impl Shadow {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("one thread")
    }

    /// The log is served from here on, as it was recovered.
    pub fn opened(&self, node: NodeId, partition: PartitionId, recovered: &Recovered) {
        let State { decided, replicated, .. } = &mut *self.state();
        match partition {
            PartitionId::METADATA => decided.opened(node),
            partition => replicated.opened(node, partition, recovered),
        }
    }

    /// The node wants this on its disk.
    pub fn wants(&self, node: NodeId, partition: PartitionId, write: WriteId, op: &LogOp) {
        let State { decided, replicated, blamed } = &mut *self.state();
        match partition {
            PartitionId::METADATA => decided.wants(node, write, op, blamed),
            partition => replicated.wants(node, partition, write, op),
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
        let State { replicated, blamed, .. } = &mut *self.state();
        replicated.truncated(node, partition, write, recovered, blamed);
    }

    /// The log is gone with its topic.
    pub fn dropped(&self, node: NodeId, partition: PartitionId) {
        self.state().replicated.dropped(node, partition);
    }

    /// A round of the node's steps is over.
    pub fn stepped(&self, node: NodeId, shard: &Shard) {
        let State { decided, replicated, blamed } = &mut *self.state();
        if let Some(seat) = shard.seat() {
            decided.stepped(node, seat, blamed);
            replicated.assigned(seat.image(), blamed);
        }
        for (partition, replica) in shard.replicas() {
            replicated.stepped(node, partition, replica, blamed);
        }
    }

    /// The node's disk is an empty one from here on.
    pub fn wiped(&self, node: NodeId) {
        let State { decided, replicated, .. } = &mut *self.state();
        decided.wiped(node);
        replicated.wiped(node);
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
        std::mem::take(&mut self.state().blamed.0)
    }
}
