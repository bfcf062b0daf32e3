//! What of a consumer group the log does not have yet, and the answers that wait for it.
//!
//! One append of a group is in flight at a time; what changes meanwhile goes into the next. Each
//! append takes the log from one whole state to another, so a refused one is simply written again
//! with the next, and a successor never finds a half. An answer waits for everything that was
//! decided before it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::desk::{Desk, Then, Waiter};
use super::super::interface::{Outcome, Refusal};
use super::super::record::{ConsumerEntry, Entry};
use super::Consumer;
use crate::id::RequestId;
use crate::time::Instant;
use crate::{mutant, reached};

/// After a refusal, the log is asked again so much later, or when somebody asks for something.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A record of the group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Key {
    /// What the log has of it as a classic group: to be forgotten.
    Classic,
    Epoch,
    Topics,
    Member(String),
    TargetEpoch,
    Target(String),
    Current(String),
}

#[derive(Clone, Debug)]
struct Held {
    request: RequestId,
    member: String,
    outcome: Outcome,
}

#[derive(Clone, Debug, Default)]
pub(in super::super) struct Keeping {
    /// Changed since it was last written.
    soiled: BTreeSet<Key>,
    /// Being written.
    in_flight: Option<BTreeSet<Key>>,
    /// Answers that wait for what is being written, and for what is to be.
    flying: Vec<Held>,
    held: Vec<Held>,
    retry_at: Option<Instant>,
    /// Everything is to be forgotten; nobody may join meanwhile.
    pub(in super::super) is_ending: bool,
    /// Nobody has joined it yet: it was another group a moment ago, or none.
    pub(in super::super) is_new: bool,
}

impl Keeping {
    pub(in super::super) fn soil(&mut self, key: Key) {
        self.soiled.insert(key);
    }

    pub(in super::super) fn is_busy(&self) -> bool {
        self.in_flight.is_some() || !self.soiled.is_empty()
    }

    pub(super) fn is_writing(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether the member has asked for something, and the log has not answered; or the log has
    /// refused, and nobody knows who would have been heard.
    pub(super) fn keeps_waiting(&self, member: &str) -> bool {
        let is_its = |held: &Held| held.member == member;
        self.retry_at.is_some() || self.flying.iter().chain(&self.held).any(is_its)
    }

    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Answers once the log has all that was decided so far.
    pub(in super::super) fn answer(
        &mut self,
        group: &str,
        (request, member): (RequestId, String),
        outcome: Outcome,
        desk: &mut Desk<'_>,
    ) {
        if !self.is_busy() || mutant!("group-answer-before-log") {
            return desk.reply(request, outcome);
        }
        desk.hold(request, Waiter::Group { group: group.to_owned() });
        let held = Held { request, member, outcome };
        if self.soiled.is_empty() { self.flying.push(held) } else { self.held.push(held) }
    }

    pub(super) fn refuse_member(&mut self, member: &str, refusal: &Refusal, desk: &mut Desk<'_>) {
        for held in [&mut self.flying, &mut self.held] {
            held.retain(|held| {
                let stays = held.member != member;
                if !stays {
                    desk.refuse(held.request, refusal.clone());
                }
                stays
            });
        }
    }

    /// Nobody waits for it any more.
    pub(in super::super) fn on_cancelled(&mut self, request: RequestId) {
        self.flying.retain(|held| held.request != request);
        self.held.retain(|held| held.request != request);
    }
}

impl Consumer {
    /// Writes what is not written, unless an append is on its way. Whether one is begun.
    pub(in super::super) fn flush(&mut self, group: &str, desk: &mut Desk<'_>) -> bool {
        if self.keeping.in_flight.is_some() || self.keeping.soiled.is_empty() {
            return false;
        }
        self.keeping.retry_at = None;
        let keys = std::mem::take(&mut self.keeping.soiled);
        let entries = keys.iter().map(|key| self.entry(group, key)).collect();
        match desk.append(group, entries, Then::kept()) {
            Ok(()) => {
                self.keeping.in_flight = Some(keys);
                let held = std::mem::take(&mut self.keeping.held);
                self.keeping.flying.extend(held);
                true
            }
            Err(refusal) => {
                self.keeping.soiled = keys;
                for held in std::mem::take(&mut self.keeping.held) {
                    desk.refuse(held.request, refusal.clone());
                }
                false
            }
        }
    }

    /// The log has what was in flight.
    pub(in super::super) fn on_kept(&mut self, desk: &mut Desk<'_>) {
        self.keeping.in_flight = None;
        let now = desk.now.monotonic;
        for held in std::mem::take(&mut self.keeping.flying) {
            if self.presence.contains_key(&held.member) {
                self.change_presence(&held.member, |presence| presence.heard = now);
            }
            desk.reply(held.request, held.outcome);
        }
    }

    /// The log did not take what was in flight: it is written again with the next.
    pub(in super::super) fn on_keep_refused(&mut self, desk: &mut Desk<'_>) {
        reached!("consumer-append-refused");
        let keys = self.keeping.in_flight.take().unwrap_or_default();
        self.keeping.soiled.extend(keys);
        self.keeping.retry_at = Some(desk.now.monotonic + RETRY_AFTER);
        let waiting = self.keeping.flying.drain(..).chain(self.keeping.held.drain(..));
        for held in waiting {
            desk.refuse(held.request, Refusal::NotAvailable);
        }
    }

    /// Everything is to be forgotten.
    pub(in super::super) fn forgotten(group: &str) -> Vec<Entry> {
        [ConsumerEntry::TargetEpoch(None), ConsumerEntry::Topics(None), ConsumerEntry::Epoch(None)]
            .into_iter()
            .map(|entry| Entry::Consumer { group: group.to_owned(), entry })
            .collect()
    }

    /// What the log is to have of `key` now.
    fn entry(&self, group: &str, key: &Key) -> Entry {
        let state = &self.state;
        let entry = match key {
            Key::Classic => return Entry::Group { group: group.to_owned(), value: None },
            Key::Epoch => ConsumerEntry::Epoch(Some(state.epoch)),
            Key::Topics => ConsumerEntry::Topics(Some(state.topics.clone())),
            Key::TargetEpoch => ConsumerEntry::TargetEpoch(Some(state.target_epoch)),
            Key::Member(id) => ConsumerEntry::Member(id.clone(), state.members.get(id).cloned()),
            Key::Target(id) => ConsumerEntry::Target(id.clone(), state.targets.get(id).cloned()),
            Key::Current(id) => ConsumerEntry::Current(id.clone(), state.currents.get(id).cloned()),
        };
        Entry::Consumer { group: group.to_owned(), entry }
    }
}
