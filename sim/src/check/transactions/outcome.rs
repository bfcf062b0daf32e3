//! At the end a transaction is there as its producer was told: all of it, or none. Where nobody was
//! told, all or none all the same.

use super::super::Violation;
use super::{Facts, blame};
use crate::history::transactions::{Outcome, Sent};

pub(super) fn check(facts: &Facts<'_>, violations: &mut Vec<Violation>) {
    for (place, transaction) in facts.all.transactions.iter().enumerate() {
        let name = facts.named(place);
        let known = transaction.sent.iter().filter(|sent| facts.all.last.contains_key(&sent.place));
        let (seen, missing): (Vec<&Sent>, Vec<&Sent>) =
            known.partition(|sent| facts.visible.contains_key(&(sent.place, sent.value)));
        match (transaction.outcome, seen.first(), missing.first()) {
            (Outcome::Committed, _, Some(sent)) => {
                let is_stored = facts.stored.contains_key(&(sent.place, sent.value));
                let (property, fate) = if is_stored {
                    ("outcome-reversed", "is stored as aborted")
                } else {
                    ("lost-write", "is not there at the end")
                };
                let sentence =
                    format!("{name} was told that it is committed; its {:x} {fate}", sent.value);
                blame(violations, property, sent.place, sentence);
            }
            (Outcome::Aborted, Some(sent), _) => {
                let sentence =
                    format!("{name} is not committed, and its {:x} is seen at the end", sent.value);
                blame(violations, "outcome-reversed", sent.place, sentence);
            }
            (Outcome::Unknown, Some(there), Some(gone)) => {
                let sentence = format!(
                    "of {name}, {:x} of {} is seen at the end and {:x} is not",
                    there.value, there.place, gone.value
                );
                blame(violations, "torn-transaction", gone.place, sentence);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;

    #[test]
    fn what_was_committed_is_there() {
        let mut story = Story::new();
        story.commits("a", &[(0, 1), (1, 2)]);
        story.clone().last(0, &[Some(1)], &[1]).last(1, &[Some(2)], &[2]).holds();
        story.clone().last(0, &[Some(1)], &[1]).last(1, &[], &[]).fails("lost-write x0-1");
        let mut reversed = story.clone();
        reversed.last(0, &[Some(1)], &[1]).last(1, &[None], &[2]).fails("outcome-reversed x0-1");
        // A place that was not read to its end says nothing.
        story.last(0, &[Some(1)], &[1]).holds();
    }

    #[test]
    fn what_was_aborted_is_not() {
        let mut story = Story::new();
        story.aborts("a", &[(0, 1)]);
        story.clone().last(0, &[None], &[1]).holds();
        story.last(0, &[Some(1)], &[1]).fails("outcome-reversed x0-0");
        let mut story = Story::new();
        story.abandons("a", &[(0, 1)]);
        story.last(0, &[Some(1)], &[1]).fails("outcome-reversed x0-0");
    }

    #[test]
    fn what_nobody_knows_is_there_as_a_whole_or_not_at_all() {
        let mut story = Story::new();
        story.may_commit("a", &[(0, 1), (1, 2)]);
        story.clone().last(0, &[Some(1)], &[1]).last(1, &[Some(2)], &[2]).holds();
        story.clone().last(0, &[None], &[1]).last(1, &[None], &[2]).holds();
        story.last(0, &[Some(1)], &[1]).last(1, &[None], &[2]).fails("torn-transaction x0-1");
    }
}
