//! Read record batches from partitions, waiting for them when there are too few; KIP-74, fetch
//! sessions of KIP-227, topic ids of KIP-516.

use quorate_core::id::TopicId;

use super::structs;
use crate::wire::{Records, Text};

structs! {
    FetchRequest {
        /// Sent by controllers only.
        cluster_id: Option<Text> [12..] tag 0;
        /// −1 for consumers; a follower's node id.
        replica_id: i32 [0..=14] = -1;
        replica_state: ReplicaState [15..] tag 1;
        /// How long to wait for `min_bytes` to be there.
        max_wait_ms: i32 [0..];
        /// Over all partitions together.
        min_bytes: i32 [0..];
        /// Over all partitions together; the first batch found is returned even if it is larger.
        max_bytes: i32 [3..] = i32::MAX;
        /// 0 reads up to the high watermark, 1 up to the last stable offset.
        isolation_level: i8 [4..];
        /// 0 for none, or to open one. KIP-227.
        session_id: i32 [7..];
        /// 0 opens a session, −1 closes it or does without one, others count up.
        session_epoch: i32 [7..] = -1;
        /// In a running session: what is added or changed.
        topics: Vec<FetchTopic> [0..];
        /// In a running session: what is no longer wanted.
        forgotten_topics_data: Vec<ForgottenTopic> [7..];
        /// Where the consumer is, for reads from a near follower. KIP-392.
        rack_id: Text [11..];
    }

    ReplicaState {
        replica_id: i32 [15..] = -1;
        replica_epoch: i64 [15..] = -1;
    }

    FetchTopic {
        /// Empty from version 13 on, which names topics by id.
        topic: Text [0..=12];
        topic_id: TopicId [13..];
        partitions: Vec<FetchPartition> [0..];
    }

    FetchPartition {
        partition: i32 [0..];
        /// The leader epoch that the reader believes in; −1 to skip the check. KIP-320.
        current_leader_epoch: i32 [9..] = -1;
        fetch_offset: i64 [0..];
        /// Of the last record the reader has, to notice a divergence; −1 for none.
        last_fetched_epoch: i32 [12..] = -1;
        /// Of a follower's log; −1 from consumers.
        log_start_offset: i64 [5..] = -1;
        /// The first batch is returned even if it is larger.
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
        /// Of the fetch session.
        error_code: i16 [7..];
        session_id: i32 [7..];
        /// In a running session: only partitions with news.
        responses: Vec<FetchableTopicResponse> [0..];
        /// Where the leaders named in `current_leader` are reached. KIP-951.
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
        /// −1 with an error.
        high_watermark: i64 [0..];
        /// Below it every transaction has ended.
        last_stable_offset: i64 [4..] = -1;
        log_start_offset: i64 [5..] = -1;
        /// Where the reader's log stops being the leader's; default when it does not.
        diverging_epoch: EpochEndOffset [12..] tag 0;
        /// With a leader's error: who leads instead.
        current_leader: LeaderIdAndEpoch [12..] tag 1;
        snapshot_id: SnapshotId [12..] tag 2;
        /// For readers of committed records; `None` for others.
        aborted_transactions: Option<Vec<AbortedTransaction>> [4..];
        /// The node to read from instead; −1 for this one, and then only with no records.
        preferred_read_replica: i32 [11..] = -1;
        /// Whole batches; the first may begin before the offset asked for. Never null in practice:
        /// clients expect empty.
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
