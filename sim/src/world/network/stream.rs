//! A connected stream as a program holds it: reads and writes come in pieces, writing waits for
//! the reader, and dropping it closes the connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::{Life, Segment};
use super::{ConnectionId, SimNetwork, State};
use crate::trace::{self, Mark};
use crate::world::clock::Alarm;

pub(super) struct SimStream {
    network: Arc<SimNetwork>,
    id: ConnectionId,
    end: usize,
    /// The life of the host that holds it.
    incarnation: u32,
    /// Arrived, and not yet taken.
    chunk: Bytes,
    alarm: Alarm,
    ended: bool,
}

impl SimStream {
    pub(super) fn new(
        network: Arc<SimNetwork>,
        id: ConnectionId,
        end: usize,
        incarnation: u32,
    ) -> Self {
        let alarm = Alarm::new(network.time.clone());
        Self { network, id, end, incarnation, chunk: Bytes::new(), alarm, ended: false }
    }

    /// Waits for the next segment and keeps its bytes.
    fn poll_segment(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut state = self.network.state();
            let now = state.time.elapsed();
            let Some(connection) = state.connections.get_mut(&self.id) else {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            };
            let end = &mut connection.ends[self.end];
            if end.life == Life::Closed {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            end.reader = Some(cx.waker().clone());
            let at = match end.inbound.front() {
                None => return Poll::Pending,
                Some((at, _)) if *at <= now => None,
                Some((at, _)) => Some(*at),
            };
            if let Some(at) = at {
                drop(state);
                if self.alarm.poll_until(at, cx).is_pending() {
                    return Poll::Pending;
                }
                continue;
            }
            match end.inbound.pop_front() {
                Some((_, Segment::Data(data))) => {
                    end.unread -= data.len();
                    let who = end.host;
                    if let Some(writer) = connection.ends[1 - self.end].writer.take() {
                        writer.wake();
                    }
                    note(&state, who, self.id, data.len());
                    self.chunk = data;
                }
                Some((_, Segment::Fin)) => self.ended = true,
                Some((at, Segment::Reset)) => {
                    // It stays: every later read says the same.
                    end.inbound.push_front((at, Segment::Reset));
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
                None => {}
            }
            return Poll::Ready(Ok(()));
        }
    }
}

fn note(state: &State, host: usize, id: ConnectionId, bytes: usize) {
    let who = state.hosts[host].name;
    trace::event(state.time.elapsed(), Mark::Segment, who, [id, bytes as u64, 0], || {
        format!("receives {bytes} bytes on connection {id}")
    });
}

impl AsyncRead for SimStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.chunk.is_empty() && !this.ended {
            match this.poll_segment(cx) {
                Poll::Ready(Ok(())) => {}
                other => return other,
            }
        }
        if this.chunk.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let mut bytes = this.chunk.len().min(buffer.remaining());
        {
            let mut state = this.network.state();
            bytes = cut_short(&mut state, this.id, 1 - this.end, bytes);
        }
        buffer.put_slice(&this.chunk[..bytes]);
        this.chunk.advance(bytes);
        Poll::Ready(Ok(()))
    }
}

/// Now and then a piece is shorter than it could be.
fn cut_short(state: &mut State, id: ConnectionId, from: usize, bytes: usize) -> usize {
    let fragment = state.model.fragment;
    if fragment.hits == 0 || bytes <= 1 {
        return bytes;
    }
    let Some(connection) = state.connections.get(&id) else { return bytes };
    let (from, to) = (connection.ends[from].host, connection.ends[1 - from].host);
    let chance = &mut state.link(from, to).chance;
    if chance.hit(fragment) { 1 + chance.below(bytes as u64) as usize } else { bytes }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.network.state();
        let state = &mut *state;
        let now = state.time.elapsed();
        let window = state.model.window as usize;
        let Some(connection) = state.connections.get_mut(&self.id) else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        };
        let end = &mut connection.ends[self.end];
        if end.life == Life::Closed || end.reset_at.is_some_and(|at| at <= now) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if end.fin_sent {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        let room = window.saturating_sub(connection.ends[1 - self.end].unread);
        if room == 0 && total > 0 {
            connection.ends[self.end].writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let bytes = cut_short(state, self.id, self.end, total.min(room));
        let mut data = BytesMut::with_capacity(bytes);
        for slice in slices {
            let part = slice.len().min(bytes - data.len());
            data.extend_from_slice(&slice[..part]);
        }
        if bytes > 0 {
            state.send(self.id, self.end, Segment::Data(data.freeze()));
        }
        Poll::Ready(Ok(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.network.state();
        if let Some(connection) = state.connections.get_mut(&self.id) {
            let end = &mut connection.ends[self.end];
            if end.life == Life::Open && !std::mem::replace(&mut end.fin_sent, true) {
                state.send(self.id, self.end, Segment::Fin);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        let mut state = self.network.state();
        let Some(connection) = state.connections.get_mut(&self.id) else { return };
        let end = &mut connection.ends[self.end];
        // Bytes that arrived and were never taken count as unread.
        end.unread += self.chunk.len();
        let host = end.host;
        if state.hosts[host].incarnation == self.incarnation {
            state.close(self.id, self.end);
        }
    }
}
