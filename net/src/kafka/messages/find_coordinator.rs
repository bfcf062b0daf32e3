//! Which node coordinates a group or a transactional id.

use super::structs;
use crate::wire::Text;

structs! {
    FindCoordinatorRequest {
        /// A group's id, or a transactional id.
        key: Text [0..=3];
        /// 0 group, 1 transaction, 2 share group's state.
        key_type: i8 [1..];
        /// Several at once. KIP-699.
        coordinator_keys: Vec<Text> [4..];
    }

    FindCoordinatorResponse {
        throttle_time_ms: i32 [1..];
        error_code: i16 [0..=3];
        error_message: Option<Text> [1..=3];
        node_id: i32 [0..=3];
        host: Text [0..=3];
        port: i32 [0..=3];
        coordinators: Vec<Coordinator> [4..];
    }

    Coordinator {
        key: Text [4..];
        node_id: i32 [4..];
        host: Text [4..];
        port: i32 [4..];
        error_code: i16 [4..];
        error_message: Option<Text> [4..];
    }
}
