//! Which transactions a seed has: from a stream of their own, so that a seed keeps its other
//! clients.

use std::time::Duration;

use crate::chance::{Between, Chance, Ratio};
use crate::plan::Plan;
use crate::plan::transactions::Transactions;

/// Adds transactions, in a quarter of all seeds.
pub(super) fn add(seed: u64, plan: &mut Plan) {
    let mut chance = Chance::new(seed, "transactions");
    if chance.one_in(4) {
        plan.transactions = Some(draw(&mut chance));
    }
}

fn draw(chance: &mut Chance) -> Transactions {
    let millis = Duration::from_millis;
    let producers = 1 + chance.below(3) as u32;
    let mut habit = || *chance.pick(&[Ratio::NEVER, Ratio::new(1, 10), Ratio::new(1, 3)]);
    let (abort, abandon) = (habit(), habit());
    Transactions {
        partitions: 1 + chance.below(3) as u32,
        producers,
        ids: if chance.one_in(2) { producers } else { 1 + chance.below(producers.into()) as u32 },
        copiers: chance.below(3) as u32,
        readers: 1 + chance.below(2) as u32,
        records: Between { low: 1, high: *chance.pick(&[1, 5, 20]) },
        timeout: millis(*chance.pick(&[1000, 3000, 10_000])),
        pause: Between { low: millis(0), high: millis(*chance.pick(&[1, 10, 300])) },
        abort,
        abandon,
    }
}
