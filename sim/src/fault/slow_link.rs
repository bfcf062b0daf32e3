//! A link between the node and a client (or all of them) becomes slow in both directions.

use std::time::Duration;

use super::cut::draw_client;
use super::{Disturb, draw_while};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::plan_item;

plan_item! {
    SlowLink {
        /// `none` is all of them.
        client: Option<u32>,
        /// Added to every segment.
        latency: Duration,
        during: Duration,
    }
}

impl Disturb for SlowLink {
    const NAME: &'static str = "slow-link";

    fn draw(chance: &mut Chance, plan: &Plan) -> Self {
        let client = draw_client(chance, plan);
        let latency = Duration::from_millis(*chance.pick(&[5, 50, 300]));
        Self { client, latency, during: draw_while(chance) }
    }
}
