//! ListOffsets: the offset for a timestamp, or for one of Kafka's special times; and what readers
//! have before them, where Quorate's own client asks for it.

use std::sync::Arc;

use quorate_core::id::{LeaderEpoch, Offset};
use quorate_core::mutant;
use quorate_core::time::Timestamp;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsTopicResponse, Unread,
};
use quorate_net::kafka::messages::{ListOffsetsRequest, ListOffsetsResponse};

use super::fetch::read::read_code;
use super::place::{find, leader_code};
use super::repeated::once;
use crate::catalog::Topic;
use crate::catalog::log::LogHandle;
use crate::driver::ask::Stopped;
use crate::node::Node;
use crate::storage::ReadError;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
/// The first record with the largest timestamp. KIP-734, from version 7 on.
const LARGEST_TIMESTAMP: i64 = -3;
/// The earliest on this node's disk: nothing lies elsewhere here. KIP-405.
const EARLIEST_LOCAL: i64 = -4;
/// The latest that was moved to a remote tier: none ever was. KIP-1005.
const LATEST_TIERED: i64 = -5;
/// The earliest that waits to be moved to a remote tier: none does. KIP-1023.
const EARLIEST_PENDING: i64 = -6;

/// The first version whose clients know `OFFSET_NOT_AVAILABLE`.
const OFFSET_NOT_AVAILABLE: i16 = 5;

/// The versions that know each special time; before, it is a timestamp that nobody may ask for.
const SPECIAL_SINCE: &[(i64, i16)] =
    &[(LARGEST_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (EARLIEST_PENDING, 11)];

/// Readers of one partition that one request may ask about: each costs a read.
const READERS_MAX: usize = 1000;

/// What is found: an offset, its record's timestamp, the epoch of its batch.
type Found = Option<(Offset, Timestamp, LeaderEpoch)>;

pub(crate) async fn list_offsets(
    node: &Arc<Node>,
    version: i16,
    request: ListOffsetsRequest,
) -> Result<ListOffsetsResponse, Stopped> {
    let committed = request.isolation_level == 1;
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let topic_found = node.catalog.topic_named(&topic.name);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in topic.partitions {
            let row = match one(node, topic_found.as_deref(), version, committed, &asked).await {
                Ok(offset) => {
                    let unread = unread(node, topic_found.as_deref(), committed, &asked).await;
                    ListOffsetsPartitionResponse { unread, ..success(&asked, offset) }
                }
                Err(code) => ListOffsetsPartitionResponse {
                    partition_index: asked.partition_index,
                    error_code: code.code(),
                    ..ListOffsetsPartitionResponse::default()
                },
            };
            partitions.push(row);
        }
        topics.push(ListOffsetsTopicResponse { name: topic.name, partitions });
    }
    Ok(ListOffsetsResponse { topics, ..ListOffsetsResponse::default() })
}

fn success(asked: &ListOffsetsPartition, found: Found) -> ListOffsetsPartitionResponse {
    let mut row = ListOffsetsPartitionResponse {
        partition_index: asked.partition_index,
        ..ListOffsetsPartitionResponse::default()
    };
    if let Some((offset, timestamp, epoch)) = found {
        row.offset = offset.0;
        row.timestamp = timestamp.millis();
        row.leader_epoch = epoch.0;
    }
    row
}

async fn one(
    node: &Node,
    topic: Option<&Topic>,
    version: i16,
    committed: bool,
    asked: &ListOffsetsPartition,
) -> Result<Found, Code> {
    let log = find(topic, asked.partition_index)?;
    let view = log.view();
    if let Some(code) = leader_code(asked.current_leader_epoch, &view) {
        return Err(code);
    }
    let since = SPECIAL_SINCE.iter().find(|(time, _)| *time == asked.timestamp);
    if since.is_some_and(|(_, since)| version < *since) || asked.timestamp < EARLIEST_PENDING {
        return Err(Code::UnsupportedVersion);
    }
    // zoo F18: a time is looked for among what is not decided yet.
    let is_bounded = committed && !(asked.timestamp >= 0 && mutant!("timestamp-lookup-past-lso"));
    let end = if is_bounded { view.last_stable } else { view.high_watermark };
    let at = |offset, epoch| Ok(Some((offset, Timestamp::NONE, epoch)));
    // zoo H3: the epoch of whoever leads now is not that of an old record.
    let lies = mutant!("listoffsets-current-epoch");
    let start_epoch = if lies { view.leader_epoch } else { view.start_epoch };
    // A new leader does not know yet how far its predecessor had committed. KIP-207.
    let not_yet = if version >= OFFSET_NOT_AVAILABLE {
        Code::OffsetNotAvailable
    } else {
        Code::LeaderNotAvailable
    };
    let settled = |found: Found| {
        if found.is_none() && view.is_settling { Err(not_yet) } else { Ok(found) }
    };
    match asked.timestamp {
        LATEST | LARGEST_TIMESTAMP if view.is_settling => Err(not_yet),
        LATEST => at(end, view.leader_epoch),
        EARLIEST | EARLIEST_LOCAL => at(view.log_start, start_epoch),
        LATEST_TIERED | EARLIEST_PENDING => Ok(None),
        LARGEST_TIMESTAMP => largest(node, log, view.log_start, end, view.max_timestamp).await,
        timestamp => {
            let timestamp = Timestamp(timestamp);
            let (start, unpack) = (view.log_start, &node.unpacking);
            let found = log.reader.offset_for_timestamp(timestamp, start, end, unpack).await;
            found.map_err(|error| refuse(&error)).and_then(settled)
        }
    }
}

/// What the readers that were asked about have before them. One whose log does not answer is left
/// out.
async fn unread(
    node: &Node,
    topic: Option<&Topic>,
    committed: bool,
    asked: &ListOffsetsPartition,
) -> Vec<Unread> {
    let Ok(log) = find(topic, asked.partition_index) else { return Vec::new() };
    if asked.timestamp != LATEST {
        return Vec::new();
    }
    let mut answered = Vec::new();
    let readers = once(asked.unread_from.clone(), |&from| from).take(READERS_MAX);
    for from in readers {
        let view = log.view();
        let end = if committed { view.last_stable } else { view.high_watermark };
        let clamped = Offset(from).max(view.log_start);
        match log.reader.unread(clamped, end, &node.unpacking).await {
            Ok(found) => answered.push(Unread {
                from,
                clamped: clamped.0,
                first: found.first.map_or(-1, |(offset, _)| offset.0),
                timestamp: found.first.map_or(-1, |(_, timestamp)| timestamp.millis()),
                bytes: i64::try_from(found.bytes).unwrap_or(i64::MAX),
            }),
            Err(error) => tracing::debug!(%error, from, "nothing is known of a reader"),
        }
    }
    answered
}

/// The first record with the largest timestamp among those from `start` to below `end`. The
/// largest ever appended may be deleted by now, or not committed yet; then the question whether
/// there is a record at or after some time is asked by halves.
async fn largest(
    node: &Node,
    log: &LogHandle,
    start: Offset,
    end: Offset,
    ever: Timestamp,
) -> Result<Found, Code> {
    let find = async |timestamp: i64| {
        let (timestamp, unpack) = (Timestamp(timestamp), &node.unpacking);
        let found = log.reader.offset_for_timestamp(timestamp, start, end, unpack).await;
        found.map_err(|error| refuse(&error))
    };
    let Some(mut best) = find(Timestamp::NONE.0).await? else { return Ok(None) };
    let (mut low, mut high) = (best.1.0, ever.0);
    let mut next = high;
    while low < high {
        match find(next).await? {
            Some(found) => {
                best = found;
                low = best.1.0;
            }
            None => high = next - 1,
        }
        next = low + (high - low + 1) / 2;
    }
    Ok(Some(best))
}

fn refuse(error: &ReadError) -> Code {
    tracing::debug!(%error, "no offset for a timestamp");
    read_code(error)
}
