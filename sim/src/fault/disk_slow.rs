//! The disk takes so many times longer for everything.

use std::time::Duration;

use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    DiskSlow {
        times: u32,
        during: Duration,
    }
}

impl Disturb for DiskSlow {
    const NAME: &'static str = "disk-slow";

    fn draw(chance: &mut Chance, _: &Plan) -> Self {
        let times = *chance.pick(&[3, 30, 200]);
        Self { times, during: draw_while(chance) }
    }
}
