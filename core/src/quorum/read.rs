//! Reads that see everything answered before they were asked: who asks waits until a majority
//! has confirmed, by a round begun after the question, that the leader still leads.

use std::collections::VecDeque;

use super::identity::Index;
use crate::id::RequestId;

/// Reads of one leadership, in the order they were asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Reads {
    /// Waiting for a round to begin.
    waiting: VecDeque<RequestId>,
    /// Asked before the round began, which began when so much was committed.
    asked: VecDeque<Asked>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    request: RequestId,
    round: u64,
    through: Index,
}

impl Reads {
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.asked.len()
    }

    pub(super) fn push(&mut self, request: RequestId) {
        self.waiting.push_back(request);
    }

    /// Whether a round is worth beginning: somebody waits, and no round is under way.
    pub(super) fn want_round(&self) -> bool {
        !self.waiting.is_empty() && self.asked.is_empty()
    }

    /// A round begins, and everything up to `committed` is.
    pub(super) fn begin(&mut self, round: u64, committed: Index) {
        let asked = |request| Asked { request, round, through: committed };
        self.asked.extend(self.waiting.drain(..).map(asked));
    }

    /// The next read that `round` confirms, if its entries are `delivered`.
    pub(super) fn confirm(&mut self, round: u64, delivered: Index) -> Option<(RequestId, Index)> {
        let first = self.asked.front()?;
        if first.round > round || first.through > delivered {
            return None;
        }
        self.asked.pop_front().map(|asked| (asked.request, asked.through))
    }

    pub(super) fn cancel(&mut self, request: RequestId) {
        self.waiting.retain(|waiting| *waiting != request);
        self.asked.retain(|asked| asked.request != request);
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = RequestId> + '_ {
        self.waiting.drain(..).chain(self.asked.drain(..).map(|asked| asked.request))
    }
}
