//! A node loses power and comes back with an empty disk. Within the budget this happens to fewer
//! nodes than there are copies of what was acknowledged, and to a minority of the voters.

use std::time::Duration;

use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    Wipe {
        /// Until it is started again.
        down: Duration,
    }
}

impl Disturb for Wipe {
    const NAME: &'static str = "wipe";
    const AMONG_NODES: bool = true;

    fn draw(chance: &mut Chance, _: &Plan) -> Self {
        Self { down: draw_while(chance) }
    }
}
