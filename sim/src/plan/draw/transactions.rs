//! Which transactions a seed has, and what strikes them: from streams of their own, so that a seed
//! keeps its other clients.

use std::time::Duration;

use crate::chance::{Between, Chance, Ratio};
use crate::fault::crash::Crash;
use crate::fault::cut::Direction;
use crate::fault::cut_peers::CutPeers;
use crate::fault::elect_preferred::ElectPreferred;
use crate::fault::pause::Pause;
use crate::fault::power_loss::{PowerLoss, Unsynced};
use crate::fault::reset_peers::ResetPeers;
use crate::fault::slow_peers::SlowPeers;
use crate::fault::{Fault, Kind};
use crate::plan::transactions::Transactions;
use crate::plan::{Acks, Mode, Plan};

const fn millis(number: u64) -> Duration {
    Duration::from_millis(number)
}

/// Adds transactions: in a quarter of all seeds, or wherever they are asked for.
pub(super) fn add(seed: u64, plan: &mut Plan, wanted: bool) {
    let mut chance = Chance::new(seed, "transactions");
    if chance.one_in(4) || wanted {
        let mut drawn = draw(&mut chance);
        add_speakers(&mut Chance::new(seed, "speakers"), &mut drawn);
        plan.transactions = Some(drawn);
    }
}

fn draw(chance: &mut Chance) -> Transactions {
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
        speakers: 0,
        old_speakers: 0,
        echo: Ratio::NEVER,
        echo_after: Between { low: Duration::ZERO, high: Duration::ZERO },
        old_ends_echo: false,
        deaf: Ratio::NEVER,
        forge: Ratio::NEVER,
        hasty: Ratio::NEVER,
        doze: Ratio::NEVER,
        marker_patience: Duration::from_secs(30),
    }
}

/// Producers whom the network and their own haste treat badly.
fn add_speakers(chance: &mut Chance, drawn: &mut Transactions) {
    drawn.speakers = chance.below(4) as u32;
    drawn.old_speakers = chance.below(u64::from(drawn.speakers) + 1) as u32;
    let mut habit = || *chance.pick(&[Ratio::NEVER, Ratio::new(1, 10), Ratio::new(1, 2)]);
    (drawn.echo, drawn.deaf, drawn.forge) = (habit(), habit(), habit());
    drawn.hasty =
        *chance.pick(&[Ratio::NEVER, Ratio::new(1, 10), Ratio::new(1, 2), Ratio::new(1, 2)]);
    drawn.echo_after.high = millis(*chance.pick(&[5, 50, 500, 3000]));
    drawn.doze = *chance.pick(&[Ratio::NEVER, Ratio::NEVER, Ratio::new(1, 10), Ratio::new(1, 3)]);
    if drawn.doze != Ratio::NEVER {
        // Somebody does the sleeper's work.
        drawn.copiers = 2 + chance.below(2) as u32;
    }
    // A marker is thought lost too early.
    drawn.marker_patience = millis(*chance.pick(&[30_000, 2000, 300, 50, 10]));
}

/// All else of a plan of which only the transactions, or the groups, are wanted: enough to meet
/// them, and quickly lived. A life whose disks rot is often excused, and long.
pub(super) fn narrow(plan: &mut Plan) {
    plan.mode = Mode::Budgeted;
    let workload = &mut plan.workload;
    workload.acks = Acks::All;
    (workload.writers, workload.readers) = (workload.writers.min(1), workload.readers.min(1));
    workload.library_writers = workload.library_writers.min(1);
    workload.library_readers = workload.library_readers.min(1);
    workload.pause.high = workload.pause.high.max(millis(50));
}

/// What strikes transactions between their phases, and coordinators of groups with them, or without
/// them where it is `wanted`.
pub(super) fn falls(seed: u64, plan: &mut Plan, wanted: bool) {
    if plan.transactions.is_none() && plan.committers.is_none() && !wanted {
        return;
    }
    fall_together(&mut Chance::new(seed, "family falls"), plan);
    stumble(&mut Chance::new(seed, "family hiccups"), plan);
    throttle(&mut Chance::new(seed, "family throttle"), plan);
    part(&mut Chance::new(seed, "family links"), plan);
    super::committers::hear_nothing(seed, plan, wanted);
    super::committers::stand_still(seed, plan);
    plan.faults.sort_by_key(|fault| fault.at);
}

fn draw_time(chance: &mut Chance, plan: &Plan) -> Duration {
    millis(chance.below(plan.run.safety.as_millis() as u64))
}

/// Coordinators and leaders fall in the same instant, again and again, and are there again before
/// anybody has given them up, or after.
fn fall_together(chance: &mut Chance, plan: &mut Plan) {
    if !chance.one_in(2) {
        return;
    }
    plan.story.push("family: coordinators and leaders fall in the same instant".to_owned());
    let nodes = plan.cluster.nodes;
    let most = *chance.pick(&[3, 12]);
    let down = *chance.pick(&[1, 300, 3000]);
    // Hung before they fall: what was asked of them meanwhile fails with them.
    let hang = *chance.pick(&[0, 50, 1000]);
    for _ in 0..1 + chance.below(most) {
        let at = draw_time(chance, plan);
        let first = chance.below(nodes.into()) as u32;
        let together = 1 + chance.below(nodes.div_ceil(2).into()) as u32;
        let hang = millis(if chance.one_in(2) { hang } else { 0 }).min(at);
        for place in first..first + together {
            let (node, down) = (1 + place % nodes, millis(chance.below(down)));
            if !hang.is_zero() {
                let during = hang + millis(1);
                plan.faults.push(Fault {
                    at: at - hang,
                    node,
                    kind: Kind::Pause(Pause { during }),
                });
            }
            let kind = match chance.below(5) {
                0 => Kind::PowerLoss(PowerLoss { unsynced: Unsynced::Lost, down }),
                1 | 2 => Kind::Pause(Pause { during: down }),
                _ => Kind::Crash(Crash { down }),
            };
            plan.faults.push(Fault { at, node, kind });
        }
        // Leaderships come back while what they have sent before is under way.
        if nodes > 1 && chance.one_in(2) {
            let at = at + millis(chance.below(3000));
            let kind = Kind::ElectPreferred(ElectPreferred {});
            plan.faults.push(Fault { at, node: 1 + first, kind });
        }
    }
}

/// Processes stand still for moments: what comes meanwhile is taken up in any order.
fn stumble(chance: &mut Chance, plan: &mut Plan) {
    if !chance.one_in(3) {
        return;
    }
    plan.story.push("family: processes stand still for moments".to_owned());
    let longest = *chance.pick(&[5, 30, 200]);
    for _ in 0..20 + chance.below(60) {
        let at = draw_time(chance, plan);
        let node = 1 + chance.below(u64::from(plan.cluster.nodes)) as u32;
        let during = millis(1 + chance.below(longest));
        plan.faults.push(Fault { at, node, kind: Kind::Pause(Pause { during }) });
    }
}

/// Processes get little of their processors for a while: they run for moments, and stand still for
/// others. What comes while they stand is taken up at once, and in any order.
fn throttle(chance: &mut Chance, plan: &mut Plan) {
    if !chance.one_in(3) {
        return;
    }
    plan.story.push("family: processes get little of their processors".to_owned());
    let (longest, apart) = (*chance.pick(&[2, 10, 40]), *chance.pick(&[2, 10, 30]));
    for _ in 0..1 + chance.below(3) {
        let mut at = draw_time(chance, plan);
        let node = 1 + chance.below(u64::from(plan.cluster.nodes)) as u32;
        for _ in 0..20 + chance.below(60) {
            let during = millis(1 + chance.below(longest));
            if at + during >= plan.run.safety {
                break;
            }
            plan.faults.push(Fault { at, node, kind: Kind::Pause(Pause { during }) });
            at += during + millis(1 + chance.below(apart));
        }
    }
}

/// Links between nodes come and go, in both directions or in one, and leaderships with them: what
/// one node has decided, and another must hear of, is late, or is told by its successor.
fn part(chance: &mut Chance, plan: &mut Plan) {
    let nodes = u64::from(plan.cluster.nodes);
    if nodes == 1 || !chance.one_in(3) {
        return;
    }
    plan.story.push("family: links between nodes come and go".to_owned());
    let longest = *chance.pick(&[300, 1500, 4000]);
    for _ in 0..4 + chance.below(12) {
        let at = draw_time(chance, plan);
        let node = 1 + chance.below(nodes) as u32;
        let next = 1 + (u64::from(node) + chance.below(nodes - 1)) % nodes;
        let other = (!chance.one_in(4)).then_some(next as u32);
        let during = millis(1 + chance.below(longest));
        let kind = match chance.below(4) {
            0 => Kind::SlowPeers(SlowPeers {
                other,
                latency: millis(*chance.pick(&[5, 50, 300])),
                during,
            }),
            _ => {
                let directions = [Direction::Both, Direction::ToNode, Direction::FromNode];
                Kind::CutPeers(CutPeers { other, direction: *chance.pick(&directions), during })
            }
        };
        plan.faults.push(Fault { at, node, kind });
        if chance.one_in(3) {
            let at = at + millis(chance.below(longest));
            plan.faults.push(Fault { at, node, kind: Kind::ResetPeers(ResetPeers { other }) });
        }
        if chance.one_in(4) {
            let at = at + millis(chance.below(2 * longest));
            let kind = Kind::ElectPreferred(ElectPreferred {});
            plan.faults.push(Fault { at, node, kind });
        }
    }
}
