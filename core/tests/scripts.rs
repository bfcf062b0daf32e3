//! The recorded stories of the machines: `scripts/<machine>/<story>`.

#[path = "support/contents.rs"]
#[expect(dead_code, reason = "the random walk looks closer")]
mod contents;
#[path = "support/controller.rs"]
mod controller;
#[path = "support/cut_log.rs"]
#[expect(dead_code, reason = "the random walk's observer looks closer")]
mod cut_log;
#[path = "support/log.rs"]
mod log;
#[path = "support/partition.rs"]
mod partition;
#[path = "support/replicas.rs"]
mod replicas;
#[path = "support/script.rs"]
mod script;
#[path = "support/seat.rs"]
mod seat;
#[path = "support/seats.rs"]
#[expect(dead_code, reason = "the random walk looks closer")]
mod seats;
#[path = "support/shard.rs"]
mod shard;

use controller::ControllerStage;
use partition::PartitionStage;
use replicas::ReplicasStage;
use script::run_all;
use seat::SeatStage;
use shard::ShardStage;

#[test]
fn one_replica() {
    run_all("partition", || Box::new(PartitionStage::new()));
}

#[test]
fn several_replicas() {
    run_all("replication", || Box::new(ReplicasStage::new()));
}

#[test]
fn the_controller() {
    run_all("controller", || Box::new(ControllerStage::new()));
}

#[test]
fn a_shard() {
    run_all("shard", || Box::new(ShardStage::new()));
}

#[test]
fn seats_in_the_quorum() {
    run_all("seat", || Box::new(SeatStage::new()));
}

/// What the controller's walk hardly ever meets, a story does.
#[cfg(mutants)]
#[test]
fn planted_bugs_change_a_story() {
    std::panic::set_hook(Box::new(|_| {}));
    let planted: [(&str, fn()); 10] = [
        ("stale-incarnation-joins-isr", the_controller),
        ("coordinator-epoch-goes-back", one_replica),
        ("dedup-across-transactions", one_replica),
        ("late-marker-ends-next-transaction", one_replica),
        ("late-produce-joins-next-txn", one_replica),
        ("lso-inclusive", one_replica),
        ("verified-then-raced", one_replica),
        ("transaction-told-before-committed", a_shard),
        ("append-of-another-leadership", a_shard),
        ("topics-told-to-who-knows-some", a_shard),
    ];
    let told = planted.map(|(slug, stories)| {
        quorate_core::mutant::choose(Some(slug));
        let told = std::panic::catch_unwind(stories);
        quorate_core::mutant::choose(None);
        told.is_err()
    });
    drop(std::panic::take_hook());
    let missed = planted.iter().zip(told).filter(|(_, told)| !told).map(|((slug, _), _)| *slug);
    assert_eq!(missed.collect::<Vec<_>>(), Vec::<&str>::new(), "no story changes");
}

/// A branch that is worth a mark is worth a story.
#[cfg(debug_assertions)]
#[test]
fn every_mark_is_passed_by_a_story() {
    quorate_core::mark::take();
    one_replica();
    several_replicas();
    the_controller();
    a_shard();
    seats_in_the_quorum();
    let passed = quorate_core::mark::take();
    for machine in ["partition", "controller", "shard"] {
        let marks = script::marks(machine);
        assert!(!marks.is_empty(), "{machine} has marks");
        let missed = marks.into_iter().filter(|mark| !passed.contains_key(mark.as_str()));
        let missed = missed.collect::<Vec<_>>();
        assert!(missed.is_empty(), "no story passes {missed:?} of {machine}");
    }
}
