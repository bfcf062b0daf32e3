//! The disk completes no write and no sync until it is released.

use std::time::Duration;

use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    DiskStuck {
        during: Duration,
    }
}

impl Disturb for DiskStuck {
    const NAME: &'static str = "disk-stuck";

    fn draw(chance: &mut Chance, _: &Plan) -> Self {
        Self { during: draw_while(chance) }
    }
}
