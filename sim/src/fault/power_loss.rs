//! The node loses power: bytes and names that were not synced are lost, kept or torn, and nobody
//! hears of it.

use std::time::Duration;

use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::{plan_item, plan_words};

plan_words! {
    /// What becomes of each sector and name that was not synced.
    Unsynced {
        /// None of them survives.
        Lost = "lost",
        /// All of them survive.
        Kept = "kept",
        /// Each sector and each name by its own draw.
        Torn = "torn",
        /// The first so many, in the order of writing.
        Prefix = "prefix",
    }
}

plan_item! {
    PowerLoss {
        unsynced: Unsynced,
        /// Until power returns.
        down: Duration,
    }
}

impl Disturb for PowerLoss {
    const NAME: &'static str = "power-loss";

    fn draw(chance: &mut Chance, _: &Plan) -> Self {
        let unsynced = *chance.pick(&[
            Unsynced::Lost,
            Unsynced::Torn,
            Unsynced::Torn,
            Unsynced::Torn,
            Unsynced::Prefix,
            Unsynced::Kept,
        ]);
        Self { unsynced, down: draw_while(chance) }
    }
}
