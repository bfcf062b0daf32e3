//! What is wrong with a run, and what shows it: the operations that a checker's sentence speaks of,
//! and the moment from which on it can be seen.

use std::cmp::Reverse;

use super::shows::shows;
use super::{Draft, Operation, Wrong, micros};
use crate::check::Violation;
use crate::check::anomalies::ANOMALIES;
use crate::history::{Call, End, History};
use crate::run::Report;
use crate::trace::{Aside, Event, Moment};

/// Properties that nothing shows before the end: something is not there that was to be.
const MISSING: &[&str] =
    &["lost-write", "lost-read", "lost-input", "torn-transaction", "group-skip"];
/// Operations that show one thing, at most.
const WITNESSES_MAX: usize = 40;

impl Draft<'_> {
    /// What a specification refuses comes first: it is nearest to the cause.
    pub(super) fn wrong(&self, report: &Report, operations: &[Operation]) -> Vec<Wrong> {
        let stuck = report.stuck.iter().map(|stuck| {
            let (property, place) = ("liveness", String::new());
            Violation { property, place, sentence: stuck.clone() }
        });
        let all = report.violations.iter().cloned().chain(stuck);
        let seen = all.map(|violation| self.seen_where(violation, &report.history, operations));
        let mut wrong: Vec<Wrong> = seen.collect();
        wrong.sort_by_key(|wrong| Reverse(wrong.is_refusal()));
        wrong
    }

    /// The event from which a step of `who` follows that has none of its own, such as one that a
    /// disk's completion makes: the last on that node, about the same partition if there is one.
    fn told(&self, moment: Moment, who: &str, place: &str) -> u64 {
        let before = &self.events[..self.events.len().min(moment.ordinal as usize)];
        let own = || before.iter().rev().filter(|event| event.who == who);
        let is_about = |event: &&Event| event.text.split(' ').any(|word| word == place);
        let found = own().find(is_about).or_else(|| own().next());
        found.map_or(moment.ordinal, |event| event.moment.ordinal)
    }

    /// An event's time; an aside may be of later.
    fn time_of(&self, ordinal: u64) -> u64 {
        let event = ordinal.checked_sub(1).and_then(|place| self.events.get(place as usize));
        event.map_or(0, |event| micros(event.moment.at))
    }

    fn seen_where(
        &self,
        violation: Violation,
        history: &History,
        operations: &[Operation],
    ) -> Wrong {
        let shows = shows(&violation, history, self.committing);
        let mut witnesses = witnesses(&violation, history);
        witnesses.extend(&shows.it);
        let blamed = self.asides.iter().find(|(_, _, aside)| {
            matches!(aside, Aside::Blames { property } if *property == violation.property)
        });
        let refused = blamed.filter(|_| violation.property.starts_with(REFUSAL));
        let lane = refused.map_or(-1, |(_, who, _)| self.lane(who));
        let blamed = blamed.map(|(moment, who, _)| match refused {
            Some(_) => (micros(moment.at), self.told(*moment, who, &violation.place)),
            None => (self.time_of(moment.ordinal), moment.ordinal),
        });
        let shown = witnesses.iter().filter_map(|place| operations[*place].to).max();
        let at = blamed.map(|(at, _)| at).or(shown).unwrap_or(self.end);
        let place = self.events.partition_point(|event| micros(event.moment.at) <= at);
        let last = || place.checked_sub(1).map_or(0, |place| self.events[place].moment.ordinal);
        let event = blamed.map_or_else(last, |(_, ordinal)| ordinal);
        let Violation { property, place, sentence } = violation;
        // Clients' answers show an anomaly by themselves, but for what is missing: that was there
        // when its witnesses ended. What the world looked at only in the end may have come about
        // at any time.
        let is_missing = MISSING.contains(&property);
        let is_anomaly =
            ANOMALIES.iter().any(|known| known.here.contains(&property)) || !shows.it.is_empty();
        let is_shown = blamed.is_some() || (is_anomaly && !is_missing);
        let until = if is_shown { at } else { self.end };
        let property = property.to_owned();
        witnesses.extend(&shows.beside);
        witnesses.sort_unstable();
        let log = shows.log;
        Wrong { property, place, sentence, witnesses, log, at, event, lane, until }
    }
}

impl Wrong {
    /// A step that the specification does not allow.
    pub(super) fn is_refusal(&self) -> bool {
        self.property.starts_with(REFUSAL)
    }
}

const REFUSAL: &str = "refines-";

/// The operations that a violation speaks of: by number, or by a value that they wrote or read.
pub(super) fn witnesses(violation: &Violation, history: &History) -> Vec<usize> {
    let words: Vec<&str> = violation
        .sentence
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let mut found: Vec<usize> = Vec::new();
    for pair in words.windows(2) {
        if pair[0].starts_with("operation")
            && let Ok(place) = pair[1].parse::<usize>()
            && place < history.operations.len()
        {
            found.push(place);
        }
    }
    // What stands at an offset was written by somebody.
    for pair in words.windows(2) {
        if matches!(pair[0], "at" | "Offset" | "offset" | "offsets" | "base")
            && let Ok(offset) = pair[1].parse::<i64>()
        {
            found.extend(written_at(offset, &violation.place, history));
        }
    }
    // A value names its writer in its upper half, so it is no small number.
    let values: Vec<u64> = words
        .iter()
        .filter(|word| word.len() > 9)
        .filter_map(|word| u64::from_str_radix(word, 16).ok())
        .collect();
    if !values.is_empty() {
        for (place, operation) in history.operations.iter().enumerate() {
            let speaks = match (&operation.call, &operation.end) {
                (Call::Append { values: written, .. }, _) => {
                    written.iter().any(|value| values.contains(value))
                }
                (_, End::Read { records, .. }) => records
                    .iter()
                    .any(|seen| seen.value.is_some_and(|value| values.contains(&value))),
                _ => false,
            };
            if speaks && found.len() < WITNESSES_MAX {
                found.push(place);
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The append that was told to stand at this offset.
fn written_at(offset: i64, place: &str, history: &History) -> Option<usize> {
    history.operations.iter().position(|operation| match (&operation.call, &operation.end) {
        (Call::Append { partition, values, .. }, End::Appended { base: Some(base), .. }) => {
            (*base..*base + values.len() as i64).contains(&offset) && partition.to_string() == place
        }
        _ => false,
    })
}
