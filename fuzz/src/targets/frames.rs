//! The stream of a connection, in pieces.

use bytes::Bytes;
use quorate_net::connection::{FrameError, Frames, Wants};

use super::Draw;

/// A limit and a size of pieces, then the stream. Pieces change nothing, and no more is kept than
/// one frame and one piece.
pub fn frames(bytes: &[u8]) {
    let mut draw = Draw(bytes);
    let max = draw.place() % 2048;
    let size = usize::from(draw.byte()) + 1;
    let whole = cut(draw.0, max, draw.0.len().max(1));
    let pieces = cut(draw.0, max, size);
    assert_eq!(whole, pieces);
}

fn cut(stream: &[u8], max: usize, size: usize) -> (Vec<Bytes>, Option<FrameError>) {
    let mut frames = Frames::new(max);
    let mut found = Vec::new();
    for piece in stream.chunks(size) {
        match frames.room() {
            Ok(room) => room.extend_from_slice(piece),
            Err(error) => return (found, Some(error)),
        }
        loop {
            match frames.next_frame() {
                Ok(Some(frame)) => found.push(frame),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
        assert!(frames.buffered() < 4 + max.max(1));
        if let Ok(Wants::Body { length, missing }) = frames.wants() {
            assert_eq!(frames.buffered() + missing, 4 + length);
        }
    }
    (found, None)
}
