//! Consumer groups of a plan: who is in them, and how their members behave.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use super::{Plan, Topic};
use crate::chance::{Between, Chance, Ratio};
use crate::{plan_item, plan_words};

plan_words! {
    /// How members share out.
    Protocol {
        /// Classic: everything is given up before it is shared out anew.
        Eager = "eager",
        /// Classic, KIP-429: only what moves is given up.
        Cooperative = "cooperative",
        /// KIP-848: the coordinator shares out.
        Consumer = "consumer",
        /// Classic and eager, by our client library.
        Library = "library",
    }
}

plan_item! {
    /// A consumer group. Its name is `g0`, `g1`, by place.
    Group {
        protocol: Protocol,
        members: u32,
        /// The first so many are static members (KIP-345).
        statics: u32 = 0,
        /// What they subscribe to: topics by their places.
        topics: Vec<u32>,
        /// `session.timeout.ms` of a classic member.
        session: Duration,
        /// From one commit to the next.
        commit: Between<Duration>,
        /// Of a member's rounds, some ten a second: those in which its process dies, those in
        /// which it leaves, and those in which it is paused.
        crash: Ratio = Ratio::NEVER,
        leave: Ratio = Ratio::NEVER,
        pause: Ratio = Ratio::NEVER,
        /// How long it is away then.
        away: Between<Duration>,
        /// Of a member's lives, those in which it speaks the other protocol, so that the group is
        /// migrated under its members, back and forth: KIP-848 where the others are classic, and
        /// the cooperative one where they are not.
        migrate: Ratio = Ratio::NEVER,
        /// So often at most may it share out (`group-storm`); drawn plans say nothing of it.
        rebalances_max: Option<u32> = None,
    }
}

impl Group {
    /// Most members of all groups of a plan.
    pub const MEMBERS_MAX: u32 = 200;

    /// Whether its members may speak both protocols.
    pub fn is_mixed(&self) -> bool {
        self.migrate != Ratio::NEVER
    }

    /// What a member speaks in its next life.
    pub fn protocol_of_a_life(&self, chance: &mut Chance) -> Protocol {
        match self.protocol {
            usual if !chance.hit(self.migrate) => usual,
            Protocol::Consumer => Protocol::Cooperative,
            Protocol::Eager | Protocol::Cooperative | Protocol::Library => Protocol::Consumer,
        }
    }

    /// Why there can be no such group with these topics.
    pub(super) fn wrong(&self, topics: &[Topic]) -> Option<&'static str> {
        let distinct: BTreeSet<&u32> = self.topics.iter().collect();
        let holds = (1..=Self::MEMBERS_MAX).contains(&self.members)
            && self.statics <= self.members
            && !self.topics.is_empty()
            && distinct.len() == self.topics.len()
            && self.topics.iter().all(|topic| (*topic as usize) < topics.len());
        (!holds).then_some("a group's members or topics do not fit together")
    }
}

impl Plan {
    /// The numbers of the clients that are members of groups, of all groups in their order.
    pub fn members(&self) -> Range<u32> {
        let first = self.operator() + 1;
        first..first + self.groups.iter().map(|group| group.members).sum::<u32>()
    }

    /// The group whose member a client is, by place, and which of its members.
    pub fn membership(&self, client: u32) -> Option<(u32, u32)> {
        let mut place = client.checked_sub(self.members().start)?;
        for (group, spec) in (0..).zip(&self.groups) {
            if place < spec.members {
                return Some((group, place));
            }
            place -= spec.members;
        }
        None
    }

    /// The number of the last client.
    pub fn clients_end(&self) -> u32 {
        self.committing().end
    }
}
