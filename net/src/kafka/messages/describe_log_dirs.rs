//! How much each partition takes on disk, and how much room is left.

use super::structs;
use crate::wire::Text;

structs! {
    DescribeLogDirsRequest {
        /// `None` for all.
        topics: Option<Vec<DescribableLogDirTopic>> [0..];
    }

    DescribableLogDirTopic {
        topic: Text [0..];
        partitions: Vec<i32> [0..];
    }

    DescribeLogDirsResponse {
        throttle_time_ms: i32 [0..];
        error_code: i16 [3..];
        results: Vec<DescribeLogDirsResult> [0..];
    }

    DescribeLogDirsResult {
        error_code: i16 [0..];
        log_dir: Text [0..];
        topics: Vec<DescribeLogDirsTopic> [0..];
        /// Of the volume; −1 for unknown.
        total_bytes: i64 [4..] = -1;
        usable_bytes: i64 [4..] = -1;
    }

    DescribeLogDirsTopic {
        name: Text [0..];
        partitions: Vec<DescribeLogDirsPartition> [0..];
    }

    DescribeLogDirsPartition {
        partition_index: i32 [0..];
        /// Bytes on disk.
        partition_size: i64 [0..];
        /// Records below the high watermark that this copy lacks.
        offset_lag: i64 [0..];
        /// A copy being made to replace another on the same node.
        is_future_key: bool [0..];
    }
}
