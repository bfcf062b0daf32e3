//! Which consumer groups a seed has: from a stream of their own, so that a seed keeps its other
//! clients.

use std::time::Duration;

use crate::chance::{Between, Chance, Ratio};
use crate::plan::Plan;
use crate::plan::groups::{Group, Protocol};

/// Adds the groups of `seed`: in half of all seeds, or wherever they are asked for.
pub(super) fn add(seed: u64, plan: &mut Plan, wanted: bool) {
    let mut chance = Chance::new(seed, "groups");
    if !chance.one_in(2) && !wanted {
        return;
    }
    for _ in 0..*chance.pick(&[1, 1, 2]) {
        plan.groups.push(draw(&mut chance, plan.topics.len() as u32));
    }
    let mut chance = Chance::new(seed, "migrations");
    plan.groups.iter_mut().for_each(|group| migrate(&mut chance, group));
}

/// A third of the groups of thin members are migrated while they work. Whoever changes its protocol
/// does so in its next life.
fn migrate(chance: &mut Chance, group: &mut Group) {
    if !chance.one_in(3) || group.protocol == Protocol::Library {
        return;
    }
    group.migrate = *chance.pick(&[Ratio::new(1, 2), Ratio::new(1, 2), Ratio::new(1, 5)]);
    if group.crash == Ratio::NEVER && group.leave == Ratio::NEVER {
        group.leave = Ratio::new(1, 50);
    }
}

fn draw(chance: &mut Chance, topics: u32) -> Group {
    let millis = Duration::from_millis;
    let protocol = *chance.pick(&[
        Protocol::Eager,
        Protocol::Cooperative,
        Protocol::Cooperative,
        Protocol::Consumer,
        Protocol::Consumer,
        Protocol::Consumer,
        Protocol::Library,
    ]);
    let members = 1 + chance.below(4) as u32;
    let statics = if chance.one_in(2) { chance.below(u64::from(members) + 1) as u32 } else { 0 };
    let first = chance.below(u64::from(topics)) as u32;
    let subscribed = if chance.one_in(2) { (0..topics).collect() } else { vec![first] };
    let mut habit = || *chance.pick(&[Ratio::NEVER, Ratio::new(1, 50), Ratio::new(1, 10)]);
    let (crash, leave, pause) = (habit(), habit(), habit());
    Group {
        protocol,
        members,
        statics,
        topics: subscribed,
        session: millis(*chance.pick(&[1000, 2000, 6000])),
        commit: Between { low: millis(20), high: millis(*chance.pick(&[20, 200, 1000])) },
        crash,
        leave,
        pause,
        away: Between { low: millis(1), high: millis(*chance.pick(&[100, 1500, 5000])) },
        migrate: Ratio::NEVER,
        rebalances_max: None,
    }
}
