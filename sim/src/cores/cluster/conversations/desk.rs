//! What a client and the world hand each other, and how a client waits. A client asks one thing at
//! a time; what it sends besides is answered to nobody.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use quorate_core::time::Now;

use super::{Ask, Reply};
use crate::history::History;

/// A request on its way out.
pub(in super::super) struct Sent {
    pub(in super::super) n: usize,
    pub(in super::super) attempt: u64,
    /// It leaves so much later.
    pub(in super::super) after: Duration,
    pub(in super::super) ask: Ask,
}

#[derive(Default)]
struct State {
    now: Now,
    healed: bool,
    timeout: Duration,
    /// The run's, while the client goes on.
    history: History,
    sent: Vec<Sent>,
    wakes: Option<Duration>,
    rang: bool,
    /// Rises with each question; answers to earlier ones are not heard.
    attempt: u64,
    /// Who was asked and has not answered.
    asked: Option<usize>,
    /// `Some(None)`: there will be none.
    answer: Option<Option<Reply>>,
    has_proven: bool,
}

/// What a client leaves when it waits.
pub(in super::super) struct Left {
    pub(in super::super) history: History,
    pub(in super::super) sent: Vec<Sent>,
    pub(in super::super) wakes: Option<Duration>,
    pub(in super::super) has_proven: bool,
}

/// The lock is never waited for: clients that live in several worlds are lent to threads in others.
#[derive(Clone, Default)]
pub(in super::super) struct Desk(Arc<Mutex<State>>);

impl Desk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("one thread")
    }
}

/// The world's side.
impl Desk {
    pub(in super::super) fn open(
        &self,
        now: Now,
        healed: bool,
        timeout: Duration,
        history: History,
    ) {
        let mut state = self.state();
        (state.now, state.healed, state.timeout, state.history) = (now, healed, timeout, history);
    }

    pub(in super::super) fn close(&self) -> Left {
        let mut state = self.state();
        Left {
            history: std::mem::take(&mut state.history),
            sent: std::mem::take(&mut state.sent),
            wakes: state.wakes.take(),
            has_proven: std::mem::take(&mut state.has_proven),
        }
    }

    /// Its questions are numbered from here on: no answer to another conversation of the same
    /// client is taken for one of its own.
    pub(in super::super) fn count_from(&self, attempt: u64) {
        self.state().attempt = attempt;
    }

    /// The timer is due.
    pub(in super::super) fn ring(&self) {
        self.state().rang = true;
    }

    /// Whether the client waits for this answer.
    pub(in super::super) fn take(&self, attempt: u64, reply: Reply) -> bool {
        let mut state = self.state();
        let waits = attempt == state.attempt && state.asked.take().is_some();
        if waits {
            state.answer = Some(Some(reply));
        }
        waits
    }

    /// A connection is gone, and what was asked over it up to this attempt. Whether the client
    /// waits for that.
    pub(in super::super) fn lose(&self, n: usize, attempt: u64) -> bool {
        let mut state = self.state();
        let waits = attempt >= state.attempt && state.asked.take_if(|asked| *asked == n).is_some();
        if waits {
            state.answer = Some(None);
        }
        waits
    }
}

/// The client's side.
impl Desk {
    pub(in super::super) fn now(&self) -> Now {
        self.state().now
    }

    pub(in super::super) fn is_healed(&self) -> bool {
        self.state().healed
    }

    pub(in super::super) fn with_history<T>(&self, tell: impl FnOnce(&mut History) -> T) -> T {
        tell(&mut self.state().history)
    }

    /// The client has shown that all works.
    pub(in super::super) fn prove(&self) {
        self.state().has_proven = true;
    }

    /// Leaves after a time; nobody hears the answer.
    pub(in super::super) fn send_late(&self, n: usize, ask: Ask, after: Duration) {
        let after = after.max(Duration::from_nanos(1));
        self.state().sent.push(Sent { n, attempt: 0, after, ask });
    }

    pub(in super::super) async fn sleep(&self, during: Duration) {
        {
            let mut state = self.state();
            (state.rang, state.wakes) = (false, Some(during));
        }
        poll_fn(|_| if self.state().rang { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// `None`: nobody knows whether it was heard.
    pub(in super::super) async fn ask(&self, n: usize, ask: Ask) -> Option<Reply> {
        self.ask_for(n, ask, Duration::ZERO).await
    }

    /// As `ask`, and waits so much longer.
    pub(in super::super) async fn ask_for(
        &self,
        n: usize,
        ask: Ask,
        patience: Duration,
    ) -> Option<Reply> {
        let timeout = self.state().timeout + patience;
        self.ask_within(n, ask, timeout).await
    }

    /// As `ask`, and waits no longer than `timeout`.
    pub(in super::super) async fn ask_within(
        &self,
        n: usize,
        ask: Ask,
        timeout: Duration,
    ) -> Option<Reply> {
        {
            let mut state = self.state();
            state.attempt += 1;
            let attempt = state.attempt;
            state.sent.push(Sent { n, attempt, after: Duration::ZERO, ask });
            (state.asked, state.answer) = (Some(n), None);
            (state.rang, state.wakes) = (false, Some(timeout));
        }
        poll_fn(|_| {
            let mut state = self.state();
            if let Some(answer) = state.answer.take() {
                return Poll::Ready(answer);
            }
            if state.rang {
                state.asked = None;
                return Poll::Ready(None);
            }
            Poll::Pending
        })
        .await
    }
}
