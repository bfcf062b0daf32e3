//! Shows the steps of nodes to the specifications of the quorum and of partitions.

use quorate_core::id::PartitionId;
use quorate_core::quorum::interface::Index;
use quorate_core::shard::interface::{Effect, Input};

use super::Cluster;
use super::node::place_of;
use crate::spec;
use crate::spec::quorum::witness::{self, Look, heard};

impl Cluster {
    fn micros(&self) -> u64 {
        self.agenda.now.as_micros() as u64
    }

    /// What a step wants done, before it is.
    pub(super) fn note_effect(&mut self, effect: &Effect) {
        match effect {
            Effect::Write { partition, op, .. } => {
                spec::on_replicas(|watch| watch.writes(*partition, op));
            }
            Effect::Publish { partition, .. } => {
                spec::on_replicas(|watch| watch.touches(*partition));
            }
            Effect::Send { partition, to, message } => {
                spec::on_replicas(|watch| watch.says(*partition, *to, message));
            }
            Effect::Propose { partition, change } => {
                spec::on_replicas(|watch| watch.proposes(*partition, change));
            }
            Effect::SendQuorum { to, message } => self.said.push((*to, heard(message))),
            _ => {}
        }
    }

    /// Holds a step of a node against the specifications. `step`: what the node was told;
    /// `is_seats`: its seat may have made it.
    pub(super) fn refine(&mut self, n: usize, step: &'static str, is_seats: bool) {
        let at_us = self.micros();
        let nodes = &mut self.nodes;
        let is_new = is_seats && std::mem::take(&mut nodes[n].is_new_member);
        let node = &nodes[n];
        let Some(shard) = &node.shard else { return };
        let log = node.disk.log(PartitionId::METADATA).filter(|_| is_seats);
        if let (Some(seat), Some(log)) = (shard.seat(), log) {
            let (image, applied) = seat.image();
            spec::on_member(&Look {
                at_us,
                step,
                member: node.voter(),
                quorum: seat.quorum(),
                issued: seat.log().sum(),
                durable: log.memory(),
                // A seat without an image has applied nothing.
                applied: Index(applied.0),
                said: &self.said,
                restarts: is_new,
            });
            let has_disk = |id, directory| {
                nodes.get(place_of(id)).is_some_and(|node| node.directory() == directory)
            };
            spec::on_replicas(|watch| watch.knows(at_us, node.id, (image, applied), has_disk));
        }
        self.said.clear();
        let replica = |id| Some((shard.replica(id)?, node.disk.log(id)?.state()));
        spec::on_replicas(|watch| watch.looks(at_us, node.id, replica));
    }
}

/// What a node is told, in a word.
pub(super) const fn name_of(input: &Input) -> &'static str {
    match input {
        Input::Quorum(input) => witness::name_of(input),
        Input::Partition { .. } => "a replica's",
        _ => "the node's",
    }
}

/// Whether the step may be the seat's. Other steps change nothing of it.
pub(super) const fn is_seats(input: &Input) -> bool {
    matches!(
        input,
        Input::Tick
            | Input::OpenSeat(_)
            | Input::Quorum(_)
            | Input::Controller(_)
            | Input::Partition { partition: PartitionId::METADATA, .. }
    )
}
