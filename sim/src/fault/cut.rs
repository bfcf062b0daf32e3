//! A link between the node and a client (or all of them) carries nothing, in one direction or
//! both.

use std::time::Duration;

use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::{plan_item, plan_words};

plan_words! {
    /// Which way nothing passes.
    Direction {
        Both = "both",
        ToNode = "to-node",
        FromNode = "from-node",
    }
}

plan_item! {
    Cut {
        /// `none` is all of them.
        client: Option<u32>,
        direction: Direction,
        during: Duration,
    }
}

impl Disturb for Cut {
    const NAME: &'static str = "cut";

    fn draw(chance: &mut Chance, plan: &Plan) -> Self {
        let client = draw_client(chance, plan);
        let direction = *chance.pick(Direction::ALL);
        Self { client, direction, during: draw_while(chance) }
    }
}

/// One of the plan's clients; `None`, rarely, for all of them.
pub(super) fn draw_client(chance: &mut Chance, plan: &Plan) -> Option<u32> {
    let last = plan.last_client();
    let library = plan.workload.library_writers + plan.workload.library_readers;
    if chance.one_in(4) {
        return None;
    }
    let client = chance.below(u64::from(last + library)) as u32;
    // Nothing strikes the one that reads everything at the end by itself.
    Some(if client < last { client } else { client + 1 })
}
