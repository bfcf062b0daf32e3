//! In how many racks a record must stand before it is committed (`quorate.min.insync.racks`), so
//! that the loss of all of a rack loses nothing that was acknowledged. A rule beside
//! `min.insync.replicas`, which counts nodes.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::NodeId;

/// The rule, and where the replicas of a partition stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Racks {
    /// Up to 1: no rule.
    min: usize,
    /// Nodes that told no rack stand in one rack together: nobody knows better.
    named: BTreeMap<NodeId, String>,
}

impl Racks {
    pub fn new(min: usize, named: impl IntoIterator<Item = (NodeId, String)>) -> Self {
        if min <= 1 {
            // No rule is one and the same for all.
            return Self::default();
        }
        Self { min, named: named.into_iter().collect() }
    }

    /// Whether `in_sync` stand in as many racks as acks=all demands.
    pub fn suffice(&self, in_sync: &[NodeId]) -> bool {
        self.min <= 1 || self.count(in_sync) >= self.min
    }

    /// Whether what `in_sync` have is committed: as `suffice`, but a partition whose `replicas`
    /// stand in fewer racks commits with all of those.
    pub fn commit(&self, in_sync: &[NodeId], replicas: &[NodeId]) -> bool {
        self.min <= 1 || self.count(in_sync) >= self.min.min(self.count(replicas))
    }

    fn count(&self, nodes: &[NodeId]) -> usize {
        nodes.iter().map(|node| self.named.get(node)).collect::<BTreeSet<_>>().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_without_a_rack_are_in_one() {
        let nodes = [1, 2, 3, 4].map(NodeId);
        let named = [(NodeId(1), "a".to_owned()), (NodeId(2), "a".to_owned())];
        let two = Racks::new(2, named.clone());
        assert!(!two.suffice(&nodes[..2]) && two.suffice(&nodes[1..3]));
        assert!(!two.suffice(&nodes[2..]) && !two.suffice(&[]));
        let three = Racks::new(3, named);
        assert!(!three.suffice(&nodes) && three.commit(&nodes[1..3], &nodes));
        assert!(!three.commit(&nodes[2..], &nodes));
        assert!(Racks::default().suffice(&[]) && Racks::new(1, []).commit(&[], &nodes));
    }
}
