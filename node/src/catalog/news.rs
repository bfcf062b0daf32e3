//! What the metadata log has decided, on its way from the driver to the keeper.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use quorate_core::id::NodeEpoch;
use quorate_core::metadata::Record;
use tokio::sync::Notify;

/// As many records as the controller commits while the keeper works; at a start, those of the
/// whole log.
#[derive(Debug, Default)]
pub(crate) struct News {
    told: Mutex<Stretch>,
    arrived: Notify,
    closed: AtomicBool,
}

/// What came since the keeper looked last.
#[derive(Debug, Default)]
pub(crate) struct Stretch {
    /// The metadata is what `records` add up to, whatever was said before.
    pub(crate) is_restored: bool,
    pub(crate) records: Vec<Record>,
    /// The controller took this node in.
    pub(crate) registered: Option<NodeEpoch>,
}

impl Stretch {
    const fn is_empty(&self) -> bool {
        !self.is_restored && self.records.is_empty() && self.registered.is_none()
    }
}

impl News {
    /// Decided behind all that was told before.
    pub(crate) fn tell(&self, records: Vec<Record>) {
        self.add(|told| told.records.extend(records));
    }

    /// The metadata is what these add up to: they came as a snapshot.
    pub(crate) fn restore(&self, records: Vec<Record>) {
        self.add(|told| {
            told.is_restored = true;
            told.records = records;
        });
    }

    /// The node is registered in this life; `epoch` is what the controller answered. Its logs are
    /// opened once the records have come that far.
    pub(crate) fn registered(&self, epoch: NodeEpoch) {
        self.add(|told| told.registered = Some(epoch));
    }

    fn add(&self, change: impl FnOnce(&mut Stretch)) {
        change(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner));
        self.arrived.notify_one();
    }

    /// No more will come.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.arrived.notify_one();
    }

    pub(super) async fn next(&self) -> Option<Stretch> {
        loop {
            if self.closed.load(Ordering::SeqCst) {
                return None;
            }
            let told =
                std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner));
            if !told.is_empty() {
                return Some(told);
            }
            self.arrived.notified().await;
        }
    }
}
