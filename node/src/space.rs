//! Watches the room on the disk. Below `storage.min_free` producers are refused, so that what
//! consumers commit, what is deleted and what is decided still finds room; once there is more
//! again, all goes on by itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use quorate_core::reached;
use quorate_net::clock::Clock;

use crate::storage::Storage;

const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Whether there is too little room for more records.
#[derive(Debug, Default)]
pub(crate) struct Space(AtomicBool);

impl Space {
    pub(crate) fn is_short(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// There are `free` bytes. Who was short stays so until there is an eighth more than is wanted:
    /// otherwise each deletion would let a few producers in.
    fn look(&self, free: u64, min_free: u64) {
        let wanted = if self.is_short() { min_free.saturating_add(min_free / 8) } else { min_free };
        let is_short = free < wanted;
        if is_short == self.0.swap(is_short, Ordering::Relaxed) {
            return;
        }
        if is_short {
            reached!("space-short");
            tracing::error!(
                free,
                min_free,
                "the disk is nearly full (storage.min_free): producers are refused until there is \
                 more room; delete records or topics, or shorten their retention"
            );
        } else {
            reached!("space-returned");
            tracing::info!(free, "there is room on the disk again: producers are let in");
        }
    }
}

/// As long as the node lives, unless it is switched off.
pub(crate) async fn watch(
    space: Arc<Space>,
    storage: Weak<Storage>,
    clock: Arc<dyn Clock>,
    min_free: u64,
) {
    if min_free == 0 {
        return;
    }
    loop {
        let Some(storage) = storage.upgrade() else { return };
        // A disk that does not say is not watched.
        if let Ok(free) = storage.free_space().await {
            space.look(free, min_free);
        }
        drop(storage);
        clock.sleep(LOOK_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_short_is_so_until_there_is_more() {
        let space = Space::default();
        for (free, is_short) in [(800, false), (799, true), (850, true), (900, false), (800, false)]
        {
            space.look(free, 800);
            assert_eq!(space.is_short(), is_short, "{free}");
        }
    }
}
