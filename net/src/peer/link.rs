//! One connection to one peer, dialled again whenever it breaks. What is sent while there is none
//! is lost.

use std::future::Future;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes};
use quorate_core::id::NodeId;
use quorate_core::rng::Rng;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, WriteHalf};

use super::frame::{self, Frame};
use super::hello::{self, Answer, Hello, Me, Refusal};
use super::outbox::Outbox;
use super::{Channel, Limits};
use crate::clock::Clock;
use crate::connection::Frames;
use crate::transport::{Network, Stream, write_chunks};

/// Bytes taken from the queue for one write.
const WRITE_BYTES_MAX: usize = 1 << 20;

/// Chunks in one write.
const SLICES_MAX: usize = 64;

/// Why nobody answers is printed from this attempt on, a fifth of a second after the first by the
/// default back-off.
const PRINTED_ATTEMPTS: u32 = 4;

/// The kind of a greeting's frame.
pub(super) const GREETING: u8 = 1;

/// What a link needs of the world.
#[derive(Clone)]
pub struct Surroundings {
    pub network: Arc<dyn Network>,
    pub clock: Arc<dyn Clock>,
}

/// Where a link leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub node: NodeId,
    /// `host:port`.
    pub address: String,
    pub channel: Channel,
}

/// What a link says of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// What is sent from now on may arrive; what was sent before is lost.
    Connected,
    Ended,
    /// After a connection had ended, nobody listened any more where the peer did: its process is
    /// gone. Told once a connection.
    Gone,
}

/// A handle on a link. Sending never waits.
#[derive(Debug)]
pub struct Link {
    outbox: Outbox,
    limits: Limits,
    state: Mutex<State>,
}

/// How a link stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Connected {
        protocol: u16,
    },
    /// Dialled `attempts` times since the last connection; `reason` is why the last one failed.
    Dialling {
        attempts: u32,
        reason: String,
    },
}

impl Link {
    /// A link that is not driven yet: see `run`. Panics on limits that cannot be kept.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        limits.check().expect("whoever builds limits has checked them");
        let state = State::Dialling { attempts: 0, reason: "it was not dialled yet".to_owned() };
        Self { outbox: Outbox::new(&limits), limits, state: Mutex::new(state) }
    }

    /// The longest frame that `send` takes: its head and tail together have 5 bytes less.
    #[must_use]
    pub const fn frame_bytes_max(&self) -> usize {
        self.limits.frame_bytes_max
    }

    /// Whether the frame waits for the connection now; otherwise it is lost. `kind` is neither a
    /// pulse nor a greeting.
    pub fn send(&self, kind: u8, head: &[u8], tail: &[Bytes]) -> bool {
        assert!(kind > GREETING, "kind {kind} is the link's own");
        let bytes = 5 + head.len() + tail.iter().map(Bytes::len).sum::<usize>();
        assert!(bytes <= self.limits.frame_bytes_max, "the sender keeps to the limit: {bytes}");
        self.outbox.push(frame::to_chunks(kind, head, tail))
    }

    #[must_use]
    pub fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Frames lost so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.outbox.lost()
    }

    fn set(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// Dials, greets as whoever `me` says this node is by then, writes, and dials again, for ever.
    /// `told` hears whenever a connection stands, and when it has ended. `seed` draws the jitter of
    /// the back-off.
    pub async fn run(
        &self,
        around: &Surroundings,
        me: &(dyn Fn() -> Me + Send + Sync),
        target: &Target,
        seed: u64,
        told: &(dyn Fn(Told) + Send + Sync),
    ) {
        let mut rng = Rng::new(seed);
        let (mut attempts, mut printed) = (0, None);
        let mut stood = false;
        loop {
            let error = match self.connect(around, &me(), target).await {
                Ok((stream, protocol)) => {
                    (attempts, printed) = (0, None);
                    tracing::debug!(node = %target.node, channel = ?target.channel, "connected");
                    self.outbox.open();
                    self.set(State::Connected { protocol });
                    told(Told::Connected);
                    stood = true;
                    let reason = self.pump(around, stream).await;
                    self.outbox.shut();
                    told(Told::Ended);
                    ConnectError::Other(reason)
                }
                Err(error) => error,
            };
            if matches!(error, ConnectError::Nobody(_)) && std::mem::take(&mut stood) {
                told(Told::Gone);
            }
            attempts += 1;
            let reason = error.to_string();
            // A reason is printed once, not at each attempt; a node that starts is waited for.
            let is_lasting =
                attempts >= PRINTED_ATTEMPTS || matches!(error, ConnectError::Refused(_));
            if is_lasting && printed.as_ref() != Some(&reason) {
                let (node, address) = (target.node, &target.address);
                tracing::warn!(%node, address, channel = ?target.channel, reason, "no connection");
                printed = Some(reason.clone());
            }
            self.set(State::Dialling { attempts, reason });
            around.clock.sleep(self.backoff(attempts, &mut rng)).await;
        }
    }

    /// Between half of the doubled wait and all of it, so that peers do not dial in step.
    fn backoff(&self, attempts: u32, rng: &mut Rng) -> Duration {
        let doubled = self.limits.backoff_min.saturating_mul(1 << (attempts - 1).min(16));
        let wait = doubled.min(self.limits.backoff_max);
        let half = u64::try_from(wait.as_micros() / 2).unwrap_or(u64::MAX - 1);
        Duration::from_micros(half + rng.below(half + 1))
    }

    async fn connect(
        &self,
        around: &Surroundings,
        me: &Me,
        target: &Target,
    ) -> Result<(Box<dyn Stream>, u16), ConnectError> {
        let hello = Hello::new(me, target.node, target.channel).encode();
        let greet = async {
            let mut stream = around.network.connect(&target.address).await.map_err(io_error)?;
            let chunks = frame::to_chunks(GREETING, &hello, &[]);
            write_chunks(&mut stream, chunks).await.map_err(io_error)?;
            let mut frames = Frames::new(hello::BYTES_MAX);
            let frame = read_frame(&mut stream, &mut frames).await.map_err(ConnectError::Other)?;
            let frame = frame.ok_or_else(|| closed("before it answered the greeting"))?;
            match Answer::decode(&frame.head) {
                Ok(Answer::Welcome { protocol }) => Ok((stream, protocol)),
                Ok(Answer::Refused(refusal)) => Err(ConnectError::Refused(refusal)),
                Err(error) => Err(ConnectError::Other(error.to_string())),
            }
        };
        match within(around, self.limits.connect_timeout, greet).await {
            Some(connected) => connected,
            None => Err(ConnectError::Other(format!(
                "there was no answer within {:?}",
                self.limits.connect_timeout
            ))),
        }
    }

    /// Writes what is sent until that fails; says why it did. The peer never writes after its
    /// answer, so what can be read is the end.
    async fn pump(&self, around: &Surroundings, stream: Box<dyn Stream>) -> String {
        let (mut read, mut write) = tokio::io::split(stream);
        let mut rest = [0; 1];
        let reason = tokio::select! {
            biased;
            read = read.read(&mut rest) => match read {
                Ok(0) => "the peer closed the connection".to_owned(),
                Ok(_) => "the peer wrote where it only reads".to_owned(),
                Err(error) => format!("the connection broke: {error}"),
            },
            reason = self.write(around, &mut write) => reason,
        };
        // It may be gone already; nothing more can be done for it.
        let _ = write.shutdown().await;
        reason
    }

    async fn write(&self, around: &Surroundings, write: &mut WriteHalf<Box<dyn Stream>>) -> String {
        loop {
            let taken = self.outbox.take(WRITE_BYTES_MAX);
            let chunks = match within(around, self.limits.pulse_interval, taken).await {
                Some(chunks) => chunks,
                None => frame::to_chunks(frame::PULSE, &[], &[]),
            };
            if let Err(reason) = self.write_all(around, write, chunks).await {
                return reason;
            }
        }
    }

    /// A large frame may take its time on a slow link, as long as the peer takes some of it.
    async fn write_all(
        &self,
        around: &Surroundings,
        write: &mut WriteHalf<Box<dyn Stream>>,
        mut chunks: Vec<Bytes>,
    ) -> Result<(), String> {
        let silence = self.limits.silence_max;
        chunks.reverse();
        while !chunks.is_empty() {
            let front = chunks.iter().rev().take(SLICES_MAX).map(|chunk| IoSlice::new(chunk));
            let slices: Vec<IoSlice<'_>> = front.collect();
            let mut taken = match within(around, silence, write.write_vectored(&slices)).await {
                Some(Ok(0)) => return Err("the peer takes nothing any more".to_owned()),
                Some(Ok(taken)) => taken,
                Some(Err(error)) => return Err(format!("writing failed: {error}")),
                None => return Err(format!("the peer has taken nothing for {silence:?}")),
            };
            while let Some(chunk) = chunks.last_mut() {
                if taken < chunk.len() {
                    chunk.advance(taken);
                    break;
                }
                taken -= chunk.len();
                chunks.pop();
            }
        }
        match within(around, silence, write.flush()).await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(format!("writing failed: {error}")),
            None => Err(format!("the peer has taken nothing for {silence:?}")),
        }
    }
}

/// Why there is no connection.
#[derive(Debug)]
enum ConnectError {
    Refused(Refusal),
    /// Nobody listens there.
    Nobody(String),
    Other(String),
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Nobody(reason) | Self::Other(reason) => f.write_str(reason),
        }
    }
}

#[allow(clippy::needless_pass_by_value)] // As `map_err` wants it.
fn io_error(error: std::io::Error) -> ConnectError {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => ConnectError::Nobody(error.to_string()),
        _ => ConnectError::Other(error.to_string()),
    }
}

fn closed(when: &str) -> ConnectError {
    ConnectError::Other(format!("the peer closed the connection {when}"))
}

/// What `work` gives, or `None` if it takes longer than `limit`.
pub(super) async fn within<T>(
    around: &Surroundings,
    limit: Duration,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = around.clock.sleep(limit) => None,
    }
}

/// The next frame; `None` if the stream ends between two. The error says what went wrong.
pub(super) async fn read_frame(
    stream: &mut (impl AsyncRead + Unpin),
    frames: &mut Frames,
) -> Result<Option<Frame>, String> {
    loop {
        if let Some(frame) = parsed(frames)? {
            return Ok(Some(frame));
        }
        if !read_more(stream, frames).await? {
            return Ok(None);
        }
    }
}

/// The next frame, if all of it is there.
pub(super) fn parsed(frames: &mut Frames) -> Result<Option<Frame>, String> {
    let Some(bytes) = frames.next_frame().map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    Frame::parse(bytes).map(Some).map_err(|error| error.to_string())
}

/// Reads what has come; `false` if the stream ends between two frames.
pub(super) async fn read_more(
    stream: &mut (impl AsyncRead + Unpin),
    frames: &mut Frames,
) -> Result<bool, String> {
    let room = frames.room().map_err(|error| error.to_string())?;
    match stream.read_buf(room).await {
        Ok(0) if frames.at_boundary() => Ok(false),
        Ok(0) => Err("the stream ended inside a frame".to_owned()),
        Ok(_) => Ok(true),
        Err(error) => Err(format!("reading failed: {error}")),
    }
}
