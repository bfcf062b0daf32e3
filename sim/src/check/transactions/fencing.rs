//! Once a life of a transactional id has begun, no earlier one commits anything that it asks for
//! from then on; and nobody is believed who claims an epoch that was never given.

use super::super::Violation;
use super::{Facts, blame};
use crate::history::transactions::Outcome;

pub(super) fn check(facts: &Facts<'_>, violations: &mut Vec<Violation>) {
    for believed in &facts.all.believed {
        let sentence = format!(
            "c{} asked for {} with an epoch that was never given, and was obeyed",
            believed.client, believed.what
        );
        blame(violations, "forgery-believed", &believed.transactional_id, sentence);
    }
    for (place, transaction) in facts.all.transactions.iter().enumerate() {
        let own = &facts.all.lives[transaction.life];
        let (Outcome::Committed, Some(asked), Some(begun)) =
            (transaction.outcome, transaction.asked, own.begun)
        else {
            continue;
        };
        let heir = facts.all.lives.iter().find(|life| {
            life.transactional_id == own.transactional_id
                && life.invoked >= begun
                && life.begun.is_some_and(|begun| begun < asked)
        });
        if let Some(heir) = heir {
            let sentence = format!(
                "{} of c{} was committed, which it asked for after c{} had shut it out",
                facts.named(place),
                own.client,
                heir.client
            );
            blame(violations, "zombie-commit", &own.transactional_id, sentence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;

    #[test]
    fn who_claims_what_was_never_given_is_refused() {
        let mut story = Story::new();
        story.commits("a", &[(0, 1)]).last(0, &[Some(1)], &[1]);
        story.clone().holds();
        story.believes("a").fails("forgery-believed a");
    }

    #[test]
    fn whoever_was_shut_out_commits_nothing() {
        let mut story = Story::new();
        story.begins("a", &[(0, 1)]).another_life("a").commits_open();
        story.last(0, &[Some(1)], &[1]).fails("zombie-commit a");
        // It had asked before; the heir waited for it.
        let mut story = Story::new();
        story.begins("a", &[(0, 1)]).asks_open().another_life("a").commits_open();
        story.last(0, &[Some(1)], &[1]).holds();
        let mut story = Story::new();
        story.begins("a", &[(0, 1)]).another_life("b").commits_open();
        story.last(0, &[Some(1)], &[1]).holds();
    }
}
