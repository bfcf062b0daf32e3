//! Requests to controllers on other nodes that wait for their answers, bounded in number.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use quorate_core::id::NodeId;
use tokio::sync::oneshot;

use super::frames::Reply;

/// Who waits for what.
#[derive(Debug, Default)]
pub(super) struct Calls {
    next: AtomicU64,
    waiting: Mutex<BTreeMap<u64, (NodeId, oneshot::Sender<Reply>)>>,
}

/// A request under way. Dropping it forgets it.
pub(super) struct Call<'a> {
    calls: &'a Calls,
    pub(super) id: u64,
    answer: oneshot::Receiver<Reply>,
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, (NodeId, oneshot::Sender<Reply>)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request to `to`; `None` if `calls_max` wait already.
    pub(super) fn begin(&self, to: NodeId, calls_max: usize) -> Option<Call<'_>> {
        let (reply, answer) = oneshot::channel();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut waiting = self.lock();
        if waiting.len() >= calls_max {
            return None;
        }
        waiting.insert(id, (to, reply));
        Some(Call { calls: self, id, answer })
    }

    /// An answer of `from`. One that comes too late, or that nobody asked of this node, is passed
    /// over.
    pub(super) fn answer(&self, from: NodeId, id: u64, reply: Reply) {
        let mut waiting = self.lock();
        if waiting.get(&id).is_some_and(|(asked, _)| *asked == from)
            && let Some((_, waiter)) = waiting.remove(&id)
        {
            // Who left meanwhile needs no answer.
            let _ = waiter.send(reply);
        }
    }

    /// The way to `node` is gone, and with it what was asked or is to be answered there.
    pub(super) fn lose(&self, node: NodeId) {
        self.lock().retain(|_, (asked, _)| *asked != node);
    }
}

impl Call<'_> {
    /// `None` if nobody knows whether the request arrived.
    pub(super) async fn answered(mut self) -> Option<Reply> {
        (&mut self.answer).await.ok()
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.calls.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_reaches_who_asked_that_node() {
        let calls = Calls::default();
        let (one, two) = (calls.begin(NodeId(1), 2).unwrap(), calls.begin(NodeId(2), 2).unwrap());
        assert!(calls.begin(NodeId(1), 2).is_none(), "a third");
        calls.answer(NodeId(1), two.id, Reply::NotHere);
        calls.answer(NodeId(1), one.id, Reply::NotHere);
        assert_eq!(one.answered().await, Some(Reply::NotHere));
        calls.lose(NodeId(1));
        let again = calls.begin(NodeId(3), 2).unwrap();
        calls.lose(NodeId(2));
        assert_eq!(two.answered().await, None);
        drop(again);
        assert!(calls.lock().is_empty());
    }
}
