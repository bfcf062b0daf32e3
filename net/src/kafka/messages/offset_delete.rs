//! Forget a group's offsets of topics that none of its members reads. KIP-496.

use super::structs;
use crate::wire::Text;

structs! {
    OffsetDeleteRequest {
        group_id: Text [0..];
        topics: Vec<OffsetDeleteRequestTopic> [0..];
    }

    OffsetDeleteRequestTopic {
        name: Text [0..];
        partitions: Vec<OffsetDeleteRequestPartition> [0..];
    }

    OffsetDeleteRequestPartition {
        partition_index: i32 [0..];
    }

    OffsetDeleteResponse {
        /// What concerns the group as a whole.
        error_code: i16 [0..];
        throttle_time_ms: i32 [0..];
        topics: Vec<OffsetDeleteResponseTopic> [0..];
    }

    OffsetDeleteResponseTopic {
        name: Text [0..];
        partitions: Vec<OffsetDeleteResponsePartition> [0..];
    }

    OffsetDeleteResponsePartition {
        partition_index: i32 [0..];
        error_code: i16 [0..];
    }
}
