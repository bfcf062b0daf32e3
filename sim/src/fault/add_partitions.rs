//! An operator raises a topic's partitions; clients use the new ones as soon as they exist.

use super::Disturb;
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    AddPartitions {
        topic: u32,
        /// How many there are to be in all.
        to: u32,
    }
}

impl Disturb for AddPartitions {
    const NAME: &'static str = "add-partitions";
    const AMONG_NODES: bool = true;

    fn draw(chance: &mut Chance, plan: &Plan) -> Self {
        let topic = chance.below(plan.topics.len() as u64) as u32;
        let now = plan.topics[topic as usize].partitions;
        Self { topic, to: now + 1 + chance.below(2) as u32 }
    }
}
