//! The lag of groups, and Burrow's evaluation of it, against what must hold of any commits.

use std::time::Duration;

use proptest::prelude::*;
use quorate_core::group::lag::{Commit, Lag, Progress, Unread, WINDOW_COMMITS, Window, lag};
use quorate_core::id::Offset;
use quorate_core::time::Timestamp;

fn window(commits: &[(i64, i64, u64)]) -> Window {
    let mut window = Window::default();
    for &(offset, at, lag) in commits {
        window.push(Commit { offset: Offset(offset), at: Timestamp(at), lag });
    }
    window
}

/// Ten commits, a second apart.
fn evenly(each: impl Fn(i64) -> (i64, u64)) -> Window {
    let commits: Vec<_> = (0..10).map(|n| (each(n).0, n * 1000, each(n).1)).collect();
    window(&commits)
}

fn judged(window: &Window, at: i64) -> Progress {
    window.evaluate(Timestamp(at), 5)
}

#[test]
fn each_rule_by_its_example() {
    let at = 9500;
    assert_eq!(judged(&evenly(|n| (n * 10, 5)), at), Progress::Warn, "the lag stays");
    assert_eq!(judged(&evenly(|n| (n * 10, 5 + n.unsigned_abs())), at), Progress::Warn);
    assert_eq!(judged(&evenly(|n| (n * 10, 20 - n.unsigned_abs())), at), Progress::Ok, "it falls");
    assert_eq!(judged(&evenly(|_| (10, 5)), at), Progress::Stall);
    assert_eq!(judged(&evenly(|n| (if n == 7 { 1 } else { n * 10 }, 5)), at), Progress::Rewind);
    assert_eq!(judged(&evenly(|n| (n * 10, 5)), 18_000), Progress::Warn, "nine seconds of nine");
    assert_eq!(judged(&evenly(|n| (n * 10, 5)), 18_001), Progress::Stop);
    assert_eq!(judged(&evenly(|n| (n * 10, u64::from(n != 3))), 18_001), Progress::Ok);
    assert_eq!(
        evenly(|_| (10, 5)).evaluate(Timestamp(18_001), 0),
        Progress::Ok,
        "it has caught up"
    );
}

#[test]
fn a_window_forgets_the_oldest_and_sees_a_commit_once() {
    let mut seen = window(&[(1, 1, 0)]);
    assert_eq!(judged(&seen, 1_000_000), Progress::Ok, "one commit says nothing");
    for n in 0..10 {
        for _ in 0..3 {
            seen.push(Commit { offset: Offset(1), at: Timestamp(n + 2), lag: 7 });
        }
    }
    assert_eq!(seen.len(), WINDOW_COMMITS);
    assert_eq!(judged(&seen, 12), Progress::Stall, "the one without lag is forgotten");
}

#[test]
fn lag_is_clamped() {
    let unread = |first| Some(Unread { first, bytes: 77 });
    let now = Timestamp(10_000);
    let of = |committed, unread| lag(Offset(committed), (Offset(10), Offset(20)), unread, now);
    let behind = |records, age| Lag { records, bytes: Some(77), age };
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(of(15, unread(Some(Timestamp(4000)))), behind(5, seconds(6)));
    assert_eq!(of(3, unread(Some(Timestamp(4000)))), behind(10, seconds(6)), "deleted records");
    assert_eq!(of(20, None), Lag::NONE);
    assert_eq!(of(999, None), Lag::NONE, "behind the end, since the topic was made anew");
    assert_eq!(of(18, unread(None)), Lag::NONE, "markers of transactions are nobody's lag");
    assert_eq!(of(15, unread(Some(Timestamp(99_999)))), behind(5, seconds(0)), "from the future");
    assert_eq!(of(15, unread(Some(Timestamp::NONE))), behind(5, None));
    assert_eq!(of(15, None), Lag { records: 5, bytes: None, age: None });
}

/// Commits with times that do not fall, and lags and offsets of any kind.
fn commits() -> impl Strategy<Value = Vec<(i64, i64, u64)>> {
    let commit = (0..50_i64, 1..5000_i64, 0..20_u64);
    prop::collection::vec(commit, 0..15).prop_map(|commits| {
        let mut at = 0;
        let timed = commits.into_iter().map(|(offset, step, lag)| {
            at += step;
            (offset, at, lag)
        });
        timed.collect()
    })
}

/// The last ten of them, which are all that counts.
fn last(commits: &[(i64, i64, u64)]) -> &[(i64, i64, u64)] {
    &commits[commits.len().saturating_sub(WINDOW_COMMITS)..]
}

proptest! {
    #[test]
    fn what_is_said_is_so(commits in commits(), wait in 0..100_000_i64, now_lag in 0..3_u64) {
        let seen = last(&commits);
        let now = seen.last().map_or(0, |last| last.1) + wait;
        let progress = window(&commits).evaluate(Timestamp(now), now_lag);
        let pairs = || seen.windows(2);
        let caught_up = now_lag == 0 || seen.iter().any(|commit| commit.2 == 0);
        let back = pairs().any(|pair| pair[1].0 < pair[0].0);
        let moved = pairs().any(|pair| pair[1].0 != pair[0].0);
        let fell = pairs().any(|pair| pair[1].2 < pair[0].2);
        let span = seen.last().map_or(0, |last| last.1 - seen[0].1);
        match progress {
            Progress::Ok => {
                let late = wait > span;
                prop_assert!(seen.len() < 2 || caught_up || (!back && !late && fell));
            }
            Progress::Rewind => prop_assert!(!caught_up && back),
            Progress::Stop => prop_assert!(!caught_up && !back && wait > span),
            Progress::Stall => prop_assert!(!caught_up && !moved && !fell && wait <= span),
            Progress::Warn => prop_assert!(!caught_up && !back && moved && !fell && wait <= span),
        }
    }

    #[test]
    fn neither_the_epoch_nor_the_first_offset_matters(
        commits in commits(), shift in 0..1_000_000_i64, wait in 0..100_000_i64,
    ) {
        let moved: Vec<_> =
            commits.iter().map(|&(offset, at, lag)| (offset + shift, at + shift, lag)).collect();
        let now = commits.last().map_or(0, |last| last.1) + wait;
        let there = window(&moved).evaluate(Timestamp(now + shift), 1);
        prop_assert_eq!(window(&commits).evaluate(Timestamp(now), 1), there);
    }

    #[test]
    fn a_group_that_falls_silent_is_told_to_have_stopped(commits in commits()) {
        let seen = last(&commits);
        let pairs = seen.windows(2).all(|pair| pair[0].0 <= pair[1].0);
        if seen.len() >= 2 && pairs && seen.iter().all(|commit| commit.2 > 0) {
            let judged = window(&commits).evaluate(Timestamp(i64::MAX), 1);
            prop_assert_eq!(judged, Progress::Stop);
        }
    }

    #[test]
    fn nobody_is_further_behind_than_the_log_is_long(
        committed in any::<i64>(), start in 0..1_000_000_i64, length in 0..1_000_000_i64,
        now in any::<i64>(), first in prop::option::of(any::<i64>()),
    ) {
        let ends = (Offset(start), Offset(start + length));
        let unread = Some(Unread { first: first.map(Timestamp), bytes: 1 });
        let found = lag(Offset(committed), ends, unread, Timestamp(now));
        prop_assert!(found.records <= length.unsigned_abs());
        let done = committed >= start + length || length == 0 || first.is_none();
        prop_assert_eq!(found.records == 0, done);
    }
}
