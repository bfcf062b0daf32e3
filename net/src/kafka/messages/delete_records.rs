//! Raise the log start of partitions.

use super::structs;
use crate::wire::Text;

structs! {
    DeleteRecordsRequest {
        topics: Vec<DeleteRecordsTopic> [0..];
        timeout_ms: i32 [0..];
    }

    DeleteRecordsTopic {
        name: Text [0..];
        partitions: Vec<DeleteRecordsPartition> [0..];
    }

    DeleteRecordsPartition {
        partition_index: i32 [0..];
        /// Records below it go; −1 means the high watermark.
        offset: i64 [0..];
    }

    DeleteRecordsResponse {
        throttle_time_ms: i32 [0..];
        topics: Vec<DeleteRecordsTopicResult> [0..];
    }

    DeleteRecordsTopicResult {
        name: Text [0..];
        partitions: Vec<DeleteRecordsPartitionResult> [0..];
    }

    DeleteRecordsPartitionResult {
        partition_index: i32 [0..];
        /// The log start from now on; −1 with an error.
        low_watermark: i64 [0..];
        error_code: i16 [0..];
    }
}
