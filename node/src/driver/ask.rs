//! How the rest of the node speaks to a shard: requests with one answer each, and the promise that
//! a request nobody waits for any more is withdrawn.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use quorate_core::id::{PartitionId, RequestId};
use quorate_core::partition;
use quorate_core::shard::interface::{Input, Outcome};
use quorate_core::{controller, group, transaction};
use tokio::sync::{mpsc, oneshot};

use super::Command;

/// The driver is gone: the node stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopped;

/// One shard, seen from outside. Clones are the same shard.
#[derive(Clone, Debug)]
pub(crate) struct ShardClient {
    inbox: mpsc::Sender<Command>,
    next_request: Arc<AtomicU64>,
}

impl ShardClient {
    pub(super) fn new(inbox: mpsc::Sender<Command>) -> Self {
        Self { inbox, next_request: Arc::default() }
    }

    /// Waits while the inbox is full.
    pub(crate) async fn tell(&self, command: Command) -> Result<(), Stopped> {
        self.inbox.send(command).await.map_err(|_| Stopped)
    }

    /// Hands over a request and returns once it is in the inbox; the answer comes through
    /// `Asked`. Requests of one caller reach the machine in the order of these calls.
    pub(crate) async fn ask(
        &self,
        withdrawal: Withdrawal,
        input: impl FnOnce(RequestId) -> Input,
    ) -> Result<Asked, Stopped> {
        let request = RequestId(self.next_request.fetch_add(1, Ordering::Relaxed));
        let (reply, answer) = oneshot::channel();
        self.tell(Command::Ask { request, input: input(request), reply }).await?;
        Ok(Asked { answer, request, withdrawal, inbox: self.inbox.clone() })
    }

    /// Returns once all that was handed over before has been done, and its writes are on their
    /// way to the disk.
    pub(crate) async fn barrier(&self) -> Result<(), Stopped> {
        let (done, passed) = oneshot::channel();
        self.tell(Command::Barrier(done)).await?;
        passed.await.map_err(|_| Stopped)
    }
}

impl ShardClient {
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.inbox.same_channel(&other.inbox)
    }

    /// Whether the driver is gone.
    pub(crate) fn is_stopped(&self) -> bool {
        self.inbox.is_closed()
    }

    /// Completes once the driver is gone.
    pub(crate) async fn stopped(&self) {
        self.inbox.closed().await;
    }

    /// Ends the driver, now if there is room in the inbox.
    pub(crate) fn stop(&self) {
        let inbox = self.inbox.clone();
        if let Err(mpsc::error::TrySendError::Full(stop)) = inbox.try_send(Command::Stop) {
            tokio::spawn(async move { inbox.send(stop).await });
        }
    }
}

/// Who is told that nobody waits any more.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Withdrawal {
    /// It happens all the same, and its end is bounded.
    Never,
    Partition(PartitionId),
    Group {
        coordinator: i32,
    },
    Transaction {
        coordinator: i32,
    },
    Controller,
}

/// An answer on its way.
#[derive(Debug)]
pub(crate) struct Asked {
    answer: oneshot::Receiver<Outcome>,
    request: RequestId,
    withdrawal: Withdrawal,
    inbox: mpsc::Sender<Command>,
}

impl Future for Asked {
    type Output = Result<Outcome, Stopped>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = Pin::new(&mut self.answer).poll(context);
        if answer.is_ready() {
            self.withdrawal = Withdrawal::Never;
        }
        answer.map_err(|_| Stopped)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let request = self.request;
        let input = match self.withdrawal {
            Withdrawal::Never => return,
            Withdrawal::Partition(partition) => {
                let input = partition::interface::Input::Cancelled { request };
                Input::Partition { partition, input }
            }
            Withdrawal::Group { coordinator } => {
                let input = group::interface::Input::Cancelled { request };
                Input::Group { coordinator, input }
            }
            Withdrawal::Transaction { coordinator } => {
                let input = transaction::interface::Input::Cancelled { request };
                Input::Transaction { coordinator, input }
            }
            Withdrawal::Controller => {
                Input::Controller(controller::interface::Input::Cancelled { request })
            }
        };
        // A full inbox loses the word; then the request's own deadline ends it.
        let _ = self.inbox.try_send(Command::Withdraw { request, input });
    }
}
