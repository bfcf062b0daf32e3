//! Consumer groups with their members and what each has. KIP-848.

use quorate_core::id::TopicId;

use super::structs;
use crate::wire::Text;

structs! {
    ConsumerGroupDescribeRequest {
        group_ids: Vec<Text> [0..];
        include_authorized_operations: bool [0..];
    }

    ConsumerGroupDescribeResponse {
        throttle_time_ms: i32 [0..];
        groups: Vec<DescribedGroup> [0..];
    }

    DescribedGroup {
        error_code: i16 [0..];
        error_message: Option<Text> [0..];
        group_id: Text [0..];
        group_state: Text [0..];
        group_epoch: i32 [0..];
        /// The epoch for which targets were last computed.
        assignment_epoch: i32 [0..];
        assignor_name: Text [0..];
        members: Vec<Member> [0..];
        /// `i32::MIN` where it was not asked for.
        authorized_operations: i32 [0..] = i32::MIN;
    }

    Member {
        member_id: Text [0..];
        instance_id: Option<Text> [0..];
        rack_id: Option<Text> [0..];
        member_epoch: i32 [0..];
        client_id: Text [0..];
        client_host: Text [0..];
        subscribed_topic_names: Vec<Text> [0..];
        subscribed_topic_regex: Option<Text> [0..];
        assignment: Assignment [0..];
        target_assignment: Assignment [0..];
        /// 0 for one of the classic protocol, 1 for one of the consumer protocol, −1 unknown.
        member_type: i8 [1..] = -1;
    }

    Assignment {
        topic_partitions: Vec<TopicPartitions> [0..];
    }

    TopicPartitions {
        topic_id: TopicId [0..];
        topic_name: Text [0..];
        partitions: Vec<i32> [0..];
    }
}
