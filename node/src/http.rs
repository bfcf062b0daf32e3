//! HTTP for monitors and load balancers: health, metrics, lag. GET only, one request a connection,
//! and nothing that changes anything.

mod exposition;
mod health;
mod lag;
mod metrics;
mod request;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quorate_net::transport::{Listener, Stream};
use tokio::io::AsyncWriteExt;

use self::request::{RequestLine, read_request};
use crate::listener::stop::{Pace, Stop};
use crate::node::Node;

/// Connections at one time; one more is closed as it comes.
const CONNECTIONS_MAX: usize = 64;
/// A request is read, and its answer taken, within this time.
const TIME_MAX: Duration = Duration::from_secs(10);
/// After a failed accept the door stays shut for so long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
/// Of Prometheus.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// An answer: status, the kind of what follows, and that.
pub(crate) struct Answer {
    status: u16,
    kind: &'static str,
    body: String,
}

impl Answer {
    fn text(status: u16, sentence: impl Into<String>) -> Self {
        Self { status, kind: TEXT, body: format!("{}\n", sentence.into()) }
    }

    fn json(value: &impl serde::Serialize) -> Self {
        match serde_json::to_string_pretty(value) {
            Ok(body) => Self { status: 200, kind: JSON, body: body + "\n" },
            Err(error) => Self::text(500, error.to_string()),
        }
    }

    fn bytes(&self, with_body: bool) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            431 => "Request Header Fields Too Large",
            500 => "Internal Server Error",
            _ => "Service Unavailable",
        };
        let Self { status, kind, body } = self;
        let length = body.len();
        let mut bytes = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n"
        )
        .into_bytes();
        if with_body {
            bytes.extend_from_slice(body.as_bytes());
        }
        bytes
    }
}

/// Answers until everything ends: also while the node starts, and while it stops.
pub(crate) async fn serve(mut listener: Box<dyn Listener>, node: Arc<Node>, stop: Arc<Stop>) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.until(Pace::Cut) => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection for HTTP could not be accepted");
                node.clock.sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
            tracing::debug!(%peer, "one connection for HTTP too many");
            continue;
        }
        open.fetch_add(1, Ordering::Relaxed);
        let (node, stop, open) = (Arc::clone(&node), Arc::clone(&stop), Arc::clone(&open));
        tokio::spawn(async move {
            let clock = Arc::clone(&node.clock);
            tokio::select! {
                biased;
                () = stop.until(Pace::Cut) => {}
                () = converse(stream, &node, &stop) => {}
                () = clock.sleep(TIME_MAX) => tracing::debug!(%peer, "a request took too long"),
            }
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

async fn converse(mut stream: Box<dyn Stream>, node: &Node, stop: &Stop) {
    let (answer, with_body) = match read_request(&mut stream).await {
        Ok(Some(RequestLine { method, path })) => match method.as_str() {
            "GET" => (route(node, stop, &path), true),
            "HEAD" => (route(node, stop, &path), false),
            _ => (Answer::text(405, "only GET is answered here"), true),
        },
        Ok(None) => return,
        Err(answer) => (answer, true),
    };
    let sent = stream.write_all(&answer.bytes(with_body)).await;
    if sent.is_ok() {
        // Whoever has gone has the answer, or does not want it.
        let _ = stream.shutdown().await;
    }
}

const PATHS: &str = "there is nothing here; try /livez, /readyz, /safe-to-stop, /metrics, /lag, \
                     /lag/GROUP";

fn route(node: &Node, stop: &Stop, path: &str) -> Answer {
    match path {
        "/livez" => Answer::text(200, "the node lives"),
        "/readyz" => health::ready(node, stop.pace()),
        "/safe-to-stop" => health::safe_to_stop(node),
        "/metrics" => {
            let body = metrics::exposition(node, stop.pace());
            Answer { status: 200, kind: EXPOSITION, body }
        }
        "/lag" | "/lag/" => lag::all(node),
        path => match path.strip_prefix("/lag/") {
            Some(group) => lag::one(node, group),
            None => Answer::text(404, PATHS),
        },
    }
}
