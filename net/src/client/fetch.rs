//! Reading one partition: fetch from an offset, and the offset for a time. One request each, so
//! that a caller who counts requests (a workload, a test) sees every one of them.

mod committed;

use std::time::Duration;

use bytes::Bytes;
use quorate_core::batch::{self, Batch, Codec};
use quorate_core::id::{LeaderEpoch, Offset};
use quorate_core::partition::interface::Isolation;
use quorate_core::time::Timestamp;

use super::metadata::{partition_named, refusal};
use super::route::Lane;
use super::{Client, Error};
use crate::kafka::error::Code;
use crate::kafka::messages::fetch::{FetchPartition, FetchTopic, PartitionData};
use crate::kafka::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use crate::kafka::messages::{FetchRequest, ListOffsetsRequest};
use crate::wire::Text;

/// How much to fetch, and how long to wait for it.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// The broker answers once it has as many bytes. Kafka's `fetch.min.bytes`.
    pub bytes_min: i32,
    /// At most so many bytes in one answer, the first batch excepted.
    pub bytes_max: i32,
    /// At most so many of one partition, the first batch excepted.
    pub partition_bytes_max: i32,
    /// How long the broker may wait for `bytes_min`.
    pub wait_max: Duration,
    pub isolation: Isolation,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self {
            bytes_min: 1,
            bytes_max: 50 * 1024 * 1024,
            partition_bytes_max: 1024 * 1024,
            wait_max: Duration::from_millis(500),
            isolation: Isolation::ReadUncommitted,
        }
    }
}

/// What one partition's leader gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Whole batches whose checksums hold. The first may begin below the offset asked for. Those of
    /// aborted transactions are left out where committed records were asked for.
    pub batches: Vec<Batch>,
    /// The offset after the last batch, left out or not; `None` where none came.
    pub next: Option<Offset>,
    pub log_start: Offset,
    pub high_watermark: Offset,
    pub last_stable: Offset,
}

/// Where to begin to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    Beginning,
    End,
    /// The first record that is not older.
    Time(Timestamp),
    Offset(Offset),
}

/// An offset and the record that stands there, if one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedOffset {
    /// `None`: no record is so new.
    pub offset: Option<Offset>,
    /// `Timestamp::NONE` unless a time was asked for.
    pub timestamp: Timestamp,
    pub leader_epoch: Option<LeaderEpoch>,
}

/// A record with its place, its parts slices of the batch's bytes. Null is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumedRecord {
    pub offset: Offset,
    pub timestamp: Timestamp,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    /// In the producer's order, duplicates kept.
    pub headers: Vec<RecordHeader>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    pub key: Bytes,
    pub value: Option<Bytes>,
}

/// The longest that one batch's records may be once decompressed, in bytes.
const RECORDS_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The data records of `batch` from `from` on; none for a control batch.
///
/// # Errors
///
/// `Malformed` if the batch's contents are not records.
pub fn records_of(batch: &Batch, from: Offset) -> Result<Vec<ConsumedRecord>, Error> {
    if batch.header().is_control() {
        return Ok(Vec::new());
    }
    let malformed = |reason: String| Error::Malformed {
        address: format!("the batch at offset {}", batch.header().base_offset()),
        reason,
    };
    let bytes = match batch.header().codec() {
        Codec::None => batch.records().clone(),
        _ => batch.uncompressed(RECORDS_BYTES_MAX).map_err(|error| malformed(error.to_string()))?,
    };
    let slice = |part: Option<&[u8]>| part.map(|part| bytes.slice_ref(part));
    let mut records = Vec::new();
    for record in batch::Records::new(&bytes, batch.header().record_count()) {
        let record = record.map_err(|error| malformed(error.to_string()))?;
        let offset = batch.offset_of(&record);
        if offset < from {
            continue;
        }
        let headers = record.headers.clone().map(|header| RecordHeader {
            key: bytes.slice_ref(header.key),
            value: slice(header.value),
        });
        records.push(ConsumedRecord {
            offset,
            timestamp: batch.timestamp_of(&record),
            key: slice(record.key),
            value: slice(record.value),
            headers: headers.collect(),
        });
    }
    Ok(records)
}

impl Client {
    /// Fetches one partition from `from` on. One attempt: a leader that moved is an error, after
    /// which the next call asks for metadata.
    ///
    /// # Errors
    ///
    /// `Refused` with the partition's error (`OFFSET_OUT_OF_RANGE` among them), or a failure to
    /// reach its leader.
    pub async fn fetch(
        &self,
        topic: &str,
        partition: i32,
        from: Offset,
        options: &FetchOptions,
    ) -> Result<Fetched, Error> {
        let outcome = self.fetch_once(topic, partition, from, options).await;
        self.learned_from(outcome)
    }

    /// After an error that blames the metadata the next call asks for it.
    fn learned_from<T>(&self, outcome: Result<T, Error>) -> Result<T, Error> {
        if outcome.as_ref().is_err_and(Error::blames_metadata) {
            self.inner.metadata.expire();
        }
        outcome
    }

    async fn fetch_once(
        &self,
        topic: &str,
        partition: i32,
        from: Offset,
        options: &FetchOptions,
    ) -> Result<Fetched, Error> {
        let known = self.topic_once(topic, false).await?;
        let address = self.leader_once(topic, partition).await?;
        let wanted = FetchPartition {
            partition,
            fetch_offset: from.0,
            partition_max_bytes: options.partition_bytes_max,
            ..FetchPartition::default()
        };
        let topics = vec![FetchTopic {
            topic: Text::from(topic),
            topic_id: known.id,
            partitions: vec![wanted],
        }];
        let request = fetch_request(options, topics);
        let patience = options.wait_max;
        let response = self.inner.routes.call(&address, Lane::Fetch, &request, patience).await?;
        let what = || partition_named(topic, partition);
        if let Some(code) = refusal(response.error_code) {
            return Err(Error::refused(what(), code, None));
        }
        let mut partitions = response.responses.into_iter().flat_map(|topic| topic.partitions);
        match partitions.find(|data| data.partition_index == partition) {
            Some(data) => fetched(what, data, &address),
            None => Err(Error::Malformed { address, reason: format!("{} is missing", what()) }),
        }
    }

    /// The offset of each of `partitions` at `position`; in their order. Retried.
    pub async fn list_offsets(
        &self,
        topic: &str,
        partitions: &[i32],
        position: Position,
        isolation: Isolation,
    ) -> Result<Vec<ListedOffset>, Error> {
        let mut listed = Vec::with_capacity(partitions.len());
        for &partition in partitions {
            let attempt = || self.list_offset_once(topic, partition, position, isolation);
            listed.push(self.retry(&partition_named(topic, partition), attempt).await?);
        }
        Ok(listed)
    }

    /// As `list_offsets`, for one partition and in one attempt: as with `fetch`, the next call
    /// after one that met a leader that moved asks for metadata.
    pub async fn list_offset_once(
        &self,
        topic: &str,
        partition: i32,
        position: Position,
        isolation: Isolation,
    ) -> Result<ListedOffset, Error> {
        let outcome = self.ask_for_offset(topic, partition, position, isolation).await;
        self.learned_from(outcome)
    }

    async fn ask_for_offset(
        &self,
        topic: &str,
        partition: i32,
        position: Position,
        isolation: Isolation,
    ) -> Result<ListedOffset, Error> {
        let timestamp = match position {
            Position::Offset(offset) => {
                let (offset, timestamp) = (Some(offset), Timestamp::NONE);
                return Ok(ListedOffset { offset, timestamp, leader_epoch: None });
            }
            Position::Beginning => -2,
            Position::End => -1,
            Position::Time(time) => time.0.max(0),
        };
        let address = self.leader_once(topic, partition).await?;
        let wanted = ListOffsetsPartition {
            partition_index: partition,
            timestamp,
            ..ListOffsetsPartition::default()
        };
        let topics = vec![ListOffsetsTopic { name: Text::from(topic), partitions: vec![wanted] }];
        let request = ListOffsetsRequest {
            replica_id: -1,
            isolation_level: level(isolation),
            topics,
            ..ListOffsetsRequest::default()
        };
        let response =
            self.inner.routes.call(&address, Lane::Ask, &request, Duration::ZERO).await?;
        let what = || partition_named(topic, partition);
        let mut partitions = response.topics.into_iter().flat_map(|topic| topic.partitions);
        let found =
            partitions.find(|found| found.partition_index == partition).ok_or_else(|| {
                Error::Malformed { address, reason: format!("{} is missing", what()) }
            })?;
        match refusal(found.error_code) {
            Some(code) => Err(Error::refused(what(), code, None)),
            None => Ok(ListedOffset {
                offset: Some(Offset(found.offset)).filter(|offset| offset.0 >= 0),
                timestamp: Timestamp(found.timestamp),
                leader_epoch: Some(LeaderEpoch(found.leader_epoch)).filter(|epoch| epoch.0 >= 0),
            }),
        }
    }
}

pub(crate) fn fetch_request(options: &FetchOptions, topics: Vec<FetchTopic>) -> FetchRequest {
    FetchRequest {
        max_wait_ms: i32::try_from(options.wait_max.as_millis()).unwrap_or(i32::MAX),
        min_bytes: options.bytes_min,
        max_bytes: options.bytes_max,
        isolation_level: level(options.isolation),
        topics,
        ..FetchRequest::default()
    }
}

pub(super) const fn level(isolation: Isolation) -> i8 {
    match isolation {
        Isolation::ReadUncommitted => 0,
        Isolation::ReadCommitted => 1,
    }
}

/// Cuts a partition's answer into batches and checks them. A batch that the answer's limit cut
/// short is left out, as Kafka's clients do.
pub(crate) fn fetched(
    what: impl Fn() -> String,
    data: PartitionData,
    address: &str,
) -> Result<Fetched, Error> {
    if let Some(code) = refusal(data.error_code) {
        return Err(Error::refused(what(), code, None));
    }
    let bytes = data.records.map(crate::wire::Records::into_bytes).unwrap_or_default();
    let mut batches = Vec::new();
    for batch in batch::split(bytes) {
        let checked = batch.and_then(|batch| batch.verify().map(|()| batch));
        match checked {
            Ok(batch) => batches.push(batch),
            Err(error) => {
                let reason = format!("a batch of {}: {error}", what());
                return Err(Error::Malformed { address: address.to_owned(), reason });
            }
        }
    }
    let next = batches.last().map(|batch| batch.header().next_offset());
    // The list is there only for readers of committed records.
    let batches = match &data.aborted_transactions {
        Some(aborted) => committed::committed(batches, aborted),
        None => batches,
    };
    Ok(Fetched {
        batches,
        next,
        log_start: Offset(data.log_start_offset),
        high_watermark: Offset(data.high_watermark),
        last_stable: Offset(data.last_stable_offset),
    })
}

/// Whether the offset that was fetched from is outside the log.
pub(crate) fn is_out_of_range(error: &Error) -> bool {
    error.code() == Some(Code::OffsetOutOfRange)
}
