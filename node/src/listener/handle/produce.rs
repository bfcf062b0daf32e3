//! Produce: each batch is checked here, on the connection's task, and handed to its partition in
//! the order in which it came; the answers are awaited behind that, so that the next request may
//! begin.

use std::collections::BTreeSet;
use std::sync::Arc;

use quorate_core::batch::{Batch, Invalid, Levels, Rules};
use quorate_core::id::{NodeId, TopicId, VerificationGuard};
use quorate_core::mutant;
use quorate_core::partition::interface::{
    Acks, Assignment, Input, Outcome as PartitionOutcome, Produce, Refusal,
};
use quorate_core::shard::interface::{Input as ShardInput, Outcome};
use quorate_core::time::{Instant, Timestamp};
use quorate_core::transaction::interface::TransactionVersion;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::produce::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceData,
    PartitionProduceResponse, TopicProduceData, TopicProduceResponse,
};
use quorate_net::kafka::messages::{ProduceRequest, ProduceResponse};
use quorate_net::wire::Text;

use super::place;
use super::verify::{Verified, Wanted, verify};
use crate::catalog::Topic;
use crate::catalog::log::LogHandle;
use crate::driver::ask::{Asked, Stopped, Withdrawal};
use crate::listener::session::{Answer, Started};
use crate::node::Node;

/// From this version on, topics go by id. KIP-516.
const BY_ID: i16 = 13;
/// From this version on, the first batch of a transaction adds its partition to it. KIP-890.
const ADDS: i16 = 12;
/// The first version whose clients know TRANSACTION_ABORTABLE. KIP-890.
const KNOWS_ABORTABLE: i16 = 11;
/// The first version whose clients know zstd. KIP-110.
const ZSTD: i16 = 7;

/// What became of one partition's batch so far.
enum Row {
    Refused(Box<PartitionProduceResponse>),
    Asked { index: i32, asked: Asked, log: Arc<LogHandle> },
}

struct Rows {
    name: Text,
    id: TopicId,
    rows: Vec<Row>,
}

/// What all batches of a request share.
struct Terms {
    acks: Acks,
    until: Instant,
    now: Timestamp,
    zstd: bool,
    transactional_id: Option<Text>,
    /// What the client speaks, as far as transactions are concerned.
    version: TransactionVersion,
    /// Whether it knows that some errors end a transaction and nothing else. KIP-890.
    knows_abortable: bool,
}

/// A batch that may be handed to its partition.
struct Ready {
    index: i32,
    topic: String,
    log: Arc<LogHandle>,
    batch: Batch,
    levels: Levels,
}

pub(crate) async fn begin(node: Arc<Node>, version: i16, request: ProduceRequest) -> Started {
    let now = node.clock.now();
    let patience = node.patience(request.timeout_ms, node.config.request.produce_wait_max);
    let acks = acks(request.acks);
    let terms = Terms {
        acks: acks.unwrap_or(Acks::All),
        until: now.monotonic + patience,
        now: now.wall,
        zstd: version >= ZSTD,
        transactional_id: request.transactional_id,
        version: if version >= ADDS { TransactionVersion::V2 } else { TransactionVersion::V0 },
        knows_abortable: version >= KNOWS_ABORTABLE,
    };
    let mut topics = Vec::with_capacity(request.topic_data.len());
    // Batches of transactions, and where the answer to each goes.
    let mut held = Vec::new();
    for data in request.topic_data {
        let TopicProduceData { name, topic_id, partition_data } = data;
        let topic = if version >= BY_ID {
            node.catalog.topic(topic_id).ok_or(Code::UnknownTopicId)
        } else {
            node.catalog.topic_named(&name).ok_or(Code::UnknownTopicOrPartition)
        };
        let mut rows = Vec::with_capacity(partition_data.len());
        for data in partition_data {
            let topic = topic.as_deref().map_err(|code| *code);
            let row = match acks {
                Some(_) if node.space.is_short() => {
                    let why = "the disk is nearly full (storage.min_free)";
                    node.metrics.batches_refused.add(1);
                    Ok(refused(data.index, Code::KafkaStorageError, Some(why.into())))
                }
                Some(_) => match prepare(&node, topic, data, &terms).await {
                    Ok(ready) if ready.batch.header().is_transactional() => {
                        let row = unverified(ready.index);
                        held.push(((topics.len(), rows.len()), ready));
                        Ok(row)
                    }
                    Ok(ready) => hand_over(&node, ready, None, &terms).await,
                    Err(response) => Ok(Row::Refused(response)),
                },
                None => Ok(refused(data.index, Code::InvalidRequiredAcks, None)),
            };
            match row {
                Ok(row) => rows.push(row),
                Err(Stopped) => return Started::Answered(stopped()),
            }
        }
        topics.push(Rows { name, id: topic_id, rows });
    }
    if append_verified(&node, &mut topics, held, &terms).await.is_err() {
        return Started::Answered(stopped());
    }
    if acks == Some(Acks::None) {
        return Started::Waiting(Box::pin(silence(topics)));
    }
    Started::Waiting(Box::pin(finish(node, topics, terms.knows_abortable)))
}

/// librdkafka allows acks above 1: as all, and at least so many copies.
fn acks(acks: i16) -> Option<Acks> {
    match acks {
        -1 => Some(Acks::All),
        0 => Some(Acks::None),
        1 => Some(Acks::Leader),
        copies => u16::try_from(copies).ok().map(Acks::AtLeast),
    }
}

/// What the client reads of a batch that was not even asked about.
fn unverified(index: i32) -> Row {
    let why = "the batch belongs to a transaction, and the request names no transactional id";
    refused(index, Code::InvalidTxnState, Some(why.into()))
}

/// Batches of a transaction are appended once their partitions are in it. The connection's next
/// request waits for that: a producer's batches stay in their order.
async fn append_verified(
    node: &Node,
    topics: &mut [Rows],
    held: Vec<((usize, usize), Ready)>,
    terms: &Terms,
) -> Result<(), Stopped> {
    let Some(transactional_id) = terms.transactional_id.as_ref().filter(|_| !held.is_empty())
    else {
        return Ok(());
    };
    let wanted = |(_, ready): &((usize, usize), Ready)| {
        let header = ready.batch.header();
        Wanted {
            log: Arc::clone(&ready.log),
            topic: ready.topic.clone(),
            producer: header.producer_id(),
            epoch: header.producer_epoch(),
            sequence: header.base_sequence(),
        }
    };
    let wanted: Vec<Wanted> = held.iter().map(wanted).collect();
    let verified = verify(node, transactional_id, terms.version, &wanted).await?;
    for (((topic, row), ready), verified) in held.into_iter().zip(verified) {
        topics[topic].rows[row] = match verified {
            Verified::Open(guard) => hand_over(node, ready, guard, terms).await?,
            other => {
                node.metrics.batches_refused.add(1);
                not_verified(node, &ready, &other, terms)
            }
        };
    }
    Ok(())
}

fn not_verified(node: &Node, ready: &Ready, verified: &Verified, terms: &Terms) -> Row {
    let index = ready.index;
    let (code, why) = match verified {
        Verified::NotWithin if terms.knows_abortable => {
            (Code::TransactionAbortable, "the partition is not in the producer's transaction")
        }
        Verified::Open(_) | Verified::NotWithin => {
            (Code::InvalidTxnState, "the partition is not in the producer's transaction")
        }
        Verified::Fenced => {
            (Code::InvalidProducerEpoch, "there is a newer producer of this transactional id")
        }
        Verified::Unmapped => {
            (Code::InvalidProducerIdMapping, "the transactional id is another producer's")
        }
        // Every client takes this one for "nothing is written, send it again".
        Verified::Later => (Code::NotEnoughReplicas, "the coordinator cannot say now: try again"),
        Verified::Refused(refused) => {
            let response = refused_by(node, index, &ready.log, refused, terms.knows_abortable);
            return Row::Refused(Box::new(response));
        }
    };
    refused(index, code, Some(why.into()))
}

/// The batch, found good for its partition, and the log it is for; otherwise the answer.
async fn prepare(
    node: &Node,
    topic: Result<&Topic, Code>,
    data: PartitionProduceData,
    terms: &Terms,
) -> Result<Ready, Box<PartitionProduceResponse>> {
    let index = data.index;
    let (log, topic) = match find(topic, index) {
        Ok(found) => found,
        Err(code) => {
            let mut response = refusal(index, code, None);
            if let Some(partition) = topic.ok().and_then(|topic| topic.partition(index)) {
                name_leader(&mut response, code, &partition.assignment);
            }
            return Err(Box::new(response));
        }
    };
    let (batch, levels) = match check(node, topic, data, terms).await {
        Ok(checked) => checked,
        Err(row) => {
            node.metrics.batches_refused.add(1);
            return Err(row);
        }
    };
    let topic = topic.name.clone();
    Ok(Ready { index, topic, log: Arc::clone(log), batch, levels })
}

async fn hand_over(
    node: &Node,
    ready: Ready,
    guard: Option<VerificationGuard>,
    terms: &Terms,
) -> Result<Row, Stopped> {
    let Ready { index, log, batch, levels, .. } = ready;
    node.metrics.batches_produced.add(1);
    node.metrics.batch_bytes_produced.add(batch.len() as u64);
    let partition = log.partition;
    let (acks, until) = (terms.acks, terms.until);
    let input = |request| {
        let input = Input::Produce(Produce { request, batch, levels, acks, until, guard });
        ShardInput::Partition { partition, input }
    };
    // Appended or not, the batch is out of the client's hands: there is nothing to withdraw.
    let asked = log.shard.ask(Withdrawal::Never, input).await?;
    Ok(Row::Asked { index, asked, log })
}

fn find(topic: Result<&Topic, Code>, index: i32) -> Result<(&Arc<LogHandle>, &Topic), Code> {
    let topic = topic?;
    if Topic::is_internal(&topic.name) {
        return Err(Code::InvalidTopicException);
    }
    Ok((place::find(Some(topic), index)?, topic))
}

/// The one batch, found good for this topic.
async fn check(
    node: &Node,
    topic: &Topic,
    data: PartitionProduceData,
    terms: &Terms,
) -> Result<(Batch, Levels), Box<PartitionProduceResponse>> {
    let index = data.index;
    let refuse = |code, why: &str| Err(Box::new(refusal(index, code, Some(why.into()))));
    let Some(records) = data.records.filter(|records| !records.is_empty()) else {
        return refuse(Code::InvalidRecord, "one batch is wanted, and there is none");
    };
    let mut batch = match Batch::parse(records.into_bytes()) {
        Ok(batch) => batch,
        Err(error) => return refuse(Code::from(&error), &error.to_string()),
    };
    let rules = Rules { now: terms.now, zstd: terms.zstd, ..topic.rules.clone() };
    match node.unpacking.validate(&mut batch, &rules).await {
        Ok(levels) => match topic.kept_codec.filter(|codec| *codec != batch.header().codec()) {
            None => Ok((batch, levels)),
            Some(codec) => match node.unpacking.recompress(batch, codec, &rules).await {
                Ok(batch) => Ok((batch, levels)),
                Err(why) => refuse(Code::MessageTooLarge, &why),
            },
        },
        Err(invalid) => {
            tracing::debug!(topic = topic.name, index, host = %node.id, %invalid, "batch refused");
            Err(Box::new(invalid_response(index, &invalid)))
        }
    }
}

fn invalid_response(index: i32, invalid: &Invalid) -> PartitionProduceResponse {
    let named = invalid.records.iter().map(|record| BatchIndexAndErrorMessage {
        batch_index: record.index,
        batch_index_error_message: Some(record.reason.as_str().into()),
    });
    PartitionProduceResponse {
        record_errors: named.collect(),
        ..refusal(index, Code::from(invalid), Some(invalid.reason.as_str().into()))
    }
}

fn refused(index: i32, code: Code, why: Option<Text>) -> Row {
    Row::Refused(Box::new(refusal(index, code, why)))
}

fn refusal(index: i32, code: Code, why: Option<Text>) -> PartitionProduceResponse {
    PartitionProduceResponse {
        index,
        error_code: code.code(),
        base_offset: -1,
        error_message: why,
        ..PartitionProduceResponse::default()
    }
}

fn stopped() -> Answer {
    Answer::Close("the node stops".to_owned())
}

/// acks=0: nothing is said once the batches are written, unless one was refused. Then the
/// connection is closed, as Kafka does, so that the client looks again who leads. A disk that is
/// slower than such a client fills the connection's window, not the node's queues.
async fn silence(topics: Vec<Rows>) -> Answer {
    for row in topics.into_iter().flat_map(|topic| topic.rows) {
        match row {
            Row::Refused(response) => {
                return Answer::Close(format!(
                    "a batch without acknowledgement has error {}",
                    response.error_code
                ));
            }
            Row::Asked { asked, .. } => {
                if let Ok(Outcome::Partition(PartitionOutcome::Refused(refusal))) = asked.await
                    && refusal != Refusal::TimedOut
                {
                    return Answer::Close(format!(
                        "a batch without acknowledgement was refused: {refusal:?}"
                    ));
                }
            }
        }
    }
    Answer::Silence
}

async fn finish(node: Arc<Node>, topics: Vec<Rows>, knows_abortable: bool) -> Answer {
    let mut responses = Vec::with_capacity(topics.len());
    for Rows { name, id, rows } in topics {
        let mut partition_responses = Vec::with_capacity(rows.len());
        for row in rows {
            let response = match row {
                Row::Refused(response) => *response,
                Row::Asked { index, asked, log } => match asked.await {
                    Ok(Outcome::Partition(outcome)) => {
                        respond(&node, index, &log, &outcome, knows_abortable)
                    }
                    Ok(other) => unreachable!("a partition answers as one, not with {other:?}"),
                    Err(Stopped) => return stopped(),
                },
            };
            partition_responses.push(response);
        }
        responses.push(TopicProduceResponse { name, topic_id: id, partition_responses });
    }
    let node_endpoints = endpoints(&node, &responses);
    let response = ProduceResponse { responses, node_endpoints, ..ProduceResponse::default() };
    Answer::Send(response.into(), None)
}

fn respond(
    node: &Node,
    index: i32,
    log: &LogHandle,
    outcome: &PartitionOutcome,
    knows_abortable: bool,
) -> PartitionProduceResponse {
    match outcome {
        // zoo H7: what was not told in time is told with the default, and that is success at 0.
        PartitionOutcome::Refused(Refusal::TimedOut) if mutant!("spurious-zero-offset") => {
            PartitionProduceResponse { index, ..PartitionProduceResponse::default() }
        }
        PartitionOutcome::Produced { base, append_time, log_start } => PartitionProduceResponse {
            index,
            base_offset: base.0,
            log_append_time_ms: append_time.unwrap_or(Timestamp::NONE).millis(),
            log_start_offset: log_start.0,
            ..PartitionProduceResponse::default()
        },
        PartitionOutcome::Refused(refused) => {
            refused_by(node, index, log, refused, knows_abortable)
        }
        other => unreachable!("a produce is not answered with {other:?}"),
    }
}

fn refused_by(
    node: &Node,
    index: i32,
    log: &LogHandle,
    refused: &Refusal,
    knows_abortable: bool,
) -> PartitionProduceResponse {
    let code = match refused {
        // Every client takes this one for "nothing is written, send it again"; librdkafka takes
        // other codes for the batch's end, and a pipeline would break over it.
        Refusal::Busy => Code::NotEnoughReplicas,
        Refusal::InvalidTransactionState { .. } if knows_abortable => Code::TransactionAbortable,
        other => Code::from(other),
    };
    let mut response = refusal(index, code, Some(sentence(refused).into()));
    if let Some(assignment) = place::assignment(&node.catalog.read(), log.partition) {
        name_leader(&mut response, code, assignment);
    }
    response
}

fn name_leader(response: &mut PartitionProduceResponse, code: Code, assignment: &Assignment) {
    if place::names_leader(code)
        && let Some(leader) = assignment.leader
    {
        let leader_epoch = assignment.leader_epoch.0;
        response.current_leader = LeaderIdAndEpoch { leader_id: leader.0, leader_epoch };
    }
}

/// Where the leaders that the answer names are reached.
fn endpoints(node: &Node, responses: &[TopicProduceResponse]) -> Vec<NodeEndpoint> {
    let rows = responses.iter().flat_map(|topic| &topic.partition_responses);
    let leaders = rows.map(|row| row.current_leader.leader_id).filter(|id| *id >= 0);
    let leaders: BTreeSet<i32> = leaders.collect();
    if leaders.is_empty() {
        return Vec::new();
    }
    let state = node.catalog.read();
    let found = leaders.iter().filter_map(|id| state.image.node(NodeId(*id)));
    let endpoints = found.map(|found| NodeEndpoint {
        node_id: found.id.0,
        host: found.address.host.as_str().into(),
        port: i32::from(found.address.port),
        rack: found.rack.as_deref().map(Text::from),
    });
    endpoints.collect()
}

fn sentence(refusal: &Refusal) -> String {
    match refusal {
        Refusal::OutOfOrderSequence { producer, expected, found } => format!(
            "producer {producer} sent sequence number {found} where {expected} is due: a batch \
             before it is missing"
        ),
        Refusal::Busy => "as many producers as may be are known or wait: come again".to_owned(),
        Refusal::InvalidTransactionState { producer } => format!(
            "producer {producer} has no transaction here that this batch could belong to: it has \
             ended, or was never begun"
        ),
        Refusal::StaleProducerEpoch { producer, current } => {
            format!("producer {producer} was replaced: its epoch is {current} by now")
        }
        other => format!("{other:?}"),
    }
}
