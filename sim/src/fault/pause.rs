//! The node's process is stopped and continued; its kernel goes on.

use std::time::Duration;

use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    Pause {
        during: Duration,
    }
}

impl Disturb for Pause {
    const NAME: &'static str = "pause";

    fn draw(chance: &mut Chance, _: &Plan) -> Self {
        Self { during: draw_while(chance) }
    }
}
