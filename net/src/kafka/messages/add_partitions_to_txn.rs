//! Add partitions to a transaction, before the first record is sent to them. KIP-98. Versions 0 to
//! 3 are what producers send. From version 4 on nodes ask one another, for several transactions at
//! once, and may only want to verify. KIP-890.

use super::structs;
use crate::wire::Text;

structs! {
    AddPartitionsToTxnRequest {
        transactions: Vec<AddPartitionsToTxnTransaction> [4..];
        v3_and_below_transactional_id: Text [0..=3];
        v3_and_below_producer_id: i64 [0..=3];
        v3_and_below_producer_epoch: i16 [0..=3];
        v3_and_below_topics: Vec<AddPartitionsToTxnTopic> [0..=3];
    }

    AddPartitionsToTxnTransaction {
        transactional_id: Text [4..];
        producer_id: i64 [4..];
        producer_epoch: i16 [4..];
        /// Asks whether the partitions are in the transaction, and adds none.
        verify_only: bool [4..];
        topics: Vec<AddPartitionsToTxnTopic> [4..];
    }

    AddPartitionsToTxnTopic {
        name: Text [0..];
        partitions: Vec<i32> [0..];
    }

    AddPartitionsToTxnResponse {
        throttle_time_ms: i32 [0..];
        /// What concerns the request as a whole.
        error_code: i16 [4..];
        results_by_transaction: Vec<AddPartitionsToTxnResult> [4..];
        results_by_topic_v3_and_below: Vec<AddPartitionsToTxnTopicResult> [0..=3];
    }

    AddPartitionsToTxnResult {
        transactional_id: Text [4..];
        topic_results: Vec<AddPartitionsToTxnTopicResult> [4..];
    }

    AddPartitionsToTxnTopicResult {
        name: Text [0..];
        results_by_partition: Vec<AddPartitionsToTxnPartitionResult> [0..];
    }

    AddPartitionsToTxnPartitionResult {
        partition_index: i32 [0..];
        partition_error_code: i16 [0..];
    }
}
