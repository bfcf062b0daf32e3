//! What a partition's assignment says about its replicas.

use crate::id::NodeId;
use crate::partition::interface::Assignment;

impl Assignment {
    /// Those that are to keep a copy once the reassignment is done, the preferred leader first; all
    /// replicas if none runs.
    pub fn targets(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.replicas.iter().copied().filter(|node| !self.removing.contains(node))
    }

    /// How many copies the partition has besides those that a reassignment adds. Whatever depends
    /// on the number of copies, `min.insync.replicas` above all, goes by this: a copy that has only
    /// begun to catch up must not be waited for.
    pub fn copies(&self) -> usize {
        self.replicas.len() - self.adding.len()
    }

    pub fn is_reassigning(&self) -> bool {
        !self.adding.is_empty() || !self.removing.is_empty()
    }
}
