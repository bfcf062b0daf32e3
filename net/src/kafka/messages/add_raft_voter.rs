//! One voter more in the metadata quorum. KIP-853.

use super::structs;
use crate::wire::Text;

structs! {
    AddRaftVoterRequest {
        /// `None` does not ask which cluster this is.
        cluster_id: Option<Text> [0..];
        timeout_ms: i32 [0..];
        voter_id: i32 [0..];
        voter_directory_id: [u8; 16] [0..];
        /// Where it is reached.
        listeners: Vec<Listener> [0..];
    }

    Listener {
        name: Text [0..];
        host: Text [0..];
        port: u16 [0..];
    }

    AddRaftVoterResponse {
        throttle_time_ms: i32 [0..];
        error_code: i16 [0..];
        error_message: Option<Text> [0..];
    }
}
