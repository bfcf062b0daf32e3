//! TxnOffsetCommit: a group's offsets as a part of a transaction. They count once the group's
//! partition has the transaction's marker, which is the group's matter. KIP-98, KIP-447.

use quorate_core::group::interface::{
    CommitOffsets, CommitTransactional, CommittedOffset, Input, MemberClaim, Outcome, Refusal,
    TopicPartition,
};
use quorate_core::id::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, RequestId, TopicId};
use quorate_core::partition::interface::Refusal as PartitionRefusal;
use quorate_core::transaction::interface::TransactionVersion;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::txn_offset_commit::{
    TxnOffsetCommitRequestTopic, TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use quorate_net::kafka::messages::{TxnOffsetCommitRequest, TxnOffsetCommitResponse};

use super::super::groups::{ask, coordinator_log, optional, texts};
use crate::catalog::OFFSETS_TOPIC;
use crate::driver::ask::Stopped;
use crate::listener::handle::verify::{Verified, Wanted, verify};
use crate::node::Node;

/// The version from which this request adds the group's partition to the transaction. KIP-890.
const ADDS: i16 = 5;

pub(crate) async fn commit(
    node: &Node,
    version: i16,
    request: TxnOffsetCommitRequest,
) -> Result<TxnOffsetCommitResponse, Stopped> {
    let (mut topics, mut offsets, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for topic in &request.topics {
        let TxnOffsetCommitRequestTopic { name, partitions, .. } = topic;
        let known = node.catalog.topic_named(name);
        let mut rows = Vec::with_capacity(partitions.len());
        for asked in partitions {
            let partition = asked.partition_index;
            let there = known.as_ref().is_some_and(|topic| topic.partition(partition).is_some());
            if there {
                places.push((topics.len(), rows.len()));
                let committed = CommittedOffset {
                    offset: Offset(asked.committed_offset),
                    leader_epoch: LeaderEpoch(asked.committed_leader_epoch),
                    metadata: optional(asked.committed_metadata.as_ref()).unwrap_or_default(),
                    topic: known.as_ref().map_or(TopicId::NONE, |topic| topic.id),
                };
                offsets.push((TopicPartition { topic: texts(name), partition }, committed));
            }
            let code = if there { Code::None } else { Code::UnknownTopicOrPartition };
            rows.push(TxnOffsetCommitResponsePartition {
                partition_index: partition,
                error_code: code.code(),
            });
        }
        topics.push(TxnOffsetCommitResponseTopic { name: name.clone(), partitions: rows });
    }
    if !offsets.is_empty() {
        let codes = commit_all(node, version, &request, offsets).await?;
        for ((topic, row), code) in places.into_iter().zip(codes) {
            let row: &mut TxnOffsetCommitResponsePartition = &mut topics[topic].partitions[row];
            row.error_code = code.code();
        }
    }
    Ok(TxnOffsetCommitResponse { topics, ..TxnOffsetCommitResponse::default() })
}

/// One code for each offset.
async fn commit_all(
    node: &Node,
    version: i16,
    request: &TxnOffsetCommitRequest,
    offsets: Vec<(TopicPartition, CommittedOffset)>,
) -> Result<Vec<Code>, Stopped> {
    let all = |code: Code| Ok(vec![code; offsets.len()]);
    let Some(log) = coordinator_log(node, &request.group_id) else {
        return all(Code::NotCoordinator);
    };
    let (producer, epoch) =
        (ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch));
    let adds = version >= ADDS;
    let spoken = if adds { TransactionVersion::V2 } else { TransactionVersion::V0 };
    let (topic, sequence) = (OFFSETS_TOPIC.to_owned(), -1);
    let wanted = [Wanted { log, topic, producer, epoch, sequence }];
    let mut verified = verify(node, &request.transactional_id, spoken, &wanted).await?;
    let guard = match verified.remove(0) {
        Verified::Open(guard) => guard,
        Verified::NotWithin if adds => return all(Code::TransactionAbortable),
        Verified::NotWithin => return all(Code::InvalidTxnState),
        Verified::Fenced => return all(Code::InvalidProducerEpoch),
        Verified::Unmapped => return all(Code::InvalidProducerIdMapping),
        // Every client takes this one for "again, and here".
        Verified::Later => return all(Code::CoordinatorLoadInProgress),
        Verified::Refused(PartitionRefusal::NotLeader) => return all(Code::NotCoordinator),
        Verified::Refused(refusal) => return all(Code::from(&refusal)),
    };
    let member = MemberClaim {
        group: texts(&request.group_id),
        member: texts(&request.member_id),
        instance: optional(request.group_instance_id.as_ref()),
        generation: request.generation_id,
    };
    let count = offsets.len();
    let commit = CommitOffsets { request: RequestId(0), member, knows_epochs: true, offsets };
    // The member is judged by the machine, at the moment of the append: what it was before the
    // coordinator was asked says nothing any more. KAFKA-15784.
    let input = |request| {
        let commit = CommitOffsets { request, ..commit };
        Input::CommitTransactional(CommitTransactional { commit, producer, epoch, guard })
    };
    let refusals: Vec<Option<Refusal>> = match ask(node, &request.group_id, input).await? {
        Outcome::OffsetsCommitted { partitions } => {
            partitions.into_iter().map(|(_, refusal)| refusal).collect()
        }
        Outcome::Refused(refusal) => vec![Some(refusal); count],
        other => unreachable!("offsets are committed, not {other:?}"),
    };
    Ok(refusals.iter().map(|refusal| refusal.as_ref().map_or(Code::None, Code::from)).collect())
}
