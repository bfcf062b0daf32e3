//! Who votes, and what a majority of them is. Pure algebra, checked against slow twins.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::identity::{ClusterId, DirectoryId, Member};
use crate::id::NodeId;

/// The voters of a cluster. It counts from the moment it stands in a node's log, committed or
/// not, and the one before it counts again if that entry is cut. Raft §6.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Configuration {
    pub cluster: ClusterId,
    pub voters: BTreeSet<Member>,
    /// Nodes whose disk was lost, and with it their vote: they get one again once they follow with
    /// another disk. They are no voters, and count in no majority.
    pub kept: BTreeSet<NodeId>,
}

/// As it stands in the log. A kept vote is a voter without a directory: a build that knows nothing
/// of kept votes waits for one voter more than it must, which is safe.
#[derive(Serialize, Deserialize)]
struct Written {
    cluster: ClusterId,
    voters: BTreeSet<Member>,
}

const NO_DIRECTORY: DirectoryId = DirectoryId([0; 16]);

impl From<Written> for Configuration {
    fn from(Written { cluster, mut voters }: Written) -> Self {
        let is_kept = |voter: &Member| voter.directory == NO_DIRECTORY;
        let kept = voters.extract_if(.., is_kept).map(|voter| voter.node).collect();
        Self { cluster, voters, kept }
    }
}

impl From<Configuration> for Written {
    fn from(Configuration { cluster, mut voters, kept }: Configuration) -> Self {
        voters.extend(kept.into_iter().map(|node| Member { node, directory: NO_DIRECTORY }));
        Self { cluster, voters }
    }
}

impl Configuration {
    pub fn is_voter(&self, member: Member) -> bool {
        self.voters.contains(&member)
    }

    /// The voters that live on `node`: one, except while a wiped one is being replaced.
    pub fn on_node(&self, node: NodeId) -> impl Iterator<Item = Member> + '_ {
        self.voters.iter().copied().filter(move |voter| voter.node == node)
    }

    /// How many voters are a majority; any two majorities have one in common.
    pub fn majority(&self) -> usize {
        self.voters.len() / 2 + 1
    }

    /// Whether `agrees` holds for a majority of the voters. Who does not vote does not count.
    pub fn has_majority(&self, agrees: impl Fn(Member) -> bool) -> bool {
        self.voters.iter().filter(|voter| agrees(**voter)).count() >= self.majority()
    }

    /// The largest value that a majority has reached, where `reached` says how far each voter is.
    pub fn reached_by_majority<T: Ord>(&self, reached: impl Fn(Member) -> T) -> Option<T> {
        let mut values: Vec<T> = self.voters.iter().map(|voter| reached(*voter)).collect();
        // zoo B13
        if !crate::mutant!("unsorted-quorum-scan") {
            values.sort_unstable();
        }
        let place = values.len().checked_sub(self.majority())?;
        values.into_iter().nth(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn configuration(voters: i32) -> Configuration {
        let member = |node| Member { node: NodeId(node), directory: DirectoryId::default() };
        Configuration { voters: (1..=voters).map(member).collect(), ..Configuration::default() }
    }

    /// The slow twin: for each value, count who has reached it.
    fn slow(reached: &[u64]) -> Option<u64> {
        let count = |value: u64| reached.iter().filter(|other| **other >= value).count();
        reached.iter().copied().filter(|value| count(*value) * 2 > reached.len()).max()
    }

    #[test]
    fn the_majority_is_that_of_a_slow_count() {
        let mut rng = Rng::new(1);
        for _ in 0..2000 {
            let voters = i32::try_from(rng.below(8)).expect("small");
            let values: Vec<u64> = (0..voters).map(|_| rng.below(6)).collect();
            let found = configuration(voters)
                .reached_by_majority(|member| values[member.node.0 as usize - 1]);
            assert_eq!(found, slow(&values), "{values:?}");
        }
    }

    #[test]
    fn majorities_meet() {
        assert_eq!([1, 2, 3, 4, 5].map(|n| configuration(n).majority()), [1, 2, 2, 3, 3]);
        let three = configuration(3);
        assert!(three.has_majority(|member| member.node.0 <= 2));
        assert!(!three.has_majority(|member| member.node.0 == 3));
        assert!(!configuration(0).has_majority(|_| true), "nobody is no majority");
    }
}
