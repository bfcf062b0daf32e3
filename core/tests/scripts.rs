//! The recorded stories of the machines: `scripts/<machine>/<story>`.

mod support {
    pub(crate) mod log;
    pub(crate) mod partition;
    pub(crate) mod script;
}

use support::partition::PartitionStage;
use support::script::run_all;

#[test]
fn partition() {
    run_all("partition", || Box::new(PartitionStage::new()));
}
