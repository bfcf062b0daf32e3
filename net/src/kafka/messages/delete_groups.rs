//! Delete empty groups with their offsets.

use super::structs;
use crate::wire::Text;

structs! {
    DeleteGroupsRequest {
        groups_names: Vec<Text> [0..];
    }

    DeleteGroupsResponse {
        throttle_time_ms: i32 [0..];
        results: Vec<DeletableGroupResult> [0..];
    }

    DeletableGroupResult {
        group_id: Text [0..];
        error_code: i16 [0..];
        error_message: Option<Text> [3..];
    }
}
