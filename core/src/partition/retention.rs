//! What may be deleted, by age and by size; and whether the wall clock may be believed.

use std::time::Duration;

use super::interface::PartitionConfig;
use super::recovered::{Recovered, SegmentInfo};
use crate::id::Offset;
use crate::time::{Instant, Now, Timestamp};
use crate::{mutant, reached};

/// Where the log may start, given the age of its segments: behind the oldest ones whose largest
/// timestamp is older than `retention.ms`. Only what lies below `high_watermark` may go. The
/// active segment goes like any other; the caller begins a new one. `None` if nothing is to go.
///
/// A segment of which no timestamp is known is not old, and keeps what is behind it.
pub fn start_by_time(
    state: &Recovered,
    config: &PartitionConfig,
    high_watermark: Offset,
    now: Timestamp,
) -> Option<Offset> {
    let retention = config.retention_time.filter(|_| config.delete)?;
    let old = |segment: &SegmentInfo| {
        // zoo L4: the sentinel -1 compared as a time deletes what is new.
        if segment.max_timestamp == Timestamp::NONE && !mutant!("unknown-timestamp-is-old") {
            return false;
        }
        now.0.saturating_sub(segment.max_timestamp.0) > millis(retention)
    };
    let segments = || state.segments.iter().filter(|segment| segment.bytes > 0);
    let count = segments().take_while(|segment| old(segment)).count();
    let ends = segments().skip(1).map(|segment| segment.base).chain([state.end]);
    ends.take(count).take_while(|&end| below(end, high_watermark)).last()
}

/// Where the log may start, given its size: as many of the oldest segments go as leave at least
/// `retention.bytes`. The active segment stays. `None` if nothing is to go.
pub fn start_by_size(
    state: &Recovered,
    config: &PartitionConfig,
    high_watermark: Offset,
    log_bytes: u64,
) -> Option<Offset> {
    let retention = config.retention_bytes.filter(|_| config.delete)?;
    let mut left = log_bytes;
    let mut start = None;
    for pair in state.segments.windows(2) {
        left = left.saturating_sub(pair[0].bytes);
        if left < retention || !below(pair[1].base, high_watermark) {
            break;
        }
        start = Some(pair[1].base);
    }
    start
}

/// How long until the oldest segment may be too old. `None` if it never will be.
pub fn wait_by_time(
    state: &Recovered,
    config: &PartitionConfig,
    now: Timestamp,
) -> Option<Duration> {
    let retention = config.retention_time.filter(|_| config.delete)?;
    let oldest = state.segments.iter().find(|segment| segment.bytes > 0)?;
    if oldest.max_timestamp == Timestamp::NONE && !mutant!("unknown-timestamp-is-old") {
        return None;
    }
    let due = oldest.max_timestamp.0.saturating_add(millis(retention)).saturating_add(1);
    Some(Duration::from_millis(u64::try_from(due.saturating_sub(now.0)).unwrap_or(0)))
}

fn below(end: Offset, high_watermark: Offset) -> bool {
    // zoo I6: deleting what is not committed puts the start above the high watermark.
    end <= high_watermark || mutant!("retention-past-hw")
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Compares the wall clock with the monotonic one, and at a start with what the last life believed.
/// After a jump nothing may be judged by age until the clock is back where it would be, or a human
/// says that it is right. Ruling: a jump of the wall clock must not delete data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WallClock {
    /// When the clocks last agreed; `None` before the first look.
    agreed: Option<Now>,
    /// So much more than the monotonic clock tells may have passed since: nobody counted the time
    /// between two lives.
    away_max: Duration,
    jumped: bool,
}

impl WallClock {
    /// At a start, of which the monotonic clock says `at`: the last life believed that it was
    /// `believed`, and the node was away for at most `away_max`.
    pub const fn since(believed: Timestamp, at: Instant, away_max: Duration) -> Self {
        let agreed = Now { monotonic: at, wall: believed };
        Self { agreed: Some(agreed), away_max, jumped: false }
    }

    /// Looks at the clocks. They disagree if they moved apart by `jump_min` and a thousandth of
    /// the time since they agreed, which no slewing clock exceeds.
    pub fn observe(&mut self, now: Now, jump_min: Duration) {
        let Some(agreed) = self.agreed else {
            self.agreed = Some(now);
            return;
        };
        let passed = now.monotonic.saturating_since(agreed.monotonic);
        let wall_passed = now.wall.0.saturating_sub(agreed.wall.0);
        let apart = wall_passed.saturating_sub(millis(passed));
        let allowed = jump_min.saturating_add(passed / 1000);
        let ahead_max = allowed.saturating_add(self.away_max);
        self.jumped = apart < -millis(allowed) || apart > millis(ahead_max);
        if self.jumped {
            reached!("wall-clock-jumped");
        } else {
            *self = Self { agreed: Some(now), ..Self::default() };
        }
    }

    /// A human vouches for the wall clock as it is at the next look.
    pub fn trust(&mut self) {
        *self = Self::default();
    }

    pub fn is_trusted(&self) -> bool {
        !self.jumped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(segments: &[(i64, u64, i64)], end: i64) -> Recovered {
        let segment = |&(base, bytes, timestamp): &(i64, u64, i64)| SegmentInfo {
            base: Offset(base),
            bytes,
            max_timestamp: Timestamp(timestamp),
        };
        let segments = segments.iter().map(segment).collect();
        Recovered { segments, end: Offset(end), ..Recovered::default() }
    }

    fn config(time: Option<u64>, bytes: Option<u64>) -> PartitionConfig {
        PartitionConfig {
            retention_time: time.map(Duration::from_millis),
            retention_bytes: bytes,
            ..PartitionConfig::default()
        }
    }

    fn by_time(log: &Recovered, high_watermark: i64, now: i64) -> Option<i64> {
        let config = config(Some(100), None);
        start_by_time(log, &config, Offset(high_watermark), Timestamp(now)).map(|start| start.0)
    }

    #[test]
    fn a_segment_goes_when_its_largest_timestamp_is_older_than_the_retention() {
        let log = log(&[(0, 10, 1000), (5, 10, 1010), (9, 10, 1020)], 12);
        assert_eq!(by_time(&log, 12, 1100), None, "exactly as old as allowed");
        assert_eq!(by_time(&log, 12, 1101), Some(5));
        assert_eq!(by_time(&log, 12, 1111), Some(9));
        assert_eq!(by_time(&log, 12, 1121), Some(12), "the active one as well");
        assert_eq!(by_time(&log, 8, 1121), Some(5), "only below the high watermark");
        assert_eq!(by_time(&log, 4, 1121), None);
        assert_eq!(
            wait_by_time(&log, &config(Some(100), None), Timestamp(1000)).unwrap().as_millis(),
            101
        );
    }

    #[test]
    fn an_unknown_timestamp_is_not_old_and_a_future_one_keeps_what_is_behind_it() {
        let unknown = log(&[(0, 10, -1), (5, 10, 1000)], 9);
        assert_eq!(by_time(&unknown, 9, 1 << 50), None);
        assert_eq!(wait_by_time(&unknown, &config(Some(100), None), Timestamp(0)), None);
        let future = log(&[(0, 10, 5000), (5, 10, 1000)], 9);
        assert_eq!(by_time(&future, 9, 2000), None);
    }

    #[test]
    fn size_leaves_at_least_what_was_asked_for() {
        let log = log(&[(0, 10, 0), (5, 20, 0), (9, 30, 0)], 12);
        let start = |bytes, high_watermark| {
            let config = config(None, Some(bytes));
            start_by_size(&log, &config, Offset(high_watermark), log.bytes()).map(|start| start.0)
        };
        assert_eq!(start(60, 12), None);
        assert_eq!(start(51, 12), None);
        assert_eq!(start(50, 12), Some(5));
        assert_eq!(start(30, 12), Some(9));
        assert_eq!(start(0, 12), Some(9), "the active segment stays");
        assert_eq!(start(0, 8), Some(5), "only below the high watermark");
        let compacted = PartitionConfig { delete: false, ..config(Some(0), Some(0)) };
        assert_eq!(start_by_size(&log, &compacted, Offset(12), 60), None);
        assert_eq!(start_by_time(&log, &compacted, Offset(12), Timestamp(1 << 50)), None);
    }

    #[test]
    fn a_jump_is_told_from_a_slow_drift_and_is_over_when_the_clock_is_back() {
        let now = |seconds: u64, wall_seconds: i64| Now {
            monotonic: Instant::from_micros(seconds * 1_000_000),
            wall: Timestamp(wall_seconds * 1000),
        };
        let min = Duration::from_secs(60);
        let mut clock = WallClock::default();
        clock.observe(now(0, 1000), min);
        clock.observe(now(10, 1070), min);
        assert!(clock.is_trusted(), "60 s more than passed is within bounds");
        clock.observe(now(20, 1141), min);
        assert!(!clock.is_trusted(), "and 61 s is a jump");
        clock.observe(now(30, 1151), min);
        assert!(!clock.is_trusted(), "standing by it does not make it right");
        clock.observe(now(40, 1110), min);
        assert!(clock.is_trusted(), "back again");
        clock.observe(now(50, 900), min);
        assert!(!clock.is_trusted(), "backwards is a jump as well");
        clock.trust();
        clock.observe(now(60, 910), min);
        clock.observe(now(70, 920), min);
        assert!(clock.is_trusted());
        clock.observe(now(1_000_070, 1_001_920), min);
        assert!(clock.is_trusted(), "1000 s in 11 days is a slow clock");
    }

    #[test]
    fn a_start_is_compared_with_what_the_last_life_believed() {
        let now = |seconds: u64, wall_seconds: i64| Now {
            monotonic: Instant::from_micros(seconds * 1_000_000),
            wall: Timestamp(wall_seconds * 1000),
        };
        let (min, away) = (Duration::from_secs(60), Duration::from_secs(1000));
        let start = WallClock::since(Timestamp(50_000_000), Instant::from_micros(7_000_000), away);
        for (wall, trusted) in [(49_939, false), (49_940, true), (51_060, true), (51_061, false)] {
            let mut clock = start;
            clock.observe(now(7, wall), min);
            assert_eq!(clock.is_trusted(), trusted, "{wall}");
        }
        let mut clock = start;
        clock.observe(now(7, 90_000), min);
        clock.observe(now(107, 90_100), min);
        assert!(!clock.is_trusted(), "standing by it does not make it right");
        clock.observe(now(207, 51_200), min);
        assert!(clock.is_trusted(), "put right");
        clock.observe(now(217, 51_300), min);
        assert!(!clock.is_trusted(), "the time away is over: 90 s in 10 s are a jump");
        let mut lost = WallClock::since(Timestamp(i64::MAX), Instant::ZERO, away);
        lost.observe(now(0, 90_000), min);
        assert!(!lost.is_trusted());
        lost.trust();
        lost.observe(now(1, 90_001), min);
        assert!(lost.is_trusted(), "a human said so");
    }
}
