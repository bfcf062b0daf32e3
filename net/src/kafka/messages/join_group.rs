//! Join a group, or rejoin it in a rebalance; the classic protocol.

use bytes::Bytes;

use super::structs;
use crate::wire::Text;

structs! {
    JoinGroupRequest {
        group_id: Text [0..];
        /// A member that is silent for so long is removed.
        session_timeout_ms: i32 [0..];
        /// How long members have to rejoin; −1 in version 0, where the session timeout stands for
        /// it.
        rebalance_timeout_ms: i32 [1..] = -1;
        /// Empty at the first time; from version 4 on the answer is then MEMBER_ID_REQUIRED.
        member_id: Text [0..];
        /// A static member's name. KIP-345.
        group_instance_id: Option<Text> [5..];
        /// `consumer` for consumers.
        protocol_type: Text [0..];
        /// Assignors in the order of preference, each with the subscription.
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
        /// The member that assigns.
        leader: Text [0..];
        /// The leader returned as a static member and must not assign anew. KIP-814.
        skip_assignment: bool [9..];
        member_id: Text [0..];
        /// For the leader; empty for everybody else.
        members: Vec<JoinGroupResponseMember> [0..];
    }

    JoinGroupResponseMember {
        member_id: Text [0..];
        group_instance_id: Option<Text> [5..];
        metadata: Bytes [0..];
    }
}
