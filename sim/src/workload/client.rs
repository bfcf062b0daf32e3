//! A thin client: one connection, requests and their responses in order, a deadline for each. It
//! hides nothing, so that a workload decides for itself what to send twice.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use quorate_net::clock::Clock;
use quorate_net::connection::Frames;
use quorate_net::kafka::header::RequestHeader;
use quorate_net::kafka::{Call, frame};
use quorate_net::transport::{Network, Stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Responses beyond this are refused.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// A connection to a node.
pub struct Link {
    address: String,
    stream: Box<dyn Stream>,
    frames: Frames,
    next: i32,
    /// Correlation id and version of requests that were not answered yet, in order.
    expected: std::collections::VecDeque<(i32, i16)>,
}

/// Gives up after `most`.
///
/// # Errors
///
/// `TimedOut`, or the future's own.
pub async fn within<T>(
    clock: &dyn Clock,
    most: Duration,
    future: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    tokio::select! {
        biased;
        done = future => done,
        () = clock.sleep(most) => Err(io::ErrorKind::TimedOut.into()),
    }
}

impl Link {
    pub async fn connect(network: &Arc<dyn Network>, address: &str) -> io::Result<Self> {
        let stream = network.connect(address).await?;
        let frames = Frames::new(FRAME_BYTES_MAX);
        let expected = std::collections::VecDeque::new();
        Ok(Self { address: address.to_owned(), stream, frames, next: 0, expected })
    }

    /// Whom it was opened to.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends a request; `answered` says whether a response will come.
    pub async fn send<R: Call>(
        &mut self,
        version: i16,
        body: &R,
        answered: bool,
    ) -> io::Result<()> {
        self.next += 1;
        let header =
            RequestHeader { key: R::KEY, version, correlation_id: self.next, client_id: None };
        let chunks = frame::encode_request(&header, body).map_err(io::Error::other)?;
        if answered {
            self.expected.push_back((self.next, version));
        }
        for chunk in chunks {
            self.stream.write_all(&chunk).await?;
        }
        Ok(())
    }

    /// The response to the oldest request that has none.
    pub async fn receive<R: Call>(&mut self) -> io::Result<R::Response> {
        let (wanted, version) =
            self.expected.pop_front().ok_or_else(|| io::Error::other("nothing was asked"))?;
        loop {
            if let Some(frame) = self.frames.next_frame().map_err(io::Error::other)? {
                let (found, body) =
                    frame::decode_response::<R>(&frame, version).map_err(io::Error::other)?;
                if found != wanted {
                    let text = format!("response {found} came, {wanted} was due");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
                return Ok(body);
            }
            let room = self.frames.room().map_err(io::Error::other)?;
            if self.stream.read_buf(room).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// One request and its response.
    pub async fn call<R: Call>(&mut self, version: i16, body: &R) -> io::Result<R::Response> {
        self.send(version, body, true).await?;
        self.receive::<R>().await
    }
}
