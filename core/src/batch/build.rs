//! Builds a batch record by record: for the client, and for what the node itself writes down.

use bytes::Bytes;

use super::compression::{self, Codec};
use super::header::{HEADER_BYTES, Header};
use super::record::{RecordHeader, put_record};
use super::{Batch, checksum, header};
use crate::id::{ProducerEpoch, ProducerId};
use crate::time::Timestamp;

/// A batch being filled. Offsets count from 0 until the leader stamps the batch.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    header: Header,
    codec: Codec,
    records: Vec<u8>,
    count: i32,
}

impl BatchBuilder {
    pub fn new(codec: Codec) -> Self {
        Self { header: Header::blank(), codec, records: Vec::new(), count: 0 }
    }

    /// Makes the batch idempotent: `base_sequence` is the first record's number, at least 0.
    #[must_use]
    pub fn producer(mut self, id: ProducerId, epoch: ProducerEpoch, base_sequence: i32) -> Self {
        self.header.set_producer(id, epoch, base_sequence);
        self
    }

    #[must_use]
    pub fn transactional(mut self) -> Self {
        self.header.set_transactional();
        self
    }

    #[must_use]
    pub(super) fn control(mut self) -> Self {
        self.header.set_control();
        self
    }

    /// Adds a record at the end. `bytes()` grows by at most its parts and some 40 bytes, which
    /// the caller bounds: a batch beyond 2 GiB panics in `build`.
    pub fn append<'h, H>(
        &mut self,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: H,
    ) where
        H: IntoIterator<Item = RecordHeader<'h>>,
        H::IntoIter: ExactSizeIterator + Clone,
    {
        if self.count == 0 {
            self.header.set_base_timestamp(timestamp);
            self.header.set_max_timestamp(timestamp);
        } else if timestamp > self.header.max_timestamp() {
            self.header.set_max_timestamp(timestamp);
        }
        let delta = timestamp.0.wrapping_sub(self.header.base_timestamp().0);
        put_record(&mut self.records, self.count, delta, key, value, headers.into_iter());
        self.count += 1;
    }

    /// Records so far.
    pub fn count(&self) -> i32 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the batch so far, before compression.
    pub fn bytes(&self) -> usize {
        HEADER_BYTES + self.records.len()
    }

    /// Compresses, and sets lengths and checksum.
    pub fn build(mut self) -> Batch {
        self.header.set_codec(self.codec);
        self.header.set_record_count(self.count);
        let records = match self.codec {
            Codec::None => Bytes::from(self.records),
            codec => compression::compress(codec, &self.records),
        };
        self.header.set_records_bytes(records.len());
        let front = checksum::checksum(&self.header.as_bytes()[header::CHECKSUM_FROM..]);
        self.header.set_checksum(checksum::extend(front, &records));
        Batch { header: self.header, records }
    }
}
