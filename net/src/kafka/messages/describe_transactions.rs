//! What the coordinator knows of transactional ids. KIP-664.

use super::structs;
use crate::wire::Text;

structs! {
    DescribeTransactionsRequest {
        transactional_ids: Vec<Text> [0..];
    }

    DescribeTransactionsResponse {
        throttle_time_ms: i32 [0..];
        transaction_states: Vec<TransactionState> [0..];
    }

    TransactionState {
        error_code: i16 [0..];
        transactional_id: Text [0..];
        transaction_state: Text [0..];
        transaction_timeout_ms: i32 [0..];
        /// Since 1970; −1 where none is open.
        transaction_start_time_ms: i64 [0..];
        producer_id: i64 [0..];
        producer_epoch: i16 [0..];
        /// What is in the open transaction; of one that is ending, what has no marker yet.
        topics: Vec<TopicData> [0..];
    }

    TopicData {
        topic: Text [0..];
        partitions: Vec<i32> [0..];
    }
}
