//! Each committed input below the copying group's offset is in exactly one committed output, and
//! no other is in any: consume, transform and produce, once and only once.

use std::collections::BTreeMap;

use super::super::Violation;
use super::{Facts, blame};
use crate::history::Value;
use crate::history::transactions::{Place, Topic};

pub(super) fn check(facts: &Facts<'_>, violations: &mut Vec<Violation>) {
    let copying = facts.all.last.values().any(|last| last.group.is_some());
    if !copying {
        return;
    }
    let mut copies: BTreeMap<Value, Vec<Place>> = BTreeMap::new();
    let mut outputs = 0;
    for (place, last) in facts.all.last.iter().filter(|(place, _)| place.topic == Topic::Output) {
        outputs += 1;
        for value in last.committed.iter().filter_map(|seen| seen.value) {
            if let Some(original) = facts.originals.get(&value) {
                copies.entry(*original).or_default().push(*place);
            }
        }
    }
    // Where a part of the outputs is not known, a copy may be there.
    let all_known = outputs > 0 && places_of(facts).all(|at| facts.all.last.contains_key(&at));
    for (place, last) in facts.all.last.iter().filter(|(place, _)| place.topic == Topic::Input) {
        let Some(group) = last.group else { continue };
        for seen in &last.committed {
            let Some(value) = seen.value else { continue };
            let copied = copies.remove(&value).unwrap_or_default();
            let (done, at) = (seen.offset < group, seen.offset);
            match copied.as_slice() {
                [] if done && all_known => {
                    let sentence =
                        format!("{value:x} at {at} was consumed (to {group}), and copied nowhere");
                    blame(violations, "lost-input", place, sentence);
                }
                [copy, ..] if !done => {
                    let sentence = format!(
                        "{value:x} at {at} is copied to {copy}, and consumed only to {group}"
                    );
                    blame(violations, "torn-transaction", place, sentence);
                }
                [first, second, ..] => {
                    let sentence = format!("{value:x} at {at} is copied to {first} and {second}");
                    blame(violations, "duplicate-input", place, sentence);
                }
                _ => {}
            }
        }
    }
    for (value, places) in copies {
        // Its input may stand in a place that was not read to the end.
        let mut inputs = facts.senders.keys().filter(|(at, sent)| is_input(*at) && *sent == value);
        if inputs.all(|(at, _)| facts.all.last.contains_key(at)) {
            let sentence = format!("{value:x} is a copy of nothing that is committed");
            blame(violations, "G1a", places[0], sentence);
        }
    }
}

const fn is_input(place: Place) -> bool {
    matches!(place.topic, Topic::Input)
}

/// All places that outputs were sent to.
fn places_of<'a>(facts: &'a Facts<'_>) -> impl Iterator<Item = Place> + use<'a> {
    facts.senders.keys().map(|(place, _)| *place).filter(|place| !is_input(*place))
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;

    fn story() -> Story {
        let mut story = Story::new();
        story.commits("a", &[(0, 1), (0, 2)]).last(0, &[Some(1), Some(2)], &[1, 2]);
        story
    }

    #[test]
    fn each_input_is_copied_once() {
        let mut good = story();
        good.copies("c", &[(0, 1), (1, 2)]).group(0, 2);
        good.output(0, &[Some(10)]).output(1, &[Some(20)]).holds();
        let mut lost = story();
        lost.copies("c", &[(0, 1)]).group(0, 2).output(0, &[Some(10)]).fails("lost-input x0-0");
        let mut fewer = story();
        fewer.copies("c", &[(0, 1)]).group(0, 1).output(0, &[Some(10)]).holds();
        let mut twice = story();
        twice.copies("c", &[(0, 1)]).copies("d", &[(1, 1)]).group(0, 1);
        twice.output(0, &[Some(10)]).output(1, &[Some(11)]).fails("duplicate-input x0-0");
    }

    #[test]
    fn a_copy_and_its_offset_go_together() {
        let mut story = story();
        story.copies("c", &[(0, 1)]).group(0, 0).output(0, &[Some(10)]);
        story.fails("torn-transaction x0-0");
    }

    #[test]
    fn what_is_aborted_is_not_copied() {
        let mut story = story();
        story.aborts("a", &[(0, 3)]).copies("c", &[(0, 1), (0, 3)]).group(0, 1);
        story.output(0, &[Some(10), Some(30)]).fails("G1a x1-0");
    }
}
