//! Which in-sync set a leader wishes for, and what it has asked of the controller. KIP-497: until
//! the answer is known, a commit waits for whoever may be in the set.

use std::collections::BTreeSet;
use std::time::Duration;

use super::progress::patience;
use crate::id::{NodeEpoch, NodeId};
use crate::time::Instant;

/// Proposals for one partition epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct Proposals {
    /// Proposed, and not answered.
    pending: Option<Pending>,
    /// Whom any proposal for this partition epoch would bring into the set. They count as members
    /// until another epoch shows what came of it: even a refused proposal may have a copy that the
    /// controller has not seen yet.
    added: BTreeSet<NodeId>,
    /// Refused or unanswered so often in a row.
    failed: u32,
    /// Not before this.
    not_before: Instant,
    /// Something is wished for and has to wait until then.
    wakes_at: Option<Instant>,
    /// The mutant's: a refusal was believed for good.
    pub(super) is_given_up: bool,
}

#[derive(Clone, Debug)]
struct Pending {
    in_sync: Vec<(NodeId, NodeEpoch)>,
    /// Nothing was heard: proposed again.
    again_at: Instant,
}

impl Proposals {
    pub(super) fn added(&self) -> &BTreeSet<NodeId> {
        &self.added
    }

    /// Whether an answer is awaited at `now`.
    pub(super) fn is_pending(&self, now: Instant) -> bool {
        self.pending.as_ref().is_some_and(|pending| now < pending.again_at)
    }

    /// A new assignment: what was proposed before is settled, one way or the other.
    pub(super) fn on_assigned(&mut self, now: Instant, in_sync: &[NodeId]) {
        if let Some(pending) = &self.pending
            && pending.in_sync.len() == in_sync.len()
            && pending.in_sync.iter().all(|(node, _)| in_sync.contains(node))
        {
            self.failed = 0;
            self.not_before = now;
        }
        self.pending = None;
        self.added.clear();
        self.wakes_at = None;
    }

    /// Returns whether this answers anything.
    pub(super) fn on_refused(&mut self, now: Instant, first_wait: Duration) -> bool {
        if self.pending.take().is_none() {
            return false;
        }
        // The first time at once: what was refused is withdrawn, or asked of another controller.
        let again = self.failed.checked_sub(1).map(|tries| patience(first_wait, tries));
        self.not_before = now + again.unwrap_or_default();
        self.failed = self.failed.saturating_add(1);
        self.wakes_at = Some(self.not_before);
        true
    }

    /// Whether `wished` is to be proposed now, in place of `committed`. Notes it as proposed.
    pub(super) fn propose(
        &mut self,
        now: Instant,
        wished: &[(NodeId, NodeEpoch)],
        committed: &[NodeId],
        first_wait: Duration,
    ) -> bool {
        let is_same = wished.len() == committed.len()
            && wished.iter().all(|(node, _)| committed.contains(node));
        if self.is_given_up || self.is_pending(now) {
            return false;
        }
        if is_same && self.added.is_empty() {
            (self.pending, self.wakes_at) = (None, None);
            return false;
        }
        if now < self.not_before {
            self.wakes_at = Some(self.not_before);
            return false;
        }
        if self.pending.is_some() {
            self.failed = self.failed.saturating_add(1);
        }
        let again_at = now + patience(first_wait, self.failed);
        self.pending = Some(Pending { in_sync: wished.to_vec(), again_at });
        self.wakes_at = None;
        let added = wished.iter().map(|&(node, _)| node).filter(|node| !committed.contains(node));
        self.added.extend(added);
        true
    }

    /// It cannot be said what to wish for; whoever lives or lags brings it up again.
    pub(super) fn rest(&mut self) {
        (self.pending, self.wakes_at) = (None, None);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.is_given_up {
            return None;
        }
        self.pending.as_ref().map(|pending| pending.again_at).or(self.wakes_at)
    }
}
