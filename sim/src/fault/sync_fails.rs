//! The next sync that has something to do fails, once. The kernel then takes the pages for clean:
//! they stay readable, a later sync does not write them, and a power loss loses them.

use std::time::Duration;

use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    SyncFails {
        /// From the node's halt until it is started again.
        down: Duration,
    }
}

impl Disturb for SyncFails {
    const NAME: &'static str = "sync-fails";

    fn draw(chance: &mut Chance, _: &Plan) -> Self {
        Self { down: draw_while(chance) }
    }
}
