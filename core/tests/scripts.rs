//! The recorded stories of the machines: `scripts/<machine>/<story>`.

#[path = "support/log.rs"]
mod log;
#[path = "support/partition.rs"]
mod partition;
#[path = "support/script.rs"]
mod script;

use partition::PartitionStage;
use script::run_all;

#[test]
fn one_replica() {
    run_all("partition", || Box::new(PartitionStage::new()));
}
