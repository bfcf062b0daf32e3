//! The sparse index of one segment: where to begin looking for an offset, for a time, or for a
//! priority level. Built as frames are appended; made anew from the segment when missing or wrong.
//!
//! The index file grows in parts, each in an envelope of its own.

use bytes::Bytes;

use super::bytes::Fields;
use super::checkpoint::{self, EnvelopeError};
use crate::batch::{Header, Levels};
use crate::id::Offset;
use crate::time::Timestamp;

/// Kafka's `index.interval.bytes`: one entry for so many bytes of the segment.
pub const INTERVAL_BYTES: u64 = 4096;

/// Bytes of an entry in the index file.
pub const ENTRY_BYTES: usize = 18;

const KIND: [u8; 4] = *b"QIDX";
const VERSION: u16 = 1;

/// One stretch of the segment, from `position` to that of the next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Of the first record in the stretch, counted from the segment's base offset.
    offset_delta: u32,
    /// In the segment's file.
    position: u32,
    /// Larger than none that stand before the stretch in this segment.
    max_timestamp_before: Timestamp,
    /// Levels of the records in the stretch.
    levels: Levels,
}

/// The index of one segment, in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    base: Offset,
    entries: Vec<IndexEntry>,
    max_timestamp: Timestamp,
    /// Where the indexed part of the segment ends.
    bytes: u64,
}

impl Index {
    /// Of the empty segment that begins at `base`.
    pub fn new(base: Offset) -> Self {
        Self { base, entries: Vec::new(), max_timestamp: Timestamp::NONE, bytes: 0 }
    }

    /// Takes note of the frame at the end of what is indexed. Frames come in order, without gaps
    /// in position; a segment stays below 4 GiB and below 2^32 records.
    pub fn push(&mut self, header: &Header, levels: Levels, frame_bytes: u64) {
        let due = self
            .entries
            .last()
            .is_none_or(|last| self.bytes - u64::from(last.position) >= INTERVAL_BYTES);
        if due {
            let delta = header.base_offset().0 - self.base.0;
            self.entries.push(IndexEntry {
                offset_delta: u32::try_from(delta).expect("a segment is below 2^32 records"),
                position: u32::try_from(self.bytes).expect("a segment is below 4 GiB"),
                max_timestamp_before: self.max_timestamp,
                levels: Levels::default(),
            });
        }
        if let Some(last) = self.entries.last_mut() {
            last.levels = last.levels.union(levels);
        }
        self.max_timestamp = self.max_timestamp.max(header.max_timestamp());
        self.bytes += frame_bytes;
    }

    pub fn base(&self) -> Offset {
        self.base
    }

    /// Bytes of the segment that are indexed; the position at which the next frame is pushed.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The largest timestamp in the segment; `Timestamp::NONE` if there is none.
    pub fn max_timestamp(&self) -> Timestamp {
        self.max_timestamp
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A place at or before the frame that holds `offset`: its position, and the offset of the
    /// first record there. The start of the segment for an offset before it.
    pub fn seek(&self, offset: Offset) -> (u64, Offset) {
        let delta = offset.0.saturating_sub(self.base.0);
        let beyond = self.entries.partition_point(|entry| i64::from(entry.offset_delta) <= delta);
        self.place(beyond)
    }

    /// A place at or before the first record whose timestamp is at least `timestamp`; `None` if
    /// the segment has no such record.
    pub fn seek_timestamp(&self, timestamp: Timestamp) -> Option<(u64, Offset)> {
        if self.is_empty() || timestamp > self.max_timestamp {
            return None;
        }
        let beyond = self.entries.partition_point(|entry| entry.max_timestamp_before < timestamp);
        Some(self.place(beyond))
    }

    /// Levels of the records from the stretch that holds `offset` on.
    pub fn levels_from(&self, offset: Offset) -> Levels {
        let delta = offset.0.saturating_sub(self.base.0);
        let beyond = self.entries.partition_point(|entry| i64::from(entry.offset_delta) <= delta);
        let stretches = &self.entries[beyond.saturating_sub(1)..];
        stretches.iter().fold(Levels::default(), |levels, entry| levels.union(entry.levels))
    }

    /// The place of the entry before `beyond`.
    fn place(&self, beyond: usize) -> (u64, Offset) {
        match beyond.checked_sub(1).and_then(|place| self.entries.get(place)) {
            Some(entry) => {
                (u64::from(entry.position), self.base.plus(i64::from(entry.offset_delta)))
            }
            None => (0, self.base),
        }
    }

    /// Forgets the frames from position `bytes` on; the largest timestamp before them is known from
    /// elsewhere. `None` if less than that is indexed, or if it cannot be so.
    #[must_use]
    pub fn cut(mut self, bytes: u64, max_timestamp: Timestamp) -> Option<Self> {
        if bytes > self.bytes {
            return None;
        }
        let kept = self.entries.partition_point(|entry| u64::from(entry.position) < bytes);
        self.entries.truncate(kept);
        let possible =
            self.entries.last().is_none_or(|last| last.max_timestamp_before <= max_timestamp);
        possible.then_some(Self { bytes, max_timestamp, ..self })
    }

    /// The whole index file.
    pub fn encode(&self) -> Bytes {
        self.encode_from(0)
    }

    /// What is to be written behind an index file that has the first `known` entries. The last of
    /// these is repeated: the levels in its stretch may have become more.
    pub fn encode_from(&self, known: usize) -> Bytes {
        let entries = self.entries.get(known.saturating_sub(1)..).unwrap_or_default();
        let mut body = Vec::with_capacity(24 + entries.len() * ENTRY_BYTES);
        body.extend_from_slice(&self.base.0.to_be_bytes());
        body.extend_from_slice(&self.max_timestamp.0.to_be_bytes());
        body.extend_from_slice(&self.bytes.to_be_bytes());
        for entry in entries {
            body.extend_from_slice(&entry.offset_delta.to_be_bytes());
            body.extend_from_slice(&entry.position.to_be_bytes());
            body.extend_from_slice(&entry.max_timestamp_before.0.to_be_bytes());
            body.extend_from_slice(&entry.levels.0.to_be_bytes());
        }
        checkpoint::seal(KIND, VERSION, &body)
    }

    /// Reads an index file: as many parts of it as follow from one another. One that is wrong is
    /// made anew from the segment.
    ///
    /// # Errors
    ///
    /// As `checkpoint::open`; `Body` if the entries of the first part do not rise.
    pub fn decode(bytes: &Bytes) -> Result<Self, EnvelopeError> {
        let (_, body) = checkpoint::open(KIND, VERSION, bytes)?;
        let mut index = Self::read(&body).ok_or(EnvelopeError::Body)?;
        let mut at = checkpoint::ENVELOPE_BYTES + body.len();
        while let Ok((_, body)) = checkpoint::open(KIND, VERSION, &bytes.slice(at..)) {
            let Some(more) = Self::read(&body).filter(|more| index.is_continued_by(more)) else {
                break;
            };
            index.entries.pop();
            index.entries.extend(more.entries);
            (index.bytes, index.max_timestamp) = (more.bytes, more.max_timestamp);
            at += checkpoint::ENVELOPE_BYTES + body.len();
        }
        Ok(index)
    }

    fn is_continued_by(&self, more: &Self) -> bool {
        let repeats = match (self.entries.last(), more.entries.first()) {
            (Some(last), Some(first)) => {
                (last.position, last.offset_delta, last.max_timestamp_before)
                    == (first.position, first.offset_delta, first.max_timestamp_before)
            }
            (last, _) => last.is_none(),
        };
        let grows = more.bytes >= self.bytes && more.max_timestamp >= self.max_timestamp;
        repeats && grows && more.base == self.base
    }

    fn read(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let base = Offset(fields.i64()?);
        let max_timestamp = Timestamp(fields.i64()?);
        let bytes = fields.u64()?;
        if base.0 < 0 || !fields.0.len().is_multiple_of(ENTRY_BYTES) {
            return None;
        }
        let mut entries = Vec::with_capacity(fields.0.len() / ENTRY_BYTES);
        while !fields.0.is_empty() {
            entries.push(IndexEntry {
                offset_delta: fields.u32()?,
                position: fields.u32()?,
                max_timestamp_before: Timestamp(fields.i64()?),
                levels: Levels(fields.u16()?),
            });
        }
        let rising = entries.is_sorted_by(|a, b| {
            a.offset_delta < b.offset_delta
                && a.position < b.position
                && a.max_timestamp_before <= b.max_timestamp_before
        });
        let within = entries.last().is_none_or(|last| u64::from(last.position) < bytes);
        (rising && within).then_some(Self { base, entries, max_timestamp, bytes })
    }
}
