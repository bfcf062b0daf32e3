//! What is on its way to the disk, and up to where the log in memory is on it for certain.

use std::collections::VecDeque;

use super::identity::{Index, Position};
use super::recovered::LogOp;
use crate::id::WriteId;
use crate::mutant;

/// Writes in flight, in their order.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    next: WriteId,
    in_flight: VecDeque<InFlight>,
    /// The log in memory up to here is on the disk.
    durable_end: Index,
    /// The last write of term and vote that is not done: nothing is said before it is.
    hard_state: Option<WriteId>,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    write: WriteId,
    /// What is durable once it is done, as far as it was not cut since.
    end: Index,
    /// A leader's snapshot, which the application gets once it is done.
    install: Option<Position>,
}

impl Disk {
    pub(super) const fn new(durable_end: Index) -> Self {
        Self { next: WriteId(1), in_flight: VecDeque::new(), durable_end, hard_state: None }
    }

    pub(super) const fn durable_end(&self) -> Index {
        self.durable_end
    }

    /// The write that has to be done before anything may be said.
    pub(super) const fn hard_state(&self) -> Option<WriteId> {
        self.hard_state
    }

    /// A leader's snapshot is on its way.
    pub(super) fn is_installing(&self) -> bool {
        self.in_flight.iter().any(|write| write.install.is_some())
    }

    /// Notes `op`, after which the log in memory ends at `end`.
    pub(super) fn issue(&mut self, op: &LogOp, end: Index) -> WriteId {
        let write = self.next;
        self.next = write.next();
        let mut in_flight = InFlight { write, end: Index::ZERO, install: None };
        match op {
            LogOp::HardState(_) => self.hard_state = Some(write),
            LogOp::Append { .. } => in_flight.end = end,
            LogOp::Truncate { after } => self.cut(*after),
            LogOp::Snapshot { .. } => {}
            LogOp::Install { snapshot } => {
                in_flight.end = snapshot.position.index;
                in_flight.install = Some(snapshot.position);
            }
        }
        self.in_flight.push_back(in_flight);
        write
    }

    /// The log in memory agrees with what was written up to `after` only.
    pub(super) fn cut(&mut self, after: Index) {
        self.durable_end = self.durable_end.min(after);
        // zoo B12 (openraft): a write that was cut since must not count when it is done.
        if !mutant!("stale-write-counts") {
            self.in_flight.iter_mut().for_each(|write| write.end = write.end.min(after));
        }
    }

    /// Everything up to `through` is done; the snapshot that was installed by it, if any.
    pub(super) fn complete(&mut self, through: WriteId) -> Option<Position> {
        let mut installed = None;
        while self.in_flight.front().is_some_and(|first| first.write <= through) {
            if let Some(done) = self.in_flight.pop_front() {
                self.durable_end = self.durable_end.max(done.end);
                installed = done.install.or(installed);
            }
        }
        self.hard_state = self.hard_state.filter(|write| *write > through);
        installed
    }

    pub(super) fn check(&self, last: Index) {
        assert!(self.durable_end <= last, "durable {} beyond {last}", self.durable_end);
        let rising = self.in_flight.iter().zip(self.in_flight.iter().skip(1));
        assert!(rising.into_iter().all(|(one, other)| one.write < other.write));
    }
}
