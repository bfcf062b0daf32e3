//! DeleteRecords and OffsetForLeaderEpoch: asked of the partition's machine.

use std::sync::Arc;

use quorate_core::id::{LeaderEpoch, Offset};
use quorate_core::partition::interface::{Input, Outcome};
use quorate_core::shard::interface::{Input as ShardInput, Outcome as ShardOutcome};
use quorate_core::time::Instant;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::delete_records::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use quorate_net::kafka::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderPartition, OffsetForLeaderTopicResult,
};
use quorate_net::kafka::messages::{
    DeleteRecordsRequest, DeleteRecordsResponse, OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
};

use super::place::{find, leader_code};
use crate::catalog::log::LogHandle;
use crate::driver::ask::{Asked, Stopped, Withdrawal};
use crate::node::Node;

/// The offset that means: all that is readable.
const HIGH_WATERMARK: i64 = -1;

async fn outcome(asked: Asked) -> Result<Outcome, Stopped> {
    match asked.await? {
        ShardOutcome::Partition(outcome) => Ok(outcome),
        other => unreachable!("a partition answers as one, not with {other:?}"),
    }
}

pub(crate) async fn delete_records(
    node: &Arc<Node>,
    request: DeleteRecordsRequest,
) -> Result<DeleteRecordsResponse, Stopped> {
    let until = node.until(request.timeout_ms);
    // All are asked before any is waited for: each waits for the other replicas.
    let mut under_way = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let found = node.catalog.topic_named(&topic.name);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in topic.partitions {
            let begun = match find(found.as_deref(), asked.partition_index) {
                Ok(log) => begin_deleting(log, asked.offset, until).await?,
                Err(code) => Err(code),
            };
            partitions.push((asked.partition_index, begun));
        }
        under_way.push((topic.name, partitions));
    }
    let mut topics = Vec::with_capacity(under_way.len());
    for (name, begun) in under_way {
        let mut partitions = Vec::with_capacity(begun.len());
        for (partition_index, begun) in begun {
            let done = match begun {
                Ok(asked) => deleted(asked).await?,
                Err(code) => Err(code),
            };
            partitions.push(DeleteRecordsPartitionResult {
                partition_index,
                low_watermark: done.map_or(-1, |start| start.0),
                error_code: done.err().unwrap_or(Code::None).code(),
            });
        }
        topics.push(DeleteRecordsTopicResult { name, partitions });
    }
    Ok(DeleteRecordsResponse { topics, ..DeleteRecordsResponse::default() })
}

async fn begin_deleting(
    log: &LogHandle,
    offset: i64,
    until: Instant,
) -> Result<Result<Asked, Code>, Stopped> {
    let before = match offset {
        HIGH_WATERMARK => None,
        offset if offset < 0 => return Ok(Err(Code::OffsetOutOfRange)),
        offset => Some(Offset(offset)),
    };
    let partition = log.partition;
    let input = |request| {
        let input = Input::DeleteRecords { request, before, until };
        ShardInput::Partition { partition, input }
    };
    Ok(Ok(log.shard.ask(Withdrawal::Partition(partition), input).await?))
}

async fn deleted(asked: Asked) -> Result<Result<Offset, Code>, Stopped> {
    Ok(match outcome(asked).await? {
        Outcome::RecordsDeleted { log_start } => Ok(log_start),
        Outcome::Refused(refusal) => Err(Code::from(&refusal)),
        other => unreachable!("records are deleted, not {other:?}"),
    })
}

pub(crate) async fn offset_for_leader_epoch(
    node: &Arc<Node>,
    request: OffsetForLeaderEpochRequest,
) -> Result<OffsetForLeaderEpochResponse, Stopped> {
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let found = node.catalog.topic_named(&topic.topic);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in topic.partitions {
            let mut row =
                EpochEndOffset { partition: asked.partition, ..EpochEndOffset::default() };
            match find(found.as_deref(), asked.partition) {
                Ok(log) => match epoch_end(log, &asked).await? {
                    Ok(Some((epoch, end))) => {
                        row.leader_epoch = epoch.0;
                        row.end_offset = end.0;
                    }
                    Ok(None) => {}
                    Err(code) => row.error_code = code.code(),
                },
                Err(code) => row.error_code = code.code(),
            }
            partitions.push(row);
        }
        topics.push(OffsetForLeaderTopicResult { topic: topic.topic, partitions });
    }
    Ok(OffsetForLeaderEpochResponse { topics, ..OffsetForLeaderEpochResponse::default() })
}

type EpochEnd = Result<Option<(LeaderEpoch, Offset)>, Code>;

async fn epoch_end(log: &LogHandle, asked: &OffsetForLeaderPartition) -> Result<EpochEnd, Stopped> {
    if let Some(code) = leader_code(asked.current_leader_epoch, &log.view()) {
        return Ok(Err(code));
    }
    let (partition, epoch) = (log.partition, LeaderEpoch(asked.leader_epoch));
    let input = |request| {
        let input = Input::EpochEnd { request, epoch };
        ShardInput::Partition { partition, input }
    };
    Ok(match outcome(log.shard.ask(Withdrawal::Never, input).await?).await? {
        Outcome::EpochEnd { end } => Ok(end),
        Outcome::Refused(refusal) => Err(Code::from(&refusal)),
        other => unreachable!("an epoch has an end, not {other:?}"),
    })
}
