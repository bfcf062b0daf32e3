//! How far a group is behind, and whether it gets on: pure functions over what was committed and
//! what a partition's leader says of its log.

use std::collections::VecDeque;
use std::time::Duration;

use crate::id::Offset;
use crate::time::Timestamp;

/// Commits of one partition that are looked at together. Burrow's default.
pub const WINDOW_COMMITS: usize = 10;

/// The first record that a group has not consumed, and what lies before it from there on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Its time; `None` where there is no record of a user before the end.
    pub first: Option<Timestamp>,
    /// From the batch that the group is in to the end, on the leader's disk.
    pub bytes: u64,
}

/// How far a group is behind in one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Offsets between the group and the end.
    pub records: u64,
    /// `None` where the leader has not said.
    pub bytes: Option<u64>,
    /// How old the first record is that the group has not consumed; zero where it has consumed
    /// all. `None` where the leader has not said, or the record has no time.
    pub age: Option<Duration>,
}

impl Lag {
    /// Nothing to be consumed.
    pub const NONE: Self = Self { records: 0, bytes: Some(0), age: Some(Duration::ZERO) };
}

/// The lag of a group at `committed` in a partition whose records stand from `start` to below
/// `end`. Records that retention has deleted are not behind anybody, and neither is what stands at
/// the end without being a record of a user (a transaction's marker). `end` is the high watermark,
/// or the last stable offset for a group that reads committed records only.
pub fn lag(
    committed: Offset,
    (start, end): (Offset, Offset),
    unread: Option<Unread>,
    now: Timestamp,
) -> Lag {
    let records = end.0.saturating_sub(committed.max(start).0).max(0).unsigned_abs();
    if records == 0 {
        return Lag::NONE;
    }
    match unread {
        None => Lag { records, bytes: None, age: None },
        Some(Unread { first: None, .. }) => Lag::NONE,
        Some(Unread { first: Some(first), bytes }) => {
            let age = now.0.saturating_sub(first.0).max(0).unsigned_abs();
            let age = (first.0 >= 0).then(|| Duration::from_millis(age));
            Lag { records, bytes: Some(bytes), age }
        }
    }
}

/// Whether a group gets on in one partition, the worse the later. Burrow's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    Ok,
    /// It consumes, and falls behind all the same.
    Warn,
    /// It commits, and always the same offset.
    Stall,
    /// It has stopped committing.
    Stop,
    /// It went back.
    Rewind,
}

impl Progress {
    pub const ALL: [Self; 5] = [Self::Ok, Self::Warn, Self::Stall, Self::Stop, Self::Rewind];

    /// Burrow's name of it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warn => "WARN",
            Self::Stall => "STALL",
            Self::Stop => "STOP",
            Self::Rewind => "REWIND",
        }
    }
}

/// A commit as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    pub offset: Offset,
    /// When it was made.
    pub at: Timestamp,
    /// Records that the group was behind just then.
    pub lag: u64,
}

/// The last commits of a group in one partition, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window(VecDeque<Commit>);

impl Window {
    /// Takes note of a commit, unless it is the one that was seen last.
    pub fn push(&mut self, commit: Commit) {
        let same = |last: &Commit| last.at == commit.at && last.offset == commit.offset;
        if self.0.back().is_some_and(same) {
            return;
        }
        if self.0.len() == WINDOW_COMMITS {
            self.0.pop_front();
        }
        self.0.push_back(commit);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the group gets on, at the time `now`, while it is `lag` records behind. Burrow's
    /// rules (its wiki, "Consumer Lag Evaluation Rules"), in their order:
    ///
    /// 1. a lag that was zero at any commit, or is now, is well;
    /// 2. an offset below the one before is a rewind;
    /// 3. no commit for longer than all commits in the window took together is a stop;
    /// 4. one offset all the time, while the lag does not fall, is a stall;
    /// 5. offsets that rise, while the lag never falls, are a warning.
    ///
    /// Fewer than two commits say nothing, so they are well.
    pub fn evaluate(&self, now: Timestamp, lag: u64) -> Progress {
        let (Some(first), Some(last)) = (self.0.front(), self.0.back()) else {
            return Progress::Ok;
        };
        if self.0.len() < 2 || lag == 0 || self.0.iter().any(|commit| commit.lag == 0) {
            return Progress::Ok;
        }
        let mut pairs = self.0.iter().zip(self.0.iter().skip(1));
        if pairs.clone().any(|(before, after)| after.offset < before.offset) {
            return Progress::Rewind;
        }
        let silence = now.0.saturating_sub(last.at.0);
        if silence > last.at.0.saturating_sub(first.at.0) {
            return Progress::Stop;
        }
        let falls = pairs.any(|(before, after)| after.lag < before.lag);
        match (first.offset == last.offset, falls) {
            (_, true) => Progress::Ok,
            (true, false) => Progress::Stall,
            (false, false) => Progress::Warn,
        }
    }
}
