//! Move partitions to other nodes, or take such moves back. KIP-455.

use super::structs;
use crate::wire::Text;

structs! {
    AlterPartitionReassignmentsRequest {
        timeout_ms: i32 [0..] = 60_000;
        /// Whether a partition may get more or fewer replicas than it has. KIP-860.
        allow_replication_factor_change: bool [1..] = true;
        topics: Vec<ReassignableTopic> [0..];
    }

    ReassignableTopic {
        name: Text [0..];
        partitions: Vec<ReassignablePartition> [0..];
    }

    ReassignablePartition {
        partition_index: i32 [0..];
        /// The preferred leader first; `None` takes a running move back.
        replicas: Option<Vec<i32>> [0..];
    }

    AlterPartitionReassignmentsResponse {
        throttle_time_ms: i32 [0..];
        /// As asked.
        allow_replication_factor_change: bool [1..] = true;
        error_code: i16 [0..];
        error_message: Option<Text> [0..];
        responses: Vec<ReassignableTopicResponse> [0..];
    }

    ReassignableTopicResponse {
        name: Text [0..];
        partitions: Vec<ReassignablePartitionResponse> [0..];
    }

    ReassignablePartitionResponse {
        partition_index: i32 [0..];
        error_code: i16 [0..];
        error_message: Option<Text> [0..];
    }
}
