//! An operator sends a node into maintenance, which takes its leaderships from it, and back to
//! work.

use std::time::Duration;

use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    Maintenance {
        during: Duration,
    }
}

impl Disturb for Maintenance {
    const NAME: &'static str = "maintenance";
    const AMONG_NODES: bool = true;

    fn draw(chance: &mut Chance, _: &Plan) -> Self {
        Self { during: draw_while(chance) }
    }
}
