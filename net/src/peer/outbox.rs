//! What waits for a connection to a peer: bounded in bytes and frames. What does not fit is lost,
//! as the network may lose it, and counted.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use super::Limits;

/// Filled by those who send, emptied by the one who writes.
#[derive(Debug)]
pub(super) struct Outbox {
    state: Mutex<State>,
    arrived: Notify,
    bytes_max: usize,
    frames_max: usize,
}

#[derive(Debug, Default)]
struct State {
    /// Each frame's chunks, and their bytes.
    frames: VecDeque<(Vec<Bytes>, usize)>,
    bytes: usize,
    /// Nobody writes: what is sent is lost.
    is_shut: bool,
    lost: u64,
}

impl Outbox {
    /// Shut, until a connection stands.
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            state: Mutex::new(State { is_shut: true, ..State::default() }),
            arrived: Notify::new(),
            bytes_max: limits.queue_bytes_max,
            frames_max: limits.queue_frames_max,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held is a bug that has been told already.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the frame was taken; otherwise it is lost.
    pub(super) fn push(&self, chunks: Vec<Bytes>) -> bool {
        let bytes: usize = chunks.iter().map(Bytes::len).sum();
        let mut state = self.lock();
        let has_room =
            state.frames.len() < self.frames_max && state.bytes + bytes <= self.bytes_max;
        if state.is_shut || !has_room {
            state.lost += 1;
            return false;
        }
        state.bytes += bytes;
        state.frames.push_back((chunks, bytes));
        drop(state);
        self.arrived.notify_one();
        true
    }

    /// A connection stands: what is sent from now on is kept for it.
    pub(super) fn open(&self) {
        self.lock().is_shut = false;
    }

    /// The connection is gone, and with it what waited for it: a machine that still means it says
    /// it again, and old news does not fill the next connection.
    pub(super) fn shut(&self) {
        let mut state = self.lock();
        state.is_shut = true;
        state.lost += state.frames.len() as u64;
        state.frames.clear();
        state.bytes = 0;
    }

    /// The frames that wait, up to `bytes_max` bytes of them but at least one. May be dropped at
    /// any time.
    pub(super) async fn take(&self, bytes_max: usize) -> Vec<Bytes> {
        loop {
            let arrived = self.arrived.notified();
            let taken = self.take_now(bytes_max);
            if !taken.is_empty() {
                return taken;
            }
            arrived.await;
        }
    }

    fn take_now(&self, bytes_max: usize) -> Vec<Bytes> {
        let mut state = self.lock();
        let (mut taken, mut taken_bytes) = (Vec::new(), 0);
        while let Some((_, bytes)) = state.frames.front()
            && (taken.is_empty() || taken_bytes + bytes <= bytes_max)
        {
            let Some((chunks, bytes)) = state.frames.pop_front() else { break };
            state.bytes -= bytes;
            taken_bytes += bytes;
            taken.extend(chunks);
        }
        taken
    }

    /// Frames lost so far.
    pub(super) fn lost(&self) -> u64 {
        self.lock().lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(bytes: usize) -> Vec<Bytes> {
        vec![Bytes::from(vec![0; bytes])]
    }

    #[tokio::test]
    async fn the_bounds_hold_at_their_edges() {
        let limits = Limits { queue_bytes_max: 10, queue_frames_max: 3, ..Limits::default() };
        let outbox = Outbox::new(&limits);
        assert!(!outbox.push(chunk(1)), "nobody would write it");
        outbox.open();
        assert!(outbox.push(chunk(4)) && outbox.push(chunk(6)));
        assert!(!outbox.push(chunk(1)), "an eleventh byte");
        assert_eq!(outbox.take(5).await.concat().len(), 4, "no more than was asked for");
        assert_eq!(outbox.take(1).await.concat().len(), 6, "but at least one");
        assert!((0..3).all(|_| outbox.push(chunk(1))));
        assert!(!outbox.push(chunk(1)), "a fourth frame");
        outbox.shut();
        assert_eq!(outbox.lost(), 1 + 1 + 1 + 3);
        outbox.open();
        assert!(outbox.push(chunk(10)), "the room is free again");
    }
}
