//! Metadata and DescribeTopicPartitions: which topics there are and who leads their partitions.

use std::sync::Arc;

use quorate_core::id::{NodeId, TopicId};
use quorate_core::metadata::topic::check_name;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::describe_topic_partitions::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use quorate_net::kafka::messages::metadata::{
    MetadataRequestTopic, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use quorate_net::kafka::messages::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, MetadataRequest,
    MetadataResponse,
};
use quorate_net::wire::Text;

use super::repeated::once;
use super::{cluster, topics};
use crate::catalog::{Log, Partition, State, Topic};
use crate::driver::ask::Stopped;
use crate::node::Node;

/// From this version on, an empty list of topics means none; before, it means all.
const EMPTY_IS_NONE: i16 = 1;
/// `DescribeTopicPartitions` answers at most so many partitions
/// (`max.request.partition.size.limit`).
const PARTITIONS_MAX: usize = 2000;
/// Kafka's set of operations that everybody may do while there are no access rules: on a topic
/// READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS; KIP-430.
const TOPIC_OPERATIONS: i32 = 0b1101_1111_1000;
/// On the cluster CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS,
/// IDEMPOTENT_WRITE.
pub(super) const CLUSTER_OPERATIONS: i32 = 0b1_1111_1010_0000;

pub(crate) async fn metadata(
    node: &Arc<Node>,
    version: i16,
    request: MetadataRequest,
) -> Result<MetadataResponse, Stopped> {
    let all = match &request.topics {
        None => true,
        Some(topics) => topics.is_empty() && version < EMPTY_IS_NONE,
    };
    let operations = request.include_topic_authorized_operations;
    let topics = if all {
        let state = node.catalog.read();
        state.topics().map(|topic| describe(node.id, &state, topic, operations)).collect()
    } else {
        let mut topics = Vec::new();
        let create = request.allow_auto_topic_creation && node.config.topic.auto_create;
        let asked = request.topics.unwrap_or_default();
        for asked in once(asked, |topic| (topic.topic_id, topic.name.clone())) {
            topics.push(one(node, asked, create, operations).await?);
        }
        topics
    };
    let state = node.catalog.read();
    Ok(MetadataResponse {
        brokers: brokers(&state),
        cluster_id: Some(node.cluster().into()),
        controller_id: cluster::controller_id(node, &state),
        topics,
        cluster_authorized_operations: if request.include_cluster_authorized_operations {
            CLUSTER_OPERATIONS
        } else {
            i32::MIN
        },
        ..MetadataResponse::default()
    })
}

fn brokers(state: &State) -> Vec<MetadataResponseBroker> {
    let nodes = cluster::live(state).map(|node| MetadataResponseBroker {
        node_id: node.id.0,
        host: node.address.host.as_str().into(),
        port: i32::from(node.address.port),
        rack: node.rack.as_deref().map(Text::from),
    });
    nodes.collect()
}

async fn one(
    node: &Arc<Node>,
    asked: MetadataRequestTopic,
    create: bool,
    operations: bool,
) -> Result<MetadataResponseTopic, Stopped> {
    let by_id = asked.topic_id != TopicId::NONE;
    let found = match &asked.name {
        _ if by_id => node.catalog.topic(asked.topic_id),
        Some(name) => node.catalog.topic_named(name),
        None => None,
    };
    if let Some(topic) = found {
        return Ok(describe(node.id, &node.catalog.read(), &topic, operations));
    }
    let missing = |code: Code| MetadataResponseTopic {
        error_code: code.code(),
        name: asked.name.clone(),
        topic_id: asked.topic_id,
        ..MetadataResponseTopic::default()
    };
    let Some(name) = asked.name.as_ref().filter(|_| !by_id) else {
        let code = if by_id { Code::UnknownTopicId } else { Code::InvalidRequest };
        return Ok(missing(code));
    };
    if check_name(name).is_err() {
        return Ok(missing(Code::InvalidTopicException));
    }
    if !create {
        return Ok(missing(Code::UnknownTopicOrPartition));
    }
    match topics::create_one(node, name).await? {
        Ok(topic) => Ok(describe(node.id, &node.catalog.read(), &topic, operations)),
        Err(code) => Ok(missing(code)),
    }
}

pub(super) fn describe(
    me: NodeId,
    state: &State,
    topic: &Topic,
    operations: bool,
) -> MetadataResponseTopic {
    let partitions = (0..).zip(&topic.partitions);
    MetadataResponseTopic {
        name: Some(topic.name.as_str().into()),
        topic_id: topic.id,
        is_internal: Topic::is_internal(&topic.name),
        partitions: partitions.map(|(at, found)| partition(me, state, at, found)).collect(),
        topic_authorized_operations: if operations { TOPIC_OPERATIONS } else { i32::MIN },
        ..MetadataResponseTopic::default()
    }
}

fn ids<'a>(nodes: impl IntoIterator<Item = &'a NodeId>) -> Vec<i32> {
    nodes.into_iter().map(|node| node.0).collect()
}

/// What is known of a partition. That a log is rotten is known of this node's own.
fn partition(
    me: NodeId,
    state: &State,
    index: i32,
    partition: &Partition,
) -> MetadataResponsePartition {
    let Partition { assignment, log } = partition;
    let serves = |node: &NodeId| {
        cluster::is_live(state, *node) && !(*node == me && matches!(log, Log::Offline))
    };
    let leader = assignment.leader.filter(serves);
    MetadataResponsePartition {
        error_code: leader.map_or(Code::LeaderNotAvailable, |_| Code::None).code(),
        partition_index: index,
        leader_id: leader.map_or(-1, |leader| leader.0),
        leader_epoch: assignment.leader_epoch.0,
        replica_nodes: ids(&assignment.replicas),
        isr_nodes: ids(assignment.in_sync.iter().filter(|node| serves(node))),
        offline_replicas: ids(assignment.replicas.iter().filter(|node| !serves(node))),
    }
}

/// Topics in the order of their names, from the cursor on, until the limit of partitions. KIP-966.
pub(crate) fn describe_topic_partitions(
    node: &Node,
    request: &DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let state = node.catalog.read();
    let mut names: Vec<&str> = if request.topics.is_empty() {
        state.topics().map(|topic| topic.name.as_str()).collect()
    } else {
        request.topics.iter().map(|topic| topic.name.as_str()).collect()
    };
    names.sort_unstable();
    names.dedup();
    let (start, first) = request.cursor.as_ref().map_or(("", 0), |cursor| {
        (cursor.topic_name.as_str(), usize::try_from(cursor.partition_index).unwrap_or(0))
    });
    let limit = usize::try_from(request.response_partition_limit).unwrap_or(0);
    let mut left = limit.clamp(1, PARTITIONS_MAX);
    let mut response = DescribeTopicPartitionsResponse::default();
    for name in names.into_iter().filter(|name| *name >= start) {
        let from = if name == start { first } else { 0 };
        if left == 0 {
            response.next_cursor = Some(Cursor { topic_name: name.into(), partition_index: 0 });
            break;
        }
        let Some(topic) = state.topic_named(name) else {
            response.topics.push(DescribeTopicPartitionsResponseTopic {
                error_code: Code::UnknownTopicOrPartition.code(),
                name: Some(name.into()),
                ..DescribeTopicPartitionsResponseTopic::default()
            });
            continue;
        };
        let upper = topic.partitions.len().min(from.saturating_add(left));
        let range = from.min(upper)..upper;
        response.topics.push(describe_page(node.id, &state, topic, range));
        left -= upper.saturating_sub(from);
        if upper < topic.partitions.len() {
            let partition_index = i32::try_from(upper).unwrap_or(i32::MAX);
            response.next_cursor = Some(Cursor { topic_name: name.into(), partition_index });
            break;
        }
    }
    response
}

fn describe_page(
    me: NodeId,
    state: &State,
    topic: &Topic,
    range: std::ops::Range<usize>,
) -> DescribeTopicPartitionsResponseTopic {
    let partitions = range.map(|at| {
        let index = i32::try_from(at).unwrap_or(i32::MAX);
        let found = partition(me, state, index, &topic.partitions[at]);
        DescribeTopicPartitionsResponsePartition {
            error_code: found.error_code,
            partition_index: found.partition_index,
            leader_id: found.leader_id,
            leader_epoch: found.leader_epoch,
            replica_nodes: found.replica_nodes,
            isr_nodes: found.isr_nodes,
            eligible_leader_replicas: Some(ids(&topic.partitions[at].assignment.eligible)),
            last_known_elr: Some(Vec::new()),
            offline_replicas: found.offline_replicas,
        }
    });
    DescribeTopicPartitionsResponseTopic {
        name: Some(topic.name.as_str().into()),
        topic_id: topic.id,
        is_internal: Topic::is_internal(&topic.name),
        partitions: partitions.collect(),
        topic_authorized_operations: TOPIC_OPERATIONS,
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}
