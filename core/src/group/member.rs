//! One member of a classic group, and what it waits for.

use std::time::Duration;

use bytes::Bytes;

use super::interface::{DescribedMember, Join, JoinedMember, Protocol};
use super::record::StoredMember;
use crate::id::RequestId;
use crate::mutant;
use crate::time::Instant;

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) id: String,
    /// Static membership, KIP-345.
    pub(super) instance: Option<String>,
    pub(super) client_id: String,
    pub(super) client_host: String,
    pub(super) session_timeout: Duration,
    pub(super) rebalance_timeout: Duration,
    /// In the member's order of preference; never empty.
    pub(super) protocols: Vec<Protocol>,
    pub(super) assignment: Bytes,
    pub(super) waits: Waits,
    /// It has asked for its assignment in this generation.
    pub(super) synced: bool,
    /// The client knows its own id; one that does not can never come back under it.
    pub(super) knows_id: bool,
    /// When it was last heard or answered. Its session counts from here.
    pub(super) heard: Instant,
    /// Place in the order of joining: the first to join leads.
    pub(super) order: u64,
}

/// The request of a member that is not answered yet. Its session does not run out meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    Not,
    ForJoin(RequestId),
    ForSync(RequestId),
}

impl Member {
    pub(super) fn new(id: String, join: &Join, order: u64, now: Instant) -> Self {
        Self {
            id,
            instance: join.instance.clone(),
            client_id: join.client_id.clone(),
            client_host: join.client_host.clone(),
            session_timeout: join.session_timeout,
            rebalance_timeout: join.rebalance_timeout,
            protocols: join.protocols.clone(),
            assignment: Bytes::new(),
            waits: Waits::Not,
            synced: false,
            knows_id: !join.member.is_empty(),
            heard: now,
            order,
        }
    }

    pub(super) fn from_stored(
        stored: StoredMember,
        protocol: &str,
        order: u64,
        now: Instant,
    ) -> Self {
        let protocol = Protocol { name: protocol.to_owned(), metadata: stored.subscription };
        Self {
            id: stored.member,
            instance: stored.instance,
            client_id: stored.client_id,
            client_host: stored.client_host,
            session_timeout: stored.session_timeout,
            rebalance_timeout: stored.rebalance_timeout,
            protocols: vec![protocol],
            assignment: stored.assignment,
            waits: Waits::Not,
            synced: true,
            knows_id: true,
            heard: now,
            order,
        }
    }

    /// What the member says of itself now.
    pub(super) fn update(&mut self, join: &Join) {
        self.client_id.clone_from(&join.client_id);
        self.client_host.clone_from(&join.client_host);
        self.session_timeout = join.session_timeout;
        self.rebalance_timeout = join.rebalance_timeout;
        self.protocols.clone_from(&join.protocols);
    }

    /// When its session ends; `None` while it waits for an answer.
    pub(super) fn session_ends(&self) -> Option<Instant> {
        // zoo G6: who came without an id has no session before it says the one it was given.
        if mutant!("new-member-timer") && !self.knows_id {
            return None;
        }
        (self.waits == Waits::Not).then_some(self.heard + self.session_timeout)
    }

    pub(super) fn supports(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|own| own.name == protocol)
    }

    /// Empty for a protocol that the member does not support.
    pub(super) fn metadata(&self, protocol: &str) -> Bytes {
        let own = self.protocols.iter().find(|own| own.name == protocol);
        own.map_or_else(Bytes::new, |own| own.metadata.clone())
    }

    pub(super) fn joined(&self, protocol: &str) -> JoinedMember {
        JoinedMember {
            member: self.id.clone(),
            instance: self.instance.clone(),
            metadata: self.metadata(protocol),
        }
    }

    pub(super) fn stored(&self, protocol: &str) -> StoredMember {
        StoredMember {
            member: self.id.clone(),
            instance: self.instance.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            rebalance_timeout: self.rebalance_timeout,
            session_timeout: self.session_timeout,
            subscription: self.metadata(protocol),
            assignment: self.assignment.clone(),
        }
    }

    /// Subscription and assignment are told of a stable group only.
    pub(super) fn described(&self, stable_protocol: Option<&str>) -> DescribedMember {
        DescribedMember {
            member: self.id.clone(),
            instance: self.instance.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            metadata: stable_protocol.map_or_else(Bytes::new, |name| self.metadata(name)),
            assignment: stable_protocol.map_or_else(Bytes::new, |_| self.assignment.clone()),
        }
    }
}

/// Bytes that a member's protocols take.
pub(super) fn protocols_bytes(protocols: &[Protocol]) -> usize {
    protocols.iter().map(|protocol| protocol.name.len() + protocol.metadata.len()).sum()
}
