//! Whether bytes move fast enough: a transfer is watched in windows, and in each so much must move.

use std::time::Duration;

use quorate_core::time::Instant;

/// A client that moves less than this in a whole window is behind.
const BYTES_A_SECOND_MIN: u64 = 64 * 1024;

/// One direction of a connection, from the time on at which there is something to move.
#[derive(Clone, Copy, Default)]
pub(crate) struct Transfer {
    /// When the window began.
    began: Instant,
    /// Moved in this window.
    bytes: u64,
}

impl Transfer {
    pub(crate) const fn start(now: Instant) -> Self {
        Self { began: now, bytes: 0 }
    }

    pub(crate) fn moved(&mut self, now: Instant, bytes: usize, window: Duration) {
        self.bytes += bytes as u64;
        let enough = window.as_millis() * u128::from(BYTES_A_SECOND_MIN) / 1000;
        if u128::from(self.bytes) >= enough {
            *self = Self::start(now);
        }
    }

    /// The client is not to blame for this time.
    pub(crate) fn excuse(&mut self, time: Duration) {
        self.began = self.began + time;
    }

    /// When the client is behind, unless enough moves before.
    pub(crate) fn deadline(self, window: Duration) -> Instant {
        self.began + window
    }
}
