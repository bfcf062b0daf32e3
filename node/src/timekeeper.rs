//! Whether the wall clock may be believed, from one life of the node to the next: what was believed
//! is written down, and a start compares its clock with it (docs/decisions/0060).

use std::sync::{Arc, Weak};
use std::time::Duration;

use quorate_core::partition::retention::WallClock;
use quorate_core::reached;
use quorate_core::time::{Instant, Now, Timestamp};
use quorate_net::clock::Clock;

use crate::config::ClockSettings;
use crate::halt::Halt;
use crate::storage::{Believed, Storage, StorageError};

/// How often the clocks are compared.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// How often the time is written down; short beside any `clock.away_max` that makes sense.
const WRITE_INTERVAL: Duration = Duration::from_secs(300);
/// A wall clock that moves so much more or less than the monotonic one has jumped.
const JUMP_MIN: Duration = Duration::from_secs(60);

/// What this life begins with.
pub(crate) fn at_start(settings: &ClockSettings, believed: Believed, now: Now) -> WallClock {
    let since = |at| WallClock::since(at, now.monotonic, settings.away_max);
    let mut clock = match believed {
        _ if settings.trusted => WallClock::default(),
        Believed::Never => WallClock::default(),
        Believed::At(at) => since(at),
        // No clock is that late, so only a human can say that it is right.
        Believed::Lost => since(Timestamp(i64::MAX)),
    };
    clock.observe(now, JUMP_MIN);
    if !clock.is_trusted() {
        tracing::warn!(
            now = now.wall.0,
            ?believed,
            away_max = ?settings.away_max,
            "the wall clock is not where the last life left it; nothing is deleted by age until \
             it is put right, a topic's configuration is altered, or the node is started with \
             clock.trusted=true",
        );
    }
    clock
}

/// Writes down what is believed, as long as the node lives.
pub(crate) struct Timekeeper {
    pub(crate) clock: Arc<dyn Clock>,
    /// Not held over a wait: a dropped node gives its directory up at once.
    pub(crate) storage: Weak<Storage>,
    pub(crate) wall_clock: WallClock,
    pub(crate) halt: Arc<Halt>,
}

impl Timekeeper {
    pub(crate) async fn run(mut self) {
        let mut due = Instant::ZERO;
        loop {
            let now = self.clock.now();
            self.wall_clock.observe(now, JUMP_MIN);
            if self.wall_clock.is_trusted() && due <= now.monotonic {
                due = now.monotonic + WRITE_INTERVAL;
                let Some(storage) = self.storage.upgrade() else { return };
                match storage.believe(now.wall).await {
                    Ok(()) => {}
                    Err(StorageError::Stopped) => return,
                    // What is missing is the next start's trust in its clock, no record of anybody.
                    Err(error) if error.is_disk_full() => {
                        reached!("believed-time-not-written");
                        tracing::warn!(%error, "the believed time is not written down");
                    }
                    Err(error) => return self.halt.halt(&error.to_string()),
                }
            }
            self.clock.sleep(LOOK_INTERVAL).await;
            if self.storage.strong_count() == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_believes_what_is_plausible() {
        const DAY: i64 = 86_400_000;
        let now = Now { monotonic: Instant::from_micros(5), wall: Timestamp(100 * DAY) };
        let trusted =
            |settings: &ClockSettings, believed| at_start(settings, believed, now).is_trusted();
        let settings = ClockSettings::default();
        let at = |days| Believed::At(Timestamp(days * DAY));
        assert!(trusted(&settings, Believed::Never));
        assert!(trusted(&settings, at(100)));
        assert!(trusted(&settings, at(97)), "three days away");
        assert!(!trusted(&settings, at(96)));
        assert!(!trusted(&settings, at(101)), "behind");
        assert!(!trusted(&settings, Believed::Lost));
        let vouched = ClockSettings { trusted: true, ..settings };
        assert!(trusted(&vouched, at(5)) && trusted(&vouched, Believed::Lost));
    }
}
