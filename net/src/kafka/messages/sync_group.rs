//! The leader's assignment to the group, and each member's part of it; the classic protocol.

use bytes::Bytes;

use super::structs;
use crate::wire::Text;

structs! {
    SyncGroupRequest {
        group_id: Text [0..];
        generation_id: i32 [0..];
        member_id: Text [0..];
        group_instance_id: Option<Text> [3..];
        protocol_type: Option<Text> [5..];
        protocol_name: Option<Text> [5..];
        /// From the leader; empty from everybody else.
        assignments: Vec<SyncGroupRequestAssignment> [0..];
    }

    SyncGroupRequestAssignment {
        member_id: Text [0..];
        assignment: Bytes [0..];
    }

    SyncGroupResponse {
        throttle_time_ms: i32 [1..];
        error_code: i16 [0..];
        protocol_type: Option<Text> [5..];
        protocol_name: Option<Text> [5..];
        assignment: Bytes [0..];
    }
}
