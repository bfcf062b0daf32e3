//! The connections between two nodes (or between one and all others) are reset, in the middle of
//! whatever is under way.

use super::Disturb;
use super::cut_peers::draw_other;
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    ResetPeers {
        /// `none` is all others.
        other: Option<u32>,
    }
}

impl Disturb for ResetPeers {
    const NAME: &'static str = "reset-peers";
    const AMONG_NODES: bool = true;

    fn draw(chance: &mut Chance, plan: &Plan) -> Self {
        Self { other: draw_other(chance, plan) }
    }
}
