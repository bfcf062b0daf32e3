//! Who is in sync, how far each has come, and where the high watermark stands: the smallest durable
//! end of the in-sync set. PacificA's rule; Kafka's `Partition.maybeIncrementLeaderHW`.

use std::collections::BTreeMap;

use crate::id::{NodeId, Offset};

/// The in-sync set of a leader, itself included, with what each member has on its disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InSync {
    ends: BTreeMap<NodeId, Offset>,
}

impl InSync {
    /// The set is `members` from now on. Who was in it keeps its end; a new one counts from `from`.
    pub fn assign(&mut self, members: &[NodeId], from: Offset) {
        let ends = members.iter().map(|&id| (id, self.ends.get(&id).copied().unwrap_or(from)));
        self.ends = ends.collect();
    }

    /// `member` has everything below `end` on its disk. Ends never fall; who is not in the set is
    /// not counted.
    pub fn advance(&mut self, member: NodeId, end: Offset) {
        if let Some(known) = self.ends.get_mut(&member) {
            *known = end.max(*known);
        }
    }

    /// What `member` had does not count any more: it begins another life. It is known to have only
    /// what is committed, everything below `from`.
    pub fn restart(&mut self, member: NodeId, from: Offset) {
        if let Some(known) = self.ends.get_mut(&member) {
            *known = from;
        }
    }

    pub fn contains(&self, member: NodeId) -> bool {
        self.ends.contains_key(&member)
    }

    /// Everything below is on the disk of every member. `None` for an empty set: nothing new can
    /// be committed.
    pub fn high_watermark(&self) -> Option<Offset> {
        self.ends.values().min().copied()
    }

    /// Members.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Ascending by id.
    pub fn ends(&self) -> impl Iterator<Item = (NodeId, Offset)> {
        self.ends.iter().map(|(&id, &end)| (id, end))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The slow twin: of every offset, ask every member whether it has it.
        #[test]
        fn the_high_watermark_is_what_everybody_has(
            members in vec(0..5_i32, 0..5),
            advances in vec((0..6_i32, 0..20_i64), 0..30),
        ) {
            let members = members.into_iter().map(NodeId).collect::<Vec<_>>();
            let mut in_sync = InSync::default();
            in_sync.assign(&members, Offset::ZERO);
            for &(member, end) in &advances {
                in_sync.advance(NodeId(member), Offset(end));
            }
            let has = |member: &NodeId, offset: i64| {
                advances.iter().any(|&(id, end)| NodeId(id) == *member && end > offset)
            };
            let everybody = |offset: &i64| members.iter().all(|member| has(member, *offset));
            let slow = (0..).take_while(|offset| *offset < 20 && everybody(offset)).count();
            let expected = (!members.is_empty()).then(|| Offset(i64::try_from(slow).unwrap()));
            prop_assert_eq!(in_sync.high_watermark(), expected);
        }
    }

    #[test]
    fn who_joins_holds_the_watermark_back_and_who_leaves_does_not() {
        let mut in_sync = InSync::default();
        in_sync.assign(&[NodeId(1)], Offset(5));
        in_sync.advance(NodeId(1), Offset(9));
        in_sync.assign(&[NodeId(1), NodeId(2)], Offset(7));
        assert_eq!(in_sync.high_watermark(), Some(Offset(7)));
        in_sync.assign(&[NodeId(1)], Offset(0));
        assert_eq!(in_sync.high_watermark(), Some(Offset(9)));
        in_sync.assign(&[], Offset(0));
        assert_eq!(in_sync.high_watermark(), None);
    }
}
