//! `group-shares`: in a classic group everybody has what whoever led the generation gave it, and
//! all have it of one and the same sharing out. Who leads may have handed in several, where answers
//! were lost; the first that is written counts.
//!
//! Not judged are groups that a coordinator shares out now and then, since there it may take the
//! place of whoever leads, and those of our library, which keeps to itself what it hands in.

use std::collections::BTreeMap;

use quorate_core::time::Instant;

use super::{Assigned, Evidence, Facts, Violation, blame, is_same};
use crate::history::Partition;
use crate::history::groups::{Claim, GroupCall, GroupEnd};
use crate::plan::groups::Protocol;

type Shares = Vec<(String, Vec<Partition>)>;

/// What was handed in for a group's generation, and when.
type HandedIn<'a> = BTreeMap<(u32, i32), Vec<(Instant, &'a Shares)>>;

/// Who had an id, of those who were told theirs.
type Known<'a> = BTreeMap<(u32, &'a str), &'a Claim>;

pub(super) fn check(evidence: &Evidence<'_>, facts: &Facts<'_>, violations: &mut Vec<Violation>) {
    let (mut handed_in, mut known) = (HandedIn::new(), Known::new());
    for operation in &evidence.history.groups.operations {
        let who = &operation.who;
        if let GroupCall::Assign { shares } = &operation.call
            && !shares.is_empty()
        {
            let of_generation = handed_in.entry((who.group, who.generation)).or_default();
            of_generation.push((operation.invoked, shares));
        }
        known.entry((who.group, &who.member)).or_insert(who);
        if let GroupEnd::Joined { member, .. } = &operation.end {
            known.entry((who.group, member)).or_insert(who);
        }
    }
    for (group, assigned) in &facts.assigned {
        let spec = facts.plan.groups.get(*group as usize);
        let by_library = spec.is_some_and(|spec| spec.protocol == Protocol::Library);
        if facts.shares_out(*group) || by_library {
            continue;
        }
        let mut generations: BTreeMap<i32, Vec<&Assigned<'_>>> = BTreeMap::new();
        for one in assigned {
            generations.entry(one.generation).or_default().push(one);
        }
        for (generation, told) in generations {
            let candidates = handed_in.get(&(*group, generation)).map_or(&[][..], Vec::as_slice);
            check_generation(*group, &told, candidates, &known, violations);
        }
    }
}

fn check_generation(
    group: u32,
    told: &[&Assigned<'_>],
    candidates: &[(Instant, &Shares)],
    known: &Known<'_>,
    violations: &mut Vec<Violation>,
) {
    // An instance's newest self has what an older one was given, under the older one's id, which
    // may never have been told to it (KIP-345).
    let is_given = |one: &Assigned<'_>, (when, shares): &(Instant, &Shares)| {
        let is_its = |id: &str| {
            let other = known.get(&(group, id));
            id == one.who.member
                || one.who.instance.is_some() && other.is_none_or(|other| is_same(other, one.who))
        };
        let mut own = shares.iter().filter(|(id, _)| is_its(id));
        *when <= one.told && own.any(|(_, share)| share == one.partitions)
    };
    let explains = |it: &&(Instant, &Shares)| told.iter().all(|one| is_given(one, it));
    if candidates.iter().any(|it| explains(&it)) {
        return;
    }
    let odd = |one: &&&Assigned<'_>| !candidates.iter().any(|it| is_given(one, it));
    let one = told.iter().find(odd).or_else(|| told.last()).expect("somebody was told");
    let has: Vec<String> = one.partitions.iter().map(Partition::to_string).collect();
    let sentence = format!(
        "{} has [{}], and no sharing out of {} handed in gives that to it, and to all the others \
         what they have",
        one.who,
        has.join(", "),
        candidates.len()
    );
    blame(violations, "group-shares", group, None, sentence);
}

#[cfg(test)]
mod tests {
    use crate::check::groups::story::Story;

    #[test]
    fn members_have_what_they_were_given() {
        let mut story = Story::new("eager");
        story.shared_out(1, &[("a", &[0]), ("b", &[1])]);
        story.assigned("a", 1, &[0]).assigned("b", 1, &[1]);
        assert_eq!(story.blamed_for_shares(), [""; 0]);
        let mut story = Story::new("eager");
        story.shared_out(1, &[("a", &[0]), ("b", &[1])]);
        story.assigned("a", 1, &[0]).assigned("b", 1, &[]);
        assert_eq!(story.blamed_for_shares(), ["group-shares"], "1 is nobody's");
    }

    #[test]
    fn nobody_has_gives_before_they_are_handed_in() {
        let mut story = Story::new("eager");
        story.assigned("a", 1, &[0]).shared_out(1, &[("a", &[0])]);
        assert_eq!(story.blamed_for_shares(), ["group-shares"]);
        let mut story = Story::new("eager");
        story.shared_out(1, &[("a", &[0])]).assigned("a", 2, &[0]);
        assert_eq!(story.blamed_for_shares(), ["group-shares"], "that was another generation's");
    }

    #[test]
    fn all_have_what_one_sharing_out_gives() {
        let told = |b: &'static [u32]| {
            let mut story = Story::new("cooperative");
            story.shared_out(1, &[("a", &[0]), ("b", &[1])]);
            story.shared_out(1, &[("a", &[0, 1]), ("b", &[])]);
            story.assigned("a", 1, &[0, 1]).assigned("b", 1, b);
            story.blamed_for_shares()
        };
        assert_eq!(told(&[]), [""; 0], "the second of them counts");
        assert_eq!(told(&[1]), ["group-owner", "group-shares"], "each counts for one of them");
    }

    #[test]
    fn a_static_member_has_what_its_older_self_was_given() {
        let told = |instance: &str| {
            let mut story = Story::new("eager");
            story.joined("g0-i0", "a", 1).shared_out(1, &[("a", &[0]), ("b", &[1])]);
            story.joined(instance, "c", 1);
            story.assigned_as(instance, "c", 1, &[0]);
            story.blamed_for_shares()
        };
        assert_eq!(told("g0-i0"), [""; 0]);
        assert_eq!(told("g0-i1"), ["group-shares"], "that was another's");
        let told_to = |is_known: bool| {
            let mut story = Story::new("eager");
            if is_known {
                story.joined_by(2, "a");
            }
            story.shared_out(1, &[("b", &[1]), ("a", &[0])]);
            story.joined("g0-i0", "c", 1).assigned_as("g0-i0", "c", 1, &[0]);
            story.blamed_for_shares()
        };
        assert_eq!(told_to(false), [""; 0], "nobody was told that id");
        assert_eq!(told_to(true), ["group-shares"], "it is a dynamic member's");
    }

    #[test]
    fn what_a_coordinator_shares_out_nobody_hands_in() {
        for protocol in ["consumer", "eager migrate=1/2", "library"] {
            let mut story = Story::new(protocol);
            story.assigned("a", 1, &[0]);
            assert_eq!(story.blamed_for_shares(), [""; 0], "{protocol}");
        }
        let mut story = Story::new("eager");
        story.assigned("a", 1, &[0]);
        assert_eq!(story.blamed_for_shares(), ["group-shares"]);
    }
}
