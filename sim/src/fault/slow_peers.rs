//! A link between two nodes (or between one and all others) becomes slow in both directions.

use std::time::Duration;

use super::cut_peers::draw_other;
use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    SlowPeers {
        /// `none` is all others.
        other: Option<u32>,
        /// Added to every segment.
        latency: Duration,
        during: Duration,
    }
}

impl Disturb for SlowPeers {
    const NAME: &'static str = "slow-peers";
    const AMONG_NODES: bool = true;

    fn draw(chance: &mut Chance, plan: &Plan) -> Self {
        let other = draw_other(chance, plan);
        let latency = Duration::from_millis(*chance.pick(&[5, 50, 300]));
        Self { other, latency, during: draw_while(chance) }
    }
}
