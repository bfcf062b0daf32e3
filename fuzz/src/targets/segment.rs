//! Segments: a scan over frames that were damaged gives frames that were written, in their order
//! from the first on, and nothing else.

use bytes::Bytes;
use quorate_core::batch::Batch;
use quorate_core::batch::build::BatchBuilder;
use quorate_core::batch::compression::Codec;
use quorate_core::batch::levels::Levels;
use quorate_core::id::{LeaderEpoch, Offset, PartitionId, TopicId};
use quorate_core::segment::checkpoint::{Marks, open};
use quorate_core::segment::frame::{FrameHeader, frame_chunks};
use quorate_core::segment::index::Index;
use quorate_core::segment::scan::{Depth, Scan, Step};
use quorate_core::time::Timestamp;

use super::Draw;

pub(super) const PARTITION: PartitionId = PartitionId { topic: TopicId([7; 16]), index: 3 };

/// How many frames, how they are damaged, then their records; and the same bytes as a file.
pub fn segment(bytes: &[u8]) {
    let mut draw = Draw(bytes);
    let steer = draw.byte();
    let mut file = Vec::new();
    let mut written = Vec::new();
    for index in 0..steer % 5 {
        let batch = batch(&mut draw, i64::from(index));
        written.push(FrameHeader::of(PARTITION, &batch, Levels::DEFAULT));
        file.extend(frame_chunks(PARTITION, &batch, Levels::DEFAULT).concat());
    }
    file.resize(file.len() + draw.place() % 300, 0);
    let end = file.len();
    for _ in 0..steer / 5 % 4 {
        if let Some(byte) = file.get_mut(draw.place() % end.max(1)) {
            *byte = draw.byte();
        }
    }
    let durable = draw.place() as u64 % (end as u64 + 1);
    for depth in [Depth::Headers, Depth::Records] {
        let found = scan(&Bytes::from(file.clone()), durable, depth);
        assert!(found.len() <= written.len());
        assert_eq!(found[..], written[..found.len()]);
    }
    let raw = Bytes::copy_from_slice(bytes);
    scan(&raw, durable, Depth::Records);
    let _ = open(*b"abcd", 1, &raw);
    let _ = Marks::decode(&raw);
    let _ = Index::decode(&raw);
}

/// One record of a few drawn bytes.
pub(super) fn batch(draw: &mut Draw<'_>, offset: i64) -> Batch {
    let mut builder = BatchBuilder::new(Codec::None);
    let value = [draw.byte(), draw.byte()].repeat(usize::from(draw.byte()));
    builder.append(Timestamp(offset), None, Some(&value), []);
    let mut batch = builder.build();
    batch.stamp(Offset(offset), LeaderEpoch(1));
    batch
}

/// Walks to the end; the bytes are handed out in as small pieces as the scan lets them be.
fn scan(file: &Bytes, durable: u64, depth: Depth) -> Vec<FrameHeader> {
    let total = file.len() as u64;
    let mut scan = Scan::new(PARTITION, Offset(0), total, durable, depth);
    let mut found = Vec::new();
    let mut wanted = 0;
    loop {
        let start = scan.position() as usize;
        assert!(start <= file.len());
        let end = file.len().min(start + wanted);
        match scan.step(&file.slice(start..end)) {
            Step::Frame { position, frame, .. } => {
                assert_eq!(position, start as u64);
                assert!(scan.position() > position);
                found.push(frame);
                wanted = 0;
            }
            Step::More { bytes } => {
                assert!(bytes > end - start, "more is more than there was");
                assert!(start + bytes <= file.len(), "no more than the file has");
                wanted = bytes;
            }
            Step::End | Step::Torn { .. } | Step::Rot { .. } => return found,
        }
    }
}
