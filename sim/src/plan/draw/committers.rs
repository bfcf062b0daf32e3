//! Which clients of a seed commit offsets only: from a stream of their own, so that a seed keeps
//! its other clients.

use std::time::Duration;

use crate::chance::{Between, Chance, Ratio};
use crate::fault::cut::Direction;
use crate::fault::cut_peers::CutPeers;
use crate::fault::pause::Pause;
use crate::fault::{Fault, Kind};
use crate::plan::Plan;
use crate::plan::committers::Committers;

const fn millis(number: u64) -> Duration {
    Duration::from_millis(number)
}

/// For how long a fault may be felt.
pub const AFTERMATH: Duration = Duration::from_secs(5);

/// Adds them to a quarter of all seeds.
pub(super) fn add(seed: u64, plan: &mut Plan) {
    let mut chance = Chance::new(seed, "committers");
    if !chance.one_in(4) {
        return;
    }
    let mut habit = || *chance.pick(&[Ratio::NEVER, Ratio::new(1, 30), Ratio::new(1, 8)]);
    let (renew, join, rest) = (habit(), habit(), habit());
    // What others find where they left it must be there, however long they were away.
    let copies = plan.transactions.as_ref().is_some_and(|it| it.copiers > 0);
    let is_alone = plan.groups.is_empty() && !copies;
    let retention = *chance.pick(&[None, Some(1000), Some(2500)]);
    let retention = retention.filter(|_| is_alone);
    // Where each node has a day of its own, nobody can say when an offset has had its time.
    if retention.is_some() && chance.one_in(2) {
        plan.clock.wall_offset = 0;
    }
    let session = millis(*chance.pick(&[500, 1000, 3000]));
    plan.committers = Some(Committers {
        clients: 1 + chance.below(2) as u32,
        partitions: 1 + chance.below(2) as u32,
        retention: retention.map(millis),
        session,
        pause: Between { low: millis(1), high: millis(*chance.pick(&[3, 30, 200])) },
        renew,
        join,
        vanish: *chance.pick(&[Ratio::NEVER, Ratio::new(1, 2), Ratio::new(1, 1)]),
        rest,
        away: Between { low: millis(100), high: millis(*chance.pick(&[500, 4000])) },
    });
}

/// Coordinators stand still for longer than sessions, and nothing wakes them before.
pub(super) fn stand_still(seed: u64, plan: &mut Plan) {
    let chance = &mut Chance::new(seed, "family long pauses");
    let Some(session) = plan.committers.as_ref().map(|it| it.session) else { return };
    if !chance.one_in(3) {
        return;
    }
    plan.story.push("family: coordinators stand still for longer than sessions".to_owned());
    // Somebody is a member then.
    plan.committers.iter_mut().for_each(|it| it.join = Ratio::new(1, 8));
    let during = |chance: &mut Chance| {
        session * (1 + chance.below(2) as u32) + millis(1200 + chance.below(1000))
    };
    if plan.cluster.nodes == 1 {
        // Alone: then it is known that all who are members when it begins are so when it is over.
        let during = during(chance);
        let latest = plan.run.safety.saturating_sub(during);
        let at = millis(chance.below(latest.as_millis() as u64 + 1));
        let before = at.saturating_sub(AFTERMATH);
        plan.faults.retain(|fault| fault.at < before || fault.at > at + during);
        plan.faults.push(Fault { at, node: 1, kind: Kind::Pause(Pause { during }) });
    } else {
        for _ in 0..1 + chance.below(3) {
            let during = during(chance);
            let at = millis(chance.below(plan.run.safety.as_millis() as u64));
            let node = 1 + chance.below(u64::from(plan.cluster.nodes)) as u32;
            plan.faults.retain(|fault| match &fault.kind {
                Kind::Pause(it) if fault.node == node => {
                    fault.at > at + during || fault.at + it.during < at
                }
                _ => true,
            });
            plan.faults.push(Fault { at, node, kind: Kind::Pause(Pause { during }) });
        }
    }
    plan.faults.sort_by_key(|fault| fault.at);
}

/// A node hears nothing of the others for longer than they wait for it, and clients reach it all
/// the while: coordinators there are deposed, and do not know. Nothing else comes between.
/// Members of groups, too, where that is `wanted`.
pub(super) fn hear_nothing(seed: u64, plan: &mut Plan, wanted: bool) {
    let chance = &mut Chance::new(seed, "family hears nothing");
    let elects = plan.cluster.nodes > 2 && plan.cluster.voters > 2;
    if (plan.committers.is_none() && !wanted) || !elects || !chance.one_in(2) {
        return;
    }
    plan.story.push("family: a node hears nothing of the others, and clients reach it".to_owned());
    plan.run.safety = plan.run.safety.max(Duration::from_secs(12));
    // Whoever waits for what it hears nothing of finds the successor in time.
    plan.workload.timeout = plan.workload.timeout.min(millis(1000));
    for _ in 0..1 + chance.below(2) {
        let during = millis(3500 + chance.below(2500));
        // The cluster is there by then, and everybody has begun.
        let earliest = millis(2500);
        let spare = plan.run.safety.saturating_sub(during + earliest);
        let at = earliest + millis(chance.below(spare.as_millis() as u64 + 1));
        let node = 1 + chance.below(u64::from(plan.cluster.nodes)) as u32;
        let before = at.saturating_sub(millis(2000));
        plan.faults.retain(|fault| fault.at < before || fault.at > at + during);
        let (other, direction) = (None, Direction::Both);
        let kind = Kind::CutPeers(CutPeers { other, direction, during });
        plan.faults.push(Fault { at, node, kind });
    }
}
