//! One voter less in the metadata quorum. KIP-853.

use super::structs;
use crate::wire::Text;

structs! {
    RemoveRaftVoterRequest {
        /// `None` does not ask which cluster this is.
        cluster_id: Option<Text> [0..];
        voter_id: i32 [0..];
        voter_directory_id: [u8; 16] [0..];
    }

    RemoveRaftVoterResponse {
        throttle_time_ms: i32 [0..];
        error_code: i16 [0..];
        error_message: Option<Text> [0..];
    }
}
