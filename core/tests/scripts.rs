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
