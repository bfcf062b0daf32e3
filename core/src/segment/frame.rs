//! The frame around a batch on disk: it says whose batch this is and where it belongs, under a
//! checksum of its own, since the batch's checksum covers none of it.

use std::fmt;

use bytes::Bytes;

use super::bytes::{Fields, PARTITION_BYTES};
use crate::batch::checksum::checksum;
use crate::batch::{Batch, BatchError, HEADER_BYTES, Header, Levels};
use crate::id::{LeaderEpoch, Offset, PartitionId};

/// Bytes before the batch: magic 4, version 1, reserved 1, levels 2, batch bytes 4, partition 20,
/// base offset 8, leader epoch 4, CRC-32C of all these 4.
pub const FRAME_HEADER_BYTES: usize = 48;

/// Bytes with which every reader can decide what a frame is: its header and its batch's header.
pub const FRAME_FRONT_BYTES: usize = FRAME_HEADER_BYTES + HEADER_BYTES;

const MAGIC: [u8; 4] = *b"QFRM";
const VERSION: u8 = 1;
const CHECKSUM_AT: usize = FRAME_HEADER_BYTES - 4;

/// What a frame says of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub partition: PartitionId,
    pub base_offset: Offset,
    pub leader_epoch: LeaderEpoch,
    pub levels: Levels,
    /// Bytes of the batch that follows; at least a batch header's.
    pub batch_bytes: u32,
}

impl FrameHeader {
    /// The frame of a batch that carries its final offset and leader epoch.
    pub fn of(partition: PartitionId, batch: &Batch, levels: Levels) -> Self {
        Self {
            partition,
            base_offset: batch.header().base_offset(),
            leader_epoch: batch.header().leader_epoch(),
            levels,
            batch_bytes: u32::try_from(batch.len()).expect("a batch is below 2 GiB"),
        }
    }

    /// Bytes of the frame as a whole.
    pub const fn frame_bytes(&self) -> u64 {
        FRAME_HEADER_BYTES as u64 + self.batch_bytes as u64
    }

    pub fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut out = [0; FRAME_HEADER_BYTES];
        out[..4].copy_from_slice(&MAGIC);
        out[4] = VERSION;
        out[6..8].copy_from_slice(&self.levels.0.to_be_bytes());
        out[8..12].copy_from_slice(&self.batch_bytes.to_be_bytes());
        out[12..28].copy_from_slice(&self.partition.topic.0);
        out[28..32].copy_from_slice(&self.partition.index.to_be_bytes());
        out[32..40].copy_from_slice(&self.base_offset.0.to_be_bytes());
        out[40..44].copy_from_slice(&self.leader_epoch.0.to_be_bytes());
        let checksum = checksum(&out[..CHECKSUM_AT]);
        out[CHECKSUM_AT..].copy_from_slice(&checksum.to_be_bytes());
        out
    }

    /// Reads a header. `Ok(None)` where only zeros stand: the end of what was written into
    /// preallocated space.
    ///
    /// # Errors
    ///
    /// `Short` if there are fewer than 48 bytes; otherwise why this is no header.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, FrameFlaw> {
        let Some((front, _)) = bytes.split_first_chunk::<FRAME_HEADER_BYTES>() else {
            return Err(FrameFlaw::Short);
        };
        if *front == [0; FRAME_HEADER_BYTES] {
            return Ok(None);
        }
        Self::fields(front)
    }

    fn fields(front: &[u8; FRAME_HEADER_BYTES]) -> Result<Option<Self>, FrameFlaw> {
        let mut fields = Fields(front);
        if fields.array() != Some(MAGIC) {
            return Err(FrameFlaw::Magic);
        }
        let claimed = Fields(&front[CHECKSUM_AT..]).u32();
        if claimed != Some(checksum(&front[..CHECKSUM_AT])) {
            return Err(FrameFlaw::HeaderChecksum);
        }
        // Only behind a good checksum does another version mean a newer build.
        let version = fields.u8().ok_or(FrameFlaw::Short)?;
        if version != VERSION {
            return Err(FrameFlaw::Version { found: version });
        }
        fields.u8().ok_or(FrameFlaw::Short)?;
        let levels = Levels(fields.u16().ok_or(FrameFlaw::Short)?);
        let batch_bytes = fields.u32().ok_or(FrameFlaw::Short)?;
        let partition = fields.partition().ok_or(FrameFlaw::Short)?;
        let base_offset = Offset(fields.i64().ok_or(FrameFlaw::Short)?);
        let leader_epoch = LeaderEpoch(fields.i32().ok_or(FrameFlaw::Short)?);
        if (batch_bytes as usize) < HEADER_BYTES {
            return Err(FrameFlaw::HeaderChecksum);
        }
        Ok(Some(Self { partition, base_offset, leader_epoch, levels, batch_bytes }))
    }

    /// Whether the header of the batch behind this frame is the one the frame speaks of.
    ///
    /// # Errors
    ///
    /// `Batch` if it is no header, `Disagree` if it is another batch's.
    pub fn check_batch(&self, header: &Header) -> Result<(), FrameFlaw> {
        let agree = header.base_offset() == self.base_offset
            && header.leader_epoch() == self.leader_epoch
            && header.batch_bytes() == self.batch_bytes as usize;
        if agree { Ok(()) } else { Err(FrameFlaw::Disagree) }
    }
}

const _: () = assert!(FRAME_HEADER_BYTES == 24 + PARTITION_BYTES + 4);

/// A whole frame, as `frame_chunks` wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub header: FrameHeader,
    pub batch: Batch,
}

impl Frame {
    /// Reads the frame at the front of `bytes` and checks both checksums. `Ok(None)` where only
    /// zeros stand.
    ///
    /// # Errors
    ///
    /// `Short` if the frame reaches beyond `bytes`; otherwise what is wrong with it.
    pub fn decode(bytes: &Bytes) -> Result<Option<Self>, FrameFlaw> {
        let Some(header) = FrameHeader::decode(bytes)? else {
            return Ok(None);
        };
        let end = FRAME_HEADER_BYTES + header.batch_bytes as usize;
        if bytes.len() < end {
            return Err(FrameFlaw::Short);
        }
        let batch = Batch::parse(bytes.slice(FRAME_HEADER_BYTES..end)).map_err(FrameFlaw::Batch)?;
        header.check_batch(batch.header())?;
        batch.verify().map_err(FrameFlaw::Batch)?;
        Ok(Some(Self { header, batch }))
    }
}

/// The bytes of a frame, ready to be written: both headers in one chunk, the records shared.
pub fn frame_chunks(partition: PartitionId, batch: &Batch, levels: Levels) -> [Bytes; 2] {
    let mut front = Vec::with_capacity(FRAME_FRONT_BYTES);
    front.extend_from_slice(&FrameHeader::of(partition, batch, levels).encode());
    front.extend_from_slice(batch.header().as_bytes());
    [Bytes::from(front), batch.records().clone()]
}

/// Why bytes are not the frame that was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFlaw {
    /// The bytes end before the frame does.
    Short,
    /// No frame begins here.
    Magic,
    /// The frame's header does not have its checksum.
    HeaderChecksum,
    /// A newer build wrote this.
    Version { found: u8 },
    /// The batch is not one, or does not have its checksum.
    Batch(BatchError),
    /// The batch is whole, but not the one the frame speaks of.
    Disagree,
    /// A whole frame of another partition: a write that went astray.
    Partition { found: PartitionId },
    /// A whole frame of another place in the log.
    Offset { expected: Offset, found: Offset },
    /// A leader epoch below that of the frame before.
    LeaderEpoch { before: LeaderEpoch, found: LeaderEpoch },
    /// Zeros where a frame must stand.
    Missing,
}

impl fmt::Display for FrameFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the file ends inside a frame"),
            Self::Magic => f.write_str("no frame begins here"),
            Self::HeaderChecksum => f.write_str("the frame's header fails its checksum"),
            Self::Version { found } => {
                write!(f, "the frame has format {found}; this build knows {VERSION}")
            }
            Self::Batch(error) => error.fmt(f),
            Self::Disagree => f.write_str("the frame and its batch disagree about place or length"),
            Self::Partition { found } => write!(f, "the frame belongs to partition {found}"),
            Self::Offset { expected, found } => {
                write!(f, "the frame begins at offset {found} where {expected} is due")
            }
            Self::LeaderEpoch { before, found } => {
                write!(f, "the frame has leader epoch {found} after {before}")
            }
            Self::Missing => f.write_str("there is no frame where one must stand"),
        }
    }
}

impl std::error::Error for FrameFlaw {}
