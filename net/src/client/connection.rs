//! One connection to one broker: requests go out one after another without waiting, answers come
//! back in the same order. It knows frames and correlation ids; what is in them is the caller's.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument as _;

use crate::connection::Frames;
use crate::transport::{Stream, write_chunks};

/// How many requests may wait for the writer; callers beyond that wait for room.
const QUEUE: usize = 64;

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(crate) enum Lost {
    /// The request never left: it has certainly not been done.
    NotSent(String),
    /// The request left, at least in part: it may have been done.
    NoAnswer(String),
}

/// A handle on the connection's task. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Connection {
    queue: mpsc::Sender<Outgoing>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Outgoing {
    correlation: i32,
    chunks: Vec<Bytes>,
    /// Acks=0 has no answer; then the reply is an empty frame once all is written.
    answered: bool,
    reply: oneshot::Sender<Result<Bytes, Lost>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next_correlation: i32,
    pending: VecDeque<Pending>,
    closed: Option<String>,
}

#[derive(Debug)]
struct Pending {
    correlation: i32,
    reply: oneshot::Sender<Result<Bytes, Lost>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held is a bug that has been told already.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, reason: &str) {
        let pending = {
            let mut state = self.lock();
            state.closed.get_or_insert_with(|| reason.to_owned());
            std::mem::take(&mut state.pending)
        };
        for request in pending {
            // The caller may have given up.
            let _ = request.reply.send(Err(Lost::NoAnswer(reason.to_owned())));
        }
    }
}

impl Connection {
    /// Starts the task that owns `stream`. No answer may be longer than `answer_bytes_max`.
    pub(crate) fn start(stream: Box<dyn Stream>, answer_bytes_max: usize) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let shared = Arc::new(Shared::default());
        let life = run(stream, receiver, Arc::clone(&shared), answer_bytes_max);
        tokio::spawn(life.in_current_span());
        Self { queue: sender, shared }
    }

    pub(crate) fn next_correlation(&self) -> i32 {
        let mut state = self.shared.lock();
        state.next_correlation = state.next_correlation.wrapping_add(1);
        state.next_correlation
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.shared.lock().closed.is_some()
    }

    /// No further requests: the ones under way are lost.
    pub(crate) fn close(&self, reason: &str) {
        self.shared.close(reason);
    }

    /// Queues a framed request; its place in the order is taken when this returns. The receiver
    /// gets the answer's frame without its length.
    pub(crate) async fn send(
        &self,
        correlation: i32,
        chunks: Vec<Bytes>,
        answered: bool,
    ) -> Result<oneshot::Receiver<Result<Bytes, Lost>>, Lost> {
        if let Some(reason) = &self.shared.lock().closed {
            return Err(Lost::NotSent(reason.clone()));
        }
        let (reply, receiver) = oneshot::channel();
        let outgoing = Outgoing { correlation, chunks, answered, reply };
        match self.queue.send(outgoing).await {
            Ok(()) => Ok(receiver),
            Err(_) => Err(Lost::NotSent("the connection was closed".to_owned())),
        }
    }
}

async fn run(
    stream: Box<dyn Stream>,
    mut queue: mpsc::Receiver<Outgoing>,
    shared: Arc<Shared>,
    answer_bytes_max: usize,
) {
    let (read, mut write) = tokio::io::split(stream);
    let reason = tokio::select! {
        biased;
        reason = read_answers(read, &shared, answer_bytes_max) => reason,
        reason = write_requests(&mut write, &mut queue, &shared) => reason,
    };
    shared.close(&reason);
    queue.close();
    while let Some(outgoing) = queue.recv().await {
        let _ = outgoing.reply.send(Err(Lost::NotSent(reason.clone())));
    }
    // The peer may be gone already; nothing more can be done for it.
    let _ = write.shutdown().await;
}

/// Returns why it ended.
async fn write_requests(
    write: &mut WriteHalf<Box<dyn Stream>>,
    queue: &mut mpsc::Receiver<Outgoing>,
    shared: &Shared,
) -> String {
    while let Some(Outgoing { correlation, chunks, answered, reply }) = queue.recv().await {
        let sent = if answered {
            let mut state = shared.lock();
            if let Some(reason) = state.closed.clone() {
                let _ = reply.send(Err(Lost::NotSent(reason.clone())));
                return reason;
            }
            state.pending.push_back(Pending { correlation, reply });
            None
        } else {
            Some(reply)
        };
        if let Err(error) = write_chunks(write, chunks).await {
            let reason = format!("writing failed: {error}");
            if let Some(reply) = sent {
                let _ = reply.send(Err(Lost::NoAnswer(reason.clone())));
            }
            return reason;
        }
        if let Some(reply) = sent {
            let _ = reply.send(Ok(Bytes::new()));
        }
    }
    "nobody uses the connection any more".to_owned()
}

/// Returns why it ended.
async fn read_answers(
    mut read: ReadHalf<Box<dyn Stream>>,
    shared: &Shared,
    answer_bytes_max: usize,
) -> String {
    let mut frames = Frames::new(answer_bytes_max);
    loop {
        loop {
            match frames.next_frame() {
                Ok(Some(frame)) => {
                    if let Err(reason) = deliver(shared, frame) {
                        return reason;
                    }
                }
                Ok(None) => break,
                Err(error) => return error.to_string(),
            }
        }
        let room = match frames.room() {
            Ok(room) => room,
            Err(error) => return error.to_string(),
        };
        match read.read_buf(room).await {
            Ok(0) => return "the broker closed the connection".to_owned(),
            Ok(_) => {}
            Err(error) => return format!("reading failed: {error}"),
        }
    }
}

fn deliver(shared: &Shared, frame: Bytes) -> Result<(), String> {
    let correlation = frame.first_chunk::<4>().map(|bytes| i32::from_be_bytes(*bytes));
    let Some(first) = shared.lock().pending.pop_front() else {
        return Err("an answer came to no question".to_owned());
    };
    if correlation != Some(first.correlation) {
        let reason = format!(
            "an answer to request {} was due, one to {} came",
            first.correlation,
            correlation.unwrap_or_default()
        );
        let _ = first.reply.send(Err(Lost::NoAnswer(reason.clone())));
        return Err(reason);
    }
    // The caller may have given up.
    let _ = first.reply.send(Ok(frame));
    Ok(())
}

#[cfg(test)]
mod tests;
