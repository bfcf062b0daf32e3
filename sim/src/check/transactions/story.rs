//! Histories of transactions as tests tell them: one thing after another.

use std::ops::Range;
use std::time::Duration;

use quorate_core::time::Instant;

use crate::check::{Struck, check};
use crate::history::transactions::{
    Last, Lookup, Outcome, Place, Sent, Stamp, Stamped, Topic, View,
};
use crate::history::{History, Seen, Value};
use crate::plan::draw::draw;

#[derive(Clone)]
pub(super) struct Story {
    history: History,
    now: Instant,
    open: usize,
}

const fn input(index: u32) -> Place {
    Place { topic: Topic::Input, index }
}

const fn output(index: u32) -> Place {
    Place { topic: Topic::Output, index }
}

fn seen(offset: i64, value: Value) -> Seen {
    Seen { offset, value: Some(value), timestamp: 0 }
}

/// By offset; none where nothing is seen.
fn records(values: &[Option<Value>]) -> Vec<Seen> {
    let rows = (0..).zip(values);
    rows.filter_map(|(offset, value)| Some(seen(offset, (*value)?))).collect()
}

impl Story {
    pub(super) fn new() -> Self {
        Self { history: History::default(), now: Instant::ZERO, open: 0 }
    }

    fn step(&mut self) -> Instant {
        self.now = self.now + Duration::from_millis(5);
        self.now
    }

    fn life(&mut self, id: &str) -> usize {
        let lives = &self.history.transactions.lives;
        match lives.iter().rposition(|life| life.transactional_id == id) {
            Some(life) => life,
            None => {
                self.another_life(id);
                self.history.transactions.lives.len() - 1
            }
        }
    }

    pub(super) fn another_life(&mut self, id: &str) -> &mut Self {
        let (asked, told) = (self.step(), self.step());
        let client = self.history.transactions.lives.len() as u32;
        let life = self.history.init_producer(id, client, asked);
        self.history.producer_begins(life, told, "1@0");
        self
    }

    fn open(&mut self, id: &str, sent: impl Iterator<Item = Sent>) -> &mut Self {
        let (life, now) = (self.life(id), self.step());
        self.open = self.history.begin_transaction(life, now);
        for sent in sent {
            let now = self.step();
            self.history.send_in_transaction(self.open, now, sent);
        }
        self
    }

    /// Values, each to a partition of the inputs.
    pub(super) fn begins(&mut self, id: &str, values: &[(u32, Value)]) -> &mut Self {
        let copy_of = None;
        let sent = values.iter();
        self.open(id, sent.map(|&(index, value)| Sent { place: input(index), value, copy_of }))
    }

    pub(super) fn asks_open(&mut self) -> &mut Self {
        let now = self.step();
        self.history.ask_to_commit(self.open, now);
        self
    }

    pub(super) fn commits_open(&mut self) -> &mut Self {
        self.asks_open();
        let now = self.step();
        self.history.end_transaction(self.open, now, Outcome::Committed);
        self
    }

    pub(super) fn commits(&mut self, id: &str, values: &[(u32, Value)]) -> &mut Self {
        self.begins(id, values).commits_open()
    }

    pub(super) fn aborts(&mut self, id: &str, values: &[(u32, Value)]) -> &mut Self {
        self.begins(id, values);
        let now = self.step();
        self.history.end_transaction(self.open, now, Outcome::Aborted);
        self
    }

    /// It never asks for an end.
    pub(super) fn abandons(&mut self, id: &str, values: &[(u32, Value)]) -> &mut Self {
        self.begins(id, values)
    }

    /// It asks for an end, and is told nothing.
    pub(super) fn may_commit(&mut self, id: &str, values: &[(u32, Value)]) -> &mut Self {
        self.begins(id, values).asks_open()
    }

    /// Copies of values, each to a partition of the outputs. A copy is ten times its original, and
    /// one more where that is taken.
    pub(super) fn copies(&mut self, id: &str, values: &[(u32, Value)]) -> &mut Self {
        let transactions = &self.history.transactions.transactions;
        let taken = |copy: &Value| {
            transactions.iter().flat_map(|it| &it.sent).any(|sent| sent.value == *copy)
        };
        let sent: Vec<Sent> = values
            .iter()
            .map(|&(index, original)| {
                let value = (10 * original..).find(|copy| !taken(copy)).expect("numbers are many");
                Sent { place: output(index), value, copy_of: Some(original) }
            })
            .collect();
        let sent = sent.into_iter();
        self.open(id, sent).commits_open()
    }

    pub(super) fn sees(
        &mut self,
        index: u32,
        offsets: Range<i64>,
        records: &[(i64, Value)],
    ) -> &mut Self {
        let completed = self.step();
        self.history.view(View {
            client: 9,
            completed,
            place: input(index),
            from: offsets.start,
            next: offsets.end,
            records: records.iter().map(|&(offset, value)| seen(offset, value)).collect(),
        });
        self
    }

    /// What a partition of the inputs comes to.
    pub(super) fn last(
        &mut self,
        index: u32,
        committed: &[Option<Value>],
        stored: &[Value],
    ) -> &mut Self {
        let stored = (0..).zip(stored).map(|(offset, value)| seen(offset, *value)).collect();
        let last = Last { committed: records(committed), stored, ..Last::default() };
        self.history.transactions.last.insert(input(index), last);
        self
    }

    pub(super) fn output(&mut self, index: u32, committed: &[Option<Value>]) -> &mut Self {
        let committed = records(committed);
        let last = Last { stored: committed.clone(), committed, ..Last::default() };
        self.history.transactions.last.insert(output(index), last);
        self
    }

    /// Up to where the copying group has committed.
    pub(super) fn group(&mut self, index: u32, offset: i64) -> &mut Self {
        self.history.transactions.last.entry(input(index)).or_default().group = Some(offset);
        self
    }

    pub(super) fn believes(&mut self, id: &str) -> &mut Self {
        self.history.believe(9, id, "an end");
        self
    }

    pub(super) fn looks_up(&mut self, index: u32, found: i64, stable: i64) -> &mut Self {
        self.history.look_up(Lookup { client: 9, place: input(index), found, stable });
        self
    }

    /// The producer of the open transaction is told where a value stands.
    pub(super) fn stands(&mut self, index: u32, value: Value, offset: i64) -> &mut Self {
        let now = self.step();
        self.history.stored_in_transaction(self.open, now, (input(index), value), offset);
        self
    }

    /// What is stored by whom, one offset after another.
    pub(super) fn batches(&mut self, index: u32, stamps: &[(i16, Stamp)]) -> &mut Self {
        let batches = (0..).zip(stamps).map(|(offset, &(epoch, kind))| Stamped {
            offset,
            producer: 1,
            epoch,
            kind,
        });
        let last = self.history.transactions.last.entry(input(index)).or_default();
        last.batches = batches.collect();
        self
    }

    fn found(&self) -> Vec<String> {
        let plan = draw(1);
        let found = check(&self.history, &plan, Struck::default());
        found.into_iter().map(|it| format!("{} {}", it.property, it.place)).collect()
    }

    pub(super) fn holds(&self) {
        assert_eq!(self.found(), Vec::<String>::new());
    }

    pub(super) fn fails(&self, violation: &str) {
        let found = self.found();
        assert!(found.iter().any(|it| it == violation), "{found:?}");
    }
}
