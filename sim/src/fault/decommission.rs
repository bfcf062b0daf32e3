//! An operator lets a node go: its copies move to others. It may be called back, before that is
//! done or after.

use std::time::Duration;

use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    Decommission {
        /// Until it is to serve again; `none`: it keeps nothing at the end.
        back: Option<Duration>,
    }
}

impl Disturb for Decommission {
    const NAME: &'static str = "decommission";
    const AMONG_NODES: bool = true;

    fn draw(chance: &mut Chance, _: &Plan) -> Self {
        Self { back: chance.one_in(2).then(|| draw_while(chance)) }
    }
}
