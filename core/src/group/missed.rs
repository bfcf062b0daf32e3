//! How many members a group has lost one after the other, while nobody was left to share anew.
//!
//! A network that was cut, a host that was paused: all members of a group time out at once, and all
//! come back at once. A group that knows how many it misses need not guess how long to wait for
//! more: when so many are there, it shares out, once. Not kept in the log: after a takeover
//! everybody gets a session, and nobody is missed.

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
    pub(super) const fn any(self) -> bool {
        self.silent > 0
    }

    /// Whether as many are there as were lost.
    pub(super) const fn are_back(self, members: usize) -> bool {
        self.any() && members >= self.silent
    }
}
