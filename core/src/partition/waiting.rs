//! Requests that wait, by what they wait for: an offset on this disk, an offset on every in-sync
//! disk, bytes to read, a log start or a word of every in-sync replica, or the time that runs out.

use std::collections::{BTreeMap, BTreeSet};

use super::interface::{Outcome, Refusal};
use crate::id::{Offset, RequestId};
use crate::time::{Instant, Timestamp};

/// What releases a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Release {
    /// Everything below is on this replica's disk.
    Durable(Offset),
    /// Everything below is committed.
    Committed(Offset),
    /// The total of committed bytes reaches this.
    Bytes(u64),
    /// All transactions below have ended, and that is committed.
    Decided(Offset),
    /// No in-sync replica's log starts below.
    Deleted(Offset),
    /// All have answered this round of the question whether this replica still leads.
    Confirmed(u64),
}

/// How far what releases requests has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    pub(super) durable_end: Offset,
    pub(super) high_watermark: Offset,
    pub(super) committed_total: u64,
    pub(super) last_stable: Offset,
    pub(super) common_start: Offset,
    /// 0 if nobody waits for it.
    pub(super) confirmed: u64,
}

/// Who waits, and what it will be told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) release: Release,
    pub(super) until: Instant,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// `copies`: how many are wanted, 0 if only the leader's counts.
    Produce {
        base: Offset,
        append_time: Option<Timestamp>,
        copies: u16,
    },
    Read {
        beyond: Offset,
    },
    Delete,
    EndTransaction,
    Refuse {
        refusal: Refusal,
    },
    /// Whoever asked whether this replica still leads.
    Leads,
}

impl Kind {
    pub(super) fn outcome(self, log_start: Offset) -> Outcome {
        match self {
            Self::Produce { base, append_time, .. } => {
                Outcome::Produced { base, append_time, log_start }
            }
            Self::Read { .. } => Outcome::Advanced,
            Self::Delete => Outcome::RecordsDeleted { log_start },
            Self::EndTransaction => Outcome::TransactionEnded,
            Self::Refuse { refusal } => Outcome::Refused(refusal),
            Self::Leads => Outcome::Leads,
        }
    }
}

/// Every waiting request stands in `waiters`, in `untils`, and in the index of its release.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    waiters: BTreeMap<RequestId, Waiter>,
    untils: BTreeSet<(Instant, RequestId)>,
    durable: BTreeSet<(Offset, RequestId)>,
    committed: BTreeSet<(Offset, RequestId)>,
    bytes: BTreeSet<(u64, RequestId)>,
    decided: BTreeSet<(Offset, RequestId)>,
    deleted: BTreeSet<(Offset, RequestId)>,
    confirmed: BTreeSet<(u64, RequestId)>,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Whether somebody waits for the word of all who are in sync.
    pub(super) fn awaits_word(&self) -> bool {
        !self.confirmed.is_empty()
    }

    /// Panics if `request` waits already: ids are unique within a shard's life.
    pub(super) fn insert(&mut self, request: RequestId, waiter: Waiter) {
        let before = self.waiters.insert(request, waiter);
        assert!(before.is_none(), "request {request} waits already");
        self.untils.insert((waiter.until, request));
        match waiter.release {
            Release::Durable(offset) => self.durable.insert((offset, request)),
            Release::Committed(offset) => self.committed.insert((offset, request)),
            Release::Bytes(total) => self.bytes.insert((total, request)),
            Release::Decided(offset) => self.decided.insert((offset, request)),
            Release::Deleted(start) => self.deleted.insert((start, request)),
            Release::Confirmed(round) => self.confirmed.insert((round, request)),
        };
    }

    pub(super) fn remove(&mut self, request: RequestId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&request)?;
        self.untils.remove(&(waiter.until, request));
        match waiter.release {
            Release::Durable(offset) => self.durable.remove(&(offset, request)),
            Release::Committed(offset) => self.committed.remove(&(offset, request)),
            Release::Bytes(total) => self.bytes.remove(&(total, request)),
            Release::Decided(offset) => self.decided.remove(&(offset, request)),
            Release::Deleted(start) => self.deleted.remove(&(start, request)),
            Release::Confirmed(round) => self.confirmed.remove(&(round, request)),
        };
        Some(waiter)
    }

    /// The next request that is released: producers in the order of the log, then readers, then
    /// who deletes, then who is refused.
    pub(super) fn release(&mut self, reached: Reached) -> Option<(RequestId, Waiter)> {
        let Reached { durable_end, high_watermark, committed_total, common_start, .. } = reached;
        let durable = self.durable.first().filter(|(offset, _)| *offset <= durable_end);
        let committed = self.committed.first().filter(|(offset, _)| *offset <= high_watermark);
        let first = match (durable, committed) {
            (Some(durable), Some(committed)) => Some(durable.min(committed)),
            (durable, committed) => durable.or(committed),
        };
        let bytes = self.bytes.first().filter(|(total, _)| *total <= committed_total);
        let deleted = self.deleted.first().filter(|(start, _)| *start <= common_start);
        let decided = self.decided.first().filter(|(offset, _)| *offset <= reached.last_stable);
        let first = first.or(decided).map(|&(_, id)| id).or_else(|| bytes.map(|&(_, id)| id));
        let confirmed = self.confirmed.first().filter(|(round, _)| *round <= reached.confirmed);
        let last = deleted.map(|&(_, id)| id).or_else(|| confirmed.map(|&(_, id)| id));
        let request = first.or(last)?;
        self.remove(request).map(|waiter| (request, waiter))
    }

    /// The next request whose time has run out.
    pub(super) fn time_out(&mut self, now: Instant) -> Option<(RequestId, Waiter)> {
        let &(_, request) = self.untils.first().filter(|(until, _)| *until <= now)?;
        self.remove(request).map(|waiter| (request, waiter))
    }

    /// The first request, whatever it waits for.
    pub(super) fn pop(&mut self) -> Option<(RequestId, Waiter)> {
        let (&request, _) = self.waiters.first_key_value()?;
        self.remove(request).map(|waiter| (request, waiter))
    }

    /// Readers that have seen less than everything below `offset`.
    pub(super) fn readers_below(&self, offset: Offset) -> Vec<RequestId> {
        let below =
            |waiter: &Waiter| matches!(waiter.kind, Kind::Read { beyond } if beyond < offset);
        let readers = self.waiters.iter().filter(|(_, waiter)| below(waiter));
        readers.map(|(&request, _)| request).collect()
    }

    pub(super) fn first_until(&self) -> Option<Instant> {
        self.untils.first().map(|&(until, _)| until)
    }

    /// Panics if the indexes disagree, or if somebody waits for what is there.
    pub(super) fn check(&self, reached: Reached) {
        let Reached { durable_end, high_watermark, committed_total, common_start, .. } = reached;
        let ends = self.durable.len() + self.committed.len();
        let readers = self.bytes.len() + self.decided.len();
        let indexed = ends + readers + self.deleted.len() + self.confirmed.len();
        assert_eq!((self.waiters.len(), self.untils.len()), (indexed, indexed));
        for (request, waiter) in &self.waiters {
            let missing = match waiter.release {
                Release::Durable(offset) => durable_end < offset,
                Release::Committed(offset) => high_watermark < offset,
                Release::Bytes(total) => committed_total < total,
                Release::Decided(offset) => reached.last_stable < offset,
                Release::Deleted(start) => common_start < start,
                Release::Confirmed(round) => reached.confirmed < round,
            };
            assert!(missing, "request {request} waits for what is there: {waiter:?}");
        }
    }
}
