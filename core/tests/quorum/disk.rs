//! A disk as a member of the quorum sees it: writes in order, done when told, lost at a crash.

use std::collections::VecDeque;

use quorate_core::id::WriteId;
use quorate_core::quorum::interface::{LogOp, Recovered};

/// The fold of what is done, and beside it of everything that was issued.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    durable: Recovered,
    issued: Recovered,
    in_flight: VecDeque<(WriteId, LogOp)>,
}

impl Disk {
    pub(crate) const fn durable(&self) -> &Recovered {
        &self.durable
    }

    /// What the disk will hold when everything is done: what its owner has in memory.
    pub(crate) const fn issued(&self) -> &Recovered {
        &self.issued
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    pub(crate) fn next_write(&self) -> Option<WriteId> {
        self.in_flight.front().map(|(write, _)| *write)
    }

    pub(crate) fn write(&mut self, write: WriteId, op: LogOp) {
        assert!(self.in_flight.back().is_none_or(|(last, _)| *last < write), "ids rise");
        // As storage would: through bytes.
        let op = LogOp::from_bytes(&op.to_bytes()).expect("an operation of ours");
        self.issued.apply(&op);
        self.in_flight.push_back((write, op));
    }

    /// The first `count` writes are done; the last one's id.
    pub(crate) fn complete(&mut self, count: usize) -> Option<WriteId> {
        let mut through = None;
        for _ in 0..count {
            let Some((write, op)) = self.in_flight.pop_front() else { break };
            self.durable.apply(&op);
            through = Some(write);
        }
        through
    }

    /// The power fails. `landed` writes were done without anybody having heard so.
    pub(crate) fn crash(&mut self, landed: usize) -> Recovered {
        self.complete(landed.min(self.in_flight.len()));
        self.durable.check();
        // A start reads either the sum or the operations that lead to it.
        let mut rebuilt = Recovered::default();
        self.durable.to_ops().iter().for_each(|op| rebuilt.apply(op));
        rebuilt.check();
        assert_eq!(rebuilt.hard, self.durable.hard);
        assert_eq!(rebuilt.log.last(), self.durable.log.last());
        assert_eq!(rebuilt.log.configuration(), self.durable.log.configuration());
        *self = Self { issued: rebuilt.clone(), durable: rebuilt, in_flight: VecDeque::new() };
        self.durable.clone()
    }
}
