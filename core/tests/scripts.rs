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
        let marks = script::marks(machine);
        assert!(!marks.is_empty(), "{machine} has marks");
        for mark in marks {
            assert!(passed.contains_key(mark.as_str()), "no story passes {mark} of {machine}");
        }
    }
}
