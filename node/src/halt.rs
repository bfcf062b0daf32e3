//! The end of a node that may not go on: said once, heard by all.

use std::sync::OnceLock;

use tokio::sync::Notify;

/// A node halts when its disk failed it: from then on nothing is answered.
#[derive(Debug, Default)]
pub(crate) struct Halt {
    reason: OnceLock<String>,
    said: Notify,
}

impl Halt {
    /// The first reason counts.
    pub(crate) fn halt(&self, reason: &str) {
        if self.reason.set(reason.to_owned()).is_ok() {
            tracing::error!(reason, "the node halts");
        }
        self.said.notify_waiters();
    }

    pub(crate) fn is_halted(&self) -> bool {
        self.reason.get().is_some()
    }

    /// Completes with the reason if the node ever halts.
    pub(crate) async fn halted(&self) -> String {
        loop {
            let said = self.said.notified();
            if let Some(reason) = self.reason.get() {
                return reason.clone();
            }
            said.await;
        }
    }
}
