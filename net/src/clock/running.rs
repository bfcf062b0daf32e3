//! A clock for this crate's tests, which runs as the runtime's does.

use quorate_core::time::{Instant, Now, Timestamp};

use super::{Clock, Sleep};

/// Real time, by the runtime's own clock.
pub(crate) struct TestClock(tokio::time::Instant);

impl TestClock {
    pub(crate) fn start() -> Self {
        Self(tokio::time::Instant::now())
    }
}

impl Clock for TestClock {
    fn now(&self) -> Now {
        Now { monotonic: Instant::since_start(self.0.elapsed()), wall: Timestamp(1000) }
    }

    fn sleep_until(&self, at: Instant) -> Sleep {
        Box::pin(tokio::time::sleep_until(self.0 + at.as_duration()))
    }
}
