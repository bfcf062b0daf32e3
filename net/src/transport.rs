//! The network as a part of the world: byte streams between addresses.
//! Implementations: `transport/os.rs` (real sockets) and the simulator's own network.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

/// Chunks handed to the system in one vectored write.
const CHUNKS_AT_ONCE: usize = 64;

/// A pending operation of the network.
pub type Io<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// A connected byte stream. Writes go out without `flush`; `shutdown` sends the end of the stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

pub trait Network: Send + Sync + 'static {
    /// Port 0 picks a free port; `Listener::local_address` tells which.
    fn listen(&self, address: SocketAddr) -> Io<'_, Box<dyn Listener>>;

    /// `address` is `host:port`; names are resolved here. May wait for ever: callers set a
    /// deadline.
    fn connect<'a>(&'a self, address: &'a str) -> Io<'a, Box<dyn Stream>>;
}

pub trait Listener: Send + 'static {
    fn accept(&mut self) -> Io<'_, (Box<dyn Stream>, SocketAddr)>;

    fn local_address(&self) -> SocketAddr;
}

/// Writes all of `chunks`, in order, without copying them together.
pub(crate) async fn write_chunks(
    write: &mut (impl AsyncWrite + Unpin),
    chunks: impl IntoIterator<Item = Bytes>,
) -> io::Result<()> {
    let mut left: VecDeque<Bytes> = chunks.into_iter().filter(|chunk| !chunk.is_empty()).collect();
    while !left.is_empty() {
        let slices: Vec<IoSlice<'_>> =
            left.iter().take(CHUNKS_AT_ONCE).map(|chunk| IoSlice::new(chunk)).collect();
        let mut written = write.write_vectored(&slices).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while let Some(first) = left.front_mut() {
            if first.len() > written {
                first.advance(written);
                break;
            }
            written -= first.len();
            left.pop_front();
        }
    }
    write.flush().await
}

#[cfg(not(madsim))]
pub mod os;
