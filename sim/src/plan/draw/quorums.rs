//! From a seed to the quorum of the world of quorums, and how it is treated. Most kinds of trouble
//! are missing in most seeds: with all of them at once, hardly anything is decided.

use std::time::Duration;

use super::super::{Plan, Quorum};
use super::draw;
use crate::chance::{Chance, Ratio};

/// The plan of `seed` for the world of quorums, with so many voters; below 2, each seed has its own
/// number of them.
pub fn draw_quorum(seed: u64, voters: u32) -> Plan {
    let mut chance = Chance::new(seed, "quorum");
    let chance = &mut chance;
    let drawn = *chance.pick(&[1, 2, 3, 3, 3, 4, 4, 5, 5]);
    let others = *chance.pick(&[0, 0, 1, 2]);
    let sometimes = |chance: &mut Chance, most: u32| match chance.below(3) {
        0 => 0,
        _ => 1 + chance.below(u64::from(most)) as u32,
    };
    let storms = *chance.pick(&[1, 2, 4, 8]);
    let quorum = Quorum {
        voters: if voters < 2 { drawn } else { voters.min(7) },
        others,
        storms,
        steps: 12_000 / storms,
        spell: *chance.pick(&[20, 60, 200, 600]),
        cuts: Ratio::new(*chance.pick(&[0, 1, 2, 3]), 4),
        loss: Ratio::new(sometimes(chance, 20), 100),
        doubling: Ratio::new(sometimes(chance, 10), 100),
        lag: Ratio::new(sometimes(chance, 10), 100),
        slices: Ratio::new(sometimes(chance, 30), 100),
        ambush: Ratio::new(*chance.pick(&[0, 1, 5, 12]), 20),
        crashes: sometimes(chance, 12),
        wipes: if chance.one_in(2) { sometimes(chance, 4) } else { 0 },
        changes: sometimes(chance, 30),
        restores: sometimes(chance, 40),
        transfers: sometimes(chance, 8),
        slowness: Duration::from_millis(*chance.pick(&[10, 40, 120])),
    };
    with_quorum(seed, quorum)
}

/// A plan with this quorum; everything that other worlds need is that of the seed.
pub fn with_quorum(seed: u64, quorum: Quorum) -> Plan {
    Plan { story: Vec::new(), faults: Vec::new(), quorum: Some(quorum), ..draw(seed) }
}
