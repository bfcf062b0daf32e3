//! The text of a plan: parsing what was printed gives the plan back.

use std::collections::BTreeSet;

use proptest::prelude::*;
use quorate_sim::fault::Kind;
use quorate_sim::plan::Plan;
use quorate_sim::plan::draw::{Only, draw, draw_cluster, draw_cluster_only};
use quorate_sim::plan::transactions::Part;

proptest! {
    #[test]
    fn parse_of_print_is_the_identity(
        seed: u64,
        nodes in 0_u32..8,
        hash: Option<u64>,
        story in "[ -~]{0,40}",
    ) {
        let mut plan = draw_cluster(seed, nodes);
        plan.trace = hash;
        plan.story = vec![story.trim_end().to_owned(), String::new()];
        let text = plan.print();
        let again = Plan::parse(&text).expect("what was printed is understood");
        prop_assert_eq!(&again, &plan);
        prop_assert_eq!(again.print(), text);
    }

    /// Wiped disks are fewer than the copies of what was acknowledged, and a minority of voters.
    #[test]
    fn wipes_keep_within_the_budget(seed: u64, nodes in 2_u32..8) {
        let plan = draw_cluster(seed, nodes);
        let wiped = plan.faults.iter().filter(|fault| matches!(fault.kind, Kind::Wipe(_)));
        let wiped: Vec<u32> = wiped.map(|fault| fault.node).collect();
        prop_assert!(wiped.len() < plan.cluster.in_sync_min as usize);
        let coordinates = !plan.groups.is_empty() || plan.transactions.is_some();
        prop_assert!(!coordinates || wiped.len() < plan.cluster.own_in_sync_min() as usize);
        let voters = wiped.iter().filter(|node| **node <= plan.cluster.voters).count();
        prop_assert!(2 * voters < plan.cluster.voters as usize);
    }

    /// Whatever of it is carried out, in whatever order: those who vote are a majority of voters.
    #[test]
    fn votes_are_taken_within_the_budget(seed: u64, nodes in 2_u32..8) {
        let plan = draw_cluster(seed, nodes);
        let of = |wanted: fn(&Kind) -> bool| -> BTreeSet<u32> {
            let nodes = plan.faults.iter().filter(|fault| wanted(&fault.kind));
            nodes.map(|fault| fault.node).filter(|node| *node <= plan.cluster.voters).collect()
        };
        let wiped = of(|kind| matches!(kind, Kind::Wipe(_)));
        let removed = of(|kind| matches!(kind, Kind::RemoveVoter(_)));
        prop_assert!(removed.len() < plan.cluster.voters as usize);
        prop_assert!(wiped.is_empty() || removed.is_subset(&wiped));
        let added = plan.faults.iter().any(|fault| matches!(fault.kind, Kind::AddVoter(_)));
        prop_assert!(wiped.is_empty() || !added);
    }

    /// And nobody does what the older protocol cannot bear.
    #[test]
    fn where_transactions_are_wanted_every_seed_has_them(seed: u64, nodes in 1_u32..8) {
        let plan = draw_cluster_only(seed, nodes, Some(Only::Transactions));
        prop_assert!(plan.groups.is_empty());
        prop_assert!(plan.transactions.as_ref().is_some_and(|it| !it.old_ends_echo));
        let again = Plan::parse(&plan.print()).expect("what was printed is understood");
        prop_assert_eq!(again, plan);
    }

    #[test]
    fn any_text_is_refused_or_understood(text in "(quorate-plan 1\n)?([a-z=0-9. -]{0,30}\n){0,8}") {
        let _ = Plan::parse(&text);
    }
}

/// Every shape of a cluster that makes sense is drawn, and every act of an operator.
#[test]
fn clusters_and_acts_of_all_kinds_are_drawn() {
    let mut shapes = BTreeSet::new();
    let mut kinds = BTreeSet::new();
    for seed in 0..4000 {
        let plan = draw_cluster(seed, 0);
        let cluster = &plan.cluster;
        shapes.insert((cluster.nodes, cluster.replication, cluster.in_sync_min, cluster.racks));
        kinds.extend(plan.faults.iter().map(|fault| fault.kind.name()));
    }
    for nodes in [3_u32, 5, 7] {
        for replication in 1..=nodes.min(5) {
            for (in_sync_min, racks) in [(1, 1), (2, 2), (3, 3), (1, 3), (2, 1), (3, 1)] {
                let shape = (nodes, replication, in_sync_min, racks);
                assert!(in_sync_min > replication || shapes.contains(&shape), "{shape:?}");
            }
        }
    }
    let missing: Vec<_> = Kind::ALL.iter().filter(|(name, _)| !kinds.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_plan_of_one_node_is_what_it_was() {
    for seed in 0..200 {
        assert_eq!(draw_cluster(seed, 1), draw(seed));
        assert!(!draw(seed).print().contains("cluster"));
    }
    let text = draw(1).print().replace("node shards", "cluster nodes=2 replication=3\nnode shards");
    assert!(Plan::parse(&text).is_err(), "three copies on two nodes");
}

/// Clients of transactions come behind all others, so that those keep their numbers.
#[test]
fn transactions_are_a_line_of_their_own() {
    let line = "transactions partitions=2 producers=3 ids=2 copiers=1 readers=2 records=1..5 \
                timeout=3s pause=0s..10ms abort=1/3\n";
    let without = draw(1);
    let plan = Plan::parse(&(without.print() + line)).expect("it is understood");
    assert!(plan.print().contains(line), "{}", plan.print());
    assert_eq!(Plan::parse(&plan.print()), Ok(plan.clone()));
    assert_eq!(plan.members(), without.members());
    let parts: Vec<_> = plan.transactional().map(|client| plan.part(client)).collect();
    let produces = (0..3).map(|place| Some(Part::Produces(place)));
    let others = [Some(Part::Copies(0)), Some(Part::Reads(0)), Some(Part::Reads(1))];
    assert_eq!(parts, produces.chain(others).collect::<Vec<_>>());
    assert_eq!(plan.part(plan.clients_end()), None);
    assert_eq!(plan.part(plan.operator()), None);
    for (wrong, why) in [("ids=2", "ids=4"), ("partitions=2", "partitions=0"), ("3s", "0s")] {
        let text = without.print() + &line.replace(wrong, why);
        assert!(Plan::parse(&text).is_err(), "{why}");
    }
}

#[test]
fn an_error_names_its_line() {
    let text = draw(1).print().replace("disk read", "disk bread");
    let error = Plan::parse(&text).expect_err("bread= is not known");
    assert!(error.0.starts_with("line 6: "), "{error}");
}
