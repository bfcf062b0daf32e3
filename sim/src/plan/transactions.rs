//! Producers and readers of transactions in a plan. They have two topics of their own, so that all
//! else of a plan is what it was: producers write into `x0`, copiers consume it and copy each value
//! into `x1`, with their group's offsets in the same transaction, and readers read both.

use std::ops::Range;
use std::time::Duration;

use super::Plan;
use crate::chance::{Between, Ratio};
use crate::plan_item;

plan_item! {
    Transactions {
        /// Of each of the two topics.
        partitions: u32,
        producers: u32,
        /// Transactional ids that they share: several producers with one shut each other out.
        ids: u32,
        /// Members of one group, each with a transactional id of its own.
        copiers: u32 = 0,
        readers: u32 = 1,
        /// Records of a transaction.
        records: Between<u64>,
        /// `transaction.timeout.ms`.
        timeout: Duration,
        /// Before a record, and before the end.
        pause: Between<Duration>,
        /// Of transactions: those that their producer aborts, and those that it leaves open and
        /// forgets.
        abort: Ratio = Ratio::NEVER,
        abandon: Ratio = Ratio::NEVER,
        /// Producers that speak the protocol themselves, over connections of their own; speaker N
        /// has the transactional id of producer N, if there is one with it.
        speakers: u32 = 0,
        /// Of these, how many speak the older protocol (`transaction.version` 0): all transactions
        /// of a life have one epoch.
        old_speakers: u32 = 0,
        /// Of speakers' requests, those that reach the node once more, over another connection, and
        /// so much later.
        echo: Ratio = Ratio::NEVER,
        echo_after: Between<Duration> = Between { low: Duration::ZERO, high: Duration::ZERO },
        /// An end in the older protocol is echoed too, and asked for again when nobody knows what
        /// became of it. Then that protocol loses (KAFKA-17754).
        old_ends_echo: bool = false,
        /// Of answers to speakers, those that are lost: the request was done, and is sent again.
        deaf: Ratio = Ratio::NEVER,
        /// Of speakers' transactions, those beside which somebody claims an epoch that was never
        /// given.
        forge: Ratio = Ratio::NEVER,
        /// Of speakers' transactions, those that are aborted while a batch is on its way.
        hasty: Ratio = Ratio::NEVER,
        /// Of copiers' transactions, those before whose offsets their process stands still.
        doze: Ratio = Ratio::NEVER,
        /// `transaction.marker_patience` of the nodes.
        marker_patience: Duration = Duration::from_secs(30),
    }
}

impl Transactions {
    /// Most clients of each kind.
    pub const MAX: u32 = 8;

    /// Why there can be none like these.
    pub(super) fn wrong(&self) -> Option<&'static str> {
        let holds = (1..=Self::MAX).contains(&self.partitions)
            && (1..=Self::MAX).contains(&self.producers)
            && (1..=self.producers).contains(&self.ids)
            && self.copiers <= Self::MAX
            && self.readers <= Self::MAX
            && self.speakers <= Self::MAX
            && self.old_speakers <= self.speakers
            && !self.marker_patience.is_zero()
            && self.records.low > 0
            && self.timeout > Duration::ZERO;
        (!holds).then_some("the numbers of the transactions do not fit together")
    }
}

/// What a client of transactions does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Which of the producers it is.
    Produces(u32),
    Copies(u32),
    Reads(u32),
    Speaks(u32),
}

impl Plan {
    /// The numbers of the clients that have to do with transactions, behind all others.
    pub fn transactional(&self) -> Range<u32> {
        let first = self.members().end;
        let count = |it: &Transactions| it.producers + it.copiers + it.readers + it.speakers;
        first..first + self.transactions.as_ref().map_or(0, count)
    }

    /// What such a client does.
    pub fn part(&self, client: u32) -> Option<Part> {
        let it = self.transactions.as_ref()?;
        let place = client.checked_sub(self.transactional().start)?;
        let behind_producers = place.checked_sub(it.producers);
        Some(match behind_producers {
            None => Part::Produces(place),
            Some(place) if place < it.copiers => Part::Copies(place),
            Some(place) if place - it.copiers < it.readers => Part::Reads(place - it.copiers),
            Some(place) => {
                let place = place - it.copiers - it.readers;
                return (place < it.speakers).then_some(Part::Speaks(place));
            }
        })
    }
}
