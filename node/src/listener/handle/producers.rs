//! DescribeProducers: who writes to a partition, and whose transaction is open there. KIP-664.

use quorate_core::partition::interface::{Input, Outcome, ProducerStatus};
use quorate_core::shard::interface::{Input as ShardInput, Outcome as ShardOutcome};
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::describe_producers::{
    PartitionResponse, ProducerState, TopicResponse,
};
use quorate_net::kafka::messages::{DescribeProducersRequest, DescribeProducersResponse};

use super::place::find;
use super::repeated::once;
use crate::catalog::log::LogHandle;
use crate::driver::ask::{Stopped, Withdrawal};
use crate::node::Node;

pub(crate) async fn describe(
    node: &Node,
    request: DescribeProducersRequest,
) -> Result<DescribeProducersResponse, Stopped> {
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in once(request.topics, |topic| topic.name.clone()) {
        let found = node.catalog.topic_named(&topic.name);
        let mut partitions = Vec::with_capacity(topic.partition_indexes.len());
        for partition_index in once(topic.partition_indexes, |index| *index) {
            let known = match find(found.as_deref(), partition_index) {
                Ok(log) => producers(log).await?,
                Err(code) => Err(code),
            };
            let (active_producers, code) = match known {
                Ok(known) => (known.iter().map(state).collect(), Code::None),
                Err(code) => (Vec::new(), code),
            };
            partitions.push(PartitionResponse {
                partition_index,
                error_code: code.code(),
                active_producers,
                ..PartitionResponse::default()
            });
        }
        topics.push(TopicResponse { name: topic.name, partitions });
    }
    Ok(DescribeProducersResponse { topics, ..DescribeProducersResponse::default() })
}

async fn producers(log: &LogHandle) -> Result<Result<Vec<ProducerStatus>, Code>, Stopped> {
    let partition = log.partition;
    let input = |request| {
        let input = Input::DescribeProducers { request };
        ShardInput::Partition { partition, input }
    };
    let ShardOutcome::Partition(outcome) = log.shard.ask(Withdrawal::Never, input).await?.await?
    else {
        unreachable!("a partition answers as one");
    };
    Ok(match outcome {
        Outcome::Producers(producers) => Ok(producers),
        Outcome::Refused(refusal) => Err(Code::from(&refusal)),
        other => unreachable!("producers are told, not {other:?}"),
    })
}

fn state(known: &ProducerStatus) -> ProducerState {
    ProducerState {
        producer_id: known.producer.0,
        producer_epoch: i32::from(known.epoch.0),
        last_sequence: known.last_sequence,
        last_timestamp: known.seen.millis(),
        coordinator_epoch: known.coordinator_epoch.0,
        current_txn_start_offset: known.transaction.map_or(-1, |first| first.0),
    }
}
