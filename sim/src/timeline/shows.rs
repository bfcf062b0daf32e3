//! Which operations of groups and of transactions show that something is wrong, and which happened
//! beside them and may be its cause: a request that came late, a forgery, a member that was away.

use std::str::FromStr as _;

use super::micros;
use super::operations::Kinds;
use crate::check::Violation;
use crate::history::groups::{GroupCall, GroupEnd, GroupOperation};
use crate::history::transactions::{
    IncidentKind, Last, Life, Place, Stamp, Stamped, Topic, Transaction,
};
use crate::history::{History, Partition, Value};

/// Operations of members of a group that are shown, at most: the last ones.
const GROUP_MAX: usize = 16;
/// What may have to do with a copy: what its group's members were told so long before it, in
/// microseconds, at most.
const GROUP_BEFORE: u64 = 10_000_000;
/// Batches before and behind those in question.
const AROUND: usize = 2;
/// Batches of a log that are told, at most.
const BATCHES_MAX: usize = 12;

/// Numbers in the list of operations.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Shows {
    /// Once they have ended it can be seen.
    pub(super) it: Vec<usize>,
    pub(super) beside: Vec<usize>,
    /// What stands there in the end, of a log that transactions write to.
    pub(super) log: Vec<String>,
}

/// What a violation says, taken apart.
struct Words<'a>(Vec<&'a str>);

impl<'a> Words<'a> {
    fn of(sentence: &'a str) -> Self {
        let is_word = |letter: char| letter.is_ascii_alphanumeric();
        Self(sentence.split(|letter| !is_word(letter)).filter(|word| !word.is_empty()).collect())
    }

    /// The numbers behind this word.
    fn behind(&self, word: &str) -> Vec<i64> {
        let pairs = self.0.windows(2).filter(|pair| pair[0] == word);
        pairs.filter_map(|pair| pair[1].parse().ok()).collect()
    }

    /// A value names its writer in its upper half, so it is no small number.
    fn values(&self) -> Vec<Value> {
        let long = self.0.iter().filter(|word| word.len() > 9);
        long.filter_map(|word| Value::from_str_radix(word, 16).ok()).collect()
    }

    fn clients(&self) -> Vec<u32> {
        let numbers = self.0.iter().filter_map(|word| word.strip_prefix('c'));
        numbers.filter_map(|number| u32::from_str(number).ok()).collect()
    }
}

/// `committing`: the first of the clients that only commit offsets.
pub(super) fn shows(violation: &Violation, history: &History, committing: u32) -> Shows {
    let kinds = Kinds::of(history);
    let committer = violation.place.strip_prefix('o').and_then(|place| place.parse::<u32>().ok());
    let mut shows = match (group_of(&violation.place), committer) {
        (Some(group), _) => of_group(violation, group, history, kinds),
        (None, Some(place)) => of_committer(violation, committing + place, history, kinds),
        (None, None) => of_transactions(violation, history, kinds),
    };
    for list in [&mut shows.it, &mut shows.beside] {
        list.sort_unstable();
        list.dedup();
    }
    shows
}

/// `g0`, or `g0 t0-1`.
fn group_of(place: &str) -> Option<u32> {
    place.split(' ').next()?.strip_prefix('g')?.parse().ok()
}

/// Whether an operation may have to do with a partition: it names it, or names none.
fn is_about(it: &GroupOperation, partition: &str) -> bool {
    let is_it = |at: &Partition| at.to_string() == partition;
    match (&it.call, &it.end) {
        (GroupCall::Commit { offsets }, _) => offsets.iter().any(|(at, _)| is_it(at)),
        (GroupCall::Fetch { partitions }, _) | (_, GroupEnd::Assigned { partitions, .. }) => {
            partitions.iter().any(is_it)
        }
        _ => true,
    }
}

fn of_group(violation: &Violation, group: u32, history: &History, kinds: Kinds) -> Shows {
    let Violation { place, sentence, .. } = violation;
    let partition = place.split_once(' ').map(|(_, partition)| partition);
    let words = Words::of(sentence);
    let moments = words.behind("at");
    let generations = words.behind("generation");
    // Members by their ids, as the sentence has them.
    let named = |it: &GroupOperation| {
        let given = match &it.end {
            GroupEnd::Joined { member, .. } => member.as_str(),
            _ => "",
        };
        [it.who.member.as_str(), given]
            .iter()
            .any(|member| !member.is_empty() && sentence.contains(member))
    };
    let generation = |it: &GroupOperation| match &it.end {
        GroupEnd::Joined { generation, .. } | GroupEnd::Assigned { generation, .. } => *generation,
        _ => it.who.generation,
    };
    let mut shows = Shows::default();
    for (n, it) in history.groups.operations.iter().enumerate() {
        if it.who.group != group || partition.is_some_and(|at| !is_about(it, at)) {
            continue;
        }
        let ended = it.completed.map(|at| at.as_duration().as_millis() as i64);
        let is_then = ended.is_some_and(|ended| moments.contains(&ended));
        let says = sentence.starts_with(&it.who.to_string())
            && match &it.call {
                GroupCall::Commit { offsets } => {
                    offsets.iter().any(|(_, at)| sentence.contains(&at.to_string()))
                }
                _ => false,
            };
        let is_owner = named(it)
            && generations.contains(&i64::from(generation(it)))
            && matches!(
                (&it.call, &it.end),
                (GroupCall::Commit { .. }, GroupEnd::Committed) | (_, GroupEnd::Assigned { .. })
            );
        if is_then || says || is_owner {
            shows.it.push(kinds.groups + n);
        } else {
            let is_news = !matches!(
                (&it.call, &it.end),
                (GroupCall::Heartbeat, GroupEnd::Done | GroupEnd::Unknown)
            );
            let is_commit = matches!(it.call, GroupCall::Commit { .. }) && partition.is_some();
            if is_commit || (is_news && named(it)) {
                shows.beside.push(kinds.groups + n);
            }
        }
    }
    let first = shows.it.len().saturating_sub(GROUP_MAX);
    shows.it.drain(..first);
    // The last before it can be seen.
    if let Some(last) = shows.it.last() {
        shows.beside.retain(|beside| beside < last);
    }
    let first = shows.beside.len().saturating_sub(GROUP_MAX);
    shows.beside.drain(..first);
    shows
}

/// What a client was told then that only commits offsets, and the last that it had done before.
fn of_committer(violation: &Violation, client: u32, history: &History, kinds: Kinds) -> Shows {
    let moments = Words::of(&violation.sentence).behind("at");
    let mut shows = Shows::default();
    for (n, told) in history.offsets.iter().enumerate().filter(|(_, it)| it.client == client) {
        let ended = told.completed.as_duration().as_millis() as i64;
        if moments.first() == Some(&ended) {
            shows.it.push(kinds.offsets + n);
            break;
        }
        shows.beside.push(kinds.offsets + n);
    }
    if shows.it.is_empty() {
        return Shows::default();
    }
    let first = shows.beside.len().saturating_sub(GROUP_MAX);
    shows.beside.drain(..first);
    shows
}

fn of_transactions(violation: &Violation, history: &History, kinds: Kinds) -> Shows {
    let all = &history.transactions;
    let mut shows = Shows::default();
    let (words, place) = (Words::of(&violation.sentence), place_of(&violation.place));
    let is_id = all.lives.iter().any(|life| life.transactional_id == violation.place);
    if place.is_none() && !is_id {
        return shows;
    }
    let last = place.and_then(|place| all.last.get(&place));
    let mut values = words.values();
    let offsets = words.behind("at").into_iter().chain(words.behind("given"));
    let mut offsets: Vec<i64> = if place.is_some() { offsets.collect() } else { Vec::new() };
    let stored = last.map_or(&[][..], |last| last.stored.as_slice());
    let there = stored.iter().filter(|seen| offsets.contains(&seen.offset));
    values.extend(there.filter_map(|seen| seen.value));
    let mut transactions: Vec<usize> =
        words.behind("transaction").into_iter().map(|n| n as usize).collect();
    for (n, it) in all.transactions.iter().enumerate() {
        let copies = |value: &Value| it.sent.iter().any(|sent| sent.copy_of == Some(*value));
        let sends = |value: &Value| it.sent.iter().any(|sent| sent.value == *value);
        if values.iter().any(|value| sends(value) || copies(value)) {
            transactions.push(n);
        }
    }
    transactions.retain(|n| *n < all.transactions.len());
    transactions.sort_unstable();
    transactions.dedup();
    shows.it.extend(transactions.iter().map(|n| kinds.transactions + n));
    // Who was given it, or was not: whoever is named, or else who saw it first.
    let clients = words.clients();
    let (from, next) = (words.behind("reading"), words.behind("to"));
    let mut views = all.views.iter().enumerate().filter(|(_, view)| {
        let has = |seen: &crate::history::Seen| {
            offsets.contains(&seen.offset) || seen.value.is_some_and(|it| values.contains(&it))
        };
        let is_named = clients.is_empty() || clients.contains(&view.client);
        let is_read = match (from.first(), next.first()) {
            (Some(from), Some(next)) => (view.from, view.next) == (*from, *next),
            _ => view.records.iter().any(has),
        };
        Some(view.place) == place && is_named && is_read
    });
    shows.it.extend(views.next().map(|(n, _)| kinds.views + n));
    for (n, it) in all.incidents.iter().enumerate() {
        if is_id
            && it.kind == IncidentKind::Forged
            && it.transactional_id == violation.place
            && it.end == crate::history::transactions::OBEYED
        {
            shows.it.push(kinds.incidents + n);
            let open = open_beside(history, it.client, micros(it.begun.as_duration()));
            shows.beside.extend(open.map(|open| kinds.transactions + open));
            transactions.extend(open);
        }
    }
    for &n in &transactions {
        beside(history, n, kinds, &mut shows);
        let sent = all.transactions[n].sent.iter();
        let here = sent.filter(|sent| Some(sent.place) == place).map(|sent| sent.value);
        let here: Vec<Value> = here.collect();
        let known = stored.iter().filter(|seen| seen.value.is_some_and(|it| here.contains(&it)));
        offsets.extend(known.map(|seen| seen.offset));
    }
    shows.beside.retain(|it| !shows.it.contains(it));
    if let Some(last) = last {
        shows.log = log(last, &offsets);
    }
    shows
}

/// `x0-1`
pub(super) fn place_of(place: &str) -> Option<Place> {
    let (topic, index) = place.split_once('-')?;
    let topic = [Topic::Input, Topic::Output].into_iter().find(|it| it.name() == topic)?;
    Some(Place { topic, index: index.parse().ok()? })
}

/// The transaction that this client had open then.
fn open_beside(history: &History, client: u32, moment: u64) -> Option<usize> {
    let all = &history.transactions;
    all.transactions.iter().rposition(|it| {
        all.lives[it.life].client == client && micros(it.begun.as_duration()) <= moment
    })
}

/// From its beginning to its end, in microseconds.
fn span(it: &Transaction) -> (u64, u64) {
    let end = it.ended.map_or(u64::MAX, |ended| micros(ended.as_duration()));
    (micros(it.begun.as_duration()), end)
}

/// What happened to the transactional id while the transaction was open, what it had done before,
/// and, where it copies, what the members of the group were told.
fn beside(history: &History, n: usize, kinds: Kinds, shows: &mut Shows) {
    let all = &history.transactions;
    let it = &all.transactions[n];
    let Life { transactional_id: id, .. } = &all.lives[it.life];
    shows.beside.push(kinds.lives + it.life);
    let same = |other: &Transaction| all.lives[other.life].transactional_id == *id;
    let before = all.transactions[..n].iter().rposition(same);
    shows.beside.extend(before.map(|before| kinds.transactions + before));
    let (from, to) = span(it);
    let heirs = all.lives.iter().enumerate().filter(|(place, life)| {
        let asked = micros(life.invoked.as_duration());
        *place != it.life && life.transactional_id == *id && (from..=to).contains(&asked)
    });
    shows.beside.extend(heirs.map(|(place, _)| kinds.lives + place));
    let copies = it.consumed.is_some() || it.sent.iter().any(|sent| sent.copy_of.is_some());
    for (place, incident) in all.incidents.iter().enumerate() {
        let begun = micros(incident.begun.as_duration());
        let belongs = match incident.kind {
            IncidentKind::Late | IncidentKind::Forged => {
                incident.transactional_id == *id && (from..=to).contains(&begun)
            }
            IncidentKind::Member => {
                copies && (from.saturating_sub(GROUP_BEFORE)..=to).contains(&begun)
            }
        };
        if belongs {
            shows.beside.push(kinds.incidents + place);
        }
    }
}

/// The batches around these offsets, of the same producers, with the markers between them.
fn log(last: &Last, offsets: &[i64]) -> Vec<String> {
    let next = |batch: &Stamped| match batch.kind {
        Stamp::Records { count, .. } => batch.offset + i64::from(count),
        Stamp::Marker { .. } => batch.offset + 1,
    };
    let covers = |batch: &&Stamped| {
        offsets.iter().any(|offset| (batch.offset..next(batch)).contains(offset))
    };
    let producers: Vec<i64> = last.batches.iter().filter(covers).map(|it| it.producer).collect();
    let theirs: Vec<&Stamped> =
        last.batches.iter().filter(|batch| producers.contains(&batch.producer)).collect();
    let asked: Vec<usize> = (0..theirs.len()).filter(|n| covers(&theirs[*n])).collect();
    let (Some(first), Some(end)) = (asked.first(), asked.last()) else { return Vec::new() };
    let end = (end + AROUND + 1).min(theirs.len());
    let around = &theirs[first.saturating_sub(AROUND)..end];
    around.iter().take(BATCHES_MAX).map(|batch| told(batch)).collect()
}

fn told(batch: &Stamped) -> String {
    let Stamped { offset, producer, epoch, kind } = batch;
    match kind {
        Stamp::Records { sequence, count } => {
            let s = if *count == 1 { "" } else { "s" };
            format!("{offset}: {count} record{s} of {producer}@{epoch}, sequence {sequence}")
        }
        Stamp::Marker { committed, coordinator_epoch } => {
            let what = match committed {
                Some(true) => "commit",
                Some(false) => "abort",
                None => "end",
            };
            format!(
                "{offset}: {what} marker of {producer}@{epoch}, coordinator epoch \
                 {coordinator_epoch}"
            )
        }
    }
}
