//! What a leader knows of one node that follows its log, and how much it may send there.

use std::collections::VecDeque;

use super::identity::{Index, Position};
use super::limits::Limits;
use super::log::Entry;
use super::recovered::Snapshot;
use crate::time::Instant;

#[derive(Clone, Debug)]
pub(super) struct Progress {
    /// On its disk, and equal to this leader's log.
    pub(super) matched: Index,
    /// The entry that is sent next.
    pub(super) next: Index,
    pub(super) flow: Flow,
    /// When it last answered in this term.
    pub(super) heard_at: Instant,
    /// The latest of the leader's rounds that it has answered.
    pub(super) round: u64,
    /// Up to where it was told that entries are committed.
    pub(super) told_committed: Index,
    /// A heartbeat's round, and what had been sent before it: who answers it without having
    /// received that much has lost something on the way.
    mark: Option<(u64, Index)>,
}

/// Probe: one message, then wait. Replicate: as many as the window allows. Snapshot: piece by
/// piece, since the entries it needs are gone.
#[derive(Clone, Debug)]
pub(super) enum Flow {
    Probe { is_waiting: bool },
    Replicate(Window),
    Snapshot { snapshot: Snapshot, offset: u64, is_waiting: bool },
}

/// Messages that were not answered yet: the last entry of each, and its bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    sent: VecDeque<(Index, u64)>,
    bytes: u64,
}

impl Window {
    fn has_room(&self, limits: &Limits) -> bool {
        self.sent.len() < limits.inflight_max
            && (self.sent.is_empty() || self.bytes < limits.inflight_bytes_max)
    }

    fn push(&mut self, last: Index, bytes: u64) {
        self.sent.push_back((last, bytes));
        self.bytes += bytes;
    }

    fn answer(&mut self, through: Index) {
        while let Some((_, bytes)) = self.sent.pop_front_if(|(last, _)| *last <= through) {
            self.bytes -= bytes;
        }
    }
}

impl Progress {
    /// Nothing is known but where this leader's log ends.
    pub(super) const fn new(last: Index, now: Instant) -> Self {
        Self {
            matched: Index::ZERO,
            next: last.next(),
            flow: Flow::Probe { is_waiting: false },
            heard_at: now,
            round: 0,
            told_committed: Index::ZERO,
            mark: None,
        }
    }

    /// Whether a message with entries, or a probe, may go out now to one whose log ends at `last`.
    pub(super) fn may_send(&self, last: Index, limits: &Limits) -> bool {
        match &self.flow {
            Flow::Probe { is_waiting } => !is_waiting,
            Flow::Replicate(window) => self.next <= last && window.has_room(limits),
            Flow::Snapshot { .. } => false,
        }
    }

    /// Nothing is on its way to it.
    pub(super) fn is_quiet(&self) -> bool {
        matches!(&self.flow, Flow::Replicate(window) if window.sent.is_empty())
    }

    pub(super) fn on_sent(&mut self, entries: &[Entry], committed: Index) {
        self.told_committed = self.told_committed.max(committed);
        match &mut self.flow {
            Flow::Probe { is_waiting } => *is_waiting = true,
            Flow::Replicate(window) => {
                if let Some(last) = entries.last() {
                    window.push(last.index, entries.iter().map(Entry::bytes).sum());
                    self.next = last.index.next();
                }
            }
            Flow::Snapshot { .. } => {}
        }
    }

    /// Its disk holds the leader's log up to `through`. Whether that is news.
    pub(super) fn on_matched(&mut self, through: Index) -> bool {
        let is_news = through > self.matched;
        self.matched = self.matched.max(through);
        self.next = self.next.max(self.matched.next());
        match &mut self.flow {
            Flow::Probe { .. } => {
                self.next = self.matched.next();
                self.flow = Flow::Replicate(Window::default());
            }
            Flow::Replicate(window) => window.answer(through),
            Flow::Snapshot { snapshot, .. } => {
                if self.matched >= snapshot.position.index {
                    self.probe(self.matched.next());
                }
            }
        }
        is_news
    }

    /// It has no entry at `previous`; both logs can agree up to `agreed`. Whether that answers a
    /// question which is still open.
    pub(super) fn on_mismatch(&mut self, previous: Position, agreed: Index) -> bool {
        match &self.flow {
            Flow::Probe { .. } if previous.index.next() == self.next => {
                self.probe(agreed.min(previous.index.previous()).max(self.matched).next());
                true
            }
            // What came before it is lost, or was cut by a leader in between.
            Flow::Replicate(_) if previous.index > self.matched => {
                self.probe(self.matched.next());
                true
            }
            _ => false,
        }
    }

    pub(super) fn probe(&mut self, next: Index) {
        self.next = next;
        self.flow = Flow::Probe { is_waiting: false };
        self.mark = None;
    }

    /// A heartbeat of `round` goes out.
    pub(super) const fn on_heartbeat(&mut self, round: u64) {
        if self.mark.is_none() {
            self.mark = Some((round, self.next));
        }
    }

    /// Its answer: it has `received` so much. Lost messages are sent again.
    pub(super) fn on_heartbeat_reply(&mut self, round: u64, received: Index) {
        match &mut self.flow {
            Flow::Probe { is_waiting } | Flow::Snapshot { is_waiting, .. } => *is_waiting = false,
            Flow::Replicate(window) => {
                let Some((_, sent)) = self.mark.filter(|(marked, _)| *marked <= round) else {
                    return;
                };
                self.mark = None;
                if received.next() < sent {
                    crate::reached!("lost-append-is-sent-again");
                    *window = Window::default();
                    self.next = received.max(self.matched).next();
                }
            }
        }
    }

    pub(super) fn check(&self, last: Index, limits: &Limits) {
        assert!(self.matched < self.next && self.matched <= last, "{self:?}");
        assert!(self.next <= last.next(), "{self:?}");
        if let Flow::Replicate(window) = &self.flow {
            assert!(window.sent.len() <= limits.inflight_max, "{self:?}");
            let bytes: u64 = window.sent.iter().map(|(_, bytes)| bytes).sum();
            assert_eq!(bytes, window.bytes, "{self:?}");
        }
    }
}
