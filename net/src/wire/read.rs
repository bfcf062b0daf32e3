//! Reading a frame's bytes: every length is held against the bytes that are there and against the
//! memory that the frame may cost, before anything is allocated.

use bytes::Bytes;

use super::{WireError, WireErrorKind, varint};

/// How much memory the decoded form of one frame may take beside the frame itself, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget(pub usize);

impl Budget {
    /// What any frame may cost, however short.
    const BASE: usize = 64 * 1024;
    /// Twice the density of the densest honest frames, Metadata requests of one-letter names.
    const PER_BYTE: usize = 32;
    /// What no frame may exceed, however long.
    pub const MAX: usize = 64 * 1024 * 1024;

    /// The budget of a frame of `bytes` bytes: 64 KiB and 32 bytes a byte, at most 64 MiB.
    #[must_use]
    pub fn of_frame(bytes: usize) -> Self {
        Self(bytes.saturating_mul(Self::PER_BYTE).saturating_add(Self::BASE).min(Self::MAX))
    }
}

/// A place in a frame. What it hands out (text, bytes, records) are slices that keep the whole
/// frame in memory: copy what outlives the request.
#[derive(Debug)]
pub struct Reader<'a> {
    frame: &'a Bytes,
    rest: &'a [u8],
    memory_max: usize,
    memory_left: usize,
}

impl<'a> Reader<'a> {
    /// A reader of all of `frame` with [`Budget::of_frame`].
    #[must_use]
    pub fn new(frame: &'a Bytes) -> Self {
        Self::with_budget(frame, Budget::of_frame(frame.len()))
    }

    #[must_use]
    pub fn with_budget(frame: &'a Bytes, budget: Budget) -> Self {
        Self { frame, rest: frame, memory_max: budget.0, memory_left: budget.0 }
    }

    /// Memory that what was read so far takes beside the frame, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.memory_max - self.memory_left
    }

    /// How many bytes are left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub fn i8(&mut self) -> Result<i8, WireError> {
        Ok(i8::from_be_bytes(self.array()?))
    }

    pub fn i16(&mut self) -> Result<i16, WireError> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub fn i32(&mut self) -> Result<i32, WireError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub fn i64(&mut self) -> Result<i64, WireError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// `N` bytes as they stand.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) =
            self.rest.split_first_chunk::<N>().ok_or(WireErrorKind::Truncated { wanted: N })?;
        self.rest = rest;
        Ok(*head)
    }

    pub fn unsigned_varint(&mut self) -> Result<u32, WireError> {
        let (value, length) = varint::decode(self.rest).ok_or(WireErrorKind::Varint)?;
        self.rest = &self.rest[length..];
        Ok(value)
    }

    /// A slice of the frame, not a copy.
    pub fn bytes(&mut self, length: usize) -> Result<Bytes, WireError> {
        let head = self.split(length)?;
        Ok(self.frame.slice_ref(head))
    }

    pub fn skip(&mut self, length: usize) -> Result<(), WireError> {
        self.split(length).map(|_| ())
    }

    /// The length of a compact string, byte string or array: the varint less one, `None` for
    /// zero.
    pub fn compact_length(&mut self) -> Result<Option<usize>, WireError> {
        Ok(self.unsigned_varint()?.checked_sub(1).map(|length| length as usize))
    }

    /// The length of a string in the old form; −1 is null, anything below it is an error.
    pub fn short_length(&mut self) -> Result<Option<usize>, WireError> {
        let length = self.i16()?;
        Self::old_length(i32::from(length))
    }

    /// The length of a byte string or array in the old form.
    pub fn long_length(&mut self) -> Result<Option<usize>, WireError> {
        let length = self.i32()?;
        Self::old_length(length)
    }

    fn old_length(length: i32) -> Result<Option<usize>, WireError> {
        match usize::try_from(length) {
            Ok(length) => Ok(Some(length)),
            Err(_) if length == -1 => Ok(None),
            Err(_) => Err(WireErrorKind::NegativeLength { length }.into()),
        }
    }

    /// Admits `count` elements of `size_min` bytes on the wire and `memory` bytes decoded, or
    /// says why not. Only then may room for them be reserved.
    pub fn admit(&mut self, count: usize, size_min: usize, memory: usize) -> Result<(), WireError> {
        let wanted = count.saturating_mul(size_min);
        if wanted > self.rest.len() {
            return Err(WireErrorKind::Truncated { wanted }.into());
        }
        self.memory_left = self
            .memory_left
            .checked_sub(count.saturating_mul(memory))
            .ok_or(WireErrorKind::OverBudget { count })?;
        Ok(())
    }

    /// Reads the tagged fields that end a struct: `read` says whether it knew the tag. A known
    /// field must fill its announced size, an unknown one is skipped. KIP-482.
    pub fn tagged_fields(
        &mut self,
        mut read: impl FnMut(&mut Self, u32) -> Result<bool, WireError>,
    ) -> Result<(), WireError> {
        // Each costs at least two bytes, so the loop ends with the frame.
        for _ in 0..self.unsigned_varint()? {
            let tag = self.unsigned_varint()?;
            let size = self.unsigned_varint()? as usize;
            let field = self.split(size)?;
            let after = std::mem::replace(&mut self.rest, field);
            if read(self, tag)? && !self.rest.is_empty() {
                return Err(WireErrorKind::TagSize { tag }.into());
            }
            self.rest = after;
        }
        Ok(())
    }

    fn split(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (head, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(WireErrorKind::Truncated { wanted: length })?;
        self.rest = rest;
        Ok(head)
    }
}
