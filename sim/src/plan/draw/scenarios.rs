//! Named families of plans for clusters: orders of events that independent draws hardly ever put
//! together. Each in its share of the seeds and from a stream of its own; what follows from a
//! family is drawn, too.

use std::time::Duration;

use super::super::Plan;
use crate::chance::Chance;
use crate::fault::crash::Crash;
use crate::fault::cut::{Cut, Direction};
use crate::fault::cut_peers::CutPeers;
use crate::fault::maintenance::Maintenance;
use crate::fault::power_loss::{PowerLoss, Unsynced};
use crate::fault::reassign::Reassign;
use crate::fault::{Disturb as _, Fault, Kind};

pub(super) fn add(seed: u64, plan: &mut Plan) {
    if plan.cluster.nodes < 3 {
        return;
    }
    let chance = |family: &str| Chance::new(seed, &format!("scenario {family}"));
    swizzle(&mut chance("swizzle"), plan);
    overlap(&mut chance("overlap"), plan);
    last_in_sync(&mut chance("last in sync"), plan);
    flapping(&mut chance("flapping"), plan);
    moving(&mut chance("moving"), plan);
    quiet(&mut chance("quiet"), plan);
}

fn tell(plan: &mut Plan, story: &str) {
    plan.story.push(format!("scenario: {story}"));
}

const fn millis(number: u64) -> Duration {
    Duration::from_millis(number)
}

/// Some time in the first half.
fn early(chance: &mut Chance, plan: &Plan) -> Duration {
    millis(chance.below(plan.run.safety.as_millis() as u64 / 2))
}

/// All nodes in a drawn order.
fn shuffled(chance: &mut Chance, plan: &Plan) -> Vec<u32> {
    let mut nodes: Vec<u32> = (1..=plan.cluster.nodes).collect();
    (0..nodes.len()).map(|_| nodes.remove(chance.below(nodes.len() as u64) as usize)).collect()
}

/// Nothing reaches the node or comes from it: no peer, no client.
fn isolate(plan: &mut Plan, node: u32, at: Duration, during: Duration) {
    let direction = Direction::Both;
    let peers = Kind::CutPeers(CutPeers { other: None, direction, during });
    let clients = Kind::Cut(Cut { client: None, direction, during });
    plan.faults.extend([peers, clients].map(|kind| Fault { at, node, kind }));
}

/// Nodes are cut off one after another, and come back one after another in another order, as in
/// FoundationDB's simulator.
fn swizzle(chance: &mut Chance, plan: &mut Plan) {
    if !chance.one_in(12) {
        return;
    }
    tell(plan, "nodes are cut off in one order and come back in another");
    let (leave, back) = (shuffled(chance, plan), shuffled(chance, plan));
    let some = 2 + chance.below(u64::from(plan.cluster.nodes) - 1) as usize;
    let step = *chance.pick(&[20, 200, 800]);
    let begin = early(chance, plan);
    let mut at = begin;
    let mut cuts: Vec<(u32, Duration)> = Vec::new();
    for node in leave.into_iter().take(some) {
        at += millis(1 + chance.below(step));
        cuts.push((node, at));
    }
    for node in back {
        at += millis(1 + chance.below(step));
        if let Some((_, since)) = cuts.iter().find(|(cut, _)| *cut == node) {
            isolate(plan, node, *since, at - *since);
        }
    }
}

/// A minority is isolated while writes accrue; then one of those who have them loses power, and the
/// cut moves to another: whoever is left must have all that was acknowledged, or stand still.
fn overlap(chance: &mut Chance, plan: &mut Plan) {
    if !chance.one_in(12) {
        return;
    }
    tell(plan, "who knows what is committed loses power, and the cut moves to the other side");
    let nodes = shuffled(chance, plan);
    let accrue = *chance.pick(&[300, 2000, 4000]);
    let (at, accrue) = (early(chance, plan), millis(1 + chance.below(accrue)));
    isolate(plan, nodes[0], at, accrue);
    let at = at + accrue;
    let unsynced = *chance.pick(&[Unsynced::Lost, Unsynced::Torn]);
    let down = millis(chance.below(500));
    let kind = Kind::PowerLoss(PowerLoss { unsynced, down });
    plan.faults.push(Fault { at, node: nodes[1], kind });
    let during = millis(500 + chance.below(3500));
    isolate(plan, nodes[2], at, during);
}

/// All but one are away until that one alone is in sync; then it is gone as well, and the others
/// come back before it, or after.
fn last_in_sync(chance: &mut Chance, plan: &mut Plan) {
    if !chance.one_in(12) {
        return;
    }
    tell(plan, "the last one in sync is lost while the others come back");
    let nodes = shuffled(chance, plan);
    // Longer than a session, so that they are fenced and leave the sets.
    let away = millis(1800 + chance.below(2000));
    let at = early(chance, plan);
    for node in &nodes[1..] {
        if chance.one_in(2) {
            isolate(plan, *node, at, away);
        } else {
            plan.faults.push(Fault { at, node: *node, kind: Kind::Crash(Crash { down: away }) });
        }
    }
    let at = at + away - millis(chance.below(300));
    let down = millis(*chance.pick(&[0, 1000, 5000]));
    let kind = Kind::PowerLoss(PowerLoss { unsynced: Unsynced::Lost, down });
    plan.faults.push(Fault { at, node: nodes[0], kind });
}

/// A link carries one way only, then the other way only, and again, faster than anybody gives up.
fn flapping(chance: &mut Chance, plan: &mut Plan) {
    if !chance.one_in(12) {
        return;
    }
    tell(plan, "a link flaps, one way at a time");
    let nodes = shuffled(chance, plan);
    let (node, other) = (nodes[0], (!chance.one_in(3)).then_some(nodes[1]));
    let scale = *chance.pick(&[50, 300, 1500]);
    let mut at = early(chance, plan);
    for turn in 0..4 + chance.below(12) {
        let direction = if turn % 2 == 0 { Direction::ToNode } else { Direction::FromNode };
        let during = millis(1 + chance.below(scale));
        let kind = Kind::CutPeers(CutPeers { other, direction, during });
        plan.faults.push(Fault { at, node, kind });
        at += during + millis(chance.below(scale));
    }
}

/// Partitions move while the nodes that they come from and go to fall over.
fn moving(chance: &mut Chance, plan: &mut Plan) {
    if !chance.one_in(8) {
        return;
    }
    tell(plan, "partitions move while nodes fall over");
    for _ in 0..2 + chance.below(4) {
        let at = early(chance, plan);
        let reassign = Reassign::draw(chance, plan);
        let struck = *chance.pick(&reassign.to);
        plan.faults.push(Fault { at, node: struck, kind: Kind::Reassign(reassign) });
        let at = at + millis(chance.below(400));
        let down = millis(chance.below(2500));
        let kind = match chance.below(3) {
            0 => Kind::Crash(Crash { down }),
            1 => Kind::PowerLoss(PowerLoss { unsynced: Unsynced::Torn, down }),
            _ => Kind::Maintenance(Maintenance { during: down }),
        };
        plan.faults.push(Fault { at, node: struck, kind });
    }
}

/// Everything strikes in the first third; then nothing more, and nobody heals anything: the cluster
/// finds back by itself.
fn quiet(chance: &mut Chance, plan: &mut Plan) {
    if !chance.one_in(12) {
        return;
    }
    tell(plan, "quiet after chaos");
    for fault in &mut plan.faults {
        fault.at /= 3;
    }
}
