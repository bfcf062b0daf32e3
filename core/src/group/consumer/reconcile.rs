//! How a member comes from what it has to what it is to have, one heartbeat at a time. Pure; the
//! rules are those of KIP-848 and of Kafka's `CurrentAssignmentBuilder`.
//!
//! What makes it safe: a member's epoch rises to that of the target only once it has given up all
//! that the target takes from it, and it is given a partition only once nobody else has it. So no
//! two members ever have the same partition in the same epoch, even long after each other, and a
//! late commit is known by its epoch.

use super::super::assignment::Assignment;
use crate::id::TopicId;
use crate::{mutant, reached};

/// Where a member stands on its way to the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// It has what the target of its epoch gives it.
    #[default]
    Stable,
    /// It was told to give partitions up and has not said that it did.
    Unrevoked,
    /// It waits for partitions that others have not given up.
    Unreleased,
}

/// What a member has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Current {
    /// The epoch whose target the member has come to. 0 for one that has just joined.
    pub epoch: i32,
    /// The epoch before, which a member still has that never heard the answer.
    pub previous_epoch: i32,
    pub progress: Progress,
    pub assigned: Assignment,
    /// Told to be given up; owned until the member says that it has.
    pub revoking: Assignment,
}

impl Current {
    /// Everything that nobody else may have yet.
    pub fn owned(&self) -> impl Iterator<Item = (TopicId, i32)> + '_ {
        self.assigned.iter().chain(self.revoking.iter())
    }

    /// The next step towards `target`, which is that of `target_epoch`. `reported` is what the
    /// member says it has, if it says so; `is_free` whether nobody else has a partition.
    pub fn step(
        &self,
        target: &Assignment,
        target_epoch: i32,
        reported: Option<&Assignment>,
        is_free: impl Fn(TopicId, i32) -> bool,
    ) -> Self {
        let waits = match self.progress {
            Progress::Stable => self.epoch == target_epoch,
            Progress::Unreleased => false,
            // A heartbeat without a list confirms nothing.
            Progress::Unrevoked => {
                reported.is_none_or(|reported| !reported.is_disjoint(&self.revoking))
            }
        };
        if waits {
            return self.clone();
        }
        let kept = self.assigned.and(target);
        let revoking = self.assigned.minus(target);
        // What it says it has not, it need not give up.
        let holds = reported.is_none_or(|reported| !reported.is_disjoint(&revoking));
        if !revoking.is_empty() && holds {
            reached!("member-is-told-to-revoke");
            let early = mutant!("owner-twice-in-one-epoch");
            return Self {
                epoch: if early { target_epoch } else { self.epoch },
                previous_epoch: self.previous_epoch,
                progress: Progress::Unrevoked,
                assigned: kept,
                revoking,
            };
        }
        let wanted = target.minus(&kept);
        let free: Assignment =
            wanted.iter().filter(|&(topic, partition)| is_free(topic, partition)).collect();
        let all_free = free.len() == wanted.len();
        if !all_free {
            reached!("member-waits-for-release");
        }
        let mut assigned = kept;
        assigned.extend(free.iter());
        Self {
            epoch: target_epoch,
            previous_epoch: if self.epoch == target_epoch {
                self.previous_epoch
            } else {
                self.epoch
            },
            progress: if all_free { Progress::Stable } else { Progress::Unreleased },
            assigned,
            revoking: Assignment::default(),
        }
    }
}
