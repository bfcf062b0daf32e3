//! Append record batches to partitions.

use quorate_core::id::TopicId;

use super::structs;
use crate::wire::{Records, Text};

structs! {
    ProduceRequest {
        transactional_id: Option<Text> [3..];
        acks: i16 [0..];
        timeout_ms: i32 [0..];
        topic_data: Vec<TopicProduceData> [0..];
    }

    TopicProduceData {
        name: Text [0..=12];
        topic_id: TopicId [13..];
        partition_data: Vec<PartitionProduceData> [0..];
    }

    PartitionProduceData {
        index: i32 [0..];
        records: Option<Records> [0..];
    }

    ProduceResponse {
        responses: Vec<TopicProduceResponse> [0..];
        throttle_time_ms: i32 [1..];
        node_endpoints: Vec<NodeEndpoint> [10..] tag 0;
    }

    TopicProduceResponse {
        name: Text [0..=12];
        topic_id: TopicId [13..];
        partition_responses: Vec<PartitionProduceResponse> [0..];
    }

    PartitionProduceResponse {
        index: i32 [0..];
        error_code: i16 [0..];
        base_offset: i64 [0..];
        log_append_time_ms: i64 [2..] = -1;
        log_start_offset: i64 [5..] = -1;
        record_errors: Vec<BatchIndexAndErrorMessage> [8..];
        error_message: Option<Text> [8..];
        current_leader: LeaderIdAndEpoch [10..] tag 0;
    }

    BatchIndexAndErrorMessage {
        batch_index: i32 [8..];
        batch_index_error_message: Option<Text> [8..];
    }

    LeaderIdAndEpoch {
        leader_id: i32 [10..] = -1;
        leader_epoch: i32 [10..] = -1;
    }

    NodeEndpoint {
        node_id: i32 [10..];
        host: Text [10..];
        port: i32 [10..];
        rack: Option<Text> [10..];
    }
}
