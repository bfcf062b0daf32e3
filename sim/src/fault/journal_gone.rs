//! The node loses power, and the files of its journal are gone when it is started again: somebody
//! has taken a disk out. What was acknowledged may have stood there only, so the node must not
//! start as if nothing had been. Strikes only where the marks say that there was a journal.

use std::time::Duration;

use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    JournalGone {
        /// Until it is started again.
        down: Duration,
    }
}

impl Disturb for JournalGone {
    const NAME: &'static str = "journal-gone";
    const UNBUDGETED: bool = true;

    fn draw(chance: &mut Chance, _: &Plan) -> Self {
        Self { down: draw_while(chance) }
    }
}
