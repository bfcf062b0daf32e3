//! The next write fails after a part of it was done: `EIO`. Nobody knows what the file holds then,
//! so the node must halt.

use std::time::Duration;

use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    WriteFails {
        /// From the node's halt until it is started again.
        down: Duration,
    }
}

impl Disturb for WriteFails {
    const NAME: &'static str = "write-fails";

    fn draw(chance: &mut Chance, _: &Plan) -> Self {
        Self { down: draw_while(chance) }
    }
}
