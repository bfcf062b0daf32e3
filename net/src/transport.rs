//! The network as a part of the world: byte streams between addresses.
//! Implementations: `transport/os.rs` (real sockets) and the simulator's own network.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

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

#[cfg(not(madsim))]
pub mod os;
