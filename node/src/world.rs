//! What a node runs in: its disk, its network, its clock and its seed. Production brings the
//! machine's, the simulator brings its own, and nothing in the node can tell.

use std::fmt;
use std::sync::Arc;

use quorate_net::clock::Clock;
use quorate_net::transport::Network;

use crate::disk::Disk;

#[derive(Clone)]
pub struct World {
    pub disk: Arc<dyn Disk>,
    pub network: Arc<dyn Network>,
    pub clock: Arc<dyn Clock>,
    /// Where the node's random choices come from: drawn from the operating system in production,
    /// from the plan in simulation.
    pub seed: u64,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("seed", &self.seed).finish_non_exhaustive()
    }
}
