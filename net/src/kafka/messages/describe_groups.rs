//! State and members of classic groups.

use bytes::Bytes;

use super::structs;
use crate::wire::Text;

structs! {
    DescribeGroupsRequest {
        groups: Vec<Text> [0..];
        include_authorized_operations: bool [3..];
    }

    DescribeGroupsResponse {
        throttle_time_ms: i32 [1..];
        groups: Vec<DescribedGroup> [0..];
    }

    DescribedGroup {
        error_code: i16 [0..];
        error_message: Option<Text> [6..];
        group_id: Text [0..];
        /// Kafka's name of it; `Dead` where there is no such group.
        group_state: Text [0..];
        protocol_type: Text [0..];
        /// The assignor that was chosen.
        protocol_data: Text [0..];
        members: Vec<DescribedGroupMember> [0..];
        /// A bit an operation; the default when not asked for.
        authorized_operations: i32 [3..] = i32::MIN;
    }

    DescribedGroupMember {
        member_id: Text [0..];
        group_instance_id: Option<Text> [4..];
        client_id: Text [0..];
        client_host: Text [0..];
        member_metadata: Bytes [0..];
        member_assignment: Bytes [0..];
    }
}
