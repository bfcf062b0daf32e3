//! An operator moves a partition to other nodes, the first named to lead, and may take that back
//! half-way. Whatever strikes meanwhile, the move ends one way or the other.

use std::time::Duration;

use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    Reassign {
        topic: u32,
        partition: u32,
        /// Nodes, each once.
        to: Vec<u32>,
        /// Until the move is taken back.
        cancel: Option<Duration>,
    }
}

impl Disturb for Reassign {
    const NAME: &'static str = "reassign";
    const AMONG_NODES: bool = true;

    fn draw(chance: &mut Chance, plan: &Plan) -> Self {
        let topic = chance.below(plan.topics.len() as u64) as u32;
        let partition = chance.below(u64::from(plan.topics[topic as usize].partitions)) as u32;
        // Now and then one copy more or less; never fewer than are acknowledged.
        let least = plan.cluster.in_sync_min;
        let copies = match chance.below(8) {
            0 => plan.cluster.replication + 1,
            1 => plan.cluster.replication - 1,
            _ => plan.cluster.replication,
        };
        let copies = copies.clamp(least, plan.cluster.nodes);
        let mut nodes: Vec<u32> = (1..=plan.cluster.nodes).collect();
        let next = |_| nodes.remove(chance.below(nodes.len() as u64) as usize);
        let to = (0..copies).map(next).collect();
        let cancel = chance.one_in(3).then(|| draw_while(chance));
        Self { topic, partition, to, cancel }
    }
}
