//! Some lives of the pure machines, in every test run; `cargo sim campaign --world cores`
//! has the rest.

use std::collections::BTreeSet;

use quorate_sim::history::groups::GroupEnd;
use quorate_sim::plan::draw::{Only, draw, draw_cluster, draw_cluster_only};
use quorate_sim::run::{Options, Verdict, World, run};

#[test]
fn the_machines_keep_their_promises() {
    let mut acknowledged = 0;
    for seed in 0..40 {
        let report = run(&draw(seed), World::Cores, Options::default());
        assert_eq!(report.verdict, Verdict::Passed, "seed {seed}: {:#?}", report.sentences());
        acknowledged += report.tally.acknowledged;
    }
    assert!(acknowledged > 5_000, "{acknowledged}");
}

#[test]
fn the_same_seed_gives_the_same_life() {
    for seed in 0..20 {
        let hash = || run(&draw(seed), World::Cores, Options::default()).trace.hash;
        assert_eq!(hash(), hash(), "seed {seed}");
    }
}

#[test]
fn several_nodes_keep_their_promises() {
    let mut acknowledged = 0;
    for seed in 0..12 {
        let report = run(&draw_cluster(seed, 3), World::Cores, Options::default());
        assert_eq!(report.verdict, Verdict::Passed, "seed {seed}: {:#?}", report.sentences());
        acknowledged += report.tally.acknowledged;
    }
    assert!(acknowledged > 2_000, "{acknowledged}");
}

#[test]
fn the_same_seed_gives_several_nodes_the_same_lives() {
    for seed in 0..4 {
        let hash = || run(&draw_cluster(seed, 5), World::Cores, Options::default()).trace.hash;
        assert_eq!(hash(), hash(), "seed {seed}");
    }
}

/// Of plans that have coordinators: what is committed in transactions, and by clients that commit
/// offsets only.
#[test]
fn coordinators_among_several_nodes_keep_their_promises() {
    let (mut transactions, mut offsets) = (0, 0);
    for seed in 0..14 {
        let only = (seed % 2 == 0).then_some(Only::Transactions);
        let plan = draw_cluster_only(seed, 3, only);
        if plan.transactions.is_none() && plan.committers.is_none() {
            continue;
        }
        let report = run(&plan, World::Cores, Options::default());
        assert_eq!(report.verdict, Verdict::Passed, "seed {seed}: {:#?}", report.sentences());
        transactions += report.tally.transactions;
        offsets += report.tally.groups;
    }
    assert!(transactions > 100, "{transactions}");
    assert!(offsets > 50, "{offsets}");
}

/// Of plans that have groups: members of both protocols, and of migrated groups, share out, consume
/// and commit; and live the same life twice.
#[test]
fn members_of_groups_among_several_nodes_keep_their_promises() {
    let (mut deliveries, mut commits, mut protocols) = (0, 0, BTreeSet::new());
    for seed in 0..12 {
        let plan = draw_cluster_only(seed, 3, Some(Only::Groups));
        let report = run(&plan, World::Cores, Options::default());
        assert_eq!(report.verdict, Verdict::Passed, "seed {seed}: {:#?}", report.sentences());
        let groups = &report.history.groups;
        deliveries += groups.deliveries.len();
        for operation in &groups.operations {
            commits += usize::from(operation.end == GroupEnd::Committed);
            if let GroupEnd::Assigned { partitions, .. } = &operation.end
                && !partitions.is_empty()
            {
                protocols.insert(operation.who.by_epoch);
            }
        }
        if seed < 3 {
            let again = run(&plan, World::Cores, Options::default());
            assert_eq!(again.trace.hash, report.trace.hash, "seed {seed}");
        }
    }
    assert!(deliveries > 500, "{deliveries}");
    assert!(commits > 200, "{commits}");
    assert_eq!(protocols.len(), 2, "both protocols have shared out");
}
