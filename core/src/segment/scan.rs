//! Walks the frames of a segment and says where its valid prefix ends, and why: at untouched
//! space, at a torn tail, or at rot.
//!
//! A torn tail is cut. The space behind the cut must be zeroed (or the file cut short) before
//! anything is written there: behind a torn frame there may be a whole one, and a new frame of the
//! same length as the torn one would bring it back to life.

use bytes::Bytes;

use super::frame::{FRAME_FRONT_BYTES, FRAME_HEADER_BYTES, Frame, FrameFlaw, FrameHeader};
use crate::batch::Header;
use crate::batch::control::Marker;
use crate::id::{LeaderEpoch, Offset, PartitionId};
use crate::mutant;

/// How far to look into each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The two headers, and control batches whole: enough to rebuild what is known of a log that
    /// was closed cleanly.
    Headers,
    /// The records' checksum as well.
    Records,
}

/// A walk over one segment. Feed it the file's bytes from `position()` on.
#[derive(Clone, Debug)]
pub struct Scan {
    partition: PartitionId,
    depth: Depth,
    position: u64,
    next_offset: Offset,
    leader_epoch: LeaderEpoch,
    file_bytes: u64,
    durable_bytes: u64,
}

/// A frame, its batch's header, and the marker in it.
type Found = (FrameHeader, Header, Option<Marker>);

/// What stands at the scan's position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A whole frame at `position`; the scan now stands behind it. `marker`: what the batch says of
    /// its producer's transaction, if it is a marker.
    Frame { position: u64, frame: FrameHeader, header: Header, marker: Option<Marker> },
    /// At least so many bytes from `position()` on are needed.
    More { bytes: usize },
    /// Nothing was written here, and nothing need have been.
    End,
    /// Above the durable mark: the end of an interrupted write. Cut here, and zero what follows.
    Torn { flaw: FrameFlaw },
    /// Below the durable mark: the disk lost or changed what it had promised to keep. Never cut;
    /// the log is offline until a replica or a human repairs it.
    Rot { flaw: FrameFlaw },
}

impl Scan {
    /// A scan from the start of the segment that begins at `base`. The file has `file_bytes`, of
    /// which the first `durable_bytes` were synced once (the durable mark).
    pub fn new(
        partition: PartitionId,
        base: Offset,
        file_bytes: u64,
        durable_bytes: u64,
        depth: Depth,
    ) -> Self {
        Self {
            partition,
            depth,
            position: 0,
            next_offset: base,
            leader_epoch: LeaderEpoch(-1),
            file_bytes,
            durable_bytes,
        }
    }

    /// Continues at a place known from an index or a snapshot: the frame at `position` begins
    /// with `next_offset`.
    #[must_use]
    pub fn from_position(mut self, position: u64, next_offset: Offset) -> Self {
        (self.position, self.next_offset) = (position, next_offset);
        self
    }

    /// Where the next frame is looked for; after the last step, the length of the valid prefix.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The offset behind the last frame.
    pub fn next_offset(&self) -> Offset {
        self.next_offset
    }

    /// Looks at the frame at the front of `bytes`, which stand at `position()` in the file. Never
    /// asks for `More` than the file has.
    pub fn step(&mut self, bytes: &Bytes) -> Step {
        let left = self.file_bytes.saturating_sub(self.position);
        if left < FRAME_HEADER_BYTES as u64 && bytes.iter().all(|&byte| byte == 0) {
            // Too little for a frame, and untouched.
            return self.on_nothing();
        }
        match self.look(bytes, left) {
            Ok(Some((frame, header, marker))) => {
                let position = self.position;
                self.position += frame.frame_bytes();
                self.next_offset = header.next_offset();
                self.leader_epoch = frame.leader_epoch;
                Step::Frame { position, frame, header, marker }
            }
            Ok(None) => self.on_nothing(),
            // A frame that is longer than what is left of the file is not waited for.
            Err(FrameFlaw::Short) if self.can_have_more(bytes, left) => {
                Step::More { bytes: self.wanted(bytes) }
            }
            Err(flaw) => self.judge(flaw),
        }
    }

    fn look(&self, bytes: &Bytes, left: u64) -> Result<Option<Found>, FrameFlaw> {
        let Some(frame) = FrameHeader::decode(bytes)? else {
            return Ok(None);
        };
        // A frame of another log is not worth waiting for.
        if frame.partition != self.partition && !mutant!("misdirected-write") {
            return Err(FrameFlaw::Partition { found: frame.partition });
        }
        if frame.base_offset != self.next_offset {
            return Err(FrameFlaw::Offset { expected: self.next_offset, found: frame.base_offset });
        }
        if frame.leader_epoch < self.leader_epoch {
            return Err(FrameFlaw::LeaderEpoch {
                before: self.leader_epoch,
                found: frame.leader_epoch,
            });
        }
        if frame.frame_bytes() > left {
            return Err(FrameFlaw::Short);
        }
        let is_whole = self.depth == Depth::Records || self.is_control(bytes, &frame)?;
        if !is_whole {
            let header = Header::parse(&bytes[FRAME_HEADER_BYTES..FRAME_FRONT_BYTES])
                .map_err(FrameFlaw::Batch)?;
            frame.check_batch(&header)?;
            return Ok(Some((frame, header, None)));
        }
        let found = |whole: Frame| (frame, *whole.batch.header(), Marker::of(&whole.batch));
        Ok(Frame::decode(bytes)?.map(found))
    }

    /// Whether the batch of the frame in front of `bytes` is a control batch.
    fn is_control(&self, bytes: &[u8], frame: &FrameHeader) -> Result<bool, FrameFlaw> {
        let header = bytes.get(FRAME_HEADER_BYTES..FRAME_FRONT_BYTES).ok_or(FrameFlaw::Short)?;
        let header = Header::parse(header).map_err(FrameFlaw::Batch)?;
        frame.check_batch(&header)?;
        Ok(header.is_control())
    }

    fn can_have_more(&self, bytes: &[u8], left: u64) -> bool {
        let wanted = self.wanted(bytes);
        bytes.len() < wanted && wanted as u64 <= left
    }

    /// How many bytes are needed after these were too few.
    fn wanted(&self, bytes: &[u8]) -> usize {
        match (self.depth, FrameHeader::decode(bytes)) {
            (Depth::Records, Ok(Some(frame))) => FRAME_HEADER_BYTES + frame.batch_bytes as usize,
            (Depth::Headers, Ok(Some(frame))) => match self.is_control(bytes, &frame) {
                Ok(true) => FRAME_HEADER_BYTES + frame.batch_bytes as usize,
                _ => FRAME_FRONT_BYTES,
            },
            _ => FRAME_HEADER_BYTES,
        }
    }

    fn on_nothing(&self) -> Step {
        if self.position < self.durable_bytes {
            Step::Rot { flaw: FrameFlaw::Missing }
        } else {
            Step::End
        }
    }

    fn judge(&self, flaw: FrameFlaw) -> Step {
        // What a newer build wrote is not ours to cut.
        let kept = self.position < self.durable_bytes || matches!(flaw, FrameFlaw::Version { .. });
        if kept { Step::Rot { flaw } } else { Step::Torn { flaw } }
    }
}
