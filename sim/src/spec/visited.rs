//! Which of the small states a campaign's traces passed: the specifications are explored to the end
//! within small bounds, and what a trace has passed is compared with that by its shape.

use std::collections::BTreeSet;

use super::explore::{Explored, explore};
use super::{partition, quorum};

/// States after which an exploration is given up.
const STATES_MAX: u64 = 200_000;

/// Two members that vote twice and may lose what they wrote; three in two terms.
pub const QUORUMS: [quorum::explore::Bounds; 3] = [
    quorum::explore::Bounds { members: 2, terms: 2, entries: 2, writes: 1, restarts: true },
    quorum::explore::Bounds { members: 3, terms: 1, entries: 2, writes: 1, restarts: true },
    quorum::explore::Bounds { members: 3, terms: 2, entries: 1, writes: 1, restarts: false },
];

/// Two replicas, of which one suffices, then both must be in sync; and three, of which two must.
pub const PARTITIONS: [partition::explore::Bounds; 3] = [
    partition::explore::Bounds { nodes: 2, leader_epochs: 1, words: 2, records: 2, min: 1 },
    partition::explore::Bounds { nodes: 2, leader_epochs: 2, words: 2, records: 1, min: 2 },
    partition::explore::Bounds { nodes: 3, leader_epochs: 1, words: 1, records: 1, min: 2 },
];

/// One exploration.
#[derive(Debug)]
pub struct Space {
    pub name: String,
    pub explored: Explored,
}

/// All explorations, each when it is asked for.
pub fn spaces() -> impl Iterator<Item = Space> {
    let quorums = QUORUMS.iter().map(|bounds| {
        let name = format!(
            "quorum of {}, {} terms, {} entries",
            bounds.members, bounds.terms, bounds.entries
        );
        Space { name, explored: explore(bounds, STATES_MAX) }
    });
    let partitions = PARTITIONS.iter().map(|bounds| {
        let name = format!(
            "partition on {}, {} leader epochs, {} words, {} records, min.insync.replicas {}",
            bounds.nodes, bounds.leader_epochs, bounds.words, bounds.records, bounds.min
        );
        Space { name, explored: explore(bounds, STATES_MAX) }
    });
    quorums.chain(partitions)
}

impl Space {
    /// What was found, and how much of it was passed.
    pub fn line(&self, passed: &BTreeSet<u64>) -> String {
        let Explored { states, steps, is_complete, shapes, broken } = &self.explored;
        let end = match (broken, is_complete) {
            (Some(broken), _) => format!(", BROKEN: {broken}"),
            (None, true) => String::new(),
            (None, false) => ", given up".to_owned(),
        };
        let (name, all) = (&self.name, shapes.len());
        let both = shapes.intersection(passed).count();
        format!("{name}: {states} states, {steps} steps{end}; {both} of {all} shapes passed")
    }
}
