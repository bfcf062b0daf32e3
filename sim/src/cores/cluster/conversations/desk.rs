//! What a client and the world hand each other, and how a client waits. A client asks one thing at
//! a time; what it sends besides is answered to nobody.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
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

#[derive(Clone, Default)]
pub(in super::super) struct Desk(Rc<RefCell<State>>);

/// The world's side.
impl Desk {
    pub(in super::super) fn open(
        &self,
        now: Now,
        healed: bool,
        timeout: Duration,
        history: History,
    ) {
        let mut state = self.0.borrow_mut();
        (state.now, state.healed, state.timeout, state.history) = (now, healed, timeout, history);
    }

    pub(in super::super) fn close(&self) -> Left {
        let mut state = self.0.borrow_mut();
        Left {
            history: std::mem::take(&mut state.history),
            sent: std::mem::take(&mut state.sent),
            wakes: state.wakes.take(),
            has_proven: std::mem::take(&mut state.has_proven),
        }
    }

    /// The timer is due.
    pub(in super::super) fn ring(&self) {
        self.0.borrow_mut().rang = true;
    }

    /// Whether the client waits for this answer.
    pub(in super::super) fn take(&self, attempt: u64, reply: Reply) -> bool {
        let mut state = self.0.borrow_mut();
        let waits = attempt == state.attempt && state.asked.take().is_some();
        if waits {
            state.answer = Some(Some(reply));
        }
        waits
    }

    /// A connection is gone, and what was asked over it up to this attempt. Whether the client
    /// waits for that.
    pub(in super::super) fn lose(&self, n: usize, attempt: u64) -> bool {
        let mut state = self.0.borrow_mut();
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
        self.0.borrow().now
    }

    pub(in super::super) fn is_healed(&self) -> bool {
        self.0.borrow().healed
    }

    pub(in super::super) fn with_history<T>(&self, tell: impl FnOnce(&mut History) -> T) -> T {
        tell(&mut self.0.borrow_mut().history)
    }

    /// The client has shown that all works.
    pub(in super::super) fn prove(&self) {
        self.0.borrow_mut().has_proven = true;
    }

    /// Leaves after a time; nobody hears the answer.
    pub(in super::super) fn send_late(&self, n: usize, ask: Ask, after: Duration) {
        let after = after.max(Duration::from_nanos(1));
        self.0.borrow_mut().sent.push(Sent { n, attempt: 0, after, ask });
    }

    pub(in super::super) async fn sleep(&self, during: Duration) {
        {
            let mut state = self.0.borrow_mut();
            (state.rang, state.wakes) = (false, Some(during));
        }
        poll_fn(|_| if self.0.borrow().rang { Poll::Ready(()) } else { Poll::Pending }).await;
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
        {
            let mut state = self.0.borrow_mut();
            state.attempt += 1;
            let (attempt, timeout) = (state.attempt, state.timeout + patience);
            state.sent.push(Sent { n, attempt, after: Duration::ZERO, ask });
            (state.asked, state.answer) = (Some(n), None);
            (state.rang, state.wakes) = (false, Some(timeout));
        }
        poll_fn(|_| {
            let mut state = self.0.borrow_mut();
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
