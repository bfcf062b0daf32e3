//! What a leader checks before it appends a producer's batch: the rules of Kafka's `LogValidator`.

use std::fmt;
use std::time::Duration;

use super::compression::{Codec, CompressionError};
use super::header::{Header, TimestampType};
use super::levels::{Levels, level_of};
use super::record::{Record, Records};
use super::{Batch, BatchError};
use crate::time::Timestamp;

/// What the topic and the request allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// When the batch arrived.
    pub now: Timestamp,
    /// `max.message.bytes`: of the whole batch, as it came.
    pub batch_bytes_max: usize,
    /// Of the records after decompression.
    pub uncompressed_bytes_max: usize,
    /// The topic is compacted: a record without a key is refused.
    pub compact: bool,
    /// The topic sets timestamps itself: those of the producer do not matter.
    pub log_append_time: bool,
    /// `message.timestamp.before.max.ms`; `None` for no bound.
    pub timestamp_before_max: Option<Duration>,
    /// `message.timestamp.after.max.ms`; `None` for no bound.
    pub timestamp_after_max: Option<Duration>,
    /// The request's version knows zstd (Produce 7 and up, KIP-110).
    pub zstd: bool,
}

/// Why a batch is refused: `net` maps the kind to Kafka's error code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    pub kind: InvalidKind,
    /// One sentence for the producer's user.
    pub reason: String,
    /// Which records are to blame, if single ones are; at most `RECORDS_MAX` of them. KIP-467.
    pub records: Vec<InvalidRecord>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidKind {
    /// `CORRUPT_MESSAGE`: the checksum is wrong. The producer sends it again.
    Corrupt,
    /// `MESSAGE_TOO_LARGE`: the producer splits the batch if it can.
    TooLarge,
    /// `INVALID_RECORD`.
    Record,
    /// `INVALID_TIMESTAMP`.
    Timestamp,
    /// `UNSUPPORTED_COMPRESSION_TYPE`.
    Compression,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidRecord {
    /// Place in the batch, from 0.
    pub index: i32,
    pub reason: String,
}

/// How many records to blame are named; all are refused anyway.
pub const RECORDS_MAX: usize = 100;

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Invalid {}

impl Invalid {
    fn new(kind: InvalidKind, reason: String) -> Self {
        Self { kind, reason, records: Vec::new() }
    }

    fn record(reason: impl fmt::Display) -> Self {
        Self::new(InvalidKind::Record, reason.to_string())
    }
}

/// Checks a producer's batch and says which priority levels stand in it. A largest timestamp that
/// is not that of the records is corrected in the header, as Kafka's leader does; nothing else
/// changes.
///
/// Nothing is allocated for a record. Uncompressed batches are read in place.
///
/// # Errors
///
/// `Invalid`, which says why nothing of the batch may be appended.
pub fn validate(batch: &mut Batch, rules: &Rules) -> Result<Levels, Invalid> {
    check_header(batch, rules)?;
    let header = *batch.header();
    let records = batch.uncompressed(rules.uncompressed_bytes_max).map_err(|error| {
        let kind = match error {
            CompressionError::TooLarge { .. } => InvalidKind::TooLarge,
            // The checksum was right: sending the same again would not help.
            CompressionError::Corrupt { .. } => InvalidKind::Record,
        };
        Invalid::new(kind, error.to_string())
    })?;
    let mut found = Found::new(&header, rules);
    for (index, record) in (0..).zip(Records::new(&records, header.record_count())) {
        found.take(index, &record.map_err(Invalid::record)?);
    }
    found.verdict()?;
    if !rules.log_append_time && found.timestamp_max != header.max_timestamp().0 {
        batch.set_max_timestamp(Timestamp(found.timestamp_max));
    }
    Ok(found.levels)
}

fn check_header(batch: &Batch, rules: &Rules) -> Result<(), Invalid> {
    let header = batch.header();
    if batch.len() > rules.batch_bytes_max {
        return Err(Invalid::new(
            InvalidKind::TooLarge,
            format!(
                "the batch has {} bytes and the topic allows {} (max.message.bytes)",
                batch.len(),
                rules.batch_bytes_max
            ),
        ));
    }
    batch
        .verify()
        .map_err(|error: BatchError| Invalid::new(InvalidKind::Corrupt, error.to_string()))?;
    if header.base_offset().0 != 0 {
        return Err(Invalid::record(format_args!(
            "a producer's batch begins at offset 0, not at {}",
            header.base_offset()
        )));
    }
    if header.is_control() {
        return Err(Invalid::record("a producer may not write control records"));
    }
    if header.record_count() != header.last_offset_delta().saturating_add(1) {
        return Err(Invalid::record(format_args!(
            "the batch claims {} records and a last offset delta of {}",
            header.record_count(),
            header.last_offset_delta()
        )));
    }
    if header.producer_id().is_some()
        && (header.base_sequence() < 0 || header.producer_epoch().0 < 0)
    {
        return Err(Invalid::record(format_args!(
            "producer {} wrote with epoch {} and sequence number {}: neither may be negative",
            header.producer_id(),
            header.producer_epoch(),
            header.base_sequence()
        )));
    }
    if header.timestamp_type() == TimestampType::LogAppendTime {
        return Err(Invalid::new(
            InvalidKind::Timestamp,
            "a producer may not set the timestamp type to LogAppendTime".to_owned(),
        ));
    }
    if header.codec() == Codec::Zstd && !rules.zstd {
        return Err(Invalid::new(
            InvalidKind::Compression,
            "zstd needs Produce version 7 or later".to_owned(),
        ));
    }
    Ok(())
}

/// What the records of one batch showed so far.
struct Found<'r> {
    rules: &'r Rules,
    base_timestamp: i64,
    timestamp_oldest: i64,
    timestamp_newest: i64,
    timestamp_max: i64,
    levels: Levels,
    kind: InvalidKind,
    invalid_count: usize,
    invalid: Vec<InvalidRecord>,
}

impl<'r> Found<'r> {
    fn new(header: &Header, rules: &'r Rules) -> Self {
        let millis = |bound: Duration| i64::try_from(bound.as_millis()).unwrap_or(i64::MAX);
        let oldest = |bound| rules.now.0.saturating_sub(millis(bound));
        let newest = |bound| rules.now.0.saturating_add(millis(bound));
        let bounded = !rules.log_append_time;
        Self {
            rules,
            base_timestamp: header.base_timestamp().0,
            timestamp_oldest: rules
                .timestamp_before_max
                .filter(|_| bounded)
                .map_or(i64::MIN, oldest),
            timestamp_newest: rules
                .timestamp_after_max
                .filter(|_| bounded)
                .map_or(i64::MAX, newest),
            timestamp_max: Timestamp::NONE.0,
            levels: Levels::default(),
            kind: InvalidKind::Record,
            invalid_count: 0,
            invalid: Vec::new(),
        }
    }

    #[inline]
    fn take(&mut self, index: i32, record: &Record<'_>) {
        let timestamp = self.base_timestamp.saturating_add(record.timestamp_delta);
        self.timestamp_max = self.timestamp_max.max(timestamp);
        self.levels = self.levels.with(level_of(record));
        let timely = (self.timestamp_oldest..=self.timestamp_newest).contains(&timestamp);
        if record.offset_delta != index
            || (record.key.is_none() && self.rules.compact)
            || (!timely && timestamp != Timestamp::NONE.0)
        {
            self.blame(index, record, timestamp);
        }
    }

    #[cold]
    fn blame(&mut self, index: i32, record: &Record<'_>, timestamp: i64) {
        self.invalid_count += 1;
        let reason = if record.offset_delta != index {
            format!("the offset delta is {} where {index} is due", record.offset_delta)
        } else if record.key.is_none() && self.rules.compact {
            "a compacted topic cannot hold a record without a key".to_owned()
        } else {
            self.kind = InvalidKind::Timestamp;
            format!(
                "the timestamp {timestamp} is not within {} to {} \
                 (message.timestamp.before.max.ms, message.timestamp.after.max.ms)",
                self.timestamp_oldest, self.timestamp_newest
            )
        };
        if self.invalid.len() < RECORDS_MAX {
            self.invalid.push(InvalidRecord { index, reason });
        }
    }

    fn verdict(&mut self) -> Result<(), Invalid> {
        let Some(first) = self.invalid.first() else {
            return Ok(());
        };
        let reason = format!(
            "{} of the batch's records are invalid, the first at index {}: {}",
            self.invalid_count, first.index, first.reason
        );
        Err(Invalid { kind: self.kind, reason, records: std::mem::take(&mut self.invalid) })
    }
}
