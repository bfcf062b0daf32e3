//! Elect leaders anew: the preferred ones, or whoever is there. KIP-460.

use super::structs;
use crate::wire::Text;

structs! {
    ElectLeadersRequest {
        /// 0 the preferred one; 1 any replica, where there is no leader: records may be lost.
        election_type: i8 [1..];
        /// `None` for all partitions.
        topic_partitions: Option<Vec<TopicPartitions>> [0..];
        timeout_ms: i32 [0..] = 60_000;
    }

    TopicPartitions {
        topic: Text [0..];
        partitions: Vec<i32> [0..];
    }

    ElectLeadersResponse {
        throttle_time_ms: i32 [0..];
        error_code: i16 [1..];
        replica_election_results: Vec<ReplicaElectionResult> [0..];
    }

    ReplicaElectionResult {
        topic: Text [0..];
        partition_result: Vec<PartitionResult> [0..];
    }

    PartitionResult {
        partition_id: i32 [0..];
        error_code: i16 [0..];
        error_message: Option<Text> [0..];
    }
}
