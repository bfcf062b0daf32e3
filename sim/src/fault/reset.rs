//! The connections of a client (or of all) are reset, in the middle of whatever is under way.

use super::Disturb;
use super::cut::draw_client;
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    Reset {
        /// `none` is all of them.
        client: Option<u32>,
    }
}

impl Disturb for Reset {
    const NAME: &'static str = "reset";

    fn draw(chance: &mut Chance, plan: &Plan) -> Self {
        Self { client: draw_client(chance, plan) }
    }
}
