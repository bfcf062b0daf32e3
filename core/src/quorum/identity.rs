//! Names in the quorum: terms and places of its log, and who somebody is: a node *and* the
//! directory that holds its disk, so that a node whose disk was wiped is somebody else.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{LeaderEpoch, NodeId};

/// Numbers the leaders: at most one in a term, and terms only rise. Raft's term, KRaft's epoch.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Term(pub u64);

impl Term {
    /// Before the first election.
    pub const ZERO: Self = Self(0);

    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// As Kafka's protocol counts it. No cluster lives for 2^31 elections.
    pub fn leader_epoch(self) -> LeaderEpoch {
        LeaderEpoch(i32::try_from(self.0).unwrap_or(i32::MAX))
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The place of an entry in the quorum's log. The first entry has index 1; 0 is before it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Index(pub u64);

impl Index {
    pub const ZERO: Self = Self(0);

    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    #[must_use]
    pub const fn plus(self, entries: u64) -> Self {
        Self(self.0 + entries)
    }

    /// The entry before this one; 0 stays 0.
    #[must_use]
    pub const fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// An entry's index and the term that wrote it. Two logs that have the same position have the
/// same entries up to there.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Position {
    pub index: Index,
    pub term: Term,
}

impl Position {
    /// Before the first entry.
    pub const ZERO: Self = Self { index: Index::ZERO, term: Term::ZERO };

    pub const fn new(index: Index, term: Term) -> Self {
        Self { index, term }
    }

    /// Whether a log that ends here has all that one which ends at `other` can have had
    /// committed: the last term decides, then the length. Raft §5.4.1.
    pub fn is_up_to_date_with(self, other: Self) -> bool {
        (self.term, self.index) >= (other.term, other.index)
    }
}

/// `5@2`: index 5, written in term 2.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.index, self.term)
    }
}

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize,
            Deserialize,
        )]
        pub struct $name(pub [u8; 16]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    };
}

random_id! {
    /// Drawn when a data directory is made, and never again: what a node remembers goes by it,
    /// since it is gone with the directory. KIP-853's directory id.
    DirectoryId
}

random_id! {
    /// Drawn by the founder of a cluster. Nobody listens to another cluster's messages.
    ClusterId
}

/// One memory that may vote: a node with the directory it remembers by.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Member {
    pub node: NodeId,
    pub directory: DirectoryId,
}

/// `2/9f3b01aa`: the directory by its first bytes.
impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.node)?;
        self.directory.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_term_decides_then_the_length() {
        let at = |index, term| Position::new(Index(index), Term(term));
        assert!(at(5, 2).is_up_to_date_with(at(9, 1)));
        assert!(at(5, 2).is_up_to_date_with(at(5, 2)));
        assert!(!at(5, 2).is_up_to_date_with(at(6, 2)));
        assert!(!at(9, 1).is_up_to_date_with(at(5, 2)));
    }

    #[test]
    fn members_are_told_apart_by_their_directories() {
        let node = NodeId(2);
        let first = Member { node, directory: DirectoryId([1; 16]) };
        let wiped = Member { node, directory: DirectoryId([2; 16]) };
        assert_ne!(first, wiped);
        assert_eq!(first.to_string(), "2/01010101");
    }
}
