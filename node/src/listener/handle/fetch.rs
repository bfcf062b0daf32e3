//! Fetch: reads what the views allow, and waits once for the whole request when that is too
//! little. Record bytes go from the log to the socket as they are.

mod aborted;
mod again;
pub(crate) mod read;
pub(crate) mod sessions;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::select_all;
use quorate_core::id::{NodeId, Offset, TopicId};
use quorate_core::partition::interface::{Input, Isolation, Outcome, Refusal, Wait};
use quorate_core::shard::interface::{Input as ShardInput, Outcome as ShardOutcome};
use quorate_core::time::Instant;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::fetch::{FetchableTopicResponse, NodeEndpoint, PartitionData};
use quorate_net::kafka::messages::{FetchRequest, FetchResponse};
use quorate_net::wire::Text;

use self::read::{Pass, Read};
use self::sessions::Context;
use crate::catalog::log::LogHandle;
use crate::driver::ask::{Stopped, Withdrawal};
use crate::listener::lending::Loan;
use crate::listener::output::{Lent, Source};
use crate::listener::session::Answer;
use crate::node::Node;

/// From this version on, topics go by id. KIP-516.
const BY_ID: i16 = 13;
/// The first version that names the leader's address. KIP-951.
const ENDPOINTS: i16 = 16;
/// The first version whose clients may read from a follower. KIP-392.
const FROM_FOLLOWERS: i16 = 11;

/// One partition that a client wants to read on in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) topic: TopicKey,
    pub(crate) index: i32,
    pub(crate) from: Offset,
    pub(crate) bytes_max: usize,
    /// -1: the client does not say.
    pub(crate) leader_epoch: i32,
}

/// How a request names a topic; both are kept as they came, for the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TopicKey {
    pub(crate) name: Text,
    pub(crate) id: TopicId,
}

/// What holds for the whole request.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) version: i16,
    pub(crate) isolation: Isolation,
    pub(crate) bytes_min: usize,
    pub(crate) bytes_max: usize,
    pub(crate) until: Instant,
    /// Where the client is, if it says so.
    pub(crate) rack: Option<Text>,
}

pub(crate) async fn fetch(node: &Arc<Node>, version: i16, request: FetchRequest) -> Answer {
    let terms = terms(node, version, &request);
    let context = match node.fetch_sessions.open(node.clock.now().monotonic, version, &request) {
        Ok(context) => context,
        Err(code) => {
            let response = FetchResponse { error_code: code.code(), ..FetchResponse::default() };
            return Answer::Send(response.into(), None);
        }
    };
    match read_or_wait(node, &terms, context.wanted()).await {
        Ok((pass, loan)) => {
            node.metrics.bytes_fetched.add(pass.bytes as u64);
            let (response, sources) = respond(node, &terms, &context, pass);
            Answer::Send(response.into(), loan.map(|loan| Lent { loan, sources }))
        }
        Err(Stopped) => Answer::Close("the node stops".to_owned()),
    }
}

fn terms(node: &Node, version: i16, request: &FetchRequest) -> Terms {
    let positive = |number: i32| usize::try_from(number).unwrap_or(0);
    let bytes_max = positive(request.max_bytes).min(node.config.fetch.bytes_max);
    Terms {
        version,
        isolation: match request.isolation_level {
            1 => Isolation::ReadCommitted,
            _ => Isolation::ReadUncommitted,
        },
        bytes_min: positive(request.min_bytes).min(bytes_max),
        bytes_max,
        until: node.clock.now().monotonic
            + node.patience(request.max_wait_ms, node.config.fetch.wait_max),
        rack: (!request.rack_id.is_empty()).then(|| request.rack_id.clone()),
    }
}

async fn read_or_wait(
    node: &Arc<Node>,
    terms: &Terms,
    wanted: &[Wanted],
) -> Result<(Pass, Option<Loan>), Stopped> {
    let mut was_refused = false;
    loop {
        let (pass, loan) = read::pass(node, terms, wanted).await;
        let enough = pass.bytes >= terms.bytes_min || pass.failed || pass.more || pass.sent_away;
        if enough || wanted.is_empty() || node.clock.now().monotonic >= terms.until {
            return Ok((pass, loan));
        }
        // What was read is read again after the wait: it lies in the page cache, and holding it
        // meanwhile would hold its memory.
        drop(loan);
        let refused = match wait(node, terms, &pass).await? {
            ShardOutcome::Partition(Outcome::Refused(refusal)) => Some(refusal),
            _ => None,
        };
        // Too many wait already, or a replica knows no leader yet although it may be read: this
        // one looks again when its time is up.
        if refused == Some(Refusal::Busy) || (refused.is_some() && was_refused) {
            node.clock.sleep_until(terms.until).await;
        }
        was_refused = refused.is_some();
    }
}

/// Until one of the partitions has more to read, or the time is up.
async fn wait(node: &Node, terms: &Terms, pass: &Pass) -> Result<ShardOutcome, Stopped> {
    let open: Vec<(&Arc<LogHandle>, Offset)> =
        pass.reads.iter().filter_map(|read| Some((read.log.as_ref()?, read.next))).collect();
    // If all together have what is missing, one of them has its share of it.
    let missing = terms.bytes_min.saturating_sub(pass.bytes).div_ceil(open.len().max(1));
    let mut waits = Vec::with_capacity(open.len());
    for (log, beyond) in open {
        let partition = log.partition;
        let input = |request| {
            let input = Input::Wait(Wait {
                request,
                beyond,
                bytes_min: missing.max(1) as u64,
                isolation: terms.isolation,
                until: terms.until,
            });
            ShardInput::Partition { partition, input }
        };
        waits.push(log.shard.ask(Withdrawal::Partition(partition), input).await?);
    }
    if waits.is_empty() {
        node.clock.sleep_until(terms.until).await;
        return Ok(ShardOutcome::Partition(Outcome::Advanced));
    }
    select_all(waits).await.0
}

/// The response, and where its records can be read again.
fn respond(
    node: &Node,
    terms: &Terms,
    context: &Context,
    pass: Pass,
) -> (FetchResponse, Vec<Source>) {
    let mut responses: Vec<FetchableTopicResponse> = Vec::new();
    let mut sources = Vec::new();
    let mut leaders = BTreeSet::new();
    let rows = node.fetch_sessions.close(context, pass.reads);
    for Read { topic, data, source, .. } in rows {
        sources.extend(source);
        leaders.insert(data.current_leader.leader_id);
        match responses.last_mut() {
            Some(last) if last.topic == topic.name && last.topic_id == topic.id => {
                last.partitions.push(data);
            }
            _ => responses.push(FetchableTopicResponse {
                topic: topic.name,
                topic_id: topic.id,
                partitions: vec![data],
            }),
        }
    }
    let node_endpoints = match terms.version >= ENDPOINTS {
        true => endpoints(node, &leaders),
        false => Vec::new(),
    };
    let session_id = context.session_id();
    let response =
        FetchResponse { session_id, responses, node_endpoints, ..FetchResponse::default() };
    (response, sources)
}

/// Where the leaders are reached. The first that is none, -1, is no node.
fn endpoints(node: &Node, leaders: &BTreeSet<i32>) -> Vec<NodeEndpoint> {
    if leaders.iter().all(|id| *id < 0) {
        return Vec::new();
    }
    let state = node.catalog.read();
    let leaders = leaders.iter().filter_map(|id| state.image.node(NodeId(*id)));
    let endpoints = leaders.map(|found| NodeEndpoint {
        node_id: found.id.0,
        host: found.address.host.as_str().into(),
        port: i32::from(found.address.port),
        rack: found.rack.as_deref().map(Text::from),
    });
    endpoints.collect()
}

/// The answer to one partition that cannot be read.
pub(crate) fn failure(index: i32, code: Code) -> PartitionData {
    PartitionData {
        partition_index: index,
        error_code: code.code(),
        high_watermark: -1,
        aborted_transactions: Some(Vec::new()),
        records: Some(quorate_net::wire::Records::default()),
        ..PartitionData::default()
    }
}
