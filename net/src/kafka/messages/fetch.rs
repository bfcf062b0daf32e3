//! Read record batches from partitions, waiting for them when there are too few; KIP-74, fetch
//! sessions of KIP-227, topic ids of KIP-516.

use quorate_core::id::TopicId;

use super::structs;
use crate::wire::{Records, Text};

structs! {
    FetchRequest {
        cluster_id: Option<Text> [12..] tag 0;
        replica_id: i32 [0..=14] = -1;
        replica_state: ReplicaState [15..] tag 1;
        max_wait_ms: i32 [0..];
        min_bytes: i32 [0..];
        max_bytes: i32 [3..] = i32::MAX;
        isolation_level: i8 [4..];
        session_id: i32 [7..];
        session_epoch: i32 [7..] = -1;
        topics: Vec<FetchTopic> [0..];
        forgotten_topics_data: Vec<ForgottenTopic> [7..];
        rack_id: Text [11..];
    }

    ReplicaState {
        replica_id: i32 [15..] = -1;
        replica_epoch: i64 [15..] = -1;
    }

    FetchTopic {
        topic: Text [0..=12];
        topic_id: TopicId [13..];
        partitions: Vec<FetchPartition> [0..];
    }

    FetchPartition {
        partition: i32 [0..];
        current_leader_epoch: i32 [9..] = -1;
        fetch_offset: i64 [0..];
        last_fetched_epoch: i32 [12..] = -1;
        log_start_offset: i64 [5..] = -1;
        partition_max_bytes: i32 [0..];
        replica_directory_id: [u8; 16] [17..] tag 0;
        high_watermark: i64 [18..] tag 1 = i64::MAX;
    }

    ForgottenTopic {
        topic: Text [7..=12];
        topic_id: TopicId [13..];
        partitions: Vec<i32> [7..];
    }

    FetchResponse {
        throttle_time_ms: i32 [1..];
        error_code: i16 [7..];
        session_id: i32 [7..];
        responses: Vec<FetchableTopicResponse> [0..];
        node_endpoints: Vec<NodeEndpoint> [16..] tag 0;
    }

    FetchableTopicResponse {
        topic: Text [0..=12];
        topic_id: TopicId [13..];
        partitions: Vec<PartitionData> [0..];
    }

    PartitionData {
        partition_index: i32 [0..];
        error_code: i16 [0..];
        high_watermark: i64 [0..];
        last_stable_offset: i64 [4..] = -1;
        log_start_offset: i64 [5..] = -1;
        diverging_epoch: EpochEndOffset [12..] tag 0;
        current_leader: LeaderIdAndEpoch [12..] tag 1;
        snapshot_id: SnapshotId [12..] tag 2;
        aborted_transactions: Option<Vec<AbortedTransaction>> [4..];
        preferred_read_replica: i32 [11..] = -1;
        records: Option<Records> [0..];
    }

    EpochEndOffset {
        epoch: i32 [12..] = -1;
        end_offset: i64 [12..] = -1;
    }

    LeaderIdAndEpoch {
        leader_id: i32 [12..] = -1;
        leader_epoch: i32 [12..] = -1;
    }

    SnapshotId {
        end_offset: i64 [0..] = -1;
        epoch: i32 [0..] = -1;
    }

    AbortedTransaction {
        producer_id: i64 [4..];
        first_offset: i64 [4..];
    }

    NodeEndpoint {
        node_id: i32 [16..];
        host: Text [16..];
        port: i32 [16..];
        rack: Option<Text> [16..];
    }
}
