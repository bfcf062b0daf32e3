//! The producers that partitions' leaders remember, and since when they have a transaction open.
//! KIP-664.

use super::structs;
use crate::wire::Text;

structs! {
    DescribeProducersRequest {
        topics: Vec<TopicRequest> [0..];
    }

    TopicRequest {
        name: Text [0..];
        partition_indexes: Vec<i32> [0..];
    }

    DescribeProducersResponse {
        throttle_time_ms: i32 [0..];
        topics: Vec<TopicResponse> [0..];
    }

    TopicResponse {
        name: Text [0..];
        partitions: Vec<PartitionResponse> [0..];
    }

    PartitionResponse {
        partition_index: i32 [0..];
        error_code: i16 [0..];
        error_message: Option<Text> [0..];
        active_producers: Vec<ProducerState> [0..];
    }

    ProducerState {
        producer_id: i64 [0..];
        producer_epoch: i32 [0..];
        last_sequence: i32 [0..] = -1;
        last_timestamp: i64 [0..] = -1;
        /// Of the last marker that ended a transaction of it here; −1 before the first.
        coordinator_epoch: i32 [0..];
        /// The first offset of its open transaction; −1 where none is open.
        current_txn_start_offset: i64 [0..] = -1;
    }
}
