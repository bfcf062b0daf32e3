//! What producers and readers of transactions did and were told, beside the other operations of a
//! history. They have two topics of their own: `x0`, into which producers write, and `x1`, into
//! which whoever consumes `x0` copies each value, with its own offsets in the same transaction.

use std::fmt;

use quorate_core::time::Instant;

use super::{History, Seen, Value, client_name};
use crate::trace::{self, Mark};

/// A partition of one of the two topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub topic: Topic,
    pub index: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    Input,
    Output,
}

impl Topic {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Input => "x0",
            Self::Output => "x1",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic.name(), self.index)
    }
}

/// From one InitProducerId of a transactional id to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    pub transactional_id: String,
    pub client: u32,
    pub invoked: Instant,
    /// When its predecessors were shut out; `None` if it was never told so.
    pub begun: Option<Instant>,
    /// Producer id and epoch, as it was told then.
    pub identity: Option<String>,
}

/// How a transaction ended, as far as its producer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was told so.
    Committed,
    /// It was told so, it never asked for more, or what it asked was surely not done.
    Aborted,
    /// It has asked to commit, and nobody knows.
    Unknown,
}

impl Incident {
    /// The transactional id, or the client where it is of a member.
    pub fn who(&self) -> &str {
        match self.transactional_id.as_str() {
            "" => client_name(self.client),
            id => id,
        }
    }
}

impl Outcome {
    /// In words.
    pub const fn told(self) -> &'static str {
        match self {
            Self::Committed => "is committed",
            Self::Aborted => "is not committed",
            Self::Unknown => "may be committed: nobody knows",
        }
    }
}

/// A value that was handed over to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    pub place: Place,
    pub value: Value,
    /// Which value of the inputs it is a copy of.
    pub copy_of: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The life that it belongs to, by place.
    pub life: usize,
    pub begun: Instant,
    /// In the order of sending.
    pub sent: Vec<Sent>,
    /// When each of them was.
    pub sent_at: Vec<Instant>,
    /// When the commit was asked for first; `None` if it never was.
    pub asked: Option<Instant>,
    pub ended: Option<Instant>,
    pub outcome: Outcome,
    /// Of a copier: up to where its group has consumed, if this is committed.
    pub consumed: Option<(Instant, Consumed)>,
}

/// A group's offset that is committed in a transaction, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumed {
    pub place: Place,
    pub next: i64,
    /// The member's id in the group.
    pub member: String,
    pub generation: i32,
}

/// How a forgery ends that is believed.
pub const OBEYED: &str = "is obeyed";

/// What happens beside transactions, and may have to do with how they end. No checker judges it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    pub client: u32,
    /// Empty where it is of a member of the copying group.
    pub transactional_id: String,
    pub kind: IncidentKind,
    pub begun: Instant,
    /// `None` while it lasts, and for ever if no answer came.
    pub ended: Option<Instant>,
    pub what: String,
    /// How it ended; empty until then.
    pub end: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncidentKind {
    /// A request comes once more, or late, over another connection.
    Late,
    /// Somebody claims an epoch that was never given.
    Forged,
    /// A copier is told its part of the group, or stands still.
    Member,
}

/// What a reader of committed records was given of one place: all that is visible from one offset
/// up to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub client: u32,
    pub completed: Instant,
    pub place: Place,
    pub from: i64,
    pub next: i64,
    pub records: Vec<Seen>,
}

/// A value's producer was told that it stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    pub place: Place,
    pub value: Value,
    pub offset: i64,
    /// When it was told so.
    pub at: Instant,
}

/// A reader of committed records has asked where those of some time begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    pub client: u32,
    pub place: Place,
    pub found: i64,
    /// Up to where all was decided when it was asked afterwards.
    pub stable: i64,
}

/// Somebody claimed what nobody was given, and was believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Believed {
    pub client: u32,
    pub transactional_id: String,
    /// What was asked for.
    pub what: &'static str,
}

/// A batch of a producer as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamped {
    pub offset: i64,
    pub producer: i64,
    pub epoch: i16,
    pub kind: Stamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    Records {
        sequence: i32,
        count: i32,
    },
    /// `committed`: whether it ends the transaction so; `None` if whoever read it does not know.
    Marker {
        coordinator_epoch: i32,
        committed: Option<bool>,
    },
}

/// A place at the end of the run, when nothing is open in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Last {
    /// What readers of committed records see.
    pub committed: Vec<Seen>,
    /// What is stored, aborted or not.
    pub stored: Vec<Seen>,
    /// All batches, and the markers between them.
    pub batches: Vec<Stamped>,
    /// Up to where the copying group has committed; of `x0` only.
    pub group: Option<i64>,
}

/// What the transactions of a run came to.
#[derive(Clone, Debug, Default)]
pub struct Transactions {
    pub lives: Vec<Life>,
    pub transactions: Vec<Transaction>,
    pub views: Vec<View>,
    pub stored: Vec<Stored>,
    pub lookups: Vec<Lookup>,
    /// In the order of their beginnings.
    pub incidents: Vec<Incident>,
    pub believed: Vec<Believed>,
    /// Only places that were read to their end.
    pub last: std::collections::BTreeMap<Place, Last>,
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sends {:x} to {}", self.value, self.place)?;
        self.copy_of.map_or(Ok(()), |original| write!(f, ", a copy of {original:x}"))
    }
}

impl fmt::Display for Consumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, next, member, generation } = self;
        write!(f, "asks that {place} is consumed up to {next}, as {member}@{generation}")
    }
}

impl History {
    pub fn init_producer(&mut self, transactional_id: &str, client: u32, now: Instant) -> usize {
        let place = self.transactions.lives.len();
        say(now, Mark::Invoke, client, place, || format!("{transactional_id} begins a life"));
        let transactional_id = transactional_id.to_owned();
        self.transactions.lives.push(Life {
            transactional_id,
            client,
            invoked: now,
            begun: None,
            identity: None,
        });
        place
    }

    /// It was told what it goes by.
    pub fn producer_begins(&mut self, life: usize, now: Instant, identity: &str) {
        let it = &mut self.transactions.lives[life];
        it.begun = Some(now);
        it.identity = Some(identity.to_owned());
        let id = &it.transactional_id;
        say(now, Mark::Complete, it.client, life, || format!("{id} goes by {identity}"));
    }

    pub fn begin_transaction(&mut self, life: usize, now: Instant) -> usize {
        let place = self.transactions.transactions.len();
        self.transactions.transactions.push(Transaction {
            life,
            begun: now,
            sent: Vec::new(),
            sent_at: Vec::new(),
            asked: None,
            ended: None,
            outcome: Outcome::Aborted,
            consumed: None,
        });
        self.tell(place, now, Mark::Invoke, "begins");
        place
    }

    pub fn send_in_transaction(&mut self, transaction: usize, now: Instant, sent: Sent) {
        let it = &mut self.transactions.transactions[transaction];
        it.sent.push(sent);
        it.sent_at.push(now);
        self.tell(transaction, now, Mark::Invoke, &sent.to_string());
    }

    /// A copier asks for its group's offset in the transaction. No event: it would make each life
    /// another one.
    pub fn consume_in_transaction(&mut self, transaction: usize, now: Instant, consumed: Consumed) {
        self.transactions.transactions[transaction].consumed = Some((now, consumed));
    }

    /// Something begins beside the transactions; its place among those.
    pub fn begin_incident(&mut self, incident: Incident) -> usize {
        let place = self.transactions.incidents.len();
        let Incident { client, begun, ref what, .. } = incident;
        // A late request has always been an event; the others would make each life another one.
        if incident.kind == IncidentKind::Late {
            say(begun, Mark::Invoke, client, 0, || what.clone());
        }
        self.transactions.incidents.push(incident);
        place
    }

    pub fn end_incident(&mut self, place: usize, now: Instant, end: String) {
        let it = &mut self.transactions.incidents[place];
        (it.ended, it.end) = (Some(now), end);
    }

    /// Its producer was told where it stands.
    pub fn stored_in_transaction(
        &mut self,
        transaction: usize,
        now: Instant,
        (place, value): (Place, Value),
        offset: i64,
    ) {
        self.transactions.stored.push(Stored { place, value, offset, at: now });
        self.tell(transaction, now, Mark::Complete, &format!("has {value:x} at {place} {offset}"));
    }

    pub fn look_up(&mut self, lookup: Lookup) {
        self.transactions.lookups.push(lookup);
    }

    pub fn believe(&mut self, client: u32, transactional_id: &str, what: &'static str) {
        let transactional_id = transactional_id.to_owned();
        self.transactions.believed.push(Believed { client, transactional_id, what });
    }

    /// From now on it may be committed.
    pub fn ask_to_commit(&mut self, transaction: usize, now: Instant) {
        let it = &mut self.transactions.transactions[transaction];
        it.asked.get_or_insert(now);
        it.outcome = Outcome::Unknown;
        self.tell(transaction, now, Mark::Invoke, "asks to commit");
    }

    pub fn end_transaction(&mut self, transaction: usize, now: Instant, outcome: Outcome) {
        let it = &mut self.transactions.transactions[transaction];
        assert!(it.ended.is_none(), "transaction {transaction} ends twice");
        it.ended = Some(now);
        it.outcome = outcome;
        self.tell(transaction, now, Mark::Complete, outcome.told());
    }

    pub fn view(&mut self, view: View) {
        let View { client, completed, place, from, next, .. } = view;
        let count = view.records.len();
        say(completed, Mark::Complete, client, count, || {
            format!("sees {count} records of {place} from {from} to {next}")
        });
        self.transactions.views.push(view);
    }

    fn tell(&self, transaction: usize, now: Instant, mark: Mark, what: &str) {
        let life = self.transactions.transactions[transaction].life;
        let Life { client, transactional_id, .. } = &self.transactions.lives[life];
        say(now, mark, *client, transaction, || {
            format!("{transactional_id} transaction {transaction} {what}")
        });
    }
}

fn say(now: Instant, mark: Mark, client: u32, number: usize, text: impl FnOnce() -> String) {
    trace::event(now.as_duration(), mark, client_name(client), [number as u64, 0, 0], text);
}
