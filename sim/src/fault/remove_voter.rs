//! An operator takes a node's vote on the metadata from it, and may give it back.

use std::time::Duration;

use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    RemoveVoter {
        /// Until it votes again, with the disk that it has then.
        back: Option<Duration>,
    }
}

impl Disturb for RemoveVoter {
    const NAME: &'static str = "remove-voter";
    const AMONG_NODES: bool = true;

    fn draw(chance: &mut Chance, _: &Plan) -> Self {
        Self { back: (!chance.one_in(3)).then(|| draw_while(chance)) }
    }
}
