//! What this node is in the metadata quorum, as its seat last said: whoever wants to know looks
//! here, or waits for a change.

use std::sync::{Mutex, PoisonError};

use quorate_core::id::NodeId;
use quorate_core::quorum::interface::{ClusterId, Role, Term};
use tokio::sync::Notify;

/// What the seat says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuorumState {
    pub(crate) role: Role,
    /// `None` until the cluster is founded or joined.
    pub(crate) cluster: Option<ClusterId>,
}

impl QuorumState {
    /// Whoever leads, seen from node `me`.
    pub(crate) fn leader(&self, me: NodeId) -> Option<NodeId> {
        match self.role {
            Role::Leading { .. } => Some(me),
            Role::Following { leader, .. } => leader,
        }
    }
}

#[derive(Debug)]
pub(crate) struct QuorumCell {
    state: Mutex<QuorumState>,
    changed: Notify,
}

impl Default for QuorumCell {
    /// Before the seat has said anything.
    fn default() -> Self {
        let role = Role::Following { term: Term::ZERO, leader: None };
        Self { state: Mutex::new(QuorumState { role, cluster: None }), changed: Notify::default() }
    }
}

impl QuorumCell {
    pub(crate) fn state(&self) -> QuorumState {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tell(&self, role: Role, cluster: Option<ClusterId>) {
        tracing::debug!(?role, "this node in the quorum");
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = QuorumState { role, cluster };
        self.changed.notify_waiters();
    }

    /// Completes with the first state of which `found` gives something. May be dropped at any
    /// time. A state that lasts for less than a moment may be missed.
    pub(crate) async fn until<T>(&self, found: impl Fn(QuorumState) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            if let Some(found) = found(self.state()) {
                return found;
            }
            changed.await;
        }
    }
}
