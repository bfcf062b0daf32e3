//! What clients wrote down (exactly-once/client.py), as a history of the simulator: the same
//! checkers judge both.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::time::Instant;
use quorate_sim::history::transactions::{
    Last, Life, Outcome, Place, Sent, Stored, Topic, Transaction, Transactions, View,
};
use quorate_sim::history::{Seen, Value};
use serde_json::Value as Json;

/// What the clients' files came to.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) all: Transactions,
    /// Answers that no correct system gives.
    pub(super) odd: Vec<String>,
}

/// What one process has under way.
#[derive(Debug, Default)]
struct Course {
    client: u32,
    life: Option<usize>,
    transaction: Option<usize>,
}

impl Told {
    /// Takes in the file of one process. A last line without its end was cut off by a SIGKILL.
    ///
    /// # Errors
    /// If a line is none that a client writes.
    pub(super) fn take(&mut self, client: u32, text: &str) -> Result<(), String> {
        let mut course = Course { client, ..Course::default() };
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines() {
            let event: Json = serde_json::from_str(line).map_err(|error| error.to_string())?;
            self.event(&mut course, &event).ok_or_else(|| format!("nobody says {line:.200}"))?;
        }
        Ok(())
    }

    fn event(&mut self, course: &mut Course, event: &Json) -> Option<()> {
        let at = Instant::since_start(Duration::from_nanos(event[0].as_u64()?));
        match event[1].as_str()? {
            "init" => {
                let transactional_id = event[2].as_str()?.to_owned();
                let client = course.client;
                course.life = Some(self.all.lives.len());
                let (invoked, begun, identity) = (at, None, None);
                let life = Life { transactional_id, client, invoked, begun, identity };
                self.all.lives.push(life);
            }
            "begun" => self.all.lives.get_mut(course.life?)?.begun = Some(at),
            "begin" => {
                course.transaction = Some(self.all.transactions.len());
                self.all.transactions.push(begun(course.life?, at));
            }
            "send" => {
                let sent = event[2].as_array()?.iter().map(sent).collect::<Option<Vec<_>>>()?;
                let transaction = self.all.transactions.get_mut(course.transaction?)?;
                transaction.sent_at.extend(sent.iter().map(|_| at));
                transaction.sent.extend(sent);
            }
            "stored" => {
                for one in event[2].as_array()? {
                    let (place, value) = (place(one, 0)?, one[2].as_u64()?);
                    self.all.stored.push(Stored { place, value, offset: one[3].as_i64()?, at });
                }
            }
            "ask" => {
                let transaction = self.all.transactions.get_mut(course.transaction?)?;
                transaction.asked.get_or_insert(at);
                transaction.outcome = Outcome::Unknown;
            }
            "end" => {
                let transaction = self.all.transactions.get_mut(course.transaction?)?;
                transaction.ended = Some(at);
                transaction.outcome = match event[2].as_str()? {
                    "committed" => Outcome::Committed,
                    "aborted" => Outcome::Aborted,
                    _ => return None,
                };
            }
            "view" => self.all.views.push(View {
                client: course.client,
                completed: at,
                place: place(event, 2)?,
                from: event[4].as_i64()?,
                next: event[5].as_i64()?,
                records: seen(&event[6])?,
            }),
            "odd" => self.odd.push(event.to_string()),
            "leaves" => {}
            "last" => {
                let last = self.last(place(event, 3)?);
                match event[2].as_str()? {
                    "read_committed" => last.committed.extend(seen(&event[5])?),
                    "read_uncommitted" => last.stored.extend(seen(&event[5])?),
                    _ => return None,
                }
            }
            "group" => {
                let index = event[2].as_u64()?.try_into().ok()?;
                self.last(Place { topic: Topic::Input, index }).group = Some(event[3].as_i64()?);
            }
            _ => return None,
        }
        Some(())
    }

    fn last(&mut self, place: Place) -> &mut Last {
        self.all.last.entry(place).or_default()
    }

    /// How many transactions ended in which way, as far as was told.
    pub(super) fn outcomes(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for transaction in &self.all.transactions {
            let name = match (transaction.outcome, transaction.ended) {
                (Outcome::Committed, _) => "committed",
                (Outcome::Aborted, Some(_)) => "aborted",
                (Outcome::Aborted, None) => "left open",
                (Outcome::Unknown, _) => "unknown",
            };
            *counts.entry(name).or_default() += 1;
        }
        counts
    }
}

/// Committed inputs behind the group's offset: those that are still to be copied.
pub(super) fn behind(all: &Transactions) -> usize {
    let inputs = all.last.iter().filter(|(place, _)| place.topic == Topic::Input);
    let left = inputs.map(|(_, last)| {
        let group = last.group.unwrap_or(0);
        last.committed.iter().filter(|seen| seen.offset >= group).count()
    });
    left.sum()
}

/// Committed records of one topic.
pub(super) fn committed(all: &Transactions, topic: Topic) -> usize {
    let places = all.last.iter().filter(|(place, _)| place.topic == topic);
    places.map(|(_, last)| last.committed.len()).sum()
}

/// A transaction that has just begun.
const fn begun(life: usize, at: Instant) -> Transaction {
    Transaction {
        life,
        begun: at,
        sent: Vec::new(),
        sent_at: Vec::new(),
        asked: None,
        ended: None,
        outcome: Outcome::Aborted,
        consumed: None,
    }
}

/// A topic's name and an index, in two places of a line.
fn place(line: &Json, from: usize) -> Option<Place> {
    let topic = match line[from].as_str()? {
        "x0" => Topic::Input,
        "x1" => Topic::Output,
        _ => return None,
    };
    Some(Place { topic, index: line[from + 1].as_u64()?.try_into().ok()? })
}

fn sent(line: &Json) -> Option<Sent> {
    Some(Sent { place: place(line, 0)?, value: line[2].as_u64()?, copy_of: line[3].as_u64() })
}

fn seen(line: &Json) -> Option<Vec<Seen>> {
    let one = |pair: &Json| {
        let value: Option<Value> = pair[1].as_u64();
        Some(Seen { offset: pair[0].as_i64()?, value, timestamp: 0 })
    };
    line.as_array()?.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exactly_once::judge::judge;

    /// Two inputs are committed, one more is aborted, and both are copied.
    const WRITER: &str = r#"[1,"init","xp-0"]
[2,"begun"]
[3,"begin"]
[4,"send",[["x0",0,1,null],["x0",0,2,null]]]
[5,"stored",[["x0",0,1,0],["x0",0,2,1]]]
[6,"ask"]
[7,"end","committed"]
[8,"begin"]
[9,"send",[["x0",0,3,null]]]
[10,"end","aborted"]
"#;
    const COPIER: &str = r#"[11,"init","xc-0"]
[12,"begun"]
[13,"view","x0",0,0,2,[[0,1],[1,2]]]
[14,"begin"]
[15,"send",[["x1",0,10,1],["x1",0,20,2]]]
[16,"ask"]
[17,"end","committed"]
[18,"begin"]
[19,"send",[["x1",0,30,1]]]
"#;
    const INPUTS: &str = r#"[30,"last","read_committed","x0",0,[[0,1],[1,2]]]
[31,"last","read_uncommitted","x0",0,[[0,1],[1,2],[3,3]]]
[32,"group",0,2]
"#;
    const OUTPUTS: &str = r#"[33,"last","read_committed","x1",0,[[0,10],[1,20]]]
[34,"last","read_uncommitted","x1",0,[[0,10],[1,20]]]
"#;

    fn found(files: &[&str]) -> Vec<String> {
        let mut told = Told::default();
        for (client, file) in (0..).zip(files) {
            told.take(client, file).expect("what clients say");
        }
        let found = judge(told.all).1;
        found.into_iter().map(|it| format!("{} {}", it.property, it.place)).collect()
    }

    #[test]
    fn a_good_run_holds() {
        assert_eq!(found(&[WRITER, COPIER, INPUTS, OUTPUTS]), [""; 0]);
        // The last line was cut off by a SIGKILL.
        assert_eq!(found(&[WRITER, &format!("{COPIER}[20,\"as"), INPUTS, OUTPUTS]), [""; 0]);
    }

    #[test]
    fn what_is_planted_is_found() {
        let fails = |inputs: &str, outputs: &str, what: &str| {
            let found = found(&[WRITER, COPIER, inputs, outputs]);
            assert!(found.iter().any(|it| it == what), "{what}: {found:?}");
        };
        // The third copy, of an input that was copied before, belongs to nothing committed.
        let twice = OUTPUTS.replace("[1,20]]", "[1,20],[2,30]]");
        fails(INPUTS, &twice, "duplicate-input x0-0");
        fails(INPUTS, &twice, "outcome-reversed x1-0");
        let fewer = OUTPUTS.replace(",[1,20]]", "]");
        fails(INPUTS, &fewer, "lost-input x0-0");
        fails(INPUTS, &fewer, "lost-write x1-0");
        fails(&INPUTS.replace("0,2]\n", "0,1]\n"), OUTPUTS, "torn-transaction x0-0");
        // What was aborted is given to readers.
        let aborted = INPUTS.replacen("[1,2]]", "[1,2],[3,3]]", 1);
        fails(&aborted, OUTPUTS, "outcome-reversed x0-0");
    }

    #[test]
    fn a_view_is_held_against_the_end() {
        let skips = COPIER.replace("[[0,1],[1,2]]]", "[[0,1]]]");
        let found = found(&[WRITER, &skips, INPUTS, OUTPUTS]);
        assert_eq!(found, ["poll-skip x0-0"]);
    }

    #[test]
    fn what_nobody_says_is_refused() {
        let mut told = Told::default();
        assert!(told.take(0, "[1,\"begin\"]\n").is_err(), "no life");
        assert!(told.take(0, "[1,\"sings\"]\n").is_err());
        assert!(told.take(0, "[1,\"end\",\"committed\"]\n").is_err(), "no transaction");
    }

    #[test]
    fn what_is_not_copied_yet_is_behind() {
        let mut told = Told::default();
        told.take(0, &INPUTS.replace("0,2]\n", "0,1]\n")).expect("a reading");
        assert_eq!(behind(&told.all), 1);
        assert_eq!((committed(&told.all, Topic::Input), told.outcomes().len()), (2, 0));
    }
}
