//! Where a leader epoch ended in a partition. KIP-101, KIP-320.

use super::structs;
use crate::wire::Text;

structs! {
    OffsetForLeaderEpochRequest {
        /// −1 for consumers, −2 for debuggers.
        replica_id: i32 [3..] = -2;
        topics: Vec<OffsetForLeaderTopic> [0..];
    }

    OffsetForLeaderTopic {
        topic: Text [0..];
        partitions: Vec<OffsetForLeaderPartition> [0..];
    }

    OffsetForLeaderPartition {
        partition: i32 [0..];
        current_leader_epoch: i32 [2..] = -1;
        /// The one whose end is asked for.
        leader_epoch: i32 [0..];
    }

    OffsetForLeaderEpochResponse {
        throttle_time_ms: i32 [2..];
        topics: Vec<OffsetForLeaderTopicResult> [0..];
    }

    OffsetForLeaderTopicResult {
        topic: Text [0..];
        partitions: Vec<EpochEndOffset> [0..];
    }

    EpochEndOffset {
        error_code: i16 [0..];
        partition: i32 [0..];
        /// The largest not above the one asked for; −1 for none.
        leader_epoch: i32 [1..] = -1;
        end_offset: i64 [0..] = -1;
    }
}
