//! The partitions of topics, page by page. KIP-966.

use quorate_core::id::TopicId;

use super::structs;
use crate::wire::Text;

structs! {
    DescribeTopicPartitionsRequest {
        /// Empty for all.
        topics: Vec<TopicRequest> [0..];
        /// Partitions in one response; the broker may have a lower limit.
        response_partition_limit: i32 [0..] = 2000;
        /// Where to go on; topics come in the order of their names.
        cursor: Option<Cursor> [0..];
    }

    TopicRequest {
        name: Text [0..];
    }

    Cursor {
        topic_name: Text [0..];
        partition_index: i32 [0..];
    }

    DescribeTopicPartitionsResponse {
        throttle_time_ms: i32 [0..];
        topics: Vec<DescribeTopicPartitionsResponseTopic> [0..];
        /// The first partition left out; `None` at the end.
        next_cursor: Option<Cursor> [0..];
    }

    DescribeTopicPartitionsResponseTopic {
        error_code: i16 [0..];
        name: Option<Text> [0..];
        topic_id: TopicId [0..];
        is_internal: bool [0..];
        partitions: Vec<DescribeTopicPartitionsResponsePartition> [0..];
        topic_authorized_operations: i32 [0..] = i32::MIN;
    }

    DescribeTopicPartitionsResponsePartition {
        error_code: i16 [0..];
        partition_index: i32 [0..];
        leader_id: i32 [0..];
        leader_epoch: i32 [0..] = -1;
        replica_nodes: Vec<i32> [0..];
        isr_nodes: Vec<i32> [0..];
        eligible_leader_replicas: Option<Vec<i32>> [0..];
        last_known_elr: Option<Vec<i32>> [0..];
        offline_replicas: Vec<i32> [0..];
    }
}
