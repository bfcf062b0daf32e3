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
}

impl Plan {
    /// The numbers of the clients that have to do with transactions, behind all others.
    pub fn transactional(&self) -> Range<u32> {
        let first = self.members().end;
        let count =
            self.transactions.as_ref().map_or(0, |it| it.producers + it.copiers + it.readers);
        first..first + count
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
            Some(_) => return None,
        })
    }
}
