//! An operator has partitions without a leader led by any replica that is there: what was
//! acknowledged may be lost.

use super::Disturb;
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    ElectUnclean {}
}

impl Disturb for ElectUnclean {
    const NAME: &'static str = "elect-unclean";
    const UNBUDGETED: bool = true;
    const AMONG_NODES: bool = true;

    fn draw(_: &mut Chance, _: &Plan) -> Self {
        Self {}
    }
}
