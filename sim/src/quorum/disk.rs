//! A disk as a member of the quorum sees it: writes in order, done when told, lost at a crash.

use std::collections::VecDeque;

use quorate_core::id::WriteId;
use quorate_core::quorum::interface::{LogOp, Recovered};

/// The fold of what is done, and beside it of everything that was issued.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    durable: Recovered,
    issued: Recovered,
    in_flight: VecDeque<(WriteId, LogOp)>,
}

impl Disk {
    pub(super) const fn durable(&self) -> &Recovered {
        &self.durable
    }

    /// What the disk will hold when everything is done: what its owner has in memory.
    pub(super) const fn issued(&self) -> &Recovered {
        &self.issued
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    pub(super) fn next_write(&self) -> Option<WriteId> {
        self.in_flight.front().map(|(write, _)| *write)
    }

    pub(super) fn write(&mut self, write: WriteId, op: LogOp) {
        assert!(self.in_flight.back().is_none_or(|(last, _)| *last < write), "ids rise");
        self.issued.apply(&op);
        self.in_flight.push_back((write, op));
    }

    /// The first `count` writes are done; the last one's id.
    pub(super) fn complete(&mut self, count: usize) -> Option<WriteId> {
        let mut through = None;
        for _ in 0..count {
            let Some((write, op)) = self.in_flight.pop_front() else { break };
            self.durable.apply(&op);
            through = Some(write);
        }
        through
    }

    /// The power fails. `landed` writes were done without anybody having heard so.
    pub(super) fn crash(&mut self, landed: usize) {
        self.complete(landed.min(self.in_flight.len()));
        self.in_flight.clear();
        self.issued = self.durable.clone();
    }

    /// What a start finds: the operations that lead to what is there, carried out anew.
    pub(super) fn recover(&mut self) -> Recovered {
        self.crash(0);
        let mut rebuilt = Recovered::default();
        // As storage has them: as bytes.
        let through_bytes = |op: &LogOp| LogOp::from_bytes(&op.to_bytes()).expect("ours");
        self.durable.to_ops().iter().for_each(|op| rebuilt.apply(&through_bytes(op)));
        rebuilt.check();
        assert_eq!(rebuilt.hard, self.durable.hard);
        assert_eq!(rebuilt.log.last(), self.durable.log.last());
        assert_eq!(rebuilt.log.configuration(), self.durable.log.configuration());
        *self = Self { issued: rebuilt.clone(), durable: rebuilt.clone(), ..Self::default() };
        rebuilt
    }
}
