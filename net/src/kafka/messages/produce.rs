//! Append record batches to partitions.

use quorate_core::id::TopicId;

use super::structs;
use crate::wire::{Records, Text};

structs! {
    ProduceRequest {
        /// None for a producer without transactions.
        transactional_id: Option<Text> [3..];
        /// Whose word is waited for: 0 nobody's and no response at all, 1 the leader's, −1 every
        /// in-sync replica's. librdkafka also sends a number of copies.
        acks: i16 [0..];
        /// How long to wait for the replicas.
        timeout_ms: i32 [0..];
        topic_data: Vec<TopicProduceData> [0..];
    }

    TopicProduceData {
        /// Empty from version 13 on, which names topics by id.
        name: Text [0..=12];
        topic_id: TopicId [13..];
        partition_data: Vec<PartitionProduceData> [0..];
    }

    PartitionProduceData {
        index: i32 [0..];
        /// Exactly one batch, from version 3 on.
        records: Option<Records> [0..];
    }

    ProduceResponse {
        responses: Vec<TopicProduceResponse> [0..];
        throttle_time_ms: i32 [1..];
        /// Where the leaders named in `current_leader` are reached. KIP-951.
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
        /// The offset of the first record; −1 with an error.
        base_offset: i64 [0..];
        /// When the leader took the batch, for LogAppendTime topics; otherwise −1.
        log_append_time_ms: i64 [2..] = -1;
        log_start_offset: i64 [5..] = -1;
        /// The records to blame when the batch is refused. KIP-467.
        record_errors: Vec<BatchIndexAndErrorMessage> [8..];
        error_message: Option<Text> [8..];
        /// With NOT_LEADER_OR_FOLLOWER: who leads instead.
        current_leader: LeaderIdAndEpoch [10..] tag 0;
    }

    BatchIndexAndErrorMessage {
        /// The record's place in its batch, from 0.
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
