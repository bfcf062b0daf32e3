//! How a replica ends: closed in good order, halted by its disk, or dropped with its topic. Who
//! waits hears of it.

use super::interface::{Effect, HaltReason, LogOp, Outcome, Refusal};
use super::{InFlight, Replica, State, reply};
use crate::id::{Offset, RequestId, WriteId};
use crate::{mutant, reached};

impl Replica {
    /// The topic is gone: who waits is refused, and nothing is left.
    pub fn abandon(mut self, effects: &mut Vec<Effect>) {
        self.refuse_answers(Refusal::NotLeader, effects);
        self.refuse_waiting(Refusal::NotLeader, effects);
    }

    pub(super) fn on_write_failed(&mut self, write: WriteId, effects: &mut Vec<Effect>) {
        if self.state == State::Halted {
            return;
        }
        // zoo D6: what is appended behind a failed write stands behind a hole.
        if mutant!("append-after-write-error") {
            return;
        }
        effects.push(Effect::Halt { reason: HaltReason::WriteFailed { write } });
        reached!("write-failed");
        self.state = State::Halted;
        self.refuse_answers(Refusal::Storage, effects);
        self.refuse_waiting(Refusal::Storage, effects);
    }

    pub(super) fn on_close(&mut self, request: RequestId, effects: &mut Vec<Effect>) {
        if self.state == State::Halted {
            reply(request, Outcome::Refused(Refusal::Storage), effects);
            return;
        }
        self.state = State::Closing;
        for reader in self.waiting.readers_below(Offset(i64::MAX)) {
            self.waiting.remove(reader);
            reply(reader, Outcome::Advanced, effects);
        }
        if self.cutting.is_some() {
            reached!("closes-after-a-cut");
            self.close_after_cut = Some(request);
            return;
        }
        self.finish_closing(request, effects);
    }

    pub(super) fn finish_closing(&mut self, request: RequestId, effects: &mut Vec<Effect>) {
        if self.is_dirty {
            let snapshot = self.log.to_snapshot();
            self.write(LogOp::Checkpoint { snapshot }, Some(request), effects);
            self.is_dirty = false;
        } else if let Some(last) = self.writes.back().copied() {
            self.writes.push_back(InFlight { closes: Some(request), ..last });
        } else {
            reply(request, Outcome::Closed, effects);
        }
    }

    pub(super) fn refuse_answers(&mut self, refusal: Refusal, effects: &mut Vec<Effect>) {
        for done in std::mem::take(&mut self.writes) {
            if let Some(request) = done.closes {
                reply(request, Outcome::Refused(refusal), effects);
            }
        }
        if let Some(request) = self.close_after_cut.take() {
            reply(request, Outcome::Refused(refusal), effects);
        }
    }

    pub(super) fn refuse_waiting(&mut self, refusal: Refusal, effects: &mut Vec<Effect>) {
        while let Some((request, _)) = self.waiting.pop() {
            reply(request, Outcome::Refused(refusal), effects);
        }
    }
}
