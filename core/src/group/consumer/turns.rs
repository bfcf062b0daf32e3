//! When the members of a consumer group are heard. Members learn by their heartbeats alone, so that
//! what has become free stands still until its next owner is heard.

use std::time::Duration;

use super::super::placement::partition_of;
use super::{Consumer, Presence};
use crate::time::Instant;

/// How long it is until the member's turn of the interval: in whole milliseconds, since answers
/// have no others, more than nothing and at most `interval`.
///
/// Members that settled together would be heard together ever after, and none of them for the rest
/// of the interval; each has a turn of its own by its id. Nothing is remembered of it, so that who
/// has lost it comes back to it: after a takeover, a pause of the coordinator, an answer that went
/// astray. Who is heard within a tenth of an interval before its turn is on its way to it, with a
/// clock that is fast, and is not asked twice.
pub(super) fn until_turn(member: &str, now: Instant, interval: Duration) -> Duration {
    let every = i32::try_from(interval.as_millis()).unwrap_or(i32::MAX).max(1);
    let turn = i64::from(partition_of(member, every));
    let passed = now.as_duration().as_millis() % u128::from(every.unsigned_abs());
    let passed = i64::try_from(passed).expect("it is less than an i32");
    let wait = (turn - passed).rem_euclid(i64::from(every));
    let wait = if wait <= i64::from(every / 10) { i64::from(every) } else { wait };
    Duration::from_millis(wait.unsigned_abs()).min(interval)
}

impl Presence {
    /// By which members are chosen among equals: who is heard soonest comes first, and whoever
    /// should have been heard already, and is perhaps gone, comes last.
    pub(super) fn rank(&self, now: Instant) -> (bool, Instant) {
        (self.due < now, self.due)
    }
}

impl Consumer {
    /// How soon the member is to be heard again, which it is told.
    pub(super) fn next_turn(
        &mut self,
        id: &str,
        settled: bool,
        now: Instant,
        (regular, unsettled): (Duration, Duration),
    ) -> Duration {
        let interval = if settled { until_turn(id, now, regular) } else { unsettled };
        self.change_presence(id, |presence| presence.due = now + interval);
        interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(5);

    fn at(millis: u64) -> Instant {
        Instant::since_start(Duration::from_millis(millis))
    }

    #[test]
    fn turns_are_spread_over_the_interval() {
        let now = Instant::since_start(Duration::from_micros(123_456_789));
        let (mut tenths, mut in_a_whole) = ([0; 10], 0);
        for member in 0..1_000_u64 {
            let id = format!("{:016x}", member.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let wait = until_turn(&id, now, EVERY);
            assert!(wait > EVERY / 10 && wait <= EVERY);
            if wait == EVERY {
                // Those whose turn is within a tenth from now; they stay where they are.
                in_a_whole += 1;
                continue;
            }
            tenths[((wait.as_millis() - 500) / 500).min(9) as usize] += 1;
        }
        assert!((50..200).contains(&in_a_whole), "{in_a_whole}");
        assert!(tenths[..9].iter().all(|members| (50..200).contains(members)), "{tenths:?}");
    }

    #[test]
    fn a_turn_is_the_same_at_all_times() {
        let first = until_turn("a member", at(7), EVERY);
        assert!(first < EVERY, "its turn is not about now");
        let turn = at(7) + first;
        // Exactly then, and a little later, the next one is an interval on.
        assert_eq!(until_turn("a member", turn, EVERY), EVERY);
        let late = Duration::from_millis(30);
        assert_eq!(until_turn("a member", turn + late, EVERY), EVERY - late);
        assert_eq!(until_turn("a member", at(8), EVERY), first - Duration::from_millis(1));
        assert_eq!(until_turn("a member", at(5_007), EVERY), first);
    }

    #[test]
    fn who_comes_a_little_early_is_not_asked_twice() {
        let first = until_turn("a member", at(5_007), EVERY);
        assert!(first < EVERY, "its turn is not about now");
        let turn = at(5_007) + first;
        let before =
            |millis| Instant::since_start(turn.as_duration() - Duration::from_millis(millis));
        assert_eq!(until_turn("a member", before(500), EVERY), EVERY);
        assert_eq!(until_turn("a member", before(501), EVERY), Duration::from_millis(501));
    }

    #[test]
    fn the_shortest_interval_is_not_zero() {
        let least = Duration::from_millis(1);
        assert_eq!(until_turn("m", Instant::ZERO, least), least);
    }
}
