//! A number that only rises, and those who wait for it to reach a value.
//!
//! `tokio::sync::watch` would do, but wakes those who wait in an order that it draws from a
//! generator of its own, which goes on from one run of a process to the next: seed 161 of three
//! nodes, where a blackout and a rolling restart both waited for one node to stop, had another
//! life the second time.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(super) struct Gate {
    value: AtomicU64,
    raised: Notify,
}

impl Gate {
    pub(super) fn raise(&self, value: u64) {
        self.value.fetch_max(value, Ordering::Relaxed);
        self.raised.notify_waiters();
    }

    /// Waits until the number is `value` or more. Who waits longest is woken first.
    pub(super) async fn reaches(&self, value: u64) {
        while self.value.load(Ordering::Relaxed) < value {
            // It hears of whatever is raised from here on, before it is first polled too; and a
            // simulated world has one thread.
            self.raised.notified().await;
        }
    }
}
