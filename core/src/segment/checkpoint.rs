//! Small files that are read whole: an envelope with kind, version and checksum around them, and
//! the one that says how far segments can be trusted.

use std::fmt;

use bytes::Bytes;

use super::bytes::{Fields, PARTITION_BYTES, put_partition};
use crate::batch::checksum::{checksum, extend};
use crate::id::{Offset, PartitionId};

/// Kind 4, version 2, reserved 2, body bytes 4, CRC-32C of these and of the body 4.
pub const ENVELOPE_BYTES: usize = 16;

/// Puts `body` into an envelope. Write it to a new file, sync, rename, sync the directory.
pub fn seal(kind: [u8; 4], version: u16, body: &[u8]) -> Bytes {
    let length = u32::try_from(body.len()).expect("a small file is below 4 GiB");
    let mut out = Vec::with_capacity(ENVELOPE_BYTES + body.len());
    out.extend_from_slice(&kind);
    out.extend_from_slice(&version.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&length.to_be_bytes());
    let checksum = extend(checksum(&out), body);
    out.extend_from_slice(&checksum.to_be_bytes());
    out.extend_from_slice(body);
    Bytes::from(out)
}

/// Takes version and body out of an envelope. What follows the body is ignored.
///
/// # Errors
///
/// Why the file cannot be used; `Newer` if a later build wrote it, which is no reason to replace
/// it.
pub fn open(kind: [u8; 4], version_max: u16, bytes: &Bytes) -> Result<(u16, Bytes), EnvelopeError> {
    let front = bytes.get(..ENVELOPE_BYTES).ok_or(EnvelopeError::Short)?;
    let mut fields = Fields(front);
    if fields.array() != Some(kind) {
        return Err(EnvelopeError::Kind);
    }
    let version = fields.u16().ok_or(EnvelopeError::Short)?;
    fields.u16().ok_or(EnvelopeError::Short)?;
    let length = fields.u32().ok_or(EnvelopeError::Short)? as usize;
    let claimed = fields.u32().ok_or(EnvelopeError::Short)?;
    let end = ENVELOPE_BYTES.checked_add(length).ok_or(EnvelopeError::Short)?;
    let body = bytes.get(ENVELOPE_BYTES..end).ok_or(EnvelopeError::Short)?;
    if extend(checksum(&front[..ENVELOPE_BYTES - 4]), body) != claimed {
        return Err(EnvelopeError::Checksum);
    }
    if version > version_max {
        return Err(EnvelopeError::Newer { found: version, known: version_max });
    }
    Ok((version, bytes.slice(ENVELOPE_BYTES..end)))
}

/// Why a small file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvelopeError {
    Short,
    Kind,
    Checksum,
    Newer {
        found: u16,
        known: u16,
    },
    /// The checksum is right and the content is not: a bug in the build that wrote it.
    Body,
}

impl fmt::Display for EnvelopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the file is shorter than it says"),
            Self::Kind => f.write_str("the file is of another kind"),
            Self::Checksum => f.write_str("the file fails its checksum"),
            Self::Newer { found, known } => {
                write!(f, "the file has format {found}; this build knows up to {known}")
            }
            Self::Body => f.write_str("the file's content contradicts itself"),
        }
    }
}

impl std::error::Error for EnvelopeError {}

/// How far the segments were made durable on their own, so that the journal before
/// `journal_sequence` is needed no more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The first group that recovery must replay.
    pub journal_sequence: u64,
    /// Ascending by partition.
    pub logs: Vec<Mark>,
}

/// What one log had when its segments were last synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub partition: PartitionId,
    /// Where the log starts; segments wholly below it may be gone.
    pub log_start: Offset,
    /// Base offset of the newest segment.
    pub segment: Offset,
    /// Synced bytes of that segment; all older segments are synced to their end.
    pub segment_bytes: u64,
    /// The offset behind the last synced record; of a log that is offline, behind the last one that
    /// was durable in any way.
    pub end: Offset,
    /// Groups of the journal below it say nothing of this log: it was cut since, and what they
    /// hold must not come back.
    pub from_sequence: u64,
    /// What is to be removed before anything else is done with the log.
    pub cut: Cut,
}

impl Mark {
    /// Of a log that has nothing durable of its own yet.
    pub const fn nothing(partition: PartitionId) -> Self {
        let (log_start, segment, end) = (Offset::ZERO, Offset::ZERO, Offset::ZERO);
        let (segment_bytes, from_sequence, cut) = (0, 0, Cut::Nothing);
        Self { partition, log_start, segment, segment_bytes, end, from_sequence, cut }
    }
}

/// A cut that may have been interrupted. It is done again from the start, however far it came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cut {
    /// None is under way.
    #[default]
    Nothing,
    /// Whatever stands behind the mark's end.
    Tail,
    /// Every file: the log begins anew.
    All,
}

impl Cut {
    const ALL: [Self; 3] = [Self::Nothing, Self::Tail, Self::All];

    fn decode(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

const MARKS_KIND: [u8; 4] = *b"QMRK";
const MARKS_VERSION: u16 = 2;

impl Marks {
    pub fn encode(&self) -> Bytes {
        let mut body = Vec::with_capacity(8 + self.logs.len() * (PARTITION_BYTES + 41));
        body.extend_from_slice(&self.journal_sequence.to_be_bytes());
        for mark in &self.logs {
            put_partition(&mut body, mark.partition);
            body.extend_from_slice(&mark.log_start.0.to_be_bytes());
            body.extend_from_slice(&mark.segment.0.to_be_bytes());
            body.extend_from_slice(&mark.segment_bytes.to_be_bytes());
            body.extend_from_slice(&mark.end.0.to_be_bytes());
            body.extend_from_slice(&mark.from_sequence.to_be_bytes());
            body.push(mark.cut as u8);
        }
        seal(MARKS_KIND, MARKS_VERSION, &body)
    }

    /// # Errors
    ///
    /// As `open`; `Body` if the logs do not ascend, or if an older build wrote this.
    pub fn decode(bytes: &Bytes) -> Result<Self, EnvelopeError> {
        let (version, body) = open(MARKS_KIND, MARKS_VERSION, bytes)?;
        Self::read(&body).filter(|_| version == MARKS_VERSION).ok_or(EnvelopeError::Body)
    }

    /// The mark of one log.
    pub fn of(&self, partition: PartitionId) -> Option<&Mark> {
        let place = self.logs.binary_search_by_key(&partition, |mark| mark.partition).ok()?;
        self.logs.get(place)
    }

    /// Puts a log's mark in place of the one that it has.
    pub fn put(&mut self, mark: Mark) {
        match self.logs.binary_search_by_key(&mark.partition, |known| known.partition) {
            Ok(place) => self.logs[place] = mark,
            Err(place) => self.logs.insert(place, mark),
        }
    }

    fn read(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let journal_sequence = fields.u64()?;
        let mut logs = Vec::new();
        while !fields.0.is_empty() {
            logs.push(Mark {
                partition: fields.partition()?,
                log_start: Offset(fields.i64()?),
                segment: Offset(fields.i64()?),
                segment_bytes: fields.u64()?,
                end: Offset(fields.i64()?),
                from_sequence: fields.u64()?,
                cut: Cut::decode(fields.u8()?)?,
            });
        }
        let ascending = logs.is_sorted_by(|a: &Mark, b: &Mark| a.partition < b.partition);
        ascending.then_some(Self { journal_sequence, logs })
    }
}
