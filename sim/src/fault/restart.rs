//! The node is shut down in good order and started again.

use std::time::Duration;

use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    Restart {
        /// Until it is started again.
        down: Duration,
    }
}

impl Disturb for Restart {
    const NAME: &'static str = "restart";

    fn draw(chance: &mut Chance, _: &Plan) -> Self {
        Self { down: draw_while(chance) }
    }
}
