//! The offsets that a group has committed. Tags 10000 are Quorate's own, and other brokers and
//! clients leave them alone: docs/decisions/0123.

use quorate_core::id::TopicId;

use super::structs;
use crate::wire::Text;

structs! {
    OffsetFetchRequest {
        group_id: Text [0..=7];
        /// `None` for all that the group has.
        topics: Option<Vec<OffsetFetchRequestTopic>> [0..=7] null [2..=7];
        groups: Vec<OffsetFetchRequestGroup> [8..];
        /// Refuse while a transaction's commit is pending. KIP-447.
        require_stable: bool [7..];
    }

    OffsetFetchRequestTopic {
        name: Text [0..=7];
        partition_indexes: Vec<i32> [0..=7];
    }

    OffsetFetchRequestGroup {
        group_id: Text [8..];
        member_id: Option<Text> [9..];
        member_epoch: i32 [9..] = -1;
        /// `None` for all that the group has.
        topics: Option<Vec<OffsetFetchRequestTopics>> [8..];
        /// Whether the answer says when each offset was committed; with no topics named only.
        with_times: bool [10..] tag 10000;
    }

    OffsetFetchRequestTopics {
        name: Text [8..=9];
        topic_id: TopicId [10..];
        partition_indexes: Vec<i32> [8..];
    }

    OffsetFetchResponse {
        throttle_time_ms: i32 [3..];
        topics: Vec<OffsetFetchResponseTopic> [0..=7];
        error_code: i16 [2..=7];
        groups: Vec<OffsetFetchResponseGroup> [8..];
    }

    OffsetFetchResponseTopic {
        name: Text [0..=7];
        partitions: Vec<OffsetFetchResponsePartition> [0..=7];
    }

    OffsetFetchResponsePartition {
        partition_index: i32 [0..=7];
        /// −1 for none.
        committed_offset: i64 [0..=7];
        committed_leader_epoch: i32 [5..=7] = -1;
        metadata: Option<Text> [0..=7];
        error_code: i16 [0..=7];
    }

    OffsetFetchResponseGroup {
        group_id: Text [8..];
        topics: Vec<OffsetFetchResponseTopics> [8..];
        error_code: i16 [8..];
    }

    OffsetFetchResponseTopics {
        name: Text [8..=9];
        topic_id: TopicId [10..];
        partitions: Vec<OffsetFetchResponsePartitions> [8..];
    }

    OffsetFetchResponsePartitions {
        partition_index: i32 [8..];
        /// −1 for none.
        committed_offset: i64 [8..];
        committed_leader_epoch: i32 [8..] = -1;
        metadata: Option<Text> [8..];
        error_code: i16 [8..];
        /// When it was committed; −1 where that was not asked for.
        committed_at: i64 [10..] tag 10000 = -1;
    }
}
