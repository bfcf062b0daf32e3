//! Commits: `group-offset`, what was accepted is read back until another took its place, with all
//! that was said; and `group-stale-commit`, nobody commits who is out.

use quorate_core::time::Instant;

use super::{Commit, Facts, Fetch, Place, Violation, blame};

pub(super) fn check(facts: &Facts<'_>, violations: &mut Vec<Violation>) {
    for (place, commits) in &facts.commits {
        for commit in commits {
            let stale = facts.stale_since(commit.who, place.1);
            let Some((since, why)) = stale.filter(|_| commit.accepted.is_some()) else { continue };
            if since < commit.invoked {
                let (who, ms) = (commit.who, since.as_duration().as_millis());
                let sentence = format!("{who} commits {}, but at {ms} ms {why}", commit.at);
                blame(violations, "group-stale-commit", place.0, Some(place.1), sentence);
            }
        }
    }
    for (place, fetches) in &facts.fetches {
        let commits = facts.commits.get(place).map_or(&[][..], Vec::as_slice);
        check_offset(facts, *place, commits, fetches, violations);
    }
}

/// A commit as a write of a register.
struct Write<'a> {
    commit: &'a Commit<'a>,
    /// It has taken effect by then, if ever.
    until: Option<Instant>,
    /// It has surely taken effect.
    surely: bool,
}

/// The offset is a register: what is read was written, and by no write that another has followed.
fn check_offset(
    facts: &Facts<'_>,
    place: Place,
    commits: &[Commit<'_>],
    fetches: &[Fetch<'_>],
    violations: &mut Vec<Violation>,
) {
    let mut writes: Vec<Write<'_>> = commits
        .iter()
        .map(|commit| {
            // One whose fate is unknown has none any more once its member is out.
            let stale = || facts.stale_since(commit.who, place.1).map(|(since, _)| since);
            let until = commit.accepted.or_else(stale);
            Write { commit, until, surely: commit.accepted.is_some() }
        })
        .collect();
    let mut fetches: Vec<&Fetch<'_>> = fetches.iter().collect();
    fetches.sort_by_key(|fetch| fetch.completed);
    for fetch in fetches {
        let follows = |write: &Write<'_>, other: &Write<'_>| {
            other.surely
                && write.until.is_some_and(|until| other.commit.invoked > until)
                && other.until.is_some_and(|until| until < fetch.invoked)
        };
        let may_be_read = |write: &Write<'_>| {
            Some(write.commit.at) == fetch.found
                && write.commit.invoked <= fetch.completed
                && !writes.iter().any(|other| follows(write, other))
        };
        let holds = match fetch.found {
            None => !writes.iter().any(|write| {
                write.surely && write.until.is_some_and(|until| until < fetch.invoked)
            }),
            Some(_) => writes.iter().any(may_be_read),
        };
        if !holds {
            let found =
                fetch.found.map_or_else(|| "no offset".to_owned(), |found| found.to_string());
            let ms = fetch.completed.as_duration().as_millis();
            let last = writes
                .iter()
                .filter(|write| write.surely && write.until < Some(fetch.invoked))
                .max_by_key(|write| write.commit.invoked);
            let last = last.map_or_else(
                || "nothing that was accepted is like it".to_owned(),
                |write| format!("{} was accepted before", write.commit.at),
            );
            let sentence = format!("{found} was read at {ms} ms, and {last}");
            blame(violations, "group-offset", place.0, Some(place.1), sentence);
            return;
        }
        // What was read has taken effect, if only one commit can have said it.
        let mut same = writes.iter_mut().filter(|write| Some(write.commit.at) == fetch.found);
        if let (Some(write), None) = (same.next(), same.next()) {
            write.surely = true;
            let known = write.until.unwrap_or(fetch.completed);
            write.until = Some(known.min(fetch.completed));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::check::groups::story::Story;

    #[test]
    fn what_was_accepted_is_read_back() {
        let mut story = Story::new("eager");
        story.assigned("a", 1, &[0]).fetched(0, None).committed("a", 1, 0, 5);
        story.fetched(0, Some(5)).committed("a", 1, 0, 9).fetched(0, Some(9));
        assert_eq!(story.blamed(), [""; 0]);
        story.fetched(0, Some(5));
        assert_eq!(story.blamed(), ["group-offset"], "it has gone back");
    }

    #[test]
    fn it_is_not_forgotten() {
        let mut story = Story::new("eager");
        story.assigned("a", 1, &[0]).in_doubt("a", 1, 0, 5).fetched(0, None);
        assert_eq!(story.blamed(), [""; 0], "nobody has said that it was taken");
        story.committed("a", 1, 0, 5).fetched(0, None);
        assert_eq!(story.blamed(), ["group-offset"]);
    }

    #[test]
    fn nobody_has_said_that() {
        let mut story = Story::new("eager");
        story.assigned("a", 1, &[0]).committed("a", 1, 0, 5).fetched(0, Some(6));
        assert_eq!(story.blamed(), ["group-offset"]);
    }

    #[test]
    fn a_commit_in_doubt_may_come_late_but_not_after_its_generation() {
        let mut story = Story::new("eager");
        story.assigned("a", 1, &[0]).in_doubt("a", 1, 0, 9).committed("a", 1, 0, 5);
        story.fetched(0, Some(9));
        assert_eq!(story.blamed(), [""; 0]);
        let mut story = Story::new("eager");
        story.assigned("a", 1, &[0]).in_doubt("a", 1, 0, 9).assigned("b", 2, &[0]);
        story.committed("b", 2, 0, 5).fetched(0, Some(9));
        assert_eq!(story.blamed(), ["group-offset"]);
    }

    #[test]
    fn what_was_read_once_has_happened() {
        let mut story = Story::new("eager");
        story.assigned("a", 1, &[0]).committed("a", 1, 0, 5).in_doubt("a", 1, 0, 9);
        story.fetched(0, Some(9)).fetched(0, Some(9));
        assert_eq!(story.blamed(), [""; 0]);
        story.fetched(0, Some(5));
        assert_eq!(story.blamed(), ["group-offset"]);
    }

    #[test]
    fn who_is_out_commits_nothing() {
        let mut story = Story::new("eager");
        story.assigned("a", 1, &[0]).committed("a", 1, 0, 5).assigned("b", 2, &[1]);
        assert_eq!(story.blamed(), [""; 0]);
        story.committed("a", 1, 0, 6);
        assert_eq!(story.blamed(), ["group-stale-commit"], "there is a newer generation");
    }

    #[test]
    fn with_the_new_protocol_who_still_has_it_may() {
        let mut story = Story::new("consumer");
        story.assigned("a", 1, &[0]).assigned("b", 2, &[1]).committed("a", 1, 0, 5);
        assert_eq!(story.blamed(), [""; 0]);
        story.assigned("b", 3, &[0]).committed("a", 1, 0, 6);
        assert_eq!(story.blamed(), ["group-stale-commit"]);
    }

    #[test]
    fn nobody_goes_back_to_an_older_epoch_of_its_own() {
        let mut story = Story::new("consumer");
        story.assigned("a", 1, &[0]).committed("a", 1, 0, 5).assigned("a", 2, &[0]);
        story.committed("a", 2, 0, 6).committed("b", 1, 1, 6);
        assert_eq!(story.blamed(), [""; 0], "b is another one");
        story.committed("a", 1, 0, 7);
        assert_eq!(story.blamed(), ["group-stale-commit"], "it was told its newer epoch");
        let mut story = Story::new("consumer");
        story.assigned("a", 1, &[0]).committed("a", 2, 0, 5).committed("a", 2, 0, 6);
        assert_eq!(story.blamed(), [""; 0]);
        story.committed("a", 1, 0, 7);
        assert_eq!(story.blamed(), ["group-stale-commit"], "it was believed to be in a newer one");
    }

    #[test]
    fn a_static_member_has_one_self() {
        let mut story = Story::new("eager");
        story.joined("i", "a", 1).assigned_as("i", "a", 1, &[0]).joined("i", "b", 1);
        story.committed_as("i", "b", 1, 0, 5);
        assert_eq!(story.blamed(), [""; 0]);
        story.committed_as("i", "a", 1, 0, 6);
        assert_eq!(story.blamed(), ["group-stale-commit"]);
    }
}
