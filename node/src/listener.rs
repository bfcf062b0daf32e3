//! The door: accepts connections within their limit and hands each to a session.

pub(crate) mod api_versions;
pub(crate) mod end;
pub(crate) mod handle;
pub(crate) mod lending;
pub(crate) mod output;
pub(crate) mod permits;
pub(crate) mod session;
pub(crate) mod stop;
pub(crate) mod transfer;
pub(crate) mod unpacking;

use std::sync::Arc;
use std::time::Duration;

use quorate_net::transport::Listener;
use tokio::sync::Notify;

use self::session::{Client, Session, Shared};

/// After a failed accept (no descriptors left, usually) the door stays shut for so long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The sessions of a door.
#[derive(Default)]
pub(crate) struct Sessions {
    /// Told when one ends.
    ended: Notify,
}

impl Sessions {
    /// Completes once no connection is open.
    pub(crate) async fn all_ended(&self, shared: &Shared) {
        loop {
            let ended = self.ended.notified();
            if shared.metrics.connections_open.value() == 0 {
                return;
            }
            ended.await;
        }
    }
}

/// Accepts until told to stop.
pub(crate) async fn listen(
    mut listener: Box<dyn Listener>,
    connections_max: usize,
    shared: Arc<Shared>,
    sessions: Arc<Sessions>,
) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = shared.stop.told() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                shared.clock.sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if shared.metrics.connections_open.value() >= connections_max as u64 {
            shared.metrics.connections_refused.add(1);
            tracing::debug!(%peer, "one connection too many");
            continue;
        }
        shared.metrics.connections_accepted.add(1);
        let open = Open::new(&shared, &sessions);
        let client = Client { host: peer.ip().to_string() };
        let session = Session::new(Arc::clone(&shared), client, stream);
        tokio::spawn(async move {
            let end = session.await;
            if end.is_given_up() {
                open.shared.metrics.connections_given_up.add(1);
            }
            tracing::debug!(%peer, %end, "connection ended");
            drop(open);
        });
    }
}

/// Counts a connection as long as it lives, however its task ends.
struct Open {
    shared: Arc<Shared>,
    sessions: Arc<Sessions>,
}

impl Open {
    fn new(shared: &Arc<Shared>, sessions: &Arc<Sessions>) -> Self {
        shared.metrics.connections_open.rise();
        Self { shared: Arc::clone(shared), sessions: Arc::clone(sessions) }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.metrics.connections_open.fall();
        self.sessions.ended.notify_waiters();
    }
}
