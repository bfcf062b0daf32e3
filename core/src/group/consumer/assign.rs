//! Who gets which partitions: the assignors of the coordinator. Pure, and without chance: the same
//! members, topics and former targets give the same targets.

pub mod range;
pub mod uniform;

use std::collections::{BTreeMap, BTreeSet};

use super::super::assignment::Assignment;
use crate::id::TopicId;
use crate::time::Instant;

/// The names that clients may ask for, the default first.
pub const ASSIGNORS: [&str; 2] = ["uniform", "range"];

/// What is shared out, and among whom.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub members: BTreeMap<String, Subscriber>,
    /// Partitions of each topic that is there.
    pub topics: BTreeMap<TopicId, i32>,
}

/// What an assignor knows of a member.
#[derive(Clone, Debug)]
pub struct Subscriber {
    /// Of topics that are there.
    pub topics: BTreeSet<TopicId>,
    /// Its former target: no two members' share a partition.
    pub before: Assignment,
    /// By which `range` puts members in order: the instance's name, or else the member's.
    pub order: String,
    /// By which `uniform` chooses among equals, before their names: who can come to its part
    /// sooner comes first.
    pub rank: (bool, Instant),
}

/// The targets of all members: each partition of a topic that somebody subscribes to stands in
/// exactly one, and that one is a subscriber's.
pub type Targets = BTreeMap<String, Assignment>;

/// By the assignor of this name; unknown names are those of `uniform`.
pub fn assign(assignor: &str, wanted: &Wanted) -> Targets {
    if assignor == "range" { range::assign(wanted) } else { uniform::assign(wanted) }
}

/// The assignor that most members ask for; the default where nobody cares. Ties go to the one
/// named first in `ASSIGNORS`.
pub fn vote<'a>(wishes: impl Iterator<Item = Option<&'a str>>) -> &'static str {
    let mut votes = [0_usize; ASSIGNORS.len()];
    for wish in wishes.flatten() {
        if let Some(place) = ASSIGNORS.iter().position(|name| *name == wish) {
            votes[place] += 1;
        }
    }
    let best = votes.iter().copied().max().unwrap_or_default();
    let place = votes.iter().position(|count| *count == best).unwrap_or_default();
    ASSIGNORS[place]
}
