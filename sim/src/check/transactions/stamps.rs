//! What a log tells of its producers may be: epochs never fall, neither theirs nor those of the
//! coordinators that wrote their markers; each epoch's sequence numbers begin with 0 and have no
//! gap; and a value stands where its producer was told.

use std::collections::BTreeMap;

use super::super::Violation;
use super::{Facts, blame};
use crate::history::transactions::{Place, Stamp, Stamped};

pub(super) fn check(facts: &Facts<'_>, violations: &mut Vec<Violation>) {
    for (place, last) in &facts.all.last {
        in_order(*place, &last.batches, violations);
    }
    for told in &facts.all.stored {
        let key = (told.place, told.value);
        let Some(&at) = facts.stored.get(&key).filter(|at| **at != told.offset) else { continue };
        let (value, offset) = (told.value, told.offset);
        let sentence = format!("{value:x} stands at {at}, and its producer was told {offset}");
        blame(violations, "inconsistent-offsets", told.place, sentence);
    }
}

/// What is known of a producer so far.
#[derive(Default)]
struct Known {
    epoch: i16,
    coordinator_epoch: i32,
    sequence: i32,
}

fn in_order(place: Place, batches: &[Stamped], violations: &mut Vec<Violation>) {
    let mut producers: BTreeMap<i64, Known> = BTreeMap::new();
    for batch in batches.iter().filter(|batch| batch.producer >= 0) {
        let known = producers.entry(batch.producer).or_default();
        let who = format!("{}@{} at {}", batch.producer, batch.epoch, batch.offset);
        if batch.epoch < known.epoch {
            let sentence = format!("{who}: the producer had epoch {} before", known.epoch);
            blame(violations, "epoch-falls", place, sentence);
        }
        if batch.epoch > known.epoch {
            known.sequence = 0;
        }
        known.epoch = batch.epoch;
        match batch.kind {
            Stamp::Marker { coordinator_epoch, .. } => {
                let before = known.coordinator_epoch;
                if coordinator_epoch < before {
                    let sentence = format!(
                        "{who}: a marker of coordinator epoch {coordinator_epoch}, behind one of \
                         {before}"
                    );
                    blame(violations, "coordinator-epoch-falls", place, sentence);
                }
                known.coordinator_epoch = before.max(coordinator_epoch);
            }
            Stamp::Records { sequence, count } => {
                if sequence != known.sequence {
                    let sentence =
                        format!("{who}: sequence {sequence} where {} was due", known.sequence);
                    blame(violations, "sequence-gap", place, sentence);
                }
                known.sequence = sequence.wrapping_add(count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;

    const fn records(sequence: i32, count: i32) -> Stamp {
        Stamp::Records { sequence, count }
    }

    const fn marker(coordinator_epoch: i32) -> Stamp {
        Stamp::Marker { coordinator_epoch, committed: Some(true) }
    }

    fn story(stamps: &[(i16, Stamp)]) -> Story {
        let mut story = Story::new();
        story.commits("a", &[]).batches(0, stamps);
        story
    }

    #[test]
    fn epochs_never_fall() {
        let good = [(3, records(0, 2)), (4, marker(1)), (4, records(0, 1)), (5, marker(1))];
        story(&good).holds();
        // The older protocol goes on with the epoch, and with its numbers.
        story(&[(3, records(0, 2)), (3, marker(1)), (3, records(2, 1)), (3, marker(2))]).holds();
        story(&[(4, marker(1)), (3, records(0, 1))]).fails("epoch-falls x0-0");
        story(&[(4, marker(2)), (5, marker(1))]).fails("coordinator-epoch-falls x0-0");
    }

    #[test]
    fn sequences_have_no_gap() {
        story(&[(3, records(0, 2)), (3, records(2, 2))]).holds();
        story(&[(3, records(0, 2)), (3, records(3, 2))]).fails("sequence-gap x0-0");
        story(&[(3, records(0, 2)), (3, records(0, 2))]).fails("sequence-gap x0-0");
        story(&[(3, records(0, 2)), (4, records(1, 2))]).fails("sequence-gap x0-0");
    }

    #[test]
    fn a_value_stands_where_its_producer_was_told() {
        let mut story = Story::new();
        story.commits("a", &[(0, 1)]).last(0, &[Some(1)], &[1]);
        story.clone().stands(0, 1, 0).holds();
        story.stands(0, 1, 3).fails("inconsistent-offsets x0-0");
    }
}
