//! A log as storage would keep it, without files: operations in their order, how many of them are
//! done, and what a recovery would make of those.

use std::collections::VecDeque;

use quorate_core::id::{Offset, WriteId};
use quorate_core::partition::Recovered;
use quorate_core::partition::interface::LogOp;
use quorate_core::segment::frame::FRAME_HEADER_BYTES;

/// Operations since the newest snapshot but one, and those in flight.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// What stood before `done`.
    before: Recovered,
    done: Vec<LogOp>,
    in_flight: VecDeque<(WriteId, LogOp)>,
    /// The fold over all that is done, without any snapshot.
    folded: Recovered,
}

impl Log {
    /// A log as it was recovered.
    pub(crate) fn new(recovered: Recovered) -> Self {
        Self { before: recovered.clone(), folded: recovered, ..Self::default() }
    }

    pub(crate) fn write(&mut self, write: WriteId, op: LogOp) {
        self.in_flight.push_back((write, op));
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The next `count` operations are done; the last one's id, if there is one.
    pub(crate) fn complete(&mut self, count: usize) -> Option<WriteId> {
        let mut through = None;
        for (write, op) in self.in_flight.drain(..count) {
            fold(&mut self.folded, &op);
            if let LogOp::Roll { .. } | LogOp::Checkpoint { .. } = op {
                self.before = newest_snapshot(&self.before, &self.done);
                self.done.clear();
            }
            self.done.push(op);
            through = Some(write);
        }
        through
    }

    pub(crate) fn next_write(&self) -> Option<WriteId> {
        self.in_flight.front().map(|&(write, _)| write)
    }

    /// The fold over all that is done, without any snapshot.
    pub(crate) fn folded(&self) -> &Recovered {
        &self.folded
    }

    /// What a recovery finds after a crash: the newest snapshot and what follows it.
    pub(crate) fn recover(&self) -> Recovered {
        newest_snapshot(&self.before, &self.done)
    }

    /// As `recover`, if the newest snapshot cannot be read.
    pub(crate) fn recover_from_older_snapshot(&self) -> Recovered {
        let mut state = self.before.clone();
        for op in &self.done {
            fold(&mut state, op);
        }
        state
    }
}

fn newest_snapshot(before: &Recovered, done: &[LogOp]) -> Recovered {
    let mut state = before.clone();
    for op in done {
        match op {
            LogOp::Roll { snapshot, .. } | LogOp::Checkpoint { snapshot } => {
                let cleaned = state.cleaned;
                state = Recovered::from_snapshot(snapshot).expect("a snapshot can be read");
                state.cleaned = cleaned;
            }
            op => fold(&mut state, op),
        }
    }
    state
}

fn fold(state: &mut Recovered, op: &LogOp) {
    match op {
        LogOp::Append { batch, .. } => {
            let frame_bytes = (FRAME_HEADER_BYTES + batch.len()) as u64;
            state.apply(batch, frame_bytes).expect("appends follow one another");
        }
        LogOp::Roll { base, .. } => state.roll(*base).expect("segments follow one another"),
        LogOp::DeleteBefore { offset } => state.delete_before(*offset),
        LogOp::Checkpoint { .. } => {}
        LogOp::Replace(cleaned) => drop(state.replace(cleaned)),
        LogOp::TruncateTo { .. } | LogOp::ResetTo { .. } => panic!("no fold undoes itself: {op:?}"),
    }
}

/// Whether `rebuilt` is what `live` was: the same but for producers that `live` let expire.
pub(crate) fn agrees(rebuilt: &Recovered, live: &Recovered) -> bool {
    let mut same = rebuilt.clone();
    same.producers = live.producers.clone();
    let all_known = live.producers.iter().all(|(id, producer)| {
        rebuilt.producers.producer(id).is_some_and(|known| known == producer)
    });
    same == *live && all_known && rebuilt.log_start >= Offset::ZERO
}
