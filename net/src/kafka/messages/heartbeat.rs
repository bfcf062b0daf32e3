//! A member of a classic group is alive.

use super::structs;
use crate::wire::Text;

structs! {
    HeartbeatRequest {
        group_id: Text [0..];
        generation_id: i32 [0..];
        member_id: Text [0..];
        group_instance_id: Option<Text> [3..];
    }

    HeartbeatResponse {
        throttle_time_ms: i32 [1..];
        error_code: i16 [0..];
    }
}
