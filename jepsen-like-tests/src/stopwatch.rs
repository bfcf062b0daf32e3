//! Real time for tests on real processes: the one place here that asks a clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time since it was started.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the world of processes has a real clock")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    #[must_use]
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// Milliseconds since 1970, for record timestamps.
///
/// # Panics
/// If the machine's clock stands before 1970.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the world of processes has a real clock")]
pub fn wall_milliseconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    i64::try_from(since.as_millis()).expect("a clock before the year 292 million")
}

/// Calls `attempt` every few milliseconds until it gives a value or `limit` has passed.
pub fn retry<T>(limit: Duration, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let watch = Stopwatch::start();
    loop {
        if let Some(value) = attempt() {
            return Some(value);
        }
        if watch.elapsed() >= limit {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
