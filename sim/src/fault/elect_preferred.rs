//! An operator has every partition led by its preferred replica.

use super::Disturb;
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    ElectPreferred {}
}

impl Disturb for ElectPreferred {
    const NAME: &'static str = "elect-preferred";
    const AMONG_NODES: bool = true;

    fn draw(_: &mut Chance, _: &Plan) -> Self {
        Self {}
    }
}
