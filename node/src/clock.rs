//! The machine's clock. The only file of this crate that asks what time it is.

use std::time::SystemTime;

use quorate_core::time::{Instant, Now, Timestamp};
use quorate_net::clock::{Clock, Sleep};

/// The operating system's time; `monotonic` counts from the making of this value.
#[derive(Clone, Copy, Debug)]
pub struct OsClock {
    start: tokio::time::Instant,
}

impl OsClock {
    #[must_use]
    pub fn new() -> Self {
        Self { start: tokio::time::Instant::now() }
    }
}

impl Default for OsClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for OsClock {
    fn now(&self) -> Now {
        #[allow(clippy::disallowed_methods)]
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Now {
            monotonic: Instant::since_start(self.start.elapsed()),
            wall: Timestamp(i64::try_from(wall.as_millis()).unwrap_or(i64::MAX)),
        }
    }

    fn sleep_until(&self, at: Instant) -> Sleep {
        Box::pin(tokio::time::sleep_until(self.start + at.as_duration()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_sleep_ends_at_or_after_its_instant() {
        let clock = OsClock::new();
        let until = clock.now().monotonic + Duration::from_millis(5);
        clock.sleep_until(until).await;
        assert!(clock.now().monotonic >= until);
        assert!(clock.now().wall.millis() > 1_600_000_000_000);
    }
}
