//! Transactions as tools see them: which there are, what one waits for, and the marker by which a
//! human ends one that hangs. KIP-664, KIP-994.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::id::{NodeId, PartitionId, ProducerEpoch, ProducerId, RequestId};
use quorate_core::shard::interface::{Input as ShardInput, Outcome as ShardOutcome};
use quorate_core::transaction::interface::{
    Described, Input, List, Listed, Outcome, Phase, Refusal, TopicPartition,
};
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::describe_transactions::{
    TopicData, TransactionState as DescribedTransaction,
};
use quorate_net::kafka::messages::list_transactions::TransactionState as ListedTransaction;
use quorate_net::kafka::messages::write_txn_markers::{
    WritableTxnMarker, WritableTxnMarkerPartitionResult, WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
};
use quorate_net::kafka::messages::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, ListTransactionsRequest,
    ListTransactionsResponse, WriteTxnMarkersRequest, WriteTxnMarkersResponse,
};
use quorate_net::wire::Text;

use super::ask;
use crate::catalog::{Log, TRANSACTIONS_TOPIC};
use crate::driver::ask::{Stopped, Withdrawal};
use crate::node::Node;
use crate::transactions::errand::{Done, Errand, MARKS_MAX, Mark, Marked};

/// Those of the coordinators here.
pub(crate) async fn list(
    node: &Node,
    request: ListTransactionsRequest,
) -> Result<ListTransactionsResponse, Stopped> {
    let mut response = ListTransactionsResponse::default();
    let mut phases = Vec::new();
    for name in request.state_filters {
        match Phase::ALL.into_iter().find(|phase| phase.name() == &*name) {
            Some(phase) => phases.push(phase),
            None => response.unknown_state_filters.push(name),
        }
    }
    if phases.is_empty() && !response.unknown_state_filters.is_empty() {
        return Ok(response);
    }
    let longer_than = u64::try_from(request.duration_filter).ok().map(Duration::from_millis);
    let producers: Vec<_> = request.producer_id_filters.into_iter().map(ProducerId).collect();
    let pattern = request.transactional_id_pattern.filter(|pattern| !pattern.is_empty());
    let pattern = pattern.map(|pattern| pattern.to_string());
    let list = List { request: RequestId(0), phases, producers, longer_than, pattern };
    let Some(topic) = node.catalog.topic_named(TRANSACTIONS_TOPIC) else { return Ok(response) };
    for partition in &topic.partitions {
        let Log::Open(log) = &partition.log else { continue };
        let coordinator = log.partition.index;
        let list = list.clone();
        let input = |request| ShardInput::Transaction {
            coordinator,
            input: Input::List(List { request, ..list }),
        };
        let asked = log.shard.ask(Withdrawal::Transaction { coordinator }, input).await?;
        match asked.await? {
            ShardOutcome::Transaction(Outcome::Listed(found)) => {
                response.transaction_states.extend(found.into_iter().map(listed));
            }
            // Those are listed by the node that leads the partition.
            ShardOutcome::Transaction(Outcome::Refused(Refusal::NotCoordinator)) => {}
            ShardOutcome::Transaction(Outcome::Refused(refusal)) => {
                response.error_code = Code::from(&refusal).code();
            }
            other => unreachable!("transactions are listed, not {other:?}"),
        }
    }
    Ok(response)
}

fn listed(one: Listed) -> ListedTransaction {
    ListedTransaction {
        transactional_id: one.transactional_id.into(),
        producer_id: one.producer.0,
        transaction_state: one.phase.name().into(),
    }
}

pub(crate) async fn describe(
    node: &Node,
    request: DescribeTransactionsRequest,
) -> Result<DescribeTransactionsResponse, Stopped> {
    let mut rows = Vec::with_capacity(request.transactional_ids.len());
    for name in request.transactional_ids {
        if name.is_empty() {
            rows.push(undescribed(name, Code::InvalidRequest));
            continue;
        }
        let transactional_id = name.to_string();
        let input = |request| Input::Describe { request, transactional_id };
        rows.push(match ask(node, &name, input).await? {
            Outcome::Described(found) => described(name, found),
            Outcome::Refused(refusal) => undescribed(name, Code::from(&refusal)),
            other => unreachable!("a transaction is described, not {other:?}"),
        });
    }
    Ok(DescribeTransactionsResponse {
        transaction_states: rows,
        ..DescribeTransactionsResponse::default()
    })
}

fn undescribed(transactional_id: Text, code: Code) -> DescribedTransaction {
    DescribedTransaction {
        error_code: code.code(),
        transactional_id,
        transaction_start_time_ms: -1,
        producer_id: -1,
        producer_epoch: -1,
        ..DescribedTransaction::default()
    }
}

fn described(name: Text, found: Described) -> DescribedTransaction {
    let mut topics: Vec<TopicData> = Vec::new();
    for TopicPartition { topic, partition } in found.partitions {
        match topics.last_mut().filter(|last| *last.topic == *topic) {
            Some(last) => last.partitions.push(partition),
            None => topics.push(TopicData { topic: topic.into(), partitions: vec![partition] }),
        }
    }
    DescribedTransaction {
        transactional_id: name,
        transaction_state: found.phase.name().into(),
        transaction_timeout_ms: i32::try_from(found.timeout.as_millis()).unwrap_or(i32::MAX),
        transaction_start_time_ms: found.started.millis(),
        producer_id: found.producer.0,
        producer_epoch: found.epoch.0,
        topics,
        ..DescribedTransaction::default()
    }
}

/// Markers for partitions that this node leads, as Kafka's coordinators and tools ask for them.
pub(crate) async fn write_markers(
    node: &Arc<Node>,
    version: i16,
    request: WriteTxnMarkersRequest,
) -> Result<WriteTxnMarkersResponse, Stopped> {
    let mut markers = Vec::with_capacity(request.markers.len());
    for marker in request.markers {
        markers.push(write_marker(node, version, marker).await?);
    }
    Ok(WriteTxnMarkersResponse { markers })
}

async fn write_marker(
    node: &Arc<Node>,
    version: i16,
    marker: WritableTxnMarker,
) -> Result<WritableTxnMarkerResult, Stopped> {
    let (mut topics, mut marks, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for topic in &marker.topics {
        let known = node.catalog.topic_named(&topic.name);
        let mut rows = Vec::with_capacity(topic.partition_indexes.len());
        for &index in &topic.partition_indexes {
            let there = known.as_ref().filter(|known| known.partition(index).is_some());
            let mut code = Code::UnknownTopicOrPartition;
            if let Some(known) = there {
                code = Code::RequestTimedOut;
                if marks.len() < MARKS_MAX {
                    places.push((topics.len(), rows.len()));
                    let partition = PartitionId { topic: known.id, index };
                    marks.push(mark(&marker, version, partition));
                }
            }
            rows.push(WritableTxnMarkerPartitionResult {
                partition_index: index,
                error_code: code.code(),
            });
        }
        topics.push(WritableTxnMarkerTopicResult { name: topic.name.clone(), partitions: rows });
    }
    let here: NodeId = node.id;
    if let Some(Done::Marked(marked)) = node.errand(here, Errand::Mark(marks)).await? {
        for ((topic, row), marked) in places.into_iter().zip(marked) {
            topics[topic].partitions[row].error_code = code(marked).code();
        }
    }
    Ok(WritableTxnMarkerResult { producer_id: marker.producer_id, topics })
}

fn mark(marker: &WritableTxnMarker, version: i16, partition: PartitionId) -> Mark {
    Mark {
        partition,
        producer: ProducerId(marker.producer_id),
        epoch: ProducerEpoch(marker.producer_epoch),
        committed: marker.transaction_result,
        coordinator_epoch: marker.coordinator_epoch,
        version: if version >= 2 { i16::from(marker.transaction_version) } else { 0 },
    }
}

const fn code(marked: Marked) -> Code {
    match marked {
        Marked::Done => Code::None,
        Marked::CoordinatorFenced => Code::TransactionCoordinatorFenced,
        Marked::ProducerFenced => Code::InvalidProducerEpoch,
        Marked::NotLeader => Code::NotLeaderOrFollower,
        // Clients try again on this one.
        Marked::Failed => Code::RequestTimedOut,
    }
}
