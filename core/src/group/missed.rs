//! How many members a group has lost one after the other, while nobody was left to share anew.
//!
//! A network that was cut, a host that was paused: all members of a group time out at once, and all
//! come back at once. A group that knows how many it misses need not guess how long to wait for
//! more: when so many are there, it shares out, once. Not kept in the log: after a takeover
//! everybody gets a session, and nobody is missed.

use std::time::Duration;

use crate::mutant;
use crate::time::Instant;

/// How long a group waits for those that it misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Awaiting {
    since: Instant,
    pub(super) until: Instant,
}

impl Awaiting {
    /// Somebody has come: for others it waits `each` from now, and `most` since the first.
    pub(super) fn go_on(
        before: Option<Self>,
        now: Instant,
        each: Duration,
        most: Duration,
    ) -> Self {
        let since = before.map_or(now, |before| before.since);
        let until = (now + each).min(since + most.max(each));
        Self { since, until }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Missed {
    silent: usize,
}

impl Missed {
    /// A member was silent for too long, and is gone.
    pub(super) fn lose(&mut self) {
        self.silent += 1;
    }

    /// Somebody is there for whom the group goes on.
    pub(super) fn forget(&mut self) {
        self.silent = 0;
    }

    /// Whether anybody is missed.
    pub(super) fn any(self) -> bool {
        self.silent > 0 && !mutant!("missed-are-not-awaited")
    }

    /// Whether as many are there as were lost.
    pub(super) fn are_back(self, members: usize) -> bool {
        self.any() && members >= self.silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_that_comes_is_waited_after_and_nobody_for_ever() {
        let at = |seconds| Instant::since_start(Duration::from_secs(seconds));
        let (each, most) = (Duration::from_secs(2), Duration::from_secs(5));
        let first = Awaiting::go_on(None, at(10), each, most);
        assert_eq!(first.until, at(12));
        let second = Awaiting::go_on(Some(first), at(11), each, most);
        assert_eq!(second.until, at(13));
        let third = Awaiting::go_on(Some(second), at(14), each, most);
        assert_eq!(third.until, at(15), "five seconds after the first");
        let longer = Awaiting::go_on(None, at(10), most, each);
        assert_eq!(longer.until, at(15), "at least as long as changes are coalesced");
    }
}
