//! A record batch, format version 2.

use bytes::Bytes;

/// One whole record batch: its 61-byte header, patched in place, and the records as they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    header: [u8; 61],
    records: Bytes,
}

/// Which of the priority levels 0 to 9 stand in a batch, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels(pub u16);

impl Batch {
    /// Bytes of the header and the records.
    pub fn len(&self) -> usize {
        self.header.len() + self.records.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
