//! The groups that a node coordinates.

use super::structs;
use crate::wire::Text;

structs! {
    ListGroupsRequest {
        /// Empty for all.
        states_filter: Vec<Text> [4..];
        /// Empty for all.
        types_filter: Vec<Text> [5..];
    }

    ListGroupsResponse {
        throttle_time_ms: i32 [1..];
        error_code: i16 [0..];
        groups: Vec<ListedGroup> [0..];
    }

    ListedGroup {
        group_id: Text [0..];
        protocol_type: Text [0..];
        group_state: Text [4..];
        group_type: Text [5..];
    }
}
