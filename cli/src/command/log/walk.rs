//! A walk over the frames of one segment file, a piece at a time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use quorate_core::batch::Header;
use quorate_core::id::{Offset, PartitionId};
use quorate_core::segment::frame::{FrameFlaw, FrameHeader};
use quorate_core::segment::scan::{Depth, Scan, Step};

/// Bytes that are read at a time; more only for a frame that is larger and fits the file.
const PIECE_BYTES: usize = 4 << 20;

/// How a segment ends.
#[derive(Debug)]
pub(super) enum Ending {
    /// In space that was never written.
    Untouched { at: u64, next: Offset },
    /// In an interrupted write, which a start cuts off.
    Torn { at: u64, next: Offset, flaw: FrameFlaw },
    /// In bytes that are not what was written.
    Rot { at: u64, next: Offset, flaw: FrameFlaw },
}

impl Ending {
    pub(super) fn next_offset(&self) -> Offset {
        match self {
            Self::Untouched { next, .. } | Self::Torn { next, .. } | Self::Rot { next, .. } => {
                *next
            }
        }
    }

    pub(super) fn sentence(&self) -> String {
        match self {
            Self::Untouched { at, next } => format!("ends at byte {at}, before offset {next}"),
            Self::Torn { at, next, flaw } => {
                format!("torn at byte {at}, before offset {next}: {flaw}; a start cuts it there")
            }
            Self::Rot { at, next, flaw } => {
                format!("damaged at byte {at}, before offset {next}: {flaw}")
            }
        }
    }
}

/// Whose frames stand in a file, and from where on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) partition: PartitionId,
    /// The first offset.
    pub(super) base: Offset,
    /// Where its frame stands.
    pub(super) position: u64,
}

/// Calls `visit` with each frame's position, headers, and the bytes from there on. The first
/// `durable_bytes` of the file must be whole.
pub(super) fn walk(
    path: &Path,
    partition: PartitionId,
    base: Offset,
    durable_bytes: u64,
    visit: impl FnMut(u64, &FrameHeader, &Header, &Bytes),
) -> io::Result<Ending> {
    walk_from(path, Place { partition, base, position: 0 }, durable_bytes, visit)
}

/// As `walk`, of the frames from a place on.
pub(super) fn walk_from(
    path: &Path,
    place: Place,
    durable_bytes: u64,
    mut visit: impl FnMut(u64, &FrameHeader, &Header, &Bytes),
) -> io::Result<Ending> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let Place { partition, base, position } = place;
    let scan = Scan::new(partition, base, length, durable_bytes, Depth::Records);
    let mut scan = scan.from_position(position, base);
    let mut bytes = Bytes::new();
    loop {
        match scan.step(&bytes) {
            Step::Frame { position, frame, header, .. } => {
                visit(position, &frame, &header, &bytes);
                let frame = usize::try_from(frame.frame_bytes()).unwrap_or(usize::MAX);
                bytes = bytes.slice(frame.min(bytes.len())..);
            }
            Step::More { bytes: wanted } => {
                bytes = read(&file, scan.position(), wanted.max(PIECE_BYTES), length)?;
            }
            Step::End => {
                let (at, next) = (scan.position(), scan.next_offset());
                return Ok(Ending::Untouched { at, next });
            }
            Step::Torn { flaw } => {
                let (at, next) = (scan.position(), scan.next_offset());
                return Ok(Ending::Torn { at, next, flaw });
            }
            Step::Rot { flaw } => {
                let (at, next) = (scan.position(), scan.next_offset());
                return Ok(Ending::Rot { at, next, flaw });
            }
        }
    }
}

fn read(file: &File, position: u64, wanted: usize, length: u64) -> io::Result<Bytes> {
    let left = usize::try_from(length.saturating_sub(position)).unwrap_or(usize::MAX);
    let mut bytes = BytesMut::zeroed(wanted.min(left));
    file.read_exact_at(&mut bytes, position)?;
    Ok(bytes.freeze())
}
