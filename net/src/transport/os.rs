//! Real sockets. The only file that opens one.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::{Io, Listener, Network, Stream};

/// Connections that may wait to be accepted; the system cuts it to `net.core.somaxconn`. One more
/// would be dropped, and tried again by its client a second later.
const BACKLOG: u32 = 4096;

/// What the system may hold of answers that a client has not taken, a connection; it doubles this
/// for itself. Left alone it takes up to 4 MiB from a client that reads nothing, and a thousand of
/// those move 10 GB for nobody. Kafka's `socket.send.buffer.bytes` is 100 KiB by default.
const SEND_BUFFER_BYTES: u32 = 256 * 1024;

/// The operating system's TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsNetwork;

impl Network for OsNetwork {
    fn listen(&self, address: SocketAddr) -> Io<'_, Box<dyn Listener>> {
        Box::pin(async move { Ok(Box::new(bind(address)?) as Box<dyn Listener>) })
    }

    fn connect<'a>(&'a self, address: &'a str) -> Io<'a, Box<dyn Stream>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            // Frames are written whole; waiting for more only adds latency.
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

fn bind(address: SocketAddr) -> io::Result<OsListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A node that was restarted takes its address at once.
    socket.set_reuseaddr(true)?;
    // Connections inherit it from their listener.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let local = listener.local_addr()?;
    Ok(OsListener { listener, local })
}

struct OsListener {
    listener: TcpListener,
    local: SocketAddr,
}

impl Listener for OsListener {
    fn accept(&mut self) -> Io<'_, (Box<dyn Stream>, SocketAddr)> {
        Box::pin(async move {
            let (stream, peer) = self.listener.accept().await?;
            stream.set_nodelay(true)?;
            Ok((Box::new(stream) as Box<dyn Stream>, peer))
        })
    }

    fn local_address(&self) -> SocketAddr {
        self.local
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_have_the_bounded_buffer_of_their_listener() {
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let _client = OsNetwork.connect(&listener.local.to_string()).await.unwrap();
        let (stream, _) = listener.listener.accept().await.unwrap();
        let socket = TcpSocket::from_std_stream(stream.into_std().unwrap());
        assert_eq!(socket.send_buffer_size().unwrap(), 2 * SEND_BUFFER_BYTES);
    }
}
