//! Fixed-width numbers in the formats of the storage engine: big-endian, read without trust.

use crate::id::{PartitionId, TopicId};

/// Bytes of a partition's identity.
pub(crate) const PARTITION_BYTES: usize = 20;

/// What remains of some bytes to be read. Every read says `None` when too little is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    pub(crate) fn partition(&mut self) -> Option<PartitionId> {
        Some(PartitionId { topic: TopicId(self.array()?), index: self.i32()? })
    }
}

pub(crate) fn put_partition(out: &mut Vec<u8>, partition: PartitionId) {
    out.extend_from_slice(&partition.topic.0);
    out.extend_from_slice(&partition.index.to_be_bytes());
}
