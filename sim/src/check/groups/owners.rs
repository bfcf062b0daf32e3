//! A partition has one owner in a generation, over all time: a late request of one who had it
//! there can then be told from those of everybody else (KAFKA-19974).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::{Facts, Violation, blame, is_same};
use crate::history::Partition;
use crate::history::groups::Claim;

pub(super) fn check(facts: &Facts<'_>, violations: &mut Vec<Violation>) {
    let mut owners: BTreeMap<(u32, Partition, i32), &Claim> = BTreeMap::new();
    let mut own = |group: u32, partition: Partition, generation: i32, who| match owners
        .entry((group, partition, generation))
    {
        Entry::Vacant(place) => drop(place.insert(who)),
        Entry::Occupied(owner) if !is_same(owner.get(), who) => {
            let (one, other) = (&owner.get().member, &who.member);
            let sentence = format!("{one} and {other} had it in generation {generation}");
            blame(violations, "group-owner", group, Some(partition), sentence);
        }
        Entry::Occupied(_) => {}
    };
    for (group, assigned) in &facts.assigned {
        for one in assigned {
            one.partitions
                .iter()
                .for_each(|partition| own(*group, *partition, one.generation, one.who));
        }
    }
    // Whoever commits in a generation, and is believed, has what it commits.
    for ((group, partition), commits) in &facts.commits {
        for commit in commits.iter().filter(|commit| commit.accepted.is_some()) {
            own(*group, *partition, commit.who.generation, commit.who);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::check::groups::story::Story;

    #[test]
    fn two_members_have_a_partition_in_one_generation() {
        let mut story = Story::new("eager");
        story.assigned("a", 1, &[0]).assigned("b", 1, &[1]);
        assert_eq!(story.blamed(), [""; 0]);
        story.assigned("b", 1, &[0]);
        assert_eq!(story.blamed(), ["group-owner"]);
    }

    #[test]
    fn in_the_next_generation_it_may_be_anothers() {
        let mut story = Story::new("consumer");
        story.assigned("a", 1, &[0]).assigned("b", 2, &[0]).assigned("a", 3, &[0]);
        assert_eq!(story.blamed(), [""; 0]);
        // Long after, and not at the same time.
        story.assigned("a", 2, &[0]);
        assert_eq!(story.blamed(), ["group-owner"]);
    }

    #[test]
    fn who_commits_has_it() {
        let mut story = Story::new("consumer");
        story.assigned("a", 1, &[0]).committed("a", 2, 0, 5);
        assert_eq!(story.blamed(), [""; 0]);
        story.assigned("b", 2, &[0]);
        assert_eq!(story.blamed(), ["group-owner"]);
    }
}
