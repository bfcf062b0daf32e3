//! Members leave a classic group; several at once from version 3 on. KIP-345.

use super::structs;
use crate::wire::Text;

structs! {
    LeaveGroupRequest {
        group_id: Text [0..];
        member_id: Text [0..=2];
        members: Vec<MemberIdentity> [3..];
    }

    MemberIdentity {
        /// Empty when a static member is removed by its instance id.
        member_id: Text [3..];
        group_instance_id: Option<Text> [3..];
        reason: Option<Text> [5..];
    }

    LeaveGroupResponse {
        throttle_time_ms: i32 [1..];
        error_code: i16 [0..];
        members: Vec<MemberResponse> [3..];
    }

    MemberResponse {
        member_id: Text [3..];
        group_instance_id: Option<Text> [3..];
        error_code: i16 [3..];
    }
}
