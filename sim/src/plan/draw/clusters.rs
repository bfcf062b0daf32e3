//! From a seed to a plan of several nodes: the plan of one node that the seed has, spread over a
//! cluster, with the faults that strike between nodes. All from streams of their own.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::{Acks, Flush, Mode, Nodes, Plan};
use super::{AFTER_A_FLOOD, Only, draw_faults_of, draw_one, scenarios, storms, transactions};
use crate::chance::Chance;
use crate::fault::Kind;

/// The plan of `seed` on so many nodes; 0 draws how many.
pub fn draw_cluster(seed: u64, nodes: u32) -> Plan {
    draw_cluster_only(seed, nodes, None)
}

/// The same, of which a part is wanted only.
pub fn draw_cluster_only(seed: u64, nodes: u32, only: Option<Only>) -> Plan {
    let mut plan = draw_one(seed, only);
    let wanted = only == Some(Only::Groups);
    plan.cluster = draw_nodes(&mut Chance::new(seed, "cluster"), nodes);
    draw_more(&mut Chance::new(seed, "cluster more"), &mut plan.cluster);
    if plan.cluster.nodes == 1 {
        transactions::falls(seed, &mut plan, wanted);
        return plan;
    }
    let mut habits = Chance::new(seed, "cluster habits");
    plan.cluster.entries_kept = *habits.pick(&[0, 3, 30, 1000]);
    // Who waits for nobody writes more than a copy can follow.
    if plan.workload.acks == Acks::All {
        plan.cluster.lag_time = Duration::from_millis(*habits.pick(&[500, 2000, 10_000, 10_000]));
    }
    // Replicas of others that lose power together are not trusted any more: only a human makes one
    // of them lead.
    plan.topics.iter_mut().for_each(|topic| topic.flush = Flush::Durable);
    // A copy that was away must come nearer while its leader is written to: a write a sync, a file
    // closed for each that is opened, or a link that is as slow as the load would keep it behind
    // for ever (seeds 67 and 70).
    plan.node.group_bytes = plan.node.group_bytes.max(1 << 20);
    plan.node.open_files = plan.node.open_files.max(16);
    plan.link.window = plan.link.window.max(64 << 10);
    if plan.link.bandwidth > 0 {
        plan.link.bandwidth = plan.link.bandwidth.max(10_000_000);
    }
    spread_clients(&mut Chance::new(seed, "cluster clients"), &mut plan);
    if only.is_some() {
        transactions::narrow(&mut plan);
    }
    let mut targets = Chance::new(seed, "cluster targets");
    for fault in &mut plan.faults {
        fault.node = 1 + targets.below(u64::from(plan.cluster.nodes)) as u32;
    }
    let may = |unbudgeted: bool| !unbudgeted || plan.mode == Mode::Unbudgeted;
    let budgets = Kind::ALL.iter().filter(|(_, unbudgeted)| may(*unbudgeted));
    let allowed: Vec<&str> = budgets.map(|(name, _)| *name).collect();
    for (name, among_nodes) in Kind::AMONG_NODES {
        if !among_nodes || !allowed.contains(name) {
            continue;
        }
        let mut chance = Chance::new(seed, &format!("fault {name}"));
        let mut faults = draw_faults_of(name, &mut chance, &plan);
        for fault in &mut faults {
            fault.node = 1 + chance.below(u64::from(plan.cluster.nodes)) as u32;
        }
        plan.faults.extend(faults);
    }
    scenarios::add(seed, &mut plan);
    storms::add(seed, &mut plan);
    transactions::falls(seed, &mut plan, wanted);
    plan.faults.sort_by_key(|fault| fault.at);
    // Whatever the mode: without these disks nothing could go on, and nobody would be to blame.
    keep_within_budget(&mut plan);
    keep_voters(&mut plan);
    // A controller shares its shard and its disk with partitions, and is asked by every node and by
    // operators: what was sent before stands before that (seeds 1343 and 1436 of three nodes, done
    // after 151 and 107 s).
    if plan.workload.acks != Acks::All {
        plan.run.liveness = plan.run.liveness.max(AFTER_A_FLOOD);
    }
    plan
}

fn draw_nodes(chance: &mut Chance, wanted: u32) -> Nodes {
    let drawn = *chance.pick(&[1, 1, 1, 3, 3, 3, 2, 4, 5, 7]);
    let nodes = if wanted == 0 { drawn } else { wanted.min(Nodes::MAX) };
    let usual = if nodes < 3 { 1 } else { 3 };
    let others: Vec<u32> = [1, 3, 5].into_iter().filter(|&voters| voters <= nodes).collect();
    let voters = if chance.one_in(4) { *chance.pick(&others) } else { usual };
    let racks = (*chance.pick(&[1, 1, 2, 3])).min(nodes);
    let replication = (*chance.pick(&[3, 3, 3, 2, 1, 5])).min(nodes);
    let in_sync_min = (*chance.pick(&[2, 2, 1, 3])).min(replication);
    Nodes { nodes, voters, racks, replication, in_sync_min, ..Nodes::ONE }
}

/// From a stream of its own, so that a seed keeps the cluster that it had.
fn draw_more(chance: &mut Chance, cluster: &mut Nodes) {
    let (replaces, four) = (chance.one_in(4), chance.one_in(3));
    if cluster.nodes > 1 && replaces {
        cluster.replace_after = Duration::from_millis(*chance.pick(&[2000, 4000]));
    }
    if cluster.replication == 5 && four {
        cluster.replication = 4;
    }
}

/// Clients that follow their leaders are those of our library.
fn spread_clients(chance: &mut Chance, plan: &mut Plan) {
    let workload = &mut plan.workload;
    workload.library_writers = 1 + chance.below(3) as u32;
    workload.library_readers = 1 + chance.below(2) as u32;
    (workload.writers, workload.readers) = (0, 0);
    // What a leader alone has acknowledged may go with it.
    if workload.acks != Acks::All && chance.one_in(2) {
        workload.acks = Acks::All;
    }
}

/// A wipe takes one copy of everything for good: fewer than are acknowledged, and a minority of
/// the voters. What coordinators keep is acknowledged by fewer copies than the plan may demand for
/// its topics: once all of these are gone nobody may lead there, and no group and no transaction
/// can go on (seed 3166 of three nodes: three in sync, two wipes).
fn keep_within_budget(plan: &mut Plan) {
    let Nodes { voters, mut in_sync_min, .. } = plan.cluster;
    if plan.has_groups() || plan.transactions.is_some() {
        in_sync_min = in_sync_min.min(plan.cluster.own_in_sync_min());
    }
    let (mut wipes, mut voters_wiped) = (in_sync_min - 1, (voters - 1) / 2);
    plan.faults.retain(|fault| {
        if !matches!(fault.kind, Kind::Wipe(_)) {
            return true;
        }
        let votes = fault.node <= voters;
        let may = wipes > 0 && (!votes || voters_wiped > 0);
        wipes -= u32::from(may);
        voters_wiped -= u32::from(may && votes);
        may
    });
}

/// Votes are taken and given so that a majority of those who vote is always there in the end. A
/// voter whose disk was wiped is gone: then only its own vote may be taken, and given back.
fn keep_voters(plan: &mut Plan) {
    let cluster = plan.cluster.clone();
    let wiped: BTreeSet<u32> = plan
        .faults
        .iter()
        .filter(|fault| matches!(fault.kind, Kind::Wipe(_)) && fault.node <= cluster.voters)
        .map(|fault| fault.node)
        .collect();
    let is_wiped = plan.faults.iter().any(|fault| matches!(fault.kind, Kind::Wipe(_)));
    let mut removed = BTreeSet::new();
    let mut gone = BTreeSet::new();
    plan.faults.retain(|fault| match fault.kind {
        Kind::Wipe(_) => {
            gone.insert(fault.node);
            true
        }
        // Whoever is given a vote counts from then on, and its disk with it.
        Kind::AddVoter(_) => !is_wiped,
        Kind::RemoveVoter(_) if wiped.is_empty() => {
            let most = cluster.voters - 1;
            let may = fault.node <= cluster.voters
                && (removed.contains(&fault.node) || (removed.len() as u32) < most);
            may && {
                removed.insert(fault.node);
                true
            }
        }
        Kind::RemoveVoter(_) => wiped.contains(&fault.node) && gone.contains(&fault.node),
        _ => true,
    });
}
