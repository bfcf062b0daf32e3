//! What clients did, as the page shows it: the operations on partitions, those of members of
//! groups, transactions with their lives, what happened beside them, what readers of committed
//! records were given, and what clients did that only commit offsets. All stand in one list, so
//! that one number names each.

use std::collections::BTreeMap;

use quorate_core::time::Instant;

use super::{Draft, Operation, Step, micros};
use crate::history::groups::{GroupCall, GroupEnd, GroupOperation};
use crate::history::offsets::{Event, Fate, Told};
use crate::history::transactions::{
    Incident, IncidentKind, Life, Outcome, Place, Stored, Transaction, View,
};
use crate::history::{Call, End, History, client_name};
use crate::trace::Mark;

/// Where each kind begins in the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kinds {
    pub(super) groups: usize,
    pub(super) lives: usize,
    pub(super) transactions: usize,
    pub(super) incidents: usize,
    pub(super) views: usize,
    pub(super) offsets: usize,
}

impl Kinds {
    pub(super) fn of(history: &History) -> Self {
        let groups = history.operations.len();
        let lives = groups + history.groups.operations.len();
        let transactions = lives + history.transactions.lives.len();
        let incidents = transactions + history.transactions.transactions.len();
        let views = incidents + history.transactions.incidents.len();
        let offsets = views + history.transactions.views.len();
        Self { groups, lives, transactions, incidents, views, offsets }
    }
}

/// The events of clients that have not found their operation yet, by time, lane and text.
struct Lines(BTreeMap<(u64, i32, String), Vec<u64>>);

impl Lines {
    /// The next event of this lane that says so; 0 if there is none.
    fn take(&mut self, at: u64, lane: i32, text: String) -> u64 {
        self.0.get_mut(&(at, lane, text)).and_then(Vec::pop).unwrap_or(0)
    }
}

fn at(instant: Instant) -> u64 {
    micros(instant.as_duration())
}

impl Draft<'_> {
    pub(super) fn operations(&self, history: &History) -> Vec<Operation> {
        let mut lines = Lines(BTreeMap::new());
        let clients = |mark| matches!(mark, Mark::Invoke | Mark::Complete);
        for event in self.events.iter().rev().filter(|event| clients(event.mark)) {
            let key = (micros(event.moment.at), self.lane(&event.who), event.text.clone());
            lines.0.entry(key).or_default().push(event.moment.ordinal);
        }
        let told = &history.transactions;
        let mut all: Vec<Operation> =
            history.operations.iter().map(|it| self.of_partition(it, &mut lines)).collect();
        let groups = history.groups.operations.iter();
        all.extend(groups.map(|operation| self.of_group(operation, &mut lines)));
        all.extend(told.lives.iter().map(|life| self.of_life(life, &mut lines)));
        let mut stored: BTreeMap<usize, Vec<&Stored>> = BTreeMap::new();
        let senders: BTreeMap<(Place, u64), usize> = (0..)
            .zip(&told.transactions)
            .flat_map(|(n, it)| it.sent.iter().map(move |sent| ((sent.place, sent.value), n)))
            .collect();
        for it in &told.stored {
            if let Some(n) = senders.get(&(it.place, it.value)) {
                stored.entry(*n).or_default().push(it);
            }
        }
        for (n, it) in told.transactions.iter().enumerate() {
            let stored = stored.remove(&n).unwrap_or_default();
            all.push(self.of_transaction((n, it, &told.lives[it.life]), &stored, &mut lines));
        }
        all.extend(told.incidents.iter().map(|incident| self.of_incident(incident, &mut lines)));
        all.extend(told.views.iter().map(|view| self.of_view(view, &mut lines)));
        all.extend(history.offsets.iter().map(|told| self.of_offset(told, &mut lines)));
        all
    }

    /// An operation that is asked at one time, and answered at another.
    fn asked(
        &self,
        client: u32,
        (from, to): (Instant, Option<Instant>),
        (asked, answer): (String, String),
        lines: &mut Lines,
    ) -> Operation {
        let (from, to, lane) = (at(from), to.map(at), self.lane(client_name(client)));
        let event = lines.take(from, lane, asked.clone());
        let ended = to.map_or(0, |to| lines.take(to, lane, format!("{asked} {answer}")));
        let text = format!("{asked}: {answer}");
        let mut steps = vec![Step { at: from, sign: '→', event, text: asked }];
        steps.extend(to.map(|at| Step { at, sign: '←', event: ended, text: answer }));
        Operation {
            from,
            to,
            lane,
            call: ' ',
            partition: -1,
            others: Vec::new(),
            end: 'o',
            text,
            event,
            more: steps.iter().skip(1).map(|step| step.event).filter(|event| *event > 0).collect(),
            steps,
        }
    }

    fn of_partition(&self, it: &crate::history::Operation, lines: &mut Lines) -> Operation {
        let call = match &it.call {
            Call::Append { .. } => 'a',
            Call::Read { .. } => 'r',
            Call::Delete { .. } => 'd',
            Call::Latest { .. } => 'l',
        };
        let end = match &it.end {
            End::Unknown => 'u',
            End::Failed => 'f',
            _ => 'o',
        };
        let partition = self.partition(&it.call.partition().to_string());
        let texts = (it.call.to_string(), it.end.to_string());
        let it = self.asked(it.client, (it.invoked, it.completed), texts, lines);
        Operation { call, end, partition, ..it }
    }

    fn of_group(&self, it: &GroupOperation, lines: &mut Lines) -> Operation {
        let end = match &it.end {
            GroupEnd::Unknown => 'u',
            GroupEnd::Refused(_) => 'f',
            _ => 'o',
        };
        let others = match (&it.call, &it.end) {
            (GroupCall::Commit { offsets }, _) => {
                offsets.iter().map(|(partition, _)| *partition).collect()
            }
            (GroupCall::Fetch { partitions }, _) | (_, GroupEnd::Assigned { partitions, .. }) => {
                partitions.clone()
            }
            _ => Vec::new(),
        };
        let others = others.iter().map(|partition| self.partition(&partition.to_string()));
        let others = others.collect();
        let texts = (format!("{} {}", it.who, it.call), it.end.to_string());
        let it = self.asked(it.who.client, (it.invoked, it.completed), texts, lines);
        Operation { call: 'g', end, others, ..it }
    }

    fn of_life(&self, life: &Life, lines: &mut Lines) -> Operation {
        let id = &life.transactional_id;
        let asked = format!("{id} begins a life");
        let goes_by = match (&life.identity, life.begun) {
            (Some(identity), Some(_)) => format!("goes by {identity}"),
            _ => "never begins".to_owned(),
        };
        let mut it = self.asked(life.client, (life.invoked, life.begun), (asked, goes_by), lines);
        if let (Some(to), Some(identity)) = (it.to, &life.identity) {
            let event = lines.take(to, it.lane, format!("{id} goes by {identity}"));
            it.more = vec![event];
            it.steps[1].event = event;
        }
        Operation { call: 'i', end: if it.to.is_some() { 'o' } else { 'u' }, ..it }
    }

    fn of_transaction(
        &self,
        (n, it, life): (usize, &Transaction, &Life),
        stored: &[&Stored],
        lines: &mut Lines,
    ) -> Operation {
        let lane = self.lane(client_name(life.client));
        let name = format!("{} transaction {n}", life.transactional_id);
        let mut steps = Vec::new();
        let mut step = |when: u64, sign: char, text: String| {
            let event = lines.take(when, lane, format!("{name} {text}"));
            steps.push(Step { at: when, sign, event, text: format!("{name} {text}") });
        };
        let begun = at(it.begun);
        step(begun, '→', "begins".to_owned());
        for ((sent, when), told) in it.sent.iter().zip(&it.sent_at).zip(told_of(it, stored)) {
            step(at(*when), '→', sent.to_string());
            if let Some(told) = told {
                let Stored { value, place, offset, at: when } = told;
                step(at(*when), '←', format!("has {value:x} at {place} {offset}"));
            }
        }
        if let Some((when, consumed)) = &it.consumed {
            step(at(*when), '→', consumed.to_string());
        }
        if let Some(asked) = it.asked {
            step(at(asked), '→', "asks to commit".to_owned());
        }
        if let Some(ended) = it.ended {
            step(at(ended), '←', it.outcome.told().to_owned());
        }
        steps.sort_by_key(|step| step.at);
        let (places, offsets) = (places(it), it.consumed.as_ref().map(|(_, it)| it.to_string()));
        let copies =
            if it.sent.iter().any(|sent| sent.copy_of.is_some()) { "copies" } else { "records" };
        let mut text = format!("{name}, {} {copies}", it.sent.len());
        places.iter().for_each(|place| text += &format!(" {place}"));
        text += &offsets.map_or_else(String::new, |offsets| format!(", {offsets}"));
        let asked = it.asked.map_or_else(
            || "never asks to commit".to_owned(),
            |asked| format!("asks to commit at {:.6} s", asked.as_duration().as_secs_f64()),
        );
        text += &format!("; {asked}: {}", it.ended.map_or("has not ended", |_| it.outcome.told()));
        let others = places.iter().map(|place| self.partition(&place.to_string())).collect();
        let last = steps.last().map(|step| step.at);
        Operation {
            from: begun,
            // One that was left open ends with what was last done in it.
            to: it.ended.map(at).or(last),
            lane,
            call: 'x',
            partition: -1,
            others,
            end: if it.outcome == Outcome::Committed { 'o' } else { 'f' },
            text,
            event: steps.first().map_or(0, |step| step.event),
            more: steps.iter().skip(1).map(|step| step.event).filter(|event| *event > 0).collect(),
            steps,
        }
    }

    fn of_incident(&self, it: &Incident, lines: &mut Lines) -> Operation {
        let call = match it.kind {
            IncidentKind::Late => 'e',
            IncidentKind::Forged => 'f',
            IncidentKind::Member => 'm',
        };
        let texts = (it.what.clone(), it.end.clone());
        let mut told = self.asked(it.client, (it.begun, it.ended), texts, lines);
        if it.end.is_empty() {
            // It was so from that moment on.
            told.text = it.what.clone();
        }
        // An answer to what nobody waits for is no news, nor is the end of what has none.
        if it.end.is_empty() || it.kind == IncidentKind::Late {
            told.steps.truncate(1);
        } else {
            told.steps.iter_mut().skip(1).for_each(|step| {
                step.text = match it.kind {
                    IncidentKind::Member => format!("{} {}", it.who(), it.end),
                    _ => format!("{}: it {}", it.who(), it.end),
                };
            });
        }
        Operation { call, ..told }
    }

    /// Of a client that only commits.
    fn of_offset(&self, told: &Told, lines: &mut Lines) -> Operation {
        let Told { client, invoked, completed, event } = told;
        let (text, lane) = (event.to_string(), self.lane(client_name(*client)));
        let (from, to) = (at(*invoked), at(*completed));
        let line = lines.take(to, lane, text.clone());
        let end = match event {
            Event::Commit { fate: Fate::Unknown, .. } => 'u',
            Event::Commit { fate: Fate::Refused, .. } | Event::Expelled => 'f',
            _ => 'o',
        };
        Operation {
            from,
            to: Some(to),
            lane,
            call: 'g',
            partition: -1,
            others: Vec::new(),
            end,
            text: text.clone(),
            event: line,
            more: Vec::new(),
            steps: vec![Step { at: to, sign: '←', event: line, text }],
        }
    }

    fn of_view(&self, view: &View, lines: &mut Lines) -> Operation {
        let View { client, completed, place, from, next, records } = view;
        let text = format!("sees {} records of {place} from {from} to {next}", records.len());
        let (when, lane) = (at(*completed), self.lane(client_name(*client)));
        let event = lines.take(when, lane, text.clone());
        Operation {
            from: when,
            to: Some(when),
            lane,
            call: 'v',
            partition: self.partition(&place.to_string()),
            others: Vec::new(),
            end: 'o',
            text: text.clone(),
            event,
            more: Vec::new(),
            steps: vec![Step { at: when, sign: '←', event, text }],
        }
    }
}

/// What its producer was told of each record; none of those whose answer it never had.
fn told_of<'a>(
    it: &'a Transaction,
    stored: &'a [&'a Stored],
) -> impl Iterator<Item = Option<&'a Stored>> {
    it.sent.iter().map(|sent| {
        stored.iter().copied().find(|told| (told.place, told.value) == (sent.place, sent.value))
    })
}

/// Where it writes, each once.
fn places(it: &Transaction) -> Vec<Place> {
    let mut places: Vec<Place> = it.sent.iter().map(|sent| sent.place).collect();
    places.sort_unstable();
    places.dedup();
    places
}
