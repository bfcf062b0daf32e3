//! The heartbeat of a consumer group's member, by which it also joins, reconciles and leaves.
//! KIP-848.

use quorate_core::id::TopicId;

use super::structs;
use crate::wire::Text;

structs! {
    ConsumerGroupHeartbeatRequest {
        group_id: Text [0..];
        /// Made by the member itself from version 1 on; before, empty at the first time.
        member_id: Text [0..];
        /// 0 to join, −1 to leave, −2 to leave for a while (static members).
        member_epoch: i32 [0..];
        /// A static member's name. KIP-345.
        instance_id: Option<Text> [0..];
        rack_id: Option<Text> [0..];
        /// How long the member may take to give partitions up; −1 where it has not changed.
        rebalance_timeout_ms: i32 [0..] = -1;
        /// `None` where they have not changed.
        subscribed_topic_names: Option<Vec<Text>> [0..];
        /// `None` where it has not changed.
        subscribed_topic_regex: Option<Text> [1..];
        /// `None` where it has not changed.
        server_assignor: Option<Text> [0..];
        /// What the member has; `None` where it has not changed.
        topic_partitions: Option<Vec<TopicPartitions>> [0..];
    }

    ConsumerGroupHeartbeatResponse {
        throttle_time_ms: i32 [0..];
        error_code: i16 [0..];
        error_message: Option<Text> [0..];
        member_id: Option<Text> [0..];
        member_epoch: i32 [0..];
        /// When the member is to be heard next.
        heartbeat_interval_ms: i32 [0..];
        /// `None` where it has not changed.
        assignment: Option<Assignment> [0..];
    }

    Assignment {
        topic_partitions: Vec<TopicPartitions> [0..];
    }

    TopicPartitions {
        topic_id: TopicId [0..];
        partitions: Vec<i32> [0..];
    }
}
