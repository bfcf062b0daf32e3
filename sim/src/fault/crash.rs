//! The node's process dies at once; what it wrote into the page cache survives, its peers hear of
//! it.

use std::time::Duration;

use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    Crash {
        /// Until it is started again.
        down: Duration,
    }
}

impl Disturb for Crash {
    const NAME: &'static str = "crash";

    fn draw(chance: &mut Chance, _: &Plan) -> Self {
        let down = if chance.one_in(3) { Duration::ZERO } else { draw_while(chance) };
        Self { down }
    }
}
