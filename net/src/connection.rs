//! The bytes of a connection, without the connection: bytes in, frames out. The caller reads and
//! waits, and keeps the order of answers.

use std::fmt;

use bytes::{Bytes, BytesMut};

/// The length before each frame, in bytes.
const PREFIX: usize = 4;

/// The most room made at once for a frame that has not arrived: memory follows what was received,
/// not what was announced.
const AHEAD_MAX: usize = 64 * 1024;

/// Why the stream cannot go on. The connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// A length below zero.
    Negative { length: i32 },
    /// A length beyond `max`.
    TooLong { length: usize, max: usize },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Negative { length } => write!(f, "a frame cannot have {length} bytes"),
            Self::TooLong { length, max } => {
                write!(f, "a frame of {length} bytes is longer than the {max} that are allowed")
            }
        }
    }
}

impl std::error::Error for FrameError {}

/// What the stream needs before the next frame is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// The rest of a length; nothing is known of the frame yet.
    Length,
    /// `missing` more bytes of a frame of `length` bytes. The time to take permits for them.
    Body { length: usize, missing: usize },
    /// Nothing: `next` gives a frame.
    Frame,
}

/// Cuts a stream into frames.
#[derive(Debug)]
pub struct Frames {
    buffer: BytesMut,
    frame_bytes_max: usize,
}

impl Frames {
    /// Frames of up to `frame_bytes_max` bytes, the length itself not counted.
    #[must_use]
    pub fn new(frame_bytes_max: usize) -> Self {
        Self { buffer: BytesMut::new(), frame_bytes_max }
    }

    /// What is missing. A length over the limit is an error as soon as its four bytes are there,
    /// before any room is made for the frame.
    pub fn wants(&self) -> Result<Wants, FrameError> {
        let Some(prefix) = self.buffer.first_chunk::<PREFIX>() else { return Ok(Wants::Length) };
        let length = i32::from_be_bytes(*prefix);
        let Ok(length) = usize::try_from(length) else {
            return Err(FrameError::Negative { length });
        };
        if length > self.frame_bytes_max {
            return Err(FrameError::TooLong { length, max: self.frame_bytes_max });
        }
        match length.saturating_sub(self.buffer.len() - PREFIX) {
            0 => Ok(Wants::Frame),
            missing => Ok(Wants::Body { length, missing }),
        }
    }

    /// The buffer to append received bytes to, with room for some. Never take bytes out of it.
    pub fn room(&mut self) -> Result<&mut BytesMut, FrameError> {
        let more = match self.wants()? {
            Wants::Body { missing, .. } => {
                // Doubling, so that a large frame is not moved at each read.
                missing.min(AHEAD_MAX.max(self.buffer.len()))
            }
            Wants::Length | Wants::Frame => 4 * 1024,
        };
        self.buffer.reserve(more);
        Ok(&mut self.buffer)
    }

    /// As `room`, for a caller who decides how far to read on: room for `bytes`.
    pub fn room_up_to(&mut self, bytes: usize) -> &mut BytesMut {
        self.buffer.reserve(bytes);
        &mut self.buffer
    }

    /// Appends received bytes.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame without its length, if it is whole.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, FrameError> {
        if self.wants()? != Wants::Frame {
            return Ok(None);
        }
        let length = self.buffer.split_to(PREFIX);
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// The length of the frame that has begun, once its prefix is there and may be believed.
    #[must_use]
    pub fn next_length(&self) -> Option<usize> {
        match self.wants() {
            Ok(Wants::Body { length, .. }) => Some(length),
            Ok(Wants::Frame) => {
                let prefix = self.buffer.first_chunk::<PREFIX>()?;
                usize::try_from(i32::from_be_bytes(*prefix)).ok()
            }
            Ok(Wants::Length) | Err(_) => None,
        }
    }

    /// Bytes received and not yet given out.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Whether the stream may end here: not inside a frame.
    #[must_use]
    pub fn at_boundary(&self) -> bool {
        self.buffer.is_empty()
    }
}
