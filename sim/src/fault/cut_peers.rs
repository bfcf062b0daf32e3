//! A link between two nodes (or between one and all others) carries nothing, in one direction or
//! both.

use std::time::Duration;

use super::cut::Direction;
use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    CutPeers {
        /// `none` is all others.
        other: Option<u32>,
        /// As the struck node sees it.
        direction: Direction,
        during: Duration,
    }
}

impl Disturb for CutPeers {
    const NAME: &'static str = "cut-peers";
    const AMONG_NODES: bool = true;

    fn draw(chance: &mut Chance, plan: &Plan) -> Self {
        let other = draw_other(chance, plan);
        let direction = *chance.pick(&[Direction::Both, Direction::ToNode, Direction::FromNode]);
        // Long enough, now and then, for an election.
        let during = draw_while(chance) * if chance.one_in(2) { 1 } else { 2 };
        Self { other, direction, during }
    }
}

/// One of the nodes, perhaps the struck one itself (then nothing happens); `None` for all others.
pub(super) fn draw_other(chance: &mut Chance, plan: &Plan) -> Option<u32> {
    let other = 1 + chance.below(u64::from(plan.cluster.nodes)) as u32;
    if chance.one_in(3) { None } else { Some(other) }
}
