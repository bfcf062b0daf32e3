//! The file that says what the cleaned part of a log is made of. Replacing it is the one step by
//! which a pass of compaction comes about: before it none of the new segments counts, after it none
//! of the old ones. Which of two files with the same base counts, it says by generation.

use bytes::Bytes;

use super::bytes::Fields;
use super::checkpoint::{self, EnvelopeError};
use crate::id::Offset;
use crate::mutant;
use crate::partition::SegmentInfo;
use crate::time::Timestamp;

/// Its name in the log's directory.
pub const CLEANED_FILE: &str = "cleaned";

const KIND: [u8; 4] = *b"QCLN";
const VERSION: u16 = 1;

/// The segments below `until`, all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleaned {
    /// Of two records with one key below it, only the last one is there. At most `until`.
    pub to: Offset,
    /// Where the first segment begins that no pass has replaced.
    pub until: Offset,
    /// When the first tombstone below `to` may go; `None` if there is none, or none is dated.
    pub tombstones_due: Option<Timestamp>,
    /// Ascending and without gaps, the last one ends at `until`. Where a log was cut below `until`,
    /// one more: that which was cut, whose name only is told.
    pub segments: Vec<CleanedSegment>,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanedSegment {
    pub info: SegmentInfo,
    /// Which of the files with this base; 0 for one that no pass has written.
    pub generation: u32,
}

impl Cleaned {
    /// The generation of the segment that begins at `base`; `None`: no file with this base counts.
    pub fn generation(&self, base: Offset) -> Option<u32> {
        let listed = self.segments.iter().find(|segment| segment.info.base == base);
        // zoo D11: what follows the last segment that was replaced is taken for one of them.
        let is_beyond = base > self.until || (base == self.until && !mutant!("swap-file-recovery"));
        let beyond = is_beyond.then_some(0);
        listed.map(|segment| segment.generation).or(beyond)
    }

    /// The largest generation that was ever used below `until`.
    pub fn generation_max(&self) -> u32 {
        self.segments.iter().map(|segment| segment.generation).max().unwrap_or_default()
    }

    /// The log was cut, and its last segment begins at `segment` and ends at `end`. Whether that
    /// changes anything.
    pub fn cut(&mut self, segment: Offset, end: Offset) -> bool {
        if self.until <= segment {
            return false;
        }
        self.segments.retain(|listed| listed.info.base <= segment);
        (self.until, self.to) = (segment, self.to.min(end).min(segment));
        true
    }

    pub fn encode(&self) -> Bytes {
        let mut body = Vec::with_capacity(32 + 28 * self.segments.len());
        body.extend_from_slice(&self.to.0.to_be_bytes());
        body.extend_from_slice(&self.until.0.to_be_bytes());
        let due = self.tombstones_due.unwrap_or(Timestamp(i64::MIN));
        body.extend_from_slice(&due.0.to_be_bytes());
        for CleanedSegment { info, generation } in &self.segments {
            body.extend_from_slice(&info.base.0.to_be_bytes());
            body.extend_from_slice(&info.bytes.to_be_bytes());
            body.extend_from_slice(&info.max_timestamp.0.to_be_bytes());
            body.extend_from_slice(&generation.to_be_bytes());
        }
        checkpoint::seal(KIND, VERSION, &body)
    }

    /// # Errors
    ///
    /// As `checkpoint::open`; `Body` if the segments do not ascend.
    pub fn decode(bytes: &Bytes) -> Result<Self, EnvelopeError> {
        let (_, body) = checkpoint::open(KIND, VERSION, bytes)?;
        Self::read(&body).ok_or(EnvelopeError::Body)
    }

    fn read(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let (to, until) = (Offset(fields.i64()?), Offset(fields.i64()?));
        let due = Timestamp(fields.i64()?);
        let tombstones_due = (due != Timestamp(i64::MIN)).then_some(due);
        let mut segments = Vec::new();
        while !fields.0.is_empty() {
            let base = Offset(fields.i64()?);
            let (bytes, max_timestamp) = (fields.u64()?, Timestamp(fields.i64()?));
            let info = SegmentInfo { base, bytes, max_timestamp };
            segments.push(CleanedSegment { info, generation: fields.u32()? });
        }
        let ascend = segments.is_sorted_by(|a: &CleanedSegment, b| a.info.base < b.info.base);
        let inside = segments.iter().all(|segment| segment.info.base <= until);
        (ascend && inside && to <= until).then_some(Self { to, until, tombstones_due, segments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned() -> Cleaned {
        let segment = |base: i64, generation| {
            let info = SegmentInfo { base: Offset(base), bytes: 700, max_timestamp: Timestamp(9) };
            CleanedSegment { info, generation }
        };
        let segments = vec![segment(0, 2), segment(40, 0)];
        let tombstones_due = Some(Timestamp(77));
        Cleaned { to: Offset(60), until: Offset(64), tombstones_due, segments }
    }

    #[test]
    fn it_survives_its_bytes_and_says_which_files_count() {
        let whole = cleaned();
        let bytes = whole.encode();
        assert_eq!(Cleaned::decode(&bytes), Ok(whole.clone()));
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(hex.starts_with("51434c4e0001000000000050"), "{hex}");
        let generation = |base| whole.generation(Offset(base));
        assert_eq!([0, 20, 40, 64, 80].map(generation), [Some(2), None, Some(0), Some(0), Some(0)]);
    }

    #[test]
    fn a_cut_leaves_the_name_of_what_was_cut() {
        let mut whole = cleaned();
        assert!(!whole.clone().cut(Offset(64), Offset(90)));
        assert!(whole.cut(Offset(0), Offset(20)));
        assert_eq!((whole.to, whole.until), (Offset(0), Offset(0)));
        let generation = |base| whole.generation(Offset(base));
        assert_eq!([0, 40].map(generation), [Some(2), Some(0)]);
        assert_eq!(Cleaned::decode(&whole.encode()), Ok(whole));
    }
}
