//! The disk has no more room for new blocks; what is allocated may still be overwritten.

use std::time::Duration;

use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    DiskFull {
        during: Duration,
        /// From the node's halt, if it halts, until it is started again.
        down: Duration,
    }
}

impl Disturb for DiskFull {
    const NAME: &'static str = "disk-full";

    fn draw(chance: &mut Chance, _: &Plan) -> Self {
        Self { during: draw_while(chance), down: draw_while(chance) }
    }
}
