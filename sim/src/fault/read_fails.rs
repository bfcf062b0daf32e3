//! The next reads fail, as those of a bad sector or a cable do: `EIO`. What was asked for stays
//! unknown; it must never be taken for the end of a log.

use std::time::Duration;

use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    ReadFails {
        /// How many.
        reads: u32,
        /// From the node's halt, if it halts or does not start, until it is started again.
        down: Duration,
    }
}

impl Disturb for ReadFails {
    const NAME: &'static str = "read-fails";

    fn draw(chance: &mut Chance, _: &Plan) -> Self {
        Self { reads: 1 + chance.below(4) as u32, down: draw_while(chance) }
    }
}
