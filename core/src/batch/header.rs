//! The 61-byte header of a record batch, format version 2: read and patched in place.

use std::fmt;

use super::BatchError;
use super::compression::Codec;
use crate::id::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use crate::time::Timestamp;

/// Bytes of a batch before its first record.
pub const HEADER_BYTES: usize = 61;

/// Bytes that the length field does not count: the base offset and the length field itself.
pub const LENGTH_OVERHEAD: usize = 12;

/// Where the checksum's reach begins: it covers everything from the attributes on, so base offset
/// and leader epoch can be stamped without computing it anew.
pub(super) const CHECKSUM_FROM: usize = 21;

/// The format this build reads and writes. Versions 0 and 1 are refused (KIP-896).
pub const MAGIC: i8 = 2;

const BASE_OFFSET: usize = 0;
const LENGTH: usize = 8;
const LEADER_EPOCH: usize = 12;
const MAGIC_AT: usize = 16;
const CHECKSUM: usize = 17;
const ATTRIBUTES: usize = 21;
const LAST_OFFSET_DELTA: usize = 23;
const BASE_TIMESTAMP: usize = 27;
const MAX_TIMESTAMP: usize = 35;
const PRODUCER_ID: usize = 43;
const PRODUCER_EPOCH: usize = 51;
const BASE_SEQUENCE: usize = 53;
const COUNT: usize = 57;

const CODEC_BITS: i16 = 0b111;
const LOG_APPEND_TIME_BIT: i16 = 1 << 3;
const TRANSACTIONAL_BIT: i16 = 1 << 4;
const CONTROL_BIT: i16 = 1 << 5;
const DELETE_HORIZON_BIT: i16 = 1 << 6;

/// Who set a batch's timestamps. Kafka's `TimestampType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    CreateTime,
    LogAppendTime,
}

/// A batch's header. Every value of this type passed `parse`: magic 2, a known codec, a length of
/// at least a header, offsets and count that are not negative.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Header([u8; HEADER_BYTES]);

impl Header {
    /// Reads the header at the front of `bytes`, whose end need not be there yet.
    ///
    /// # Errors
    ///
    /// `Short` below 61 bytes; otherwise what no batch of version 2 can have.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        // The magic stands at the same place in all versions, so an old client is told the truth
        // even where its message is shorter than our header.
        if let Some(&magic) = bytes.get(MAGIC_AT)
            && magic.cast_signed() != MAGIC
        {
            return Err(BatchError::Magic { found: magic.cast_signed() });
        }
        let Some((front, _)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(BatchError::Short { needed: HEADER_BYTES, found: bytes.len() });
        };
        let header = Self(*front);
        let length = header.i32_at(LENGTH);
        if length < const { (HEADER_BYTES - LENGTH_OVERHEAD) as i32 } {
            return Err(BatchError::Length { claimed: length });
        }
        if Codec::from_bits(header.attributes() & CODEC_BITS).is_none() {
            return Err(BatchError::Codec { found: (header.attributes() & CODEC_BITS) as u8 });
        }
        if header.record_count() < 0 {
            return Err(BatchError::Count { claimed: header.record_count() });
        }
        let (base, delta) = (header.base_offset().0, header.last_offset_delta());
        if base < 0 || delta < 0 || base.checked_add(i64::from(delta) + 1).is_none() {
            return Err(BatchError::Offsets { base, last_delta: delta });
        }
        Ok(header)
    }

    /// A header of an empty batch without producer, for the builder to fill.
    pub(super) fn blank() -> Self {
        let mut header = Self([0; HEADER_BYTES]);
        header.0[MAGIC_AT] = MAGIC.cast_unsigned();
        header.put(LENGTH, const { (HEADER_BYTES - LENGTH_OVERHEAD) as i32 }.to_be_bytes());
        header.put(LEADER_EPOCH, (-1_i32).to_be_bytes());
        header.put(BASE_TIMESTAMP, Timestamp::NONE.0.to_be_bytes());
        header.put(MAX_TIMESTAMP, Timestamp::NONE.0.to_be_bytes());
        header.put(PRODUCER_ID, ProducerId::NONE.0.to_be_bytes());
        header.put(PRODUCER_EPOCH, (-1_i16).to_be_bytes());
        header.put(BASE_SEQUENCE, (-1_i32).to_be_bytes());
        header
    }

    pub const fn as_bytes(&self) -> &[u8; HEADER_BYTES] {
        &self.0
    }

    /// Bytes of the whole batch, header included, as the header claims; at least 61.
    pub fn batch_bytes(&self) -> usize {
        self.i32_at(LENGTH) as usize + LENGTH_OVERHEAD
    }

    pub fn base_offset(&self) -> Offset {
        Offset(self.i64_at(BASE_OFFSET))
    }

    /// The offset of the last record (or of the last that stood here before compaction).
    pub fn last_offset(&self) -> Offset {
        self.base_offset().plus(i64::from(self.last_offset_delta()))
    }

    /// Where the next batch begins.
    pub fn next_offset(&self) -> Offset {
        self.last_offset().plus(1)
    }

    /// The leadership that wrote the batch; -1 before it is stamped.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        LeaderEpoch(self.i32_at(LEADER_EPOCH))
    }

    pub fn magic(&self) -> i8 {
        self.0[MAGIC_AT].cast_signed()
    }

    /// CRC-32C over attributes and everything after them, as claimed.
    pub fn checksum(&self) -> u32 {
        u32::from_be_bytes(self.array(CHECKSUM))
    }

    pub fn attributes(&self) -> i16 {
        i16::from_be_bytes(self.array(ATTRIBUTES))
    }

    pub fn codec(&self) -> Codec {
        Codec::from_bits(self.attributes() & CODEC_BITS).expect("parse refuses an unknown codec")
    }

    pub fn timestamp_type(&self) -> TimestampType {
        if self.has(LOG_APPEND_TIME_BIT) {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        }
    }

    pub fn is_transactional(&self) -> bool {
        self.has(TRANSACTIONAL_BIT)
    }

    /// Holds a transaction marker (or another control record), never user data. KIP-98.
    pub fn is_control(&self) -> bool {
        self.has(CONTROL_BIT)
    }

    /// Whether the base timestamp is a delete horizon, set by compaction. KIP-534.
    pub fn has_delete_horizon(&self) -> bool {
        self.has(DELETE_HORIZON_BIT)
    }

    pub fn last_offset_delta(&self) -> i32 {
        self.i32_at(LAST_OFFSET_DELTA)
    }

    /// What the records' timestamp deltas count from.
    pub fn base_timestamp(&self) -> Timestamp {
        Timestamp(self.i64_at(BASE_TIMESTAMP))
    }

    pub fn max_timestamp(&self) -> Timestamp {
        Timestamp(self.i64_at(MAX_TIMESTAMP))
    }

    /// `ProducerId::NONE` (or any negative number) for a producer that is not idempotent.
    pub fn producer_id(&self) -> ProducerId {
        ProducerId(self.i64_at(PRODUCER_ID))
    }

    pub fn producer_epoch(&self) -> ProducerEpoch {
        ProducerEpoch(i16::from_be_bytes(self.array(PRODUCER_EPOCH)))
    }

    /// The first record's sequence number; -1 for none.
    pub fn base_sequence(&self) -> i32 {
        self.i32_at(BASE_SEQUENCE)
    }

    /// The last record's sequence number; after 2^31 - 1 comes 0. -1 if there is none.
    pub fn last_sequence(&self) -> i32 {
        match self.base_sequence() {
            base if base < 0 => -1,
            base => sequence_plus(base, self.last_offset_delta()),
        }
    }

    /// Records in the batch, as claimed; never negative, 0 where compaction removed all.
    pub fn record_count(&self) -> i32 {
        self.i32_at(COUNT)
    }

    pub(super) fn set_base_offset(&mut self, offset: Offset) {
        self.put(BASE_OFFSET, offset.0.to_be_bytes());
    }

    pub(super) fn set_leader_epoch(&mut self, epoch: LeaderEpoch) {
        self.put(LEADER_EPOCH, epoch.0.to_be_bytes());
    }

    pub(super) fn set_records_bytes(&mut self, bytes: usize) {
        let length = i32::try_from(HEADER_BYTES - LENGTH_OVERHEAD + bytes)
            .expect("a builder's batch stays below 2 GiB");
        self.put(LENGTH, length.to_be_bytes());
    }

    pub(super) fn set_checksum(&mut self, checksum: u32) {
        self.put(CHECKSUM, checksum.to_be_bytes());
    }

    pub(super) fn set_codec(&mut self, codec: Codec) {
        self.set_attributes((self.attributes() & !CODEC_BITS) | codec.bits());
    }

    pub(super) fn set_log_append_time(&mut self) {
        self.set_attributes(self.attributes() | LOG_APPEND_TIME_BIT);
    }

    pub(super) fn set_transactional(&mut self) {
        self.set_attributes(self.attributes() | TRANSACTIONAL_BIT);
    }

    pub(super) fn set_control(&mut self) {
        self.set_attributes(self.attributes() | CONTROL_BIT);
    }

    pub(super) fn set_base_timestamp(&mut self, timestamp: Timestamp) {
        self.put(BASE_TIMESTAMP, timestamp.0.to_be_bytes());
    }

    pub(super) fn set_max_timestamp(&mut self, timestamp: Timestamp) {
        self.put(MAX_TIMESTAMP, timestamp.0.to_be_bytes());
    }

    pub(super) fn set_producer(&mut self, id: ProducerId, epoch: ProducerEpoch, sequence: i32) {
        self.put(PRODUCER_ID, id.0.to_be_bytes());
        self.put(PRODUCER_EPOCH, epoch.0.to_be_bytes());
        self.put(BASE_SEQUENCE, sequence.to_be_bytes());
    }

    /// The last record's offset delta follows from the count, as in every batch of a producer.
    pub(super) fn set_record_count(&mut self, count: i32) {
        self.put(COUNT, count.to_be_bytes());
        self.put(LAST_OFFSET_DELTA, (count - 1).max(0).to_be_bytes());
    }

    /// Records that compaction left; the offsets stay.
    pub(super) fn set_count(&mut self, count: i32) {
        self.put(COUNT, count.to_be_bytes());
    }

    pub(super) fn set_last_offset_delta(&mut self, delta: i32) {
        self.put(LAST_OFFSET_DELTA, delta.to_be_bytes());
    }

    /// Sets the base timestamp, and says whether that is a delete horizon.
    pub(super) fn set_delete_horizon(&mut self, is_one: bool, base: Timestamp) {
        let bit = if is_one { DELETE_HORIZON_BIT } else { 0 };
        self.set_attributes((self.attributes() & !DELETE_HORIZON_BIT) | bit);
        self.set_base_timestamp(base);
    }

    fn set_attributes(&mut self, attributes: i16) {
        self.put(ATTRIBUTES, attributes.to_be_bytes());
    }

    fn has(&self, bit: i16) -> bool {
        self.attributes() & bit != 0
    }

    fn i32_at(&self, at: usize) -> i32 {
        i32::from_be_bytes(self.array(at))
    }

    fn i64_at(&self, at: usize) -> i64 {
        i64::from_be_bytes(self.array(at))
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut array = [0; N];
        array.copy_from_slice(&self.0[at..at + N]);
        array
    }

    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        self.0[at..at + N].copy_from_slice(&bytes);
    }
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}..{} e{} {:?} {} records",
            self.base_offset(),
            self.next_offset(),
            self.leader_epoch(),
            self.codec(),
            self.record_count()
        )?;
        if self.producer_id().is_some() {
            write!(
                f,
                " p{}@{}#{}",
                self.producer_id(),
                self.producer_epoch(),
                self.base_sequence()
            )?;
        }
        Ok(())
    }
}

/// The sequence number `records` after `sequence`: 31 bits, after 2^31 - 1 comes 0. Both must not
/// be negative. Kafka's `DefaultRecordBatch.incrementSequence`.
pub fn sequence_plus(sequence: i32, records: i32) -> i32 {
    (sequence.cast_unsigned().wrapping_add(records.cast_unsigned()) & 0x7fff_ffff).cast_signed()
}
