//! One frame between nodes: a kind, a head that bincode wrote, and a tail of bytes that it never
//! touches, such as record batches.

use std::fmt;

use bytes::{Buf, Bytes};

/// The length, the kind and the head's length, in bytes.
const FRONT: usize = 4 + 1 + 4;

/// The kind of a frame that says nothing but that its sender lives.
pub const PULSE: u8 = 0;

/// What arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// `PULSE`, or what sender and receiver agree on.
    pub kind: u8,
    /// A version tag and a value (`core::codec`).
    pub head: Bytes,
    /// Its parts are named by the head.
    pub tail: Bytes,
}

/// The bytes of a frame, its length first. The tail's chunks are not copied.
///
/// Panics on a frame of 2 GiB: whoever builds one has a bound of its own.
#[must_use]
pub fn to_chunks(kind: u8, head: &[u8], tail: &[Bytes]) -> Vec<Bytes> {
    let tail_bytes: usize = tail.iter().map(Bytes::len).sum();
    let length = i32::try_from(FRONT - 4 + head.len() + tail_bytes).expect("frames are bounded");
    let head_bytes = u32::try_from(head.len()).expect("less than the whole");
    let mut front = Vec::with_capacity(FRONT + head.len());
    front.extend_from_slice(&length.to_be_bytes());
    front.push(kind);
    front.extend_from_slice(&head_bytes.to_be_bytes());
    front.extend_from_slice(head);
    let mut chunks = Vec::with_capacity(1 + tail.len());
    chunks.push(Bytes::from(front));
    chunks.extend(tail.iter().filter(|chunk| !chunk.is_empty()).cloned());
    chunks
}

impl Frame {
    /// Takes a frame apart; `bytes` are what follows its length.
    ///
    /// # Errors
    ///
    /// If there is no kind, or a head that would end beyond the frame.
    pub fn parse(mut bytes: Bytes) -> Result<Self, MalformedFrame> {
        let length = bytes.len();
        if length < FRONT - 4 {
            return Err(MalformedFrame { length, head: None });
        }
        let kind = bytes.get_u8();
        let head = bytes.get_u32();
        let inside = usize::try_from(head).ok().filter(|&head| head <= bytes.len());
        let Some(head_bytes) = inside else {
            return Err(MalformedFrame { length, head: Some(head) });
        };
        let head = bytes.split_to(head_bytes);
        Ok(Self { kind, head, tail: bytes })
    }
}

/// The frame is not one of ours. The connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedFrame {
    length: usize,
    head: Option<u32>,
}

impl fmt::Display for MalformedFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.head {
            None => write!(f, "a frame of {} bytes has no front", self.length),
            Some(head) => {
                write!(f, "a head of {head} bytes does not fit a frame of {}", self.length)
            }
        }
    }
}

impl std::error::Error for MalformedFrame {}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(chunks: &[Bytes]) -> Bytes {
        Bytes::from(chunks.concat())
    }

    #[test]
    fn a_frame_is_what_was_sent() {
        let tail = [Bytes::from_static(b"one"), Bytes::new(), Bytes::from_static(b"two")];
        let chunks = to_chunks(7, b"head", &tail);
        assert_eq!(chunks.len(), 3, "an empty chunk is not sent");
        assert_eq!(chunks[1].as_ptr(), tail[0].as_ptr(), "records are not copied");
        let mut bytes = joined(&chunks);
        assert_eq!(bytes.get_i32(), i32::try_from(bytes.len()).unwrap());
        let frame = Frame::parse(bytes).unwrap();
        let (head, tail) = (Bytes::from_static(b"head"), Bytes::from_static(b"onetwo"));
        assert_eq!(frame, Frame { kind: 7, head, tail });
    }

    #[test]
    fn a_head_ends_inside_its_frame() {
        let whole = joined(&to_chunks(1, b"abc", &[])).slice(4..);
        assert!(Frame::parse(whole.clone()).is_ok());
        for cut in 0..whole.len() {
            assert!(Frame::parse(whole.slice(..cut)).is_err(), "{cut}");
        }
        let mut lie = whole.to_vec();
        lie[1..5].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(Frame::parse(lie.into()).is_err());
    }
}
