//! Transactions as their producers ask for them: who they are, what is in a transaction, and how
//! it ends. The coordinator is a machine of the core beside the log that holds its truth.

pub(crate) mod admin;
pub(crate) mod offsets;

use std::sync::Arc;
use std::time::Duration;

use quorate_core::batch::control::Ending;
use quorate_core::group::placement::partition_of;
use quorate_core::id::{ProducerEpoch, ProducerId, RequestId};
use quorate_core::transaction::interface::{
    AddPartitions, Claim, End, InitProducer, Input, Outcome, Refusal, TopicPartition,
    TransactionVersion,
};
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::add_partitions_to_txn::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult, AddPartitionsToTxnTransaction,
};
use quorate_net::kafka::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse, EndTxnRequest, EndTxnResponse, InitProducerIdRequest,
    InitProducerIdResponse,
};
use quorate_net::wire::Text;

use super::{producer_id, topics};
use crate::catalog::log::LogHandle;
use crate::catalog::{Log, OFFSETS_TOPIC, TRANSACTIONS_TOPIC};
use crate::driver::ask::Stopped;
use crate::node::Node;
use crate::transactions;

/// The version from which a transaction's end gives its producer another epoch. KIP-890.
const END_BUMPS: i16 = 5;
/// The first version of AddPartitionsToTxn with many transactions, for other brokers.
const MANY_TRANSACTIONS: i16 = 4;

/// The log beside which the coordinator of this transactional id lives, if that is here.
fn coordinator(node: &Node, transactional_id: &str) -> Option<Arc<LogHandle>> {
    let topic = node.catalog.topic_named(TRANSACTIONS_TOPIC)?;
    let count = i32::try_from(topic.partitions.len()).ok().filter(|count| *count > 0)?;
    match &topic.partition(partition_of(transactional_id, count))?.log {
        Log::Open(log) => Some(Arc::clone(log)),
        Log::Offline | Log::Elsewhere => None,
    }
}

/// Asks the coordinator of this transactional id, if it is here.
pub(super) async fn ask(
    node: &Node,
    transactional_id: &str,
    input: impl FnOnce(RequestId) -> Input,
) -> Result<Outcome, Stopped> {
    match coordinator(node, transactional_id) {
        Some(log) => transactions::ask(&log.shard, log.partition.index, input).await,
        None => Ok(Outcome::Refused(Refusal::NotCoordinator)),
    }
}

/// Asks, and once more with a fresh producer id if one is needed.
async fn ask_with_fresh(
    node: &Arc<Node>,
    transactional_id: &str,
    input: impl Fn(RequestId, Option<ProducerId>) -> Input,
) -> Result<Outcome, Stopped> {
    let outcome = ask(node, transactional_id, |request| input(request, None)).await?;
    if outcome != Outcome::NeedsProducerId {
        return Ok(outcome);
    }
    match producer_id::fresh(node).await? {
        Some(fresh) => ask(node, transactional_id, |request| input(request, Some(fresh))).await,
        None => Ok(Outcome::Refused(Refusal::Loading)),
    }
}

/// Kafka's code, in the words that clients of this version know.
fn code(refusal: Refusal, knows_fenced: bool) -> Code {
    match Code::from(&refusal) {
        Code::ProducerFenced if !knows_fenced => Code::InvalidProducerEpoch,
        code => code,
    }
}

pub(super) async fn init(
    node: &Arc<Node>,
    version: i16,
    transactional_id: &Text,
    request: &InitProducerIdRequest,
) -> Result<InitProducerIdResponse, Stopped> {
    let is_named = request.producer_id >= 0;
    if is_named != (request.producer_epoch >= 0) {
        return Ok(not_initialized(Code::InvalidRequest));
    }
    let current = (ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch));
    let timeout = u64::try_from(request.transaction_timeout_ms).unwrap_or(0);
    let input = |request, fresh| {
        Input::InitProducer(InitProducer {
            request,
            transactional_id: transactional_id.to_string(),
            timeout: Duration::from_millis(timeout),
            current: is_named.then_some(current),
            fresh,
        })
    };
    Ok(match ask_with_fresh(node, transactional_id, input).await? {
        Outcome::Initialized { producer, epoch } => InitProducerIdResponse {
            producer_id: producer.0,
            producer_epoch: epoch.0,
            ..InitProducerIdResponse::default()
        },
        Outcome::Refused(refusal) => not_initialized(code(refusal, version >= 4)),
        other => unreachable!("a producer is initialized, not {other:?}"),
    })
}

fn not_initialized(code: Code) -> InitProducerIdResponse {
    InitProducerIdResponse {
        error_code: code.code(),
        producer_epoch: -1,
        ..InitProducerIdResponse::default()
    }
}

pub(super) async fn end(
    node: &Arc<Node>,
    version: i16,
    request: EndTxnRequest,
) -> Result<EndTxnResponse, Stopped> {
    let transactional_id = &request.transactional_id;
    let claim = claim(transactional_id, request.producer_id, request.producer_epoch);
    let ending = if request.committed { Ending::Committed } else { Ending::Aborted };
    let bumps = version >= END_BUMPS;
    let version_of = if bumps { TransactionVersion::V2 } else { TransactionVersion::V0 };
    let input = |request, fresh| {
        let claim = claim.clone();
        Input::End(End { request, claim, ending, version: version_of, fresh })
    };
    Ok(match ask_with_fresh(node, transactional_id, input).await? {
        Outcome::Ended { producer, epoch } => EndTxnResponse {
            producer_id: producer.0,
            producer_epoch: epoch.0,
            ..EndTxnResponse::default()
        },
        Outcome::Refused(refusal) => EndTxnResponse {
            error_code: code(refusal, version >= 2).code(),
            ..EndTxnResponse::default()
        },
        other => unreachable!("a transaction ends, not {other:?}"),
    })
}

fn claim(transactional_id: &Text, producer: i64, epoch: i16) -> Claim {
    Claim {
        transactional_id: transactional_id.to_string(),
        producer: ProducerId(producer),
        epoch: ProducerEpoch(epoch),
    }
}

pub(super) async fn add_partitions(
    node: &Arc<Node>,
    version: i16,
    request: AddPartitionsToTxnRequest,
) -> Result<AddPartitionsToTxnResponse, Stopped> {
    if version < MANY_TRANSACTIONS {
        let one = AddPartitionsToTxnTransaction {
            transactional_id: request.v3_and_below_transactional_id,
            producer_id: request.v3_and_below_producer_id,
            producer_epoch: request.v3_and_below_producer_epoch,
            verify_only: false,
            topics: request.v3_and_below_topics,
        };
        return Ok(AddPartitionsToTxnResponse {
            results_by_topic_v3_and_below: one_transaction(node, version, one).await?,
            ..AddPartitionsToTxnResponse::default()
        });
    }
    let mut results = Vec::with_capacity(request.transactions.len());
    for one in request.transactions {
        results.push(AddPartitionsToTxnResult {
            transactional_id: one.transactional_id.clone(),
            topic_results: one_transaction(node, version, one).await?,
        });
    }
    Ok(AddPartitionsToTxnResponse {
        results_by_transaction: results,
        ..AddPartitionsToTxnResponse::default()
    })
}

/// All of one transaction's partitions, or none.
async fn one_transaction(
    node: &Arc<Node>,
    version: i16,
    asked: AddPartitionsToTxnTransaction,
) -> Result<Vec<AddPartitionsToTxnTopicResult>, Stopped> {
    let is_known = |topic: &AddPartitionsToTxnTopic, index: i32| {
        let known = node.catalog.topic_named(&topic.name);
        known.is_some_and(|known| known.partition(index).is_some())
    };
    let each =
        || asked.topics.iter().flat_map(|topic| topic.partitions.iter().map(move |p| (topic, *p)));
    if !asked.verify_only && each().any(|(topic, index)| !is_known(topic, index)) {
        let known = |topic: &AddPartitionsToTxnTopic, index| {
            if is_known(topic, index) {
                Code::OperationNotAttempted
            } else {
                Code::UnknownTopicOrPartition
            }
        };
        return Ok(results(&asked.topics, known));
    }
    let partitions: Vec<TopicPartition> = each()
        .map(|(topic, partition)| TopicPartition { topic: topic.name.to_string(), partition })
        .collect();
    let claim = claim(&asked.transactional_id, asked.producer_id, asked.producer_epoch);
    let wanted = partitions.clone();
    let input = |request| {
        if asked.verify_only {
            Input::Verify { request, claim, partitions: wanted }
        } else {
            let version = TransactionVersion::V0;
            Input::AddPartitions(AddPartitions { request, claim, partitions: wanted, version })
        }
    };
    let all = |code: Code| results(&asked.topics, |_, _| code);
    Ok(match ask(node, &asked.transactional_id, input).await? {
        Outcome::Added => all(Code::None),
        Outcome::Verified(within) => {
            let found: std::collections::BTreeMap<TopicPartition, bool> =
                partitions.into_iter().zip(within).collect();
            results(&asked.topics, |topic, partition| {
                let wanted = TopicPartition { topic: topic.name.to_string(), partition };
                match found.get(&wanted) {
                    Some(true) => Code::None,
                    _ if version > MANY_TRANSACTIONS => Code::TransactionAbortable,
                    _ => Code::InvalidTxnState,
                }
            })
        }
        Outcome::Refused(refusal) => all(code(refusal, version >= 2)),
        other => unreachable!("partitions are added or verified, not {other:?}"),
    })
}

fn results(
    topics: &[AddPartitionsToTxnTopic],
    code: impl Fn(&AddPartitionsToTxnTopic, i32) -> Code,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let row = |topic: &AddPartitionsToTxnTopic, index: i32| AddPartitionsToTxnPartitionResult {
        partition_index: index,
        partition_error_code: code(topic, index).code(),
    };
    let topic = |topic: &AddPartitionsToTxnTopic| AddPartitionsToTxnTopicResult {
        name: topic.name.clone(),
        results_by_partition: topic.partitions.iter().map(|index| row(topic, *index)).collect(),
    };
    topics.iter().map(topic).collect()
}

/// The partition in which the group keeps its offsets is added. It is created first if need be:
/// clients look for the group's coordinator only behind this request.
pub(super) async fn add_offsets(
    node: &Arc<Node>,
    version: i16,
    request: AddOffsetsToTxnRequest,
) -> Result<AddOffsetsToTxnResponse, Stopped> {
    let answer = |code: Code| AddOffsetsToTxnResponse {
        error_code: code.code(),
        ..AddOffsetsToTxnResponse::default()
    };
    if request.group_id.is_empty() {
        return Ok(answer(Code::InvalidGroupId));
    }
    let topic = match node.catalog.topic_named(OFFSETS_TOPIC) {
        Some(topic) => topic,
        None => match topics::create_one(node, OFFSETS_TOPIC).await? {
            Ok(topic) => topic,
            Err(_) => return Ok(answer(Code::CoordinatorNotAvailable)),
        },
    };
    let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX).max(1);
    let partition = partition_of(&request.group_id, count);
    let partitions = vec![TopicPartition { topic: OFFSETS_TOPIC.to_owned(), partition }];
    let claim = claim(&request.transactional_id, request.producer_id, request.producer_epoch);
    let version_of = TransactionVersion::V0;
    let input = |request| {
        Input::AddPartitions(AddPartitions { request, claim, partitions, version: version_of })
    };
    Ok(answer(match ask(node, &request.transactional_id, input).await? {
        Outcome::Added => Code::None,
        Outcome::Refused(refusal) => code(refusal, version >= 2),
        other => unreachable!("a group's partition is added, not {other:?}"),
    }))
}
