//! What a connection has still to send: chunks, written as many at once as the system takes.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use quorate_net::transport::Stream;
use tokio::io::AsyncWrite;

use super::permits::Permit;

/// Chunks handed to the system in one call.
const CHUNKS_AT_ONCE: usize = 64;

/// Answers in the order in which they leave.
#[derive(Debug, Default)]
pub(crate) struct Output {
    chunks: VecDeque<Bytes>,
    /// Bytes not yet sent.
    pending: usize,
    /// Bytes sent in the life of the connection.
    sent: u64,
    /// Each returns once so many bytes have been sent.
    permits: VecDeque<(u64, Permit)>,
}

impl Output {
    pub(crate) fn push(&mut self, chunks: Vec<Bytes>, permit: Option<Permit>) {
        for chunk in chunks {
            if !chunk.is_empty() {
                self.pending += chunk.len();
                self.chunks.push_back(chunk);
            }
        }
        if let Some(permit) = permit {
            self.permits.push_back((self.sent + self.pending as u64, permit));
        }
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    /// Sends what the stream takes. `Ready(Ok(bytes))` with `bytes` above 0 when some were taken.
    pub(crate) fn poll_send(
        &mut self,
        stream: &mut dyn Stream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); CHUNKS_AT_ONCE];
        let count = self.chunks.len().min(CHUNKS_AT_ONCE);
        for (slice, chunk) in slices.iter_mut().zip(&self.chunks) {
            *slice = IoSlice::new(chunk);
        }
        let mut stream = stream;
        let written = match count {
            0 => return Poll::Pending,
            _ => Pin::new(&mut stream).poll_write_vectored(context, &slices[..count]),
        };
        match written {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(bytes)) => {
                self.advance(bytes);
                Poll::Ready(Ok(bytes))
            }
        }
    }

    fn advance(&mut self, bytes: usize) {
        self.pending -= bytes;
        self.sent += bytes as u64;
        let mut left = bytes;
        while left > 0 {
            let front = self.chunks.front_mut().expect("only what was there is sent");
            if left < front.len() {
                front.advance(left);
                break;
            }
            left -= front.len();
            self.chunks.pop_front();
        }
        while self.permits.front().is_some_and(|(end, _)| *end <= self.sent) {
            self.permits.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncReadExt;

    use super::super::permits::Pool;
    use super::*;

    #[tokio::test]
    async fn chunks_arrive_in_order_and_permits_return() {
        let pool = Pool::new(10);
        let (near, mut far) = tokio::io::duplex(3);
        let mut stream: Box<dyn Stream> = Box::new(near);
        let mut output = Output::default();
        output.push(vec![Bytes::from_static(b"ab"), Bytes::from_static(b"cdef")], pool.try_take(4));
        output.push(vec![Bytes::from_static(b"g")], None);
        let mut received = Vec::new();
        while output.pending() > 0 {
            poll_fn(|context| output.poll_send(&mut *stream, context)).await.unwrap();
            let mut some = [0; 3];
            let read = far.read(&mut some).await.unwrap();
            received.extend_from_slice(&some[..read]);
            assert_eq!(pool.taken(), if output.sent < 6 { 4 } else { 0 });
        }
        assert_eq!(received, b"abcdefg");
    }
}
