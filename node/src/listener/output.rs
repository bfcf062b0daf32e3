//! What a connection has still to send: pieces, written as many at once as the system takes.
//!
//! Records are lent memory (`lending.rs`): a connection that is asked for it forgets them, keeps
//! where they stand, and reads them again, a part at a time, when the client takes more.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use quorate_core::id::Offset;
use quorate_core::reached;
use quorate_core::time::Instant;
use quorate_net::kafka::frame::Encoded;
use quorate_net::transport::Stream;
use tokio::io::AsyncWrite;

use super::lending::{AnswerPools, Asked, Held, Loan, Rest};

/// Chunks handed to the system in one call.
const CHUNKS_AT_ONCE: usize = 64;
/// Of records that are forgotten at the very front, so many bytes stay: only by offering some does
/// one learn that the client takes more.
const BAIT_BYTES: usize = 1024;

/// A read of records that were forgotten.
pub(crate) type Reading = Pin<Box<dyn Future<Output = Result<Part, String>> + Send>>;

/// Records that can be read a second time.
pub(crate) trait Again: Send + Sync {
    /// Whole batches from the one that begins at `from` on, of at most `bytes` bytes together but
    /// at least one.
    fn read(&self, from: Offset, bytes: usize) -> Reading;
}

/// Some of the records that were forgotten.
pub(crate) struct Part {
    pub(crate) chunks: Vec<Bytes>,
    /// The batch after them.
    pub(crate) next: Offset,
    pub(crate) loan: Loan,
}

/// One partition's records in an answer.
pub(crate) struct Source {
    pub(crate) again: Arc<dyn Again>,
    /// Some of the batches: where each begins among these records, and in the log. The first is
    /// one of them.
    pub(crate) steps: Vec<(usize, Offset)>,
}

/// The memory of an answer's records.
pub(crate) struct Lent {
    pub(crate) loan: Loan,
    /// One for each partition with records, in the order of the answer.
    pub(crate) sources: Vec<Source>,
}

enum Piece {
    Bytes(Bytes),
    Later(Later),
}

/// Records that were forgotten: `len` bytes, after `skip` bytes from the batch at `from` on.
struct Later {
    again: Arc<dyn Again>,
    from: Offset,
    skip: usize,
    len: usize,
}

/// Records at hand: the bytes up to `end` of all that this connection ever sends, and the first
/// of `steps` stands at `start` of it.
struct Span {
    start: u64,
    end: u64,
    source: Source,
}

/// A loan and what it is for; it returns once all up to `end` has been sent.
struct Lending {
    loan: Loan,
    end: u64,
    spans: Vec<Span>,
}

/// The connection must leave: it holds what others need, and cannot give it back.
#[derive(Debug)]
pub(crate) struct MustLeave;

/// Answers in the order in which they leave.
#[derive(Default)]
pub(crate) struct Output {
    pieces: VecDeque<Piece>,
    /// Bytes not yet sent.
    pending: usize,
    /// Of these, bytes that were forgotten.
    later: usize,
    /// Bytes sent in the life of the connection.
    sent: u64,
    lendings: VecDeque<Lending>,
    reading: Option<Reading>,
    /// While the client takes nothing.
    rest: Option<Rest>,
}

impl Output {
    pub(crate) fn push(&mut self, encoded: Encoded, lent: Option<Lent>) {
        let start = self.sent + self.pending as u64;
        for chunk in encoded.chunks {
            if !chunk.is_empty() {
                self.pending += chunk.len();
                self.pieces.push_back(Piece::Bytes(chunk));
            }
        }
        if let Some(Lent { loan, sources }) = lent {
            debug_assert_eq!(encoded.records.len(), sources.len(), "a source for each range");
            let spans = encoded.records.into_iter().zip(sources).map(|(range, source)| Span {
                start: start + range.start as u64,
                end: start + range.end as u64,
                source,
            });
            let end = self.sent + self.pending as u64;
            self.lendings.push_back(Lending { loan, end, spans: spans.collect() });
        }
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    /// Whether it waits for the log and not for the client.
    pub(crate) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Sends what the stream takes. `Ready(Ok(bytes))` with `bytes` above 0 when some were taken.
    pub(crate) fn poll_send(
        &mut self,
        stream: &mut dyn Stream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        while let Some(Piece::Later(_)) = self.pieces.front() {
            ready!(self.poll_read(context)).map_err(io::Error::other)?;
        }
        let mut slices = [IoSlice::new(&[]); CHUNKS_AT_ONCE];
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            let Piece::Bytes(chunk) = piece else { break };
            *slice = IoSlice::new(chunk);
            count += 1;
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
                self.rest = None;
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
            let Some(Piece::Bytes(front)) = self.pieces.front_mut() else {
                unreachable!("only what was there is sent")
            };
            if left < front.len() {
                front.advance(left);
                break;
            }
            left -= front.len();
            self.pieces.pop_front();
        }
        while self.lendings.front().is_some_and(|lending| lending.end <= self.sent) {
            self.lendings.pop_front();
        }
    }

    /// To be called when the stream takes nothing: gives back what is asked for. The task is woken
    /// when that changes.
    pub(crate) fn rest(
        &mut self,
        now: Instant,
        pools: &AnswerPools,
        context: &Context<'_>,
    ) -> Result<(), MustLeave> {
        if self.pending == 0 || self.is_reading() {
            return Ok(());
        }
        if self.rest.is_none() {
            self.rest = pools.rest(now, self.held());
        }
        let Some(rest) = &self.rest else { return Ok(()) };
        match rest.asked(context.waker()) {
            Asked::Nothing => Ok(()),
            Asked::Leave => Err(MustLeave),
            Asked::GiveBack => {
                reached!("answer-given-back");
                let since = rest.since();
                self.give_back();
                // The memory first, the entry after it: then it counts as come back.
                self.rest = None;
                self.rest = pools.rest(since, self.held());
                match self.rest.as_ref().map(|rest| rest.asked(context.waker())) {
                    Some(Asked::Leave) => Err(MustLeave),
                    _ => Ok(()),
                }
            }
        }
    }

    fn held(&self) -> Held {
        let spans = self.lendings.iter().flat_map(|lending| &lending.spans);
        let lent = spans.map(|span| span.end.saturating_sub(span.start.max(self.sent)));
        let lent = usize::try_from(lent.sum::<u64>()).unwrap_or(usize::MAX);
        let plain = self.pending.saturating_sub(self.later).saturating_sub(lent);
        Held::new(self.lendings.iter().map(|lending| &lending.loan), plain)
    }

    /// Forgets all records at hand, but for a bait.
    fn give_back(&mut self) {
        let lendings = std::mem::take(&mut self.lendings);
        let mut spans = lendings.iter().flat_map(|lending| &lending.spans).peekable();
        let mut at = self.sent;
        // Whether the last piece is of the span at hand.
        let mut goes_on = false;
        for piece in std::mem::take(&mut self.pieces) {
            let mut bytes = match piece {
                Piece::Bytes(bytes) => bytes,
                Piece::Later(later) => {
                    at += later.len as u64;
                    self.pieces.push_back(Piece::Later(later));
                    goes_on = false;
                    continue;
                }
            };
            while !bytes.is_empty() {
                while spans.next_if(|span| span.end <= at).is_some() {
                    goes_on = false;
                }
                let (is_plain, until) = match spans.peek() {
                    None => (true, u64::MAX),
                    Some(span) if at < span.start => (true, span.start),
                    Some(span) => (false, span.end),
                };
                let room = usize::try_from(until - at).unwrap_or(usize::MAX);
                let is_bait = self.pieces.is_empty();
                let most = if is_plain || !is_bait { room } else { room.min(BAIT_BYTES) };
                let some = bytes.split_to(most.min(bytes.len()));
                let len = some.len();
                match (self.pieces.back_mut(), spans.peek()) {
                    // Copied, or it would hold the memory that it is a slice of.
                    (None, _) => self.pieces.push_back(Piece::Bytes(copied(&some))),
                    _ if is_plain => self.pieces.push_back(Piece::Bytes(copied(&some))),
                    (Some(Piece::Later(later)), _) if goes_on => later.len += len,
                    (Some(_), Some(span)) => {
                        self.pieces.push_back(Piece::Later(span.later(at, len)));
                        goes_on = true;
                    }
                    (Some(_), None) => unreachable!("without a span it is plain"),
                }
                if !is_plain && !is_bait {
                    self.later += len;
                }
                at += len as u64;
            }
        }
    }

    /// Reads the first of what was forgotten, which is next to be sent.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), String>> {
        // Nobody holds memory while waiting for more, nor what is answered meanwhile.
        if self.reading.is_none() || !self.lendings.is_empty() {
            self.give_back();
        }
        if self.reading.is_none() {
            let Some(Piece::Later(later)) = self.pieces.front() else { return Poll::Ready(Ok(())) };
            self.reading = Some(later.again.read(later.from, later.skip + later.len));
        }
        let Some(reading) = &mut self.reading else { return Poll::Ready(Ok(())) };
        let part = ready!(reading.as_mut().poll(context));
        self.reading = None;
        let part = part?;
        let Some(Piece::Later(mut later)) = self.pieces.pop_front() else {
            return Poll::Ready(Err("what was read again is not wanted any more".to_owned()));
        };
        let Part { mut chunks, next, loan } = part;
        let read: usize = chunks.iter().map(Bytes::len).sum();
        if read == 0 || read > later.skip + later.len {
            return Poll::Ready(Err("the log does not hold what was announced".to_owned()));
        }
        let (skip, from) = (later.skip.min(read), later.from);
        cut_front(&mut chunks, skip);
        let len = read - skip;
        later = Later { from: next, skip: later.skip - skip, len: later.len - len, ..later };
        self.later -= len;
        let again = Arc::clone(&later.again);
        if later.len > 0 {
            self.pieces.push_front(Piece::Later(later));
        }
        for chunk in chunks.into_iter().rev().filter(|chunk| !chunk.is_empty()) {
            self.pieces.push_front(Piece::Bytes(chunk));
        }
        if len > 0 {
            let (start, end) = (self.sent - skip as u64, self.sent + len as u64);
            let source = Source { again, steps: vec![(0, from)] };
            let spans = vec![Span { start, end, source }];
            self.lendings.push_front(Lending { loan, end, spans });
        }
        Poll::Ready(Ok(()))
    }
}

impl Span {
    /// `len` bytes of these records, from `at` on.
    fn later(&self, at: u64, len: usize) -> Later {
        let within = usize::try_from(at - self.start).unwrap_or(usize::MAX);
        let steps = &self.source.steps;
        let beyond = steps.partition_point(|(start, _)| *start <= within);
        let (start, from) = steps[beyond.saturating_sub(1)];
        Later { again: Arc::clone(&self.source.again), from, skip: within - start, len }
    }
}

fn copied(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

fn cut_front(chunks: &mut [Bytes], mut bytes: usize) {
    for chunk in chunks {
        let some = bytes.min(chunk.len());
        chunk.advance(some);
        bytes -= some;
    }
}

#[cfg(test)]
mod tests;
