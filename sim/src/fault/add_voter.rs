//! An operator lets a node vote on the metadata that has only followed so far.

use super::Disturb;
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    AddVoter {}
}

impl Disturb for AddVoter {
    const NAME: &'static str = "add-voter";
    const AMONG_NODES: bool = true;

    fn draw(_: &mut Chance, _: &Plan) -> Self {
        Self {}
    }
}
