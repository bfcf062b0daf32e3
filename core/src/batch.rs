//! A record batch, format version 2: its header held apart, so that it is patched in place while
//! the records' bytes are never copied. Kafka's `DefaultRecordBatch`, KIP-98.

pub mod build;
pub mod checksum;
pub mod compression;
pub mod control;
pub mod header;
pub mod levels;
pub mod record;
pub mod thin;
pub mod validate;

use std::fmt;

use bytes::Bytes;

pub use self::build::BatchBuilder;
pub use self::compression::Codec;
pub use self::header::{HEADER_BYTES, Header, TimestampType, sequence_plus};
pub use self::levels::Levels;
pub use self::record::{Record, RecordHeader, Records};
pub use self::validate::{Invalid, InvalidKind, Rules, validate};
use crate::id::{LeaderEpoch, Offset};
use crate::time::Timestamp;

/// One whole record batch: its 61-byte header, patched in place, and the records as they came.
#[derive(Clone, PartialEq, Eq)]
pub struct Batch {
    header: Header,
    records: Bytes,
}

impl Batch {
    /// Takes exactly one batch. Structure only: the checksum is `verify`'s, the records are
    /// `validate`'s.
    ///
    /// # Errors
    ///
    /// `Short` if bytes are missing, `Trailing` if there are more than one batch's, otherwise as
    /// `Header::parse`.
    pub fn parse(mut bytes: Bytes) -> Result<Self, BatchError> {
        let header = Header::parse(&bytes)?;
        let records = bytes.split_off(HEADER_BYTES);
        Self::from_parts(header, records)
    }

    /// Joins a header and the records it speaks of.
    ///
    /// # Errors
    ///
    /// `Short` or `Trailing` if the records are not as long as the header says.
    pub fn from_parts(header: Header, records: Bytes) -> Result<Self, BatchError> {
        let (needed, found) = (header.batch_bytes(), HEADER_BYTES + records.len());
        if found < needed {
            return Err(BatchError::Short { needed, found });
        }
        if found > needed {
            return Err(BatchError::Trailing { bytes: found - needed });
        }
        Ok(Self { header, records })
    }

    /// # Errors
    ///
    /// `Checksum` if the CRC-32C in the header is not that of the bytes.
    pub fn verify(&self) -> Result<(), BatchError> {
        let (claimed, computed) = (self.header.checksum(), self.computed_checksum());
        if claimed == computed { Ok(()) } else { Err(BatchError::Checksum { claimed, computed }) }
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The records as they stand in the batch: compressed if `header().codec()` says so.
    pub fn records(&self) -> &Bytes {
        &self.records
    }

    /// The records without compression: a share of the batch's bytes where there is none.
    ///
    /// # Errors
    ///
    /// As `compression::decompress`; in particular if there are more than `bytes_max` bytes.
    pub fn uncompressed(&self, bytes_max: usize) -> Result<Bytes, compression::CompressionError> {
        compression::decompress(self.header.codec(), &self.records, bytes_max)
    }

    /// Bytes of the header and the records.
    pub fn len(&self) -> usize {
        HEADER_BYTES + self.records.len()
    }

    /// Whether there is no record in it (compaction leaves such).
    pub fn is_empty(&self) -> bool {
        self.header.record_count() == 0
    }

    /// The batch as it goes onto a disk or a wire. The header is copied, the records are shared.
    pub fn chunks(&self) -> [Bytes; 2] {
        [Bytes::copy_from_slice(self.header.as_bytes()), self.records.clone()]
    }

    /// Gives the batch its place in the log. The checksum covers neither field.
    pub fn stamp(&mut self, base_offset: Offset, leader_epoch: LeaderEpoch) {
        self.header.set_base_offset(base_offset);
        self.header.set_leader_epoch(leader_epoch);
    }

    /// Says that every record was appended at `timestamp`; renews the checksum. The records keep
    /// their deltas: with this timestamp type a reader takes the batch's maximum for each.
    pub fn set_log_append_time(&mut self, timestamp: Timestamp) {
        self.header.set_log_append_time();
        self.header.set_max_timestamp(timestamp);
        self.renew_checksum();
    }

    /// The same records in another codec; the checksum is renewed. What is in memory meanwhile:
    /// the batch, at most `bytes_max` bytes of records, and what comes out.
    ///
    /// # Errors
    ///
    /// As `uncompressed`.
    pub fn recompress(
        &mut self,
        codec: Codec,
        bytes_max: usize,
    ) -> Result<(), compression::CompressionError> {
        let records = self.uncompressed(bytes_max)?;
        self.records = match codec {
            Codec::None => records,
            codec => compression::compress(codec, &records),
        };
        self.header.set_codec(codec);
        self.header.set_records_bytes(self.records.len());
        self.renew_checksum();
        Ok(())
    }

    /// Puts `wrap` around the records' bytes, which stay the same.
    #[must_use]
    pub fn map_records(self, wrap: impl FnOnce(Bytes) -> Bytes) -> Self {
        let Self { header, records } = self;
        let bytes = records.len();
        let records = wrap(records);
        assert_eq!(records.len(), bytes, "the same bytes, otherwise held");
        Self { header, records }
    }

    /// Corrects the largest timestamp; renews the checksum.
    pub(crate) fn set_max_timestamp(&mut self, timestamp: Timestamp) {
        self.header.set_max_timestamp(timestamp);
        self.renew_checksum();
    }

    /// The time that counts for `record`. KIP-32.
    pub fn timestamp_of(&self, record: &Record<'_>) -> Timestamp {
        match self.header.timestamp_type() {
            TimestampType::LogAppendTime => self.header.max_timestamp(),
            TimestampType::CreateTime => {
                Timestamp(self.header.base_timestamp().0.saturating_add(record.timestamp_delta))
            }
        }
    }

    /// The place of `record` in the log.
    pub fn offset_of(&self, record: &Record<'_>) -> Offset {
        Offset(self.header.base_offset().0.saturating_add(i64::from(record.offset_delta)))
    }

    fn computed_checksum(&self) -> u32 {
        let front = &self.header.as_bytes()[header::CHECKSUM_FROM..];
        checksum::extend(checksum::checksum(front), &self.records)
    }

    fn renew_checksum(&mut self) {
        self.header.set_checksum(self.computed_checksum());
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:?} {} bytes]", self.header, self.len())
    }
}

/// The batches that stand one after another in `bytes`, as a Fetch response carries them.
///
/// A last batch that is cut short ends the iteration without an error, since brokers may cut
/// there (KIP-74); `Split::rest` says how many bytes were left. After an error nothing follows.
pub fn split(bytes: Bytes) -> Split {
    Split { rest: bytes, failed: false }
}

/// See `split`.
#[derive(Clone, Debug)]
pub struct Split {
    rest: Bytes,
    failed: bool,
}

impl Split {
    /// What has not been handed out: at the end, the bytes of a batch cut short.
    pub fn rest(&self) -> &Bytes {
        &self.rest
    }
}

impl Iterator for Split {
    type Item = Result<Batch, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.rest.is_empty() {
            return None;
        }
        let header = match Header::parse(&self.rest) {
            Ok(header) => header,
            Err(BatchError::Short { .. }) => return None,
            Err(error) => {
                self.failed = true;
                return Some(Err(error));
            }
        };
        if self.rest.len() < header.batch_bytes() {
            return None;
        }
        let mut batch = self.rest.split_to(header.batch_bytes());
        Some(Batch::from_parts(header, batch.split_off(HEADER_BYTES)))
    }
}

/// Why bytes are not one batch of version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchError {
    Short { needed: usize, found: usize },
    Trailing { bytes: usize },
    Magic { found: i8 },
    Length { claimed: i32 },
    Codec { found: u8 },
    Count { claimed: i32 },
    Offsets { base: i64, last_delta: i32 },
    Checksum { claimed: u32, computed: u32 },
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { needed, found } => {
                write!(f, "the batch needs {needed} bytes and only {found} are there")
            }
            Self::Trailing { bytes } => {
                write!(f, "{bytes} bytes follow the batch where exactly one batch is wanted")
            }
            Self::Magic { found: found @ (0 | 1) } => write!(
                f,
                "message format {found} is not supported: use a client of Kafka 0.11 or newer \
                 (format 2)"
            ),
            Self::Magic { found } => write!(f, "there is no message format {found}"),
            Self::Length { claimed } => {
                write!(f, "the batch claims a length of {claimed}, less than its own header")
            }
            Self::Codec { found } => write!(f, "there is no compression codec {found}"),
            Self::Count { claimed } => write!(f, "the batch claims {claimed} records"),
            Self::Offsets { base, last_delta } => write!(
                f,
                "base offset {base} with last offset delta {last_delta} is no range of offsets"
            ),
            Self::Checksum { claimed, computed } => write!(
                f,
                "the batch's CRC-32C is {computed:#010x} and its header says {claimed:#010x}"
            ),
        }
    }
}

impl std::error::Error for BatchError {}
