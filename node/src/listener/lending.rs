//! Memory of answers: lent for as long as nobody else needs it.
//!
//! Records of an answer are read under a loan. A connection whose client takes nothing at the
//! moment *rests*, and is entered here. Whoever then finds too little memory asks those that have
//! rested longest for theirs: they forget the records, and read them again when the client takes
//! more. So clients that do not read hold nothing that others need, however many they are, and
//! none of them is cut off for it.
//!
//! What was not read from a log cannot be read again. If resting connections hold too much of
//! that, those that have rested longest have to leave.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use futures_util::task::AtomicWaker;
use quorate_core::reached;
use quorate_core::time::Instant;

use super::permits::{Permit, Pool};

/// Bytes of an answer from the small pool.
pub(crate) const SMALL_ANSWER_BYTES: usize = 128 * 1024;
/// What a connection may rest on without being entered: its first bytes are free, as a frame's.
const FREE_BYTES: usize = 4 * 1024;

const GIVE_BACK: u8 = 1;
const LEAVE: u8 = 2;

/// The pools that answers with records are read into. Who finds the large one exhausted is served
/// from the small one, with a small answer. Clones are the same pools.
#[derive(Clone, Debug)]
pub(crate) struct AnswerPools {
    small: Pool,
    large: Pool,
    /// Of what cannot be read again, in all connections that rest.
    plain_max: usize,
    resting: Arc<Mutex<Resting>>,
}

/// Memory for records; returns when dropped.
#[derive(Debug)]
pub(crate) struct Loan {
    permit: Permit,
    kind: Kind,
}

/// Whose memory, in the order of `Held` and `Resting`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Small,
    Large,
    /// Bytes that cannot be read again.
    Plain,
}

const KINDS: [Kind; 3] = [Kind::Small, Kind::Large, Kind::Plain];

/// What a connection holds, by `Kind`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held([usize; 3]);

/// Who rests, those that have rested longest first. Rows leave when they are asked.
#[derive(Debug, Default)]
struct Resting {
    next: u64,
    rows: [BTreeMap<(Instant, u64), Row>; 3],
    /// Bytes that were asked for and have not come back.
    asked: [usize; 3],
    /// Plain bytes of all that rest, the asked ones included.
    plain: usize,
}

#[derive(Debug)]
struct Row {
    bytes: usize,
    word: Arc<Word>,
}

/// What a resting connection is asked for.
#[derive(Debug, Default)]
struct Word {
    asked: AtomicU8,
    waker: AtomicWaker,
}

impl AnswerPools {
    /// A quarter of the memory is the small pool's. What cannot be read again may take a quarter
    /// more.
    pub(crate) fn new(memory_max: usize) -> Self {
        Self {
            small: Pool::new(memory_max / 4),
            large: Pool::new(memory_max - memory_max / 4),
            plain_max: memory_max / 4,
            resting: Arc::default(),
        }
    }

    /// Memory for an answer of at most `bytes`, perhaps of less.
    pub(crate) async fn take(&self, bytes: usize) -> Loan {
        // Nobody gets so much that only a few could be answered at the same time.
        match self.try_large(bytes.min(self.large.bytes_max() / 4)) {
            Some(loan) => loan,
            None => self.take_small(bytes.min(SMALL_ANSWER_BYTES)).await,
        }
    }

    /// Memory for a batch that goes out whatever its size; never for less, as far as there is so
    /// much at all.
    pub(crate) async fn take_whole(&self, bytes: usize) -> Loan {
        match self.try_large(bytes) {
            Some(loan) => loan,
            None => self.take_small(bytes).await,
        }
    }

    fn try_large(&self, bytes: usize) -> Option<Loan> {
        let permit = self.large.try_take(bytes);
        if permit.is_none() {
            // For the next one; this one need not wait.
            self.state().ask(Kind::Large, bytes);
        }
        permit.map(|permit| Loan { permit, kind: Kind::Large })
    }

    async fn take_small(&self, bytes: usize) -> Loan {
        let permit = match self.small.try_take(bytes) {
            Some(permit) => permit,
            None => {
                let granting = self.small.take(bytes);
                self.state().ask(Kind::Small, self.small.waiting());
                granting.await
            }
        };
        Loan { permit, kind: Kind::Small }
    }

    /// Enters a connection that has rested `since` then, unless it holds next to nothing.
    pub(crate) fn rest(&self, since: Instant, held: Held) -> Option<Rest> {
        if held.0[Kind::Small as usize] + held.0[Kind::Large as usize] == 0
            && held.0[Kind::Plain as usize] <= FREE_BYTES
        {
            return None;
        }
        let word = Arc::new(Word::default());
        let mut state = self.state();
        state.next += 1;
        let key = (since, state.next);
        for kind in KINDS {
            let bytes = held.0[kind as usize];
            if bytes > 0 {
                state.rows[kind as usize].insert(key, Row { bytes, word: Arc::clone(&word) });
            }
        }
        state.plain += held.0[Kind::Plain as usize];
        // Somebody may be waiting for this very memory.
        state.ask(Kind::Small, self.small.waiting());
        let excess = state.plain.saturating_sub(self.plain_max);
        state.ask(Kind::Plain, excess);
        drop(state);
        Some(Rest { resting: Arc::clone(&self.resting), key, held, word })
    }

    /// Bytes of records that are lent at this moment.
    pub(crate) fn taken(&self) -> usize {
        self.small.taken() + self.large.taken()
    }

    fn state(&self) -> MutexGuard<'_, Resting> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resting {
    /// Asks those that have rested longest, until `bytes` are on their way.
    fn ask(&mut self, kind: Kind, bytes: usize) {
        while self.asked[kind as usize] < bytes {
            let Some((_, row)) = self.rows[kind as usize].pop_first() else { return };
            self.asked[kind as usize] += row.bytes;
            let word = if kind == Kind::Plain { LEAVE } else { GIVE_BACK };
            row.word.asked.fetch_or(word, Ordering::SeqCst);
            row.word.waker.wake();
        }
    }
}

impl Loan {
    #[cfg(test)]
    pub(crate) fn is_small(&self) -> bool {
        self.kind == Kind::Small
    }

    pub(crate) fn bytes(&self) -> usize {
        self.permit.num_permits()
    }

    /// Gives back all but `bytes`.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let unused = self.bytes().saturating_sub(bytes);
        drop(self.permit.split(unused));
    }
}

impl Held {
    pub(crate) fn new<'a>(loans: impl Iterator<Item = &'a Loan>, plain: usize) -> Self {
        let mut held = [0, 0, plain];
        for loan in loans {
            held[loan.kind as usize] += loan.bytes();
        }
        Self(held)
    }
}

/// A connection's entry among those that rest; dropped when it moves again, or when it has given
/// back what it was asked for.
#[derive(Debug)]
pub(crate) struct Rest {
    resting: Arc<Mutex<Resting>>,
    key: (Instant, u64),
    held: Held,
    word: Arc<Word>,
}

/// What others need of a resting connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Nothing,
    /// The memory of its records.
    GiveBack,
    /// All that it holds.
    Leave,
}

impl Rest {
    pub(crate) const fn since(&self) -> Instant {
        self.key.0
    }

    /// What is asked; `waker` is woken when that changes.
    pub(crate) fn asked(&self, waker: &Waker) -> Asked {
        self.word.waker.register(waker);
        match self.word.asked.load(Ordering::SeqCst) {
            0 => Asked::Nothing,
            GIVE_BACK => Asked::GiveBack,
            _ => {
                reached!("rester-leaves");
                Asked::Leave
            }
        }
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        let mut state = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        for kind in KINDS {
            let bytes = self.held.0[kind as usize];
            if bytes > 0 && state.rows[kind as usize].remove(&self.key).is_none() {
                state.asked[kind as usize] -= bytes;
            }
        }
        state.plain -= self.held.0[Kind::Plain as usize];
    }
}
