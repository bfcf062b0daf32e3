//! DescribeLogDirs: how much each partition takes on disk, and how much room is left.

use std::sync::Arc;

use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::describe_log_dirs::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use quorate_net::kafka::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse};

use crate::catalog::{Log, Topic};
use crate::node::Node;

pub(crate) async fn describe(
    node: &Arc<Node>,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    let (topics, used) = {
        let state = node.catalog.read();
        let used: u64 = state.topics().flat_map(|topic| bytes(topic)).map(|(_, bytes)| bytes).sum();
        let topics: Vec<DescribeLogDirsTopic> = match request.topics {
            None => state.topics().map(|topic| row(topic, None)).collect(),
            Some(asked) => {
                let found = asked.iter().filter_map(|asked| {
                    Some(row(state.topic_named(&asked.topic)?, Some(&asked.partitions)))
                });
                found.collect()
            }
        };
        (topics, used)
    };
    let usable = node.storage.free_space().await.ok();
    let result = DescribeLogDirsResult {
        error_code: Code::None.code(),
        log_dir: node.config.node.data.display().to_string().into(),
        topics,
        total_bytes: usable.map_or(-1, |usable| signed(usable.saturating_add(used))),
        usable_bytes: usable.map_or(-1, signed),
    };
    DescribeLogDirsResponse { results: vec![result], ..DescribeLogDirsResponse::default() }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// The open logs of a topic, and the bytes of each.
fn bytes(topic: &Topic) -> impl Iterator<Item = (i32, u64)> + '_ {
    (0..).zip(&topic.partitions).filter_map(|(index, partition)| match &partition.log {
        Log::Open(log) => Some((index, log.reader.bytes())),
        Log::Offline | Log::Elsewhere => None,
    })
}

fn row(topic: &Topic, asked: Option<&[i32]>) -> DescribeLogDirsTopic {
    let partitions = bytes(topic)
        .filter(|(index, _)| asked.is_none_or(|asked| asked.contains(index)))
        .map(|(partition_index, bytes)| DescribeLogDirsPartition {
            partition_index,
            partition_size: signed(bytes),
            ..DescribeLogDirsPartition::default()
        });
    DescribeLogDirsTopic { name: topic.name.as_str().into(), partitions: partitions.collect() }
}
