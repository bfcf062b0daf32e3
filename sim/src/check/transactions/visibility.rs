//! What a reader of committed records is given is what is committed there for good: nothing that
//! was aborted, nothing before its commit was asked for, nothing twice, and nothing passed over.

use std::collections::BTreeMap;

use super::super::Violation;
use super::{Facts, blame};
use crate::history::Seen;
use crate::history::transactions::{Outcome, Place, View};

pub(super) fn check(facts: &Facts<'_>, violations: &mut Vec<Violation>) {
    for view in &facts.all.views {
        for seen in &view.records {
            judge(facts, view, seen, violations);
        }
        against_the_end(facts, view, violations);
    }
    for lookup in &facts.all.lookups {
        if lookup.found >= lookup.stable {
            let (client, found, stable) = (lookup.client, lookup.found, lookup.stable);
            let sentence =
                format!("c{client} was led to {found}, where all is decided up to {stable} only");
            blame(violations, "precommitted-read", lookup.place, sentence);
        }
    }
    for (place, last) in &facts.all.last {
        once(facts, *place, &last.committed, violations);
    }
}

fn judge(facts: &Facts<'_>, view: &View, seen: &Seen, violations: &mut Vec<Violation>) {
    let (place, offset) = (view.place, seen.offset);
    let sender = seen.value.and_then(|value| facts.senders.get(&(place, value)));
    let Some(&sender) = sender else {
        let sentence = format!("c{} was given {:x?} at {offset}", view.client, seen.value);
        return blame(violations, "invented", place, sentence);
    };
    let (name, it) = (facts.named(sender), facts.transaction(sender));
    if it.outcome == Outcome::Aborted {
        let sentence = format!("c{} was given {offset}, of {name}, not committed", view.client);
        blame(violations, "G1a", place, sentence);
    } else if it.asked.is_none_or(|asked| view.completed < asked) {
        let sentence = format!("c{} was given {offset} before {name} asked to commit", view.client);
        blame(violations, "precommitted-read", place, sentence);
    }
}

/// Below the last stable offset all is decided, so a view is what is there at the end.
fn against_the_end(facts: &Facts<'_>, view: &View, violations: &mut Vec<Violation>) {
    let Some(last) = facts.all.last.get(&view.place) else { return };
    let there = |seen: &&Seen| (view.from..view.next).contains(&seen.offset);
    let mut there = last.committed.iter().filter(there).map(|seen| (seen.offset, seen.value));
    let mut given = view.records.iter().map(|seen| (seen.offset, seen.value));
    loop {
        let (given, there) = (given.next(), there.next());
        if given == there {
            if given.is_none() {
                return;
            }
            continue;
        }
        let at = |seen: Option<(i64, Option<u64>)>| seen.map_or(i64::MAX, |(offset, _)| offset);
        let (property, offset, what) = if at(there) < at(given) {
            ("poll-skip", at(there), "passed over what is committed")
        } else {
            ("lost-read", at(given), "was given what is not there at the end")
        };
        let (client, from, next) = (view.client, view.from, view.next);
        let sentence = format!("c{client}, reading {from} to {next}, {what} at {offset}");
        return blame(violations, property, view.place, sentence);
    }
}

/// Each value stands once, those of a life in the order of sending.
fn once(facts: &Facts<'_>, place: Place, records: &[Seen], violations: &mut Vec<Violation>) {
    let mut found = BTreeMap::new();
    for seen in records {
        let Some(value) = seen.value else { continue };
        if let Some(first) = found.insert(value, seen.offset) {
            let sentence = format!("{value:x} stands at {first} and at {}", seen.offset);
            blame(violations, "duplicate", place, sentence);
        }
    }
    let mut furthest: BTreeMap<usize, (i64, u64)> = BTreeMap::new();
    for transaction in &facts.all.transactions {
        let here = transaction.sent.iter().filter(|sent| sent.place == place);
        for sent in here {
            let Some(&offset) = found.get(&sent.value) else { continue };
            let before = furthest.insert(transaction.life, (offset, sent.value));
            if let Some((at, earlier)) = before.filter(|(at, _)| *at > offset) {
                let value = sent.value;
                let sentence =
                    format!("{earlier:x} was sent before {value:x}, and stands at {at} behind it");
                blame(violations, "nonmonotonic-send", place, sentence);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;

    #[test]
    fn a_reader_sees_what_is_committed() {
        let mut story = Story::new();
        story.commits("a", &[(0, 1)]).aborts("a", &[(0, 2)]).commits("a", &[(0, 3)]);
        story.last(0, &[Some(1), None, None, None, Some(3)], &[1, 2, 3]);
        story.clone().sees(0, 0..5, &[(0, 1), (4, 3)]).sees(0, 1..5, &[(4, 3)]).holds();
        story.clone().sees(0, 0..5, &[(0, 1)]).fails("poll-skip x0-0");
        story.clone().sees(0, 0..4, &[(0, 1), (2, 2)]).fails("G1a x0-0");
        story.clone().sees(0, 0..5, &[(0, 1), (3, 3)]).fails("lost-read x0-0");
        story.sees(0, 0..5, &[(0, 1), (4, 9)]).fails("invented x0-0");
    }

    #[test]
    fn nothing_is_seen_before_its_commit_is_asked_for() {
        let mut story = Story::new();
        story.begins("a", &[(0, 1)]).sees(0, 0..1, &[(0, 1)]);
        story.commits_open().last(0, &[Some(1)], &[1]).fails("precommitted-read x0-0");
        let mut story = Story::new();
        story.begins("a", &[(0, 1)]).asks_open().sees(0, 0..1, &[(0, 1)]);
        story.commits_open().last(0, &[Some(1)], &[1]).holds();
    }

    #[test]
    fn a_time_is_looked_for_where_all_is_decided() {
        let mut story = Story::new();
        story.commits("a", &[(0, 1)]).last(0, &[Some(1)], &[1]);
        story.clone().looks_up(0, 0, 1).holds();
        story.looks_up(0, 1, 1).fails("precommitted-read x0-0");
    }

    #[test]
    fn each_value_stands_once_and_in_order() {
        let mut story = Story::new();
        story.commits("a", &[(0, 1), (0, 2)]);
        story.clone().last(0, &[Some(1), Some(2)], &[1, 2]).holds();
        story.clone().last(0, &[Some(1), Some(2), Some(1)], &[1, 2]).fails("duplicate x0-0");
        story.last(0, &[Some(2), Some(1)], &[1, 2]).fails("nonmonotonic-send x0-0");
    }
}
