//! Join a group, or rejoin it in a rebalance; the classic protocol.

use bytes::Bytes;

use super::structs;
use crate::wire::Text;

structs! {
    JoinGroupRequest {
        group_id: Text [0..];
        session_timeout_ms: i32 [0..];
        rebalance_timeout_ms: i32 [1..] = -1;
        member_id: Text [0..];
        group_instance_id: Option<Text> [5..];
        protocol_type: Text [0..];
        protocols: Vec<JoinGroupRequestProtocol> [0..];
        reason: Option<Text> [8..];
    }

    JoinGroupRequestProtocol {
        name: Text [0..];
        metadata: Bytes [0..];
    }

    JoinGroupResponse {
        throttle_time_ms: i32 [2..];
        error_code: i16 [0..];
        generation_id: i32 [0..] = -1;
        protocol_type: Option<Text> [7..];
        protocol_name: Option<Text> [0..] null [7..];
        leader: Text [0..];
        skip_assignment: bool [9..];
        member_id: Text [0..];
        members: Vec<JoinGroupResponseMember> [0..];
    }

    JoinGroupResponseMember {
        member_id: Text [0..];
        group_instance_id: Option<Text> [5..];
        metadata: Bytes [0..];
    }
}
