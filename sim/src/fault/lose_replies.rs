//! Requests arrive and are carried out, their replies are lost: the way back is cut, and the
//! connection is then reset.

use std::time::Duration;

use super::cut::draw_client;
use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    LoseReplies {
        /// `none` is all of them.
        client: Option<u32>,
        /// Until the reset.
        during: Duration,
    }
}

impl Disturb for LoseReplies {
    const NAME: &'static str = "lose-replies";

    fn draw(chance: &mut Chance, plan: &Plan) -> Self {
        let client = draw_client(chance, plan);
        Self { client, during: draw_while(chance) }
    }
}
