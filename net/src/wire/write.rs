//! Writing a frame as a list of chunks: small values are gathered, long byte strings are taken as
//! they are, so that record bytes are never copied into a response.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

use super::{Records, WireError, WireErrorKind, varint};

/// Byte strings up to this length are cheaper to copy than to write as a chunk of their own.
const COPY_MAX: usize = 512;

/// Gathered pieces share blocks of this size. A new one is begun when less than `PIECE_MIN` is
/// left.
const BLOCK: usize = 4 * 1024;
const PIECE_MIN: usize = 128;

/// Gathers the chunks of one frame. What cannot be written (a string beyond 32,767 bytes in the
/// old form, a frame beyond 2 GiB) is remembered and told by [`Writer::finish`].
#[derive(Debug, Default)]
pub struct Writer {
    /// The first gathered piece, kept open so that the length prefix can be put into it.
    first: Option<BytesMut>,
    chunks: Vec<Bytes>,
    open: BytesMut,
    /// Bytes before `open`.
    closed: usize,
    prefixed: bool,
    /// Where records stand among the bytes written.
    records: Vec<Range<usize>>,
    error: Option<WireError>,
}

impl Writer {
    /// A writer of bare bytes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A writer whose result begins with its own length in four bytes, as each request and
    /// response does on a connection.
    #[must_use]
    pub fn framed() -> Self {
        let mut open = BytesMut::with_capacity(256);
        open.put_u32(0);
        Self { open, prefixed: true, ..Self::default() }
    }

    /// Bytes written so far, the length prefix included.
    #[must_use]
    pub fn written(&self) -> usize {
        self.closed + self.open.len()
    }

    pub fn i8(&mut self, value: i8) {
        self.open.put_i8(value);
    }

    pub fn i16(&mut self, value: i16) {
        self.open.put_i16(value);
    }

    pub fn u16(&mut self, value: u16) {
        self.open.put_u16(value);
    }

    pub fn i32(&mut self, value: i32) {
        self.open.put_i32(value);
    }

    pub fn i64(&mut self, value: i64) {
        self.open.put_i64(value);
    }

    pub fn unsigned_varint(&mut self, value: u32) {
        let (bytes, length) = varint::encode(value);
        self.open.put_slice(&bytes[..length]);
    }

    pub fn slice(&mut self, bytes: &[u8]) {
        self.open.put_slice(bytes);
    }

    /// Appends `bytes`, by reference when they are long.
    pub fn bytes(&mut self, bytes: &Bytes) {
        if bytes.len() <= COPY_MAX {
            self.open.put_slice(bytes);
            return;
        }
        self.close_piece();
        self.closed += bytes.len();
        self.chunks.push(bytes.clone());
    }

    /// Appends all of `records`, and notes where they stand.
    pub fn records(&mut self, records: &Records) {
        let start = self.written();
        for chunk in records.chunks() {
            self.bytes(chunk);
        }
        if self.written() > start {
            self.records.push(start..self.written());
        }
    }

    /// Takes the notes of where records stand: one for each `Records` that is not empty, in
    /// positions of the whole frame with its length. Those in tagged fields are not noted.
    #[must_use]
    pub fn take_records(&mut self) -> Vec<Range<usize>> {
        std::mem::take(&mut self.records)
    }

    /// The length of a compact string, byte string or array; `None` is null.
    pub fn compact_length(&mut self, length: Option<usize>) {
        match u32::try_from(length.map_or(0, |length| length.saturating_add(1))) {
            Ok(value) => self.unsigned_varint(value),
            Err(_) => self.fail(length),
        }
    }

    /// The length of a string in the old form.
    pub fn short_length(&mut self, length: Option<usize>) {
        match length.map_or(Ok(-1), i16::try_from) {
            Ok(value) => self.i16(value),
            Err(_) => self.fail(length),
        }
    }

    /// The length of a byte string or array in the old form.
    pub fn long_length(&mut self, length: Option<usize>) {
        match length.map_or(Ok(-1), i32::try_from) {
            Ok(value) => self.i32(value),
            Err(_) => self.fail(length),
        }
    }

    /// Writes a tagged field: tag, size, and what `write` writes.
    pub fn tagged_field(&mut self, tag: u32, write: impl FnOnce(&mut Self)) {
        let mut field = Self::new();
        write(&mut field);
        self.unsigned_varint(tag);
        match u32::try_from(field.written()) {
            Ok(size) => self.unsigned_varint(size),
            Err(_) => self.fail(Some(field.written())),
        }
        self.error = self.error.take().or_else(|| field.error.take());
        field.close_last_piece();
        for chunk in field.first.map(BytesMut::freeze).iter().chain(&field.chunks) {
            self.bytes(chunk);
        }
    }

    /// The chunks in order, the length prefix set. None of them is empty.
    pub fn finish(mut self) -> Result<Vec<Bytes>, WireError> {
        let written = self.written();
        self.close_last_piece();
        if self.prefixed
            && let Some(first) = &mut self.first
        {
            match i32::try_from(written - 4) {
                Ok(length) => first[..4].copy_from_slice(&length.to_be_bytes()),
                Err(_) => return Err(WireErrorKind::TooLong { length: written }.into()),
            }
        }
        match self.error {
            Some(error) => Err(error),
            None => {
                let first = self.first.map(BytesMut::freeze);
                Ok(first.into_iter().chain(self.chunks).collect())
            }
        }
    }

    fn close_piece(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let piece = self.open.split();
        if self.open.capacity() < PIECE_MIN {
            self.open = BytesMut::with_capacity(BLOCK);
        }
        self.keep(piece);
    }

    fn close_last_piece(&mut self) {
        let piece = std::mem::take(&mut self.open);
        if !piece.is_empty() {
            self.keep(piece);
        }
    }

    fn keep(&mut self, piece: BytesMut) {
        self.closed += piece.len();
        if self.first.is_none() && self.chunks.is_empty() {
            self.first = Some(piece);
        } else {
            self.chunks.push(piece.freeze());
        }
    }

    fn fail(&mut self, length: Option<usize>) {
        let length = length.unwrap_or_default();
        self.error.get_or_insert_with(|| WireErrorKind::TooLong { length }.into());
    }
}
