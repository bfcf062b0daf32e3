//! Simpler plans than a given one, the boldest first: without faults, with fewer clients that do
//! less, fewer nodes and partitions, less time. Each way leads down, so a search ends.

use std::ops::Range;
use std::time::Duration;

use crate::chance::{Between, Ratio};
use crate::fault::add_partitions::AddPartitions;
use crate::fault::reassign::Reassign;
use crate::fault::{Fault, Kind};
use crate::plan::committers::Committers;
use crate::plan::groups::Group;
use crate::plan::text::{Fields, Item as _, Line, Value as _};
use crate::plan::transactions::Transactions;
use crate::plan::{Plan, Quorum};

/// Writers that rest so long between two rounds do little.
const RESTS: [u64; 3] = [500, 100, 20];

/// The plan without these faults.
pub(super) fn without(plan: &Plan, faults: Range<usize>) -> Plan {
    let mut plan = plan.clone();
    drop(plan.faults.drain(faults));
    plan
}

/// A plan changed so, if that is a plan, and another one.
fn changed(plan: &Plan, change: impl FnOnce(&mut Plan)) -> Option<Plan> {
    let mut other = plan.clone();
    change(&mut other);
    let is_whole = Plan::parse(&other.print()).is_ok_and(|read| read == other);
    (is_whole && other != *plan).then_some(other)
}

/// Ever less: nothing at all, half, one less; never below `least`.
fn less(count: u32, least: u32) -> impl Iterator<Item = u32> {
    let mut ways = vec![least, count / 2, count.saturating_sub(1)];
    ways.retain(|way| (least..count).contains(way));
    ways.dedup();
    ways.into_iter()
}

/// Fewer members of a quorum, and milder treatment.
pub(super) fn quorum(plan: &Plan) -> Vec<Plan> {
    type Count = fn(&mut Quorum) -> &mut u32;
    type Share = fn(&mut Quorum) -> &mut Ratio;
    const COUNTS: [Count; 7] = [
        |quorum| &mut quorum.others,
        |quorum| &mut quorum.wipes,
        |quorum| &mut quorum.changes,
        |quorum| &mut quorum.restores,
        |quorum| &mut quorum.transfers,
        |quorum| &mut quorum.crashes,
        |quorum| &mut quorum.voters,
    ];
    const SHARES: [Share; 5] = [
        |quorum| &mut quorum.cuts,
        |quorum| &mut quorum.loss,
        |quorum| &mut quorum.doubling,
        |quorum| &mut quorum.lag,
        |quorum| &mut quorum.ambush,
    ];
    let Some(quorum) = &plan.quorum else { return Vec::new() };
    let mut plans = Vec::new();
    let with = |change: &dyn Fn(&mut Quorum)| {
        changed(plan, |plan| plan.quorum.iter_mut().for_each(change))
    };
    for storms in less(quorum.storms as u32, 1) {
        plans.extend(with(&|quorum| quorum.storms = storms.into()));
    }
    for steps in [quorum.steps / 8, quorum.steps / 2, quorum.steps * 7 / 8] {
        if steps > 0 {
            plans.extend(with(&|quorum| quorum.steps = steps));
        }
    }
    for share in SHARES {
        plans.extend(with(&|quorum| *share(quorum) = Ratio::NEVER));
    }
    for count in COUNTS {
        for fewer in less(*count(&mut quorum.clone()), 0) {
            plans.extend(with(&|quorum| *count(quorum) = fewer));
        }
    }
    plans
}

/// Fewer clients, and fewer operations of each.
pub(super) fn clients(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    let workload = &plan.workload;
    for count in less(workload.library_writers, 0) {
        plans.extend(changed(plan, |plan| plan.workload.library_writers = count));
    }
    for count in less(workload.library_readers, 0) {
        plans.extend(changed(plan, |plan| plan.workload.library_readers = count));
    }
    for count in less(workload.readers, 0) {
        plans.extend(changed(plan, |plan| plan.workload.readers = count));
    }
    for count in less(workload.writers, 1) {
        plans.extend(changed(plan, |plan| plan.workload.writers = count));
    }
    for group in (0..plan.groups.len()).rev() {
        plans.extend(changed(plan, |plan| drop(plan.groups.remove(group))));
        plans.extend(changed(plan, |plan| plan.groups[group].statics = 0));
        for members in less(plan.groups[group].members, 1) {
            plans.extend(changed(plan, |plan| {
                let group = &mut plan.groups[group];
                group.members = members;
                group.statics = group.statics.min(members);
            }));
        }
        type Habit = fn(&mut Group) -> &mut Ratio;
        let habits: [Habit; 3] =
            [|group| &mut group.crash, |group| &mut group.leave, |group| &mut group.pause];
        for habit in habits {
            plans.extend(changed(plan, |plan| *habit(&mut plan.groups[group]) = Ratio::NEVER));
        }
    }
    plans.extend(transactions(plan));
    plans.extend(committers(plan));
    for rest in RESTS.map(Duration::from_millis) {
        if workload.pause.high < rest {
            let pause = Between { low: rest, high: rest };
            plans.extend(changed(plan, |plan| plan.workload.pause = pause));
        }
    }
    for count in less(workload.in_flight, 1) {
        plans.extend(changed(plan, |plan| plan.workload.in_flight = count));
    }
    let one = Between { low: 1, high: 1 };
    plans.extend(changed(plan, |plan| plan.workload.records = one));
    plans.extend(changed(plan, |plan| {
        plan.workload.value_bytes.high = plan.workload.value_bytes.low;
    }));
    plans.extend(changed(plan, |plan| plan.workload.delete_records = Ratio::NEVER));
    plans
}

/// No transactions, or fewer of those who make them.
fn transactions(plan: &Plan) -> Vec<Plan> {
    let Some(it) = &plan.transactions else { return Vec::new() };
    let mut plans = Vec::new();
    plans.extend(changed(plan, |plan| plan.transactions = None));
    let mut fewer = |count: u32, least: u32, part: fn(&mut Transactions) -> &mut u32| {
        for count in less(count, least) {
            plans.extend(changed(plan, |plan| {
                if let Some(it) = &mut plan.transactions {
                    *part(it) = count;
                    it.ids = it.ids.min(it.producers);
                    it.old_speakers = it.old_speakers.min(it.speakers);
                }
            }));
        }
    };
    fewer(it.speakers, 0, |it| &mut it.speakers);
    fewer(it.old_speakers, 0, |it| &mut it.old_speakers);
    fewer(it.copiers, 0, |it| &mut it.copiers);
    fewer(it.readers, 0, |it| &mut it.readers);
    fewer(it.producers, 1, |it| &mut it.producers);
    fewer(it.ids, 1, |it| &mut it.ids);
    fewer(it.partitions, 1, |it| &mut it.partitions);
    plans.extend(changed(plan, |plan| {
        if let Some(it) = &mut plan.transactions {
            (it.abort, it.abandon) = (Ratio::NEVER, Ratio::NEVER);
            it.records = Between { low: 1, high: 1 };
        }
    }));
    type Habit = fn(&mut Transactions) -> &mut Ratio;
    let habits: [Habit; 5] = [
        |it| &mut it.echo,
        |it| &mut it.deaf,
        |it| &mut it.forge,
        |it| &mut it.hasty,
        |it| &mut it.doze,
    ];
    for habit in habits {
        plans.extend(changed(plan, |plan| {
            if let Some(it) = &mut plan.transactions {
                *habit(it) = Ratio::NEVER;
            }
        }));
    }
    plans
}

/// Nobody who only commits, or fewer of them with fewer habits.
fn committers(plan: &Plan) -> Vec<Plan> {
    let Some(it) = &plan.committers else { return Vec::new() };
    let mut plans = Vec::new();
    plans.extend(changed(plan, |plan| plan.committers = None));
    let mut with = |change: &dyn Fn(&mut Committers)| {
        plans.extend(changed(plan, |plan| plan.committers.iter_mut().for_each(change)));
    };
    for count in less(it.clients, 1) {
        with(&|it| it.clients = count);
    }
    for count in less(it.partitions, 1) {
        with(&|it| it.partitions = count);
    }
    type Habit = fn(&mut Committers) -> &mut Ratio;
    let habits: [Habit; 4] =
        [|it| &mut it.renew, |it| &mut it.join, |it| &mut it.vanish, |it| &mut it.rest];
    for habit in habits {
        with(&|it| *habit(it) = Ratio::NEVER);
    }
    with(&|it| it.retention = None);
    plans
}

/// Fewer nodes, votes, copies, topics and partitions; without the faults that speak of them.
pub(super) fn places(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    let cluster = &plan.cluster;
    for nodes in less(cluster.nodes, 1) {
        plans.extend(changed(plan, |plan| keep_nodes(plan, nodes)));
    }
    for voters in less(cluster.voters, 1).filter(|voters| voters % 2 == 1) {
        plans.extend(changed(plan, |plan| plan.cluster.voters = voters));
    }
    for racks in less(cluster.racks, 1) {
        plans.extend(changed(plan, |plan| plan.cluster.racks = racks));
    }
    for copies in less(cluster.replication, cluster.in_sync_min) {
        plans.extend(changed(plan, |plan| plan.cluster.replication = copies));
    }
    for topic in (0..plan.topics.len()).rev() {
        plans.extend(changed(plan, |plan| drop_topic(plan, topic)));
    }
    for (topic, partitions) in plan.topics.iter().map(|topic| topic.partitions).enumerate() {
        for count in less(partitions, 1) {
            plans.extend(changed(plan, |plan| keep_partitions(plan, topic, count)));
        }
    }
    plans
}

fn keep_nodes(plan: &mut Plan, nodes: u32) {
    let cluster = &mut plan.cluster;
    cluster.nodes = nodes;
    let odd = if nodes % 2 == 1 { nodes } else { nodes - 1 };
    cluster.voters = cluster.voters.min(odd);
    cluster.racks = cluster.racks.min(nodes);
    cluster.replication = cluster.replication.min(nodes);
    cluster.in_sync_min = cluster.in_sync_min.min(cluster.replication);
    plan.faults.retain(|fault| {
        let other = match &fault.kind {
            Kind::CutPeers(fault) => fault.other,
            Kind::SlowPeers(fault) => fault.other,
            Kind::ResetPeers(fault) => fault.other,
            Kind::Reassign(fault) => fault.to.iter().max().copied(),
            _ => None,
        };
        fault.node.max(other.unwrap_or(1)) <= nodes
    });
}

/// Topics behind it move up, and with them the faults that name them.
fn drop_topic(plan: &mut Plan, topic: usize) {
    plan.topics.remove(topic);
    for group in &mut plan.groups {
        group.topics.retain(|named| *named as usize != topic);
        group.topics.iter_mut().for_each(|named| *named -= u32::from(*named as usize > topic));
    }
    plan.groups.retain(|group| !group.topics.is_empty());
    plan.faults.retain_mut(|fault| match &mut fault.kind {
        Kind::Reassign(Reassign { topic: named, .. })
        | Kind::AddPartitions(AddPartitions { topic: named, .. }) => {
            let stays = *named as usize != topic;
            *named -= u32::from(*named as usize > topic);
            stays
        }
        _ => true,
    });
}

fn keep_partitions(plan: &mut Plan, topic: usize, partitions: u32) {
    plan.topics[topic].partitions = partitions;
    plan.faults.retain(|fault| match &fault.kind {
        Kind::Reassign(fault) => fault.topic as usize != topic || fault.partition < partitions,
        _ => true,
    });
}

/// A shorter run, shorter faults, and less time between them.
pub(super) fn time(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    let millis = |duration: Duration| Duration::from_millis(duration.as_millis() as u64);
    let last = plan.faults.iter().map(|fault| fault.at).max().unwrap_or_default();
    let safety = plan.run.safety;
    let ends = [last + Duration::from_millis(100), safety / 4, safety / 2, safety * 3 / 4];
    for safety in ends.map(millis) {
        if (Duration::from_millis(10)..plan.run.safety).contains(&safety) {
            plans.extend(changed(plan, |plan| {
                plan.run.safety = safety;
                plan.faults.retain(|fault| fault.at < safety);
            }));
        }
    }
    for place in 0..plan.faults.len() {
        plans.extend(earlier(plan, place));
    }
    for place in 0..plan.faults.len() {
        let shorter = shorter(&plan.faults[place]).into_iter();
        plans.extend(shorter.filter_map(|fault| changed(plan, |plan| plan.faults[place] = fault)));
    }
    plans
}

/// Half of the time before a fault goes; it, those behind it and the end come earlier by so much.
fn earlier(plan: &Plan, place: usize) -> Option<Plan> {
    let before = place.checked_sub(1).map_or(Duration::ZERO, |before| plan.faults[before].at);
    let gap = plan.faults[place].at.saturating_sub(before);
    let half = Duration::from_millis((gap / 2).as_millis() as u64);
    if half < Duration::from_millis(10) {
        return None;
    }
    changed(plan, |plan| {
        plan.faults[place..].iter_mut().for_each(|fault| fault.at -= half);
        plan.run.safety = plan.run.safety.saturating_sub(half);
    })
}

/// The fault with one of its times shortened, whatever kind it is.
fn shorter(fault: &Fault) -> Vec<Fault> {
    let mut line = Line::default();
    fault.print(&mut line);
    let text = line.finish();
    let mut faults = Vec::new();
    for word in text.split_whitespace() {
        let Some((key, value)) = word.split_once('=') else { continue };
        let Ok(long) = Duration::parse(value) else { continue };
        if key == "at" || value.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let halves = [Duration::from_millis(1), long / 10, long / 2];
        for short in halves.map(|short| Duration::from_millis(short.as_millis() as u64)) {
            if short < long && short >= Duration::from_millis(1) {
                let text = text.replace(word, &format!("{key}={}", short.print()));
                let read = Fields::new(&text).and_then(|mut fields| Fault::parse(&mut fields));
                faults.extend(read);
            }
        }
    }
    faults.dedup();
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::draw::{draw_cluster, draw_quorum};

    /// Whatever the plan: each simpler one is a plan, and another.
    #[test]
    fn each_simpler_plan_is_a_plan() {
        for seed in 0..40 {
            let plan = draw_cluster(seed, 0);
            let quorum = quorum(&draw_quorum(seed, 0));
            assert!(!quorum.is_empty());
            for simpler in [clients(&plan), places(&plan), time(&plan), quorum].concat() {
                assert_eq!(Plan::parse(&simpler.print()).as_ref(), Ok(&simpler), "seed {seed}");
                assert_ne!(simpler, plan, "seed {seed}");
            }
        }
    }

    #[test]
    fn a_topic_that_goes_takes_its_faults_along() {
        let mut plan = draw_cluster(1, 3);
        let topic = plan.topics[0].clone();
        plan.topics = vec![topic.clone(), topic.clone(), topic];
        let fault = |topic| {
            let kind = Kind::AddPartitions(AddPartitions { topic, to: 9 });
            Fault { at: Duration::ZERO, node: 1, kind }
        };
        plan.faults = vec![fault(0), fault(1), fault(2)];
        drop_topic(&mut plan, 1);
        assert_eq!(plan.faults, [fault(0), fault(1)]);
        assert_eq!(plan.topics.len(), 2);
    }

    #[test]
    fn times_of_a_fault_become_short() {
        let text = "power-loss at=700ms unsynced=torn down=1500ms";
        let fault = Fault::parse(&mut Fields::new(text).expect("fields")).expect("a fault");
        let printed: Vec<String> = shorter(&fault)
            .iter()
            .map(|fault| {
                let mut line = Line::default();
                fault.print(&mut line);
                line.finish().trim().rsplit_once(' ').expect("words").1.to_owned()
            })
            .collect();
        assert_eq!(printed, ["down=1ms", "down=150ms", "down=750ms"]);
    }
}
