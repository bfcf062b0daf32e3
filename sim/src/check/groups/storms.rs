//! `group-storm`: a group shares out no more often than the plan says that it may. Members that all
//! fall silent at once cost one rebalance when they are back, and none if it was their coordinator
//! that could not hear them.
//!
//! With the classic protocol every generation counts, since everybody stops for it; with KIP-848 an
//! epoch that gives somebody what it had not.

use std::collections::{BTreeMap, BTreeSet};

use super::{Assigned, Facts, Violation, blame};
use crate::history::Partition;

pub(super) fn check(facts: &Facts<'_>, violations: &mut Vec<Violation>) {
    for (place, group) in (0..).zip(&facts.plan.groups) {
        let Some(most) = group.rebalances_max else { continue };
        let assigned = facts.assigned.get(&place).map_or(&[][..], Vec::as_slice);
        let generations = rebalances(assigned);
        if generations.len() > most as usize {
            let sentence = format!(
                "it shared out in {} generations, and {most} are enough: {generations:?}",
                generations.len()
            );
            blame(violations, "group-storm", place, None, sentence);
        }
    }
}

/// The generations in which a group shared out anew.
fn rebalances(assigned: &[Assigned<'_>]) -> BTreeSet<i32> {
    let mut parts: BTreeMap<&str, &[Partition]> = BTreeMap::new();
    let mut generations = BTreeSet::new();
    for Assigned { who, generation, partitions, .. } in assigned {
        let before = parts.insert(&who.member, partitions).unwrap_or_default();
        if !who.by_epoch || partitions.iter().any(|partition| !before.contains(partition)) {
            generations.insert(*generation);
        }
    }
    generations
}

#[cfg(test)]
mod tests {
    use crate::check::groups::story::Story;

    #[test]
    fn a_classic_group_counts_its_generations() {
        let mut story = Story::new("eager rebalances_max=2");
        story.assigned("a", 1, &[0]).assigned("b", 1, &[1]).assigned("a", 2, &[0]);
        assert_eq!(story.blamed(), [""; 0]);
        story.assigned("a", 3, &[0]);
        assert_eq!(story.blamed(), ["group-storm"], "everybody stops for a generation");
    }

    #[test]
    fn an_epoch_that_gives_nothing_is_none() {
        let mut story = Story::new("consumer rebalances_max=2");
        story.assigned("a", 1, &[0]).assigned("a", 2, &[0]).assigned("a", 3, &[0, 1]);
        assert_eq!(story.blamed(), [""; 0]);
        story.assigned("a", 4, &[1]);
        assert_eq!(story.blamed(), [""; 0], "whoever has 0 now is another one");
        story.assigned("a", 5, &[0, 1]);
        assert_eq!(story.blamed(), ["group-storm"]);
    }
}
