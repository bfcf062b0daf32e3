//! The node's wall clock jumps forward or back. Its monotonic clock does not.

use super::Disturb;
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    ClockJump {
        /// Milliseconds; negative is back.
        by: i64,
    }
}

impl Disturb for ClockJump {
    const NAME: &'static str = "clock-jump";

    fn draw(chance: &mut Chance, _: &Plan) -> Self {
        let size = *chance.pick(&[20, 1000, 60_000, 86_400_000]);
        let by = 1 + chance.below(size) as i64;
        Self { by: if chance.one_in(2) { by } else { -by } }
    }
}
