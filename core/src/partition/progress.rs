//! How far one follower has come, as its leader knows it.

use std::collections::VecDeque;
use std::time::Duration;

use super::message::Replicated;
use crate::id::{NodeEpoch, Offset};
use crate::time::Instant;

/// A wait grows to so many times its first length.
const PATIENCE_MAX: u32 = 16;

/// A wait that doubles while nothing comes.
pub(super) fn patience(first: Duration, tries: u32) -> Duration {
    first * 2_u32.saturating_pow(tries).min(PATIENCE_MAX)
}

/// One follower, in one leader epoch.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    /// Which life of its node speaks. `None`: not heard of yet.
    pub(super) node_epoch: Option<NodeEpoch>,
    /// The newest question of that life.
    pub(super) attempt: u64,
    /// It has found where its log parts from the leader's and cut it there: what it acknowledges
    /// counts, and the next batches may be sent.
    pub(super) is_live: bool,
    /// A part of the log is being read for it, from here on.
    pub(super) reading: Option<Offset>,
    /// What comes next to it.
    pub(super) next: Offset,
    /// Everything below is written there.
    pub(super) acked_end: Option<Offset>,
    /// Messages under way: up to where they reach, and bytes.
    in_flight: VecDeque<(Offset, usize)>,
    in_flight_bytes: usize,
    /// It needs what is deleted here; nothing is sent until it has answered.
    pub(super) is_left_behind: bool,
    /// When it last had all of the leader's log.
    pub(super) caught_up_at: Instant,
    /// The leader's log ended here then.
    marked: (Offset, Instant),
    /// The high watermark and log start that it was last sent.
    pub(super) told: (Offset, Offset),
    /// Those that it has said are its own.
    pub(super) confirmed: (Offset, Offset),
    /// When to ask it where it is.
    pub(super) ask_at: Option<Instant>,
    pub(super) asked: u32,
    /// It has spoken since it left the in-sync set, if it did: whoever left because it is dead is
    /// not to be waited for again.
    pub(super) has_spoken: bool,
    /// The controller did not want it in sync; not proposed again before.
    pub(super) barred_until: Instant,
    /// The newest round in which it said that it follows this leader.
    pub(super) round: u64,
}

impl Progress {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            node_epoch: None,
            attempt: 0,
            is_live: false,
            reading: None,
            next: Offset::ZERO,
            acked_end: None,
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            is_left_behind: false,
            caught_up_at: now,
            marked: (Offset::ZERO, now),
            told: (Offset::ZERO, Offset::ZERO),
            confirmed: (Offset::ZERO, Offset::ZERO),
            ask_at: None,
            asked: 0,
            has_spoken: true,
            barred_until: Instant::ZERO,
            round: 0,
        }
    }

    /// Another life of the follower, or one that begins anew: nothing of before counts. It has not
    /// been caught up since it was.
    pub(super) fn restart(&mut self, node_epoch: NodeEpoch, attempt: u64) {
        let (caught_up_at, barred_until) = (self.caught_up_at, self.barred_until);
        *self =
            Self { node_epoch: Some(node_epoch), attempt, barred_until, ..Self::new(caught_up_at) };
    }

    /// Bytes that may still be sent; `None` if none may.
    pub(super) fn room(&self, window_bytes: usize) -> Option<usize> {
        let left = window_bytes.saturating_sub(self.in_flight_bytes);
        (left > 0 || self.in_flight.is_empty()).then_some(left)
    }

    /// A message was sent that reaches up to `end`.
    pub(super) fn on_sent(&mut self, end: Offset, bytes: usize) {
        self.next = end;
        self.in_flight.push_back((end, bytes));
        self.in_flight_bytes += bytes;
    }

    /// The follower has spoken, when the leader's log ended at `end`.
    pub(super) fn on_replicated(&mut self, now: Instant, said: &Replicated, end: Offset) {
        self.asked = 0;
        self.has_spoken = true;
        self.is_left_behind = false;
        self.confirmed.0 = self.confirmed.0.max(said.high_watermark);
        self.confirmed.1 = self.confirmed.1.max(said.log_start);
        self.acked_end = self.acked_end.max(Some(said.end));
        while let Some(&(_, bytes)) = self.in_flight.front().filter(|sent| sent.0 <= said.end) {
            self.in_flight_bytes -= bytes;
            self.in_flight.pop_front();
        }
        if let Some(resume) = said.resume {
            while self.in_flight.back().is_some_and(|&(sent, _)| sent > resume) {
                let (_, bytes) = self.in_flight.pop_back().expect("it is there");
                self.in_flight_bytes -= bytes;
            }
            self.next = resume;
        }
        self.next = self.next.max(said.end);
        self.note_lag(now, end);
    }

    /// Kafka's `Replica.updateFetchState`, with an acknowledgement in place of a fetch.
    fn note_lag(&mut self, now: Instant, end: Offset) {
        if self.acked_end >= Some(end) {
            self.caught_up_at = now;
        } else if self.acked_end >= Some(self.marked.0) {
            self.caught_up_at = self.caught_up_at.max(self.marked.1);
        } else {
            return;
        }
        self.marked = (end, now);
    }

    /// A batch is about to be appended behind `end`: who has everything has it until now.
    pub(super) fn on_append(&mut self, now: Instant, end: Offset) {
        if self.acked_end >= Some(end) {
            self.caught_up_at = now;
            self.marked = (end, now);
        }
    }

    /// Whether it has everything up to `end`.
    pub(super) fn is_at(&self, end: Offset) -> bool {
        self.is_live && self.acked_end >= Some(end)
    }

    /// When it will have been behind for too long; `None` while it is not behind.
    pub(super) fn lags_at(&self, end: Offset, lag_time_max: Duration) -> Option<Instant> {
        (!self.is_at(end)).then(|| self.caught_up_at + lag_time_max)
    }

    /// Whether it has still something to say, to a leader whose log ends at `end`: about what was
    /// sent or is still to be sent, about the high watermark and log start that it should have, or
    /// where it begins.
    pub(super) fn owes(&self, end: Offset, should_have: (Offset, Offset)) -> bool {
        let knows_less = self.confirmed.0 < should_have.0 || self.confirmed.1 < should_have.1;
        let is_behind = !self.is_live || !self.has_spoken || self.is_left_behind || self.next < end;
        self.node_epoch.is_some() && (is_behind || !self.in_flight.is_empty() || knows_less)
    }

    /// Panics if the numbers do not fit one another.
    pub(super) fn check(&self, end: Offset) {
        assert_eq!(self.in_flight_bytes, self.in_flight.iter().map(|sent| sent.1).sum::<usize>());
        assert!(self.acked_end <= Some(end) && self.next <= end, "{self:?}");
        assert!(self.is_live || self.in_flight.is_empty(), "{self:?}");
        assert!(self.in_flight.iter().all(|sent| sent.0 <= self.next), "{self:?}");
    }
}
