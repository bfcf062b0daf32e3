//! The word to stop, heard by every connection: first gently, then at once.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// How a connection is to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pace {
    /// As always.
    Serve,
    /// Take nothing new, answer what was taken.
    Drain,
    /// End now.
    Cut,
}

#[derive(Debug, Default)]
pub(crate) struct Stop {
    pace: AtomicU8,
    changed: Arc<Notify>,
}

impl Stop {
    pub(crate) fn drain(&self) {
        self.set(1);
    }

    pub(crate) fn cut(&self) {
        self.set(2);
    }

    fn set(&self, pace: u8) {
        self.pace.fetch_max(pace, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    pub(crate) fn pace(&self) -> Pace {
        match self.pace.load(Ordering::SeqCst) {
            0 => Pace::Serve,
            1 => Pace::Drain,
            _ => Pace::Cut,
        }
    }

    /// Completes once the pace is not `Serve`.
    pub(crate) async fn told(&self) {
        self.until(Pace::Drain).await;
    }

    /// Completes once the pace is this one, or a later one.
    pub(crate) async fn until(&self, pace: Pace) {
        loop {
            let changed = self.changed.notified();
            if self.pace() >= pace {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn ear(self: &Arc<Self>) -> Ear {
        Ear {
            stop: Arc::clone(self),
            changed: Box::pin(Arc::clone(&self.changed).notified_owned()),
        }
    }
}

/// One connection's way to hear of it.
pub(crate) struct Ear {
    stop: Arc<Stop>,
    changed: Pin<Box<OwnedNotified>>,
}

impl Ear {
    /// The pace now; the task is woken when it changes.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Pace {
        // Registered first, read afterwards: a change in between wakes.
        while let Poll::Ready(()) = self.changed.as_mut().poll(context) {
            self.changed = Box::pin(Arc::clone(&self.stop.changed).notified_owned());
        }
        self.stop.pace()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn everybody_hears_each_word() {
        let stop = Arc::new(Stop::default());
        let mut ear = stop.ear();
        assert_eq!(poll_fn(|context| Poll::Ready(ear.poll(context))).await, Pace::Serve);
        stop.drain();
        assert_eq!(poll_fn(|context| Poll::Ready(ear.poll(context))).await, Pace::Drain);
        stop.cut();
        stop.drain();
        assert_eq!(poll_fn(|context| Poll::Ready(ear.poll(context))).await, Pace::Cut);
        stop.told().await;
    }
}
