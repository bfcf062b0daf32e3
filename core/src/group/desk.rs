//! What a group may do while it handles an input: answer, write to the log, draw an id.

use std::collections::{BTreeMap, BTreeSet};

use super::interface::{Effect, GroupLimits, Outcome, Refusal};
use super::record::Entry;
use super::topics::Topics;
use crate::batch::{BatchBuilder, Codec};
use crate::id::{ProducerEpoch, ProducerId, RequestId, VerificationGuard};
use crate::mutant;
use crate::own_log::{self, AppendId};
use crate::time::Now;

/// An append may not be larger, whatever asks for it: far below a segment, far above any use.
pub(super) const APPEND_BYTES_MAX: usize = 8 << 20;

/// No text that goes into a record is longer: Kafka's formats have 16-bit lengths, and a member's
/// id is a client's text and a drawn part.
pub(super) const TEXT_BYTES_MAX: usize = 16 * 1024;

/// An append whose fate is not known yet.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) group: String,
    /// What it makes true once it is committed.
    pub(super) entries: Vec<Entry>,
    /// Whose transaction that waits for, if it was written in one.
    pub(super) producer: Option<ProducerId>,
    pub(super) then: Then,
}

/// The transaction in which something is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transaction {
    pub(super) producer: ProducerId,
    pub(super) epoch: ProducerEpoch,
    pub(super) guard: Option<VerificationGuard>,
}

/// What its completion releases.
#[derive(Clone, Debug, Default)]
pub(super) struct Then {
    /// The answer that waits for it; nobody's any more if the request was cancelled.
    pub(super) reply: Option<(RequestId, Outcome)>,
    /// The members of this generation may have their assignments.
    pub(super) assigned: Option<i32>,
    /// It is what a consumer group keeps of itself.
    pub(super) kept: bool,
}

impl Then {
    pub(super) fn reply(request: RequestId, outcome: Outcome) -> Self {
        Self { reply: Some((request, outcome)), ..Self::default() }
    }

    pub(super) fn kept() -> Self {
        Self { kept: true, ..Self::default() }
    }
}

/// Where an unanswered request stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Waiter {
    Member {
        group: String,
        member: String,
    },
    /// What a consumer group keeps of itself.
    Group {
        group: String,
    },
    Append(AppendId),
}

/// What one group sees of the coordinator while an input is handled.
pub(super) struct Desk<'a> {
    pub(super) now: Now,
    pub(super) limits: &'a GroupLimits,
    pub(super) topics: &'a Topics,
    pub(super) state: &'a mut DeskState,
    pub(super) effects: &'a mut Vec<Effect>,
}

/// What the coordinator remembers of answers owed and writes in flight.
#[derive(Clone, Debug)]
pub(super) struct DeskState {
    pub(super) next_append: AppendId,
    pub(super) pending: BTreeMap<AppendId, Pending>,
    pub(super) waiting: BTreeMap<RequestId, Waiter>,
    /// Partitions with an offset, of all groups.
    pub(super) offsets: usize,
    /// Offsets that wait for the marker of a transaction, of all groups.
    pub(super) in_transactions: usize,
    /// Which groups have some, by producer.
    pub(super) transactions: BTreeMap<ProducerId, BTreeSet<String>>,
    /// Counts them along the log.
    pub(super) order: u64,
    /// State of the generator of member ids.
    pub(super) seed: u64,
}

impl Desk<'_> {
    pub(super) fn reply(&mut self, request: RequestId, outcome: Outcome) {
        self.state.waiting.remove(&request);
        self.effects.push(Effect::Reply { request, outcome });
    }

    pub(super) fn refuse(&mut self, request: RequestId, refusal: Refusal) {
        self.reply(request, Outcome::Refused(refusal));
    }

    /// Remembers that the answer to `request` comes later.
    pub(super) fn hold(&mut self, request: RequestId, waiter: Waiter) {
        self.state.waiting.insert(request, waiter);
    }

    /// Whether one more request may wait.
    pub(super) fn has_room(&self) -> bool {
        self.state.waiting.len() < self.limits.waiting_max
    }

    /// Asks for `entries` to be written; `then` waits for it.
    ///
    /// # Errors
    ///
    /// The answer that waits gets nothing if the entries are more than one append may hold.
    pub(super) fn append(
        &mut self,
        group: &str,
        entries: Vec<Entry>,
        then: Then,
    ) -> Result<(), Refusal> {
        self.append_in(group, entries, then, None)
    }

    /// As `append`, in a producer's transaction: what the entries say waits for its marker.
    ///
    /// # Errors
    ///
    /// As `append`.
    pub(super) fn append_transactional(
        &mut self,
        group: &str,
        entries: Vec<Entry>,
        then: Then,
        transaction: Transaction,
    ) -> Result<(), Refusal> {
        self.append_in(group, entries, then, Some(transaction))
    }

    fn append_in(
        &mut self,
        group: &str,
        entries: Vec<Entry>,
        mut then: Then,
        transaction: Option<Transaction>,
    ) -> Result<(), Refusal> {
        let mut builder = BatchBuilder::new(Codec::None);
        if let Some(Transaction { producer, epoch, .. }) = transaction {
            // Without sequence numbers, as Kafka's coordinator writes them.
            builder = builder.producer(producer, epoch, -1).transactional();
        }
        for entry in &entries {
            let value = entry.value();
            builder.append(self.now.wall, Some(&entry.key()), value.as_deref(), []);
            if builder.bytes() > APPEND_BYTES_MAX {
                return Err(Refusal::CommitTooLarge);
            }
        }
        let append = self.state.next_append;
        self.state.next_append = AppendId(append.0 + 1);
        if mutant!("group-answer-before-log")
            && let Some((request, outcome)) = then.reply.take()
        {
            self.reply(request, outcome);
        }
        if let Some((request, _)) = &then.reply {
            self.hold(*request, Waiter::Append(append));
        }
        let producer = transaction.map(|transaction| transaction.producer);
        let pending = Pending { group: group.to_owned(), entries, producer, then };
        self.state.pending.insert(append, pending);
        let batch = builder.build();
        self.effects.push(match transaction {
            None => Effect::Log(own_log::Effect::Append { append, batch }),
            Some(Transaction { guard, .. }) => Effect::AppendTransactional { append, batch, guard },
        });
        Ok(())
    }

    /// A member id that begins with `prefix`, as Kafka makes them: drawn, never used again.
    pub(super) fn draw_member_id(&mut self, prefix: &str) -> String {
        let (high, low) = (self.draw(), self.draw());
        format!(
            "{prefix}-{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            (low >> 48) & 0x3fff | 0x8000,
            low & 0xffff_ffff_ffff
        )
    }

    /// splitmix64.
    fn draw(&mut self) -> u64 {
        self.state.seed = self.state.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state.seed;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}
