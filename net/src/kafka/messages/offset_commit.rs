//! Store the offsets up to which a group has consumed.

use quorate_core::id::TopicId;

use super::structs;
use crate::wire::Text;

structs! {
    OffsetCommitRequest {
        group_id: Text [0..];
        /// −1 from a consumer outside the group's membership.
        generation_id_or_member_epoch: i32 [1..] = -1;
        member_id: Text [1..];
        group_instance_id: Option<Text> [7..];
        /// −1 for the broker's own; ignored since Kafka 2.1.
        retention_time_ms: i64 [2..=4] = -1;
        topics: Vec<OffsetCommitRequestTopic> [0..];
    }

    OffsetCommitRequestTopic {
        name: Text [0..=9];
        topic_id: TopicId [10..];
        partitions: Vec<OffsetCommitRequestPartition> [0..];
    }

    OffsetCommitRequestPartition {
        partition_index: i32 [0..];
        /// The next record to read.
        committed_offset: i64 [0..];
        committed_leader_epoch: i32 [6..] = -1;
        committed_metadata: Option<Text> [0..];
    }

    OffsetCommitResponse {
        throttle_time_ms: i32 [3..];
        topics: Vec<OffsetCommitResponseTopic> [0..];
    }

    OffsetCommitResponseTopic {
        name: Text [0..=9];
        topic_id: TopicId [10..];
        partitions: Vec<OffsetCommitResponsePartition> [0..];
    }

    OffsetCommitResponsePartition {
        partition_index: i32 [0..];
        error_code: i16 [0..];
    }
}
