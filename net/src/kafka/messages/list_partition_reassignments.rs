//! Which partitions are on their way to other nodes. KIP-455.

use super::structs;
use crate::wire::Text;

structs! {
    ListPartitionReassignmentsRequest {
        timeout_ms: i32 [0..] = 60_000;
        /// `None` for all.
        topics: Option<Vec<ListPartitionReassignmentsTopics>> [0..];
    }

    ListPartitionReassignmentsTopics {
        name: Text [0..];
        partition_indexes: Vec<i32> [0..];
    }

    ListPartitionReassignmentsResponse {
        throttle_time_ms: i32 [0..];
        error_code: i16 [0..];
        error_message: Option<Text> [0..];
        topics: Vec<OngoingTopicReassignment> [0..];
    }

    OngoingTopicReassignment {
        name: Text [0..];
        partitions: Vec<OngoingPartitionReassignment> [0..];
    }

    OngoingPartitionReassignment {
        partition_index: i32 [0..];
        /// All of them, those that come and those that go included.
        replicas: Vec<i32> [0..];
        adding_replicas: Vec<i32> [0..];
        removing_replicas: Vec<i32> [0..];
    }
}
