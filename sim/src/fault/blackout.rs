//! All nodes lose power at once. What was acknowledged durably survives that.

use std::time::Duration;

use super::power_loss::Unsynced;
use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    Blackout {
        unsynced: Unsynced,
        /// Until power returns.
        down: Duration,
    }
}

impl Disturb for Blackout {
    const NAME: &'static str = "blackout";
    const AMONG_NODES: bool = true;

    fn draw(chance: &mut Chance, _: &Plan) -> Self {
        Self { unsynced: *chance.pick(Unsynced::ALL), down: draw_while(chance) }
    }
}
