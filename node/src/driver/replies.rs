//! Who waits for which answer of a shard.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use quorate_core::id::RequestId;
use quorate_core::shard::interface::Outcome;
use tokio::sync::oneshot;

/// As many as there are requests under way, which the connections bound.
#[derive(Debug, Default)]
pub(super) struct Replies {
    waiting: HashMap<u64, oneshot::Sender<Outcome>, BuildHasherDefault<Spread>>,
}

impl Replies {
    pub(super) fn expect(&mut self, request: RequestId, reply: oneshot::Sender<Outcome>) {
        self.waiting.insert(request.0, reply);
    }

    pub(super) fn answer(&mut self, request: RequestId, outcome: Outcome) {
        if let Some(reply) = self.waiting.remove(&request.0) {
            // Who left meanwhile needs no answer.
            let _ = reply.send(outcome);
        }
    }

    pub(super) fn forget(&mut self, request: RequestId) {
        self.waiting.remove(&request.0);
    }
}

/// Our own counter needs no protection from chosen collisions, only some spreading.
#[derive(Debug, Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
