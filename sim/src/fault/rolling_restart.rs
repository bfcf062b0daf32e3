//! All nodes are shut down in good order and started again, one after another, the struck one
//! first.

use std::time::Duration;

use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    RollingRestart {
        /// Until each is started again, and again before the next one stops.
        down: Duration,
    }
}

impl Disturb for RollingRestart {
    const NAME: &'static str = "rolling-restart";
    const AMONG_NODES: bool = true;

    fn draw(chance: &mut Chance, _: &Plan) -> Self {
        Self { down: draw_while(chance) }
    }
}
