//! Add partitions to topics.

use super::structs;
use crate::wire::Text;

structs! {
    CreatePartitionsRequest {
        topics: Vec<CreatePartitionsTopic> [0..];
        timeout_ms: i32 [0..];
        validate_only: bool [0..];
    }

    CreatePartitionsTopic {
        name: Text [0..];
        /// How many there shall be in all.
        count: i32 [0..];
        /// Of the new ones, in order; `None` leaves it to the controller.
        assignments: Option<Vec<CreatePartitionsAssignment>> [0..];
    }

    CreatePartitionsAssignment {
        broker_ids: Vec<i32> [0..];
    }

    CreatePartitionsResponse {
        throttle_time_ms: i32 [0..];
        results: Vec<CreatePartitionsTopicResult> [0..];
    }

    CreatePartitionsTopicResult {
        name: Text [0..];
        error_code: i16 [0..];
        error_message: Option<Text> [0..];
    }
}
