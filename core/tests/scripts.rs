//! The recorded stories of the machines: `scripts/<machine>/<story>`.

#[path = "support/controller.rs"]
mod controller;
#[path = "support/log.rs"]
mod log;
#[path = "support/partition.rs"]
mod partition;
#[path = "support/script.rs"]
mod script;
#[path = "support/shard.rs"]
mod shard;

use controller::ControllerStage;
use partition::PartitionStage;
use script::run_all;
use shard::ShardStage;

#[test]
fn one_replica() {
    run_all("partition", || Box::new(PartitionStage::new()));
}

#[test]
fn the_controller() {
    run_all("controller", || Box::new(ControllerStage::new()));
}

#[test]
fn a_shard() {
    run_all("shard", || Box::new(ShardStage::new()));
}

/// A branch that is worth a mark is worth a story.
#[cfg(debug_assertions)]
#[test]
fn every_mark_is_passed_by_a_story() {
    quorate_core::mark::take();
    one_replica();
    the_controller();
    a_shard();
    let passed = quorate_core::mark::take();
    for machine in ["partition", "controller", "shard"] {
        // What replicas say to one another is the random walk's until their stories are told.
        let others = ["role", "follower", "replication"];
        let marks = script::marks(machine, if machine == "partition" { &others } else { &[] });
        assert!(!marks.is_empty(), "{machine} has marks");
        let later = ["closes-after-a-cut", "committed-by-too-few"];
        for mark in marks.into_iter().filter(|mark| !later.contains(&mark.as_str())) {
            assert!(passed.contains_key(mark.as_str()), "no story passes {mark} of {machine}");
        }
    }
}
