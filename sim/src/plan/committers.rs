//! Clients of a plan that commit offsets and read them back, each in a group of its own and for a
//! topic of its own, `o0`, `o1`, by place. They delete their topic and create it again, become
//! members of their group and vanish from it, and rest until their offsets have had their time.

use std::ops::Range;
use std::time::Duration;

use super::Plan;
use crate::chance::{Between, Ratio};
use crate::fault::{Fault, Kind};
use crate::plan_item;

plan_item! {
    Committers {
        clients: u32,
        /// Of each topic.
        partitions: u32,
        /// `offsets.retention.minutes` of the nodes; `none` is longer than any run.
        retention: Option<Duration> = None,
        /// `session.timeout.ms`.
        session: Duration,
        /// Between two acts.
        pause: Between<Duration>,
        /// Of acts: the topic is deleted and created again.
        renew: Ratio = Ratio::NEVER,
        /// Of acts: it joins its group, or leaves it.
        join: Ratio = Ratio::NEVER,
        /// Of those by which it would leave: it says nothing.
        vanish: Ratio = Ratio::NEVER,
        /// Of acts: it does nothing for a while, but for its heartbeats.
        rest: Ratio = Ratio::NEVER,
        /// How long it rests.
        away: Between<Duration>,
    }
}

impl Committers {
    pub const MAX: u32 = 8;

    /// Why there can be none like these.
    pub(super) fn wrong(&self) -> Option<&'static str> {
        let holds = (1..=Self::MAX).contains(&self.clients)
            && (1..=Self::MAX).contains(&self.partitions)
            && self.session >= Duration::from_millis(500)
            && self.retention.is_none_or(|time| time >= Duration::from_secs(1));
        (!holds).then_some("the numbers of those who commit do not fit together")
    }
}

impl Plan {
    /// The numbers of the clients that commit offsets, behind all others.
    pub fn committing(&self) -> Range<u32> {
        let first = self.transactional().end;
        first..first + self.committers.as_ref().map_or(0, |it| it.clients)
    }

    /// Whether the wall clocks by which offsets are dated, and those by which they are judged, are
    /// one: where they differ, an offset may go early, or late.
    pub fn dates_offsets_by_one_clock(&self) -> bool {
        let jumps = |fault: &Fault| matches!(fault.kind, Kind::ClockJump(_));
        let is_one = self.cluster.nodes == 1 || self.clock.wall_offset == 0;
        is_one && !self.faults.iter().any(jumps)
    }

    /// Whether anything is kept in `__consumer_offsets`.
    pub fn has_groups(&self) -> bool {
        let copies = self.transactions.as_ref().is_some_and(|it| it.copiers > 0);
        !self.groups.is_empty() || self.committers.is_some() || copies
    }
}
