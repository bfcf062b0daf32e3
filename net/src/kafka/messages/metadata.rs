//! Who the brokers are, which topics exist, and who leads their partitions.

use quorate_core::id::TopicId;

use super::structs;
use crate::wire::Text;

structs! {
    MetadataRequest {
        /// `None` for all; in version 0, which has no null, an empty list means all.
        topics: Option<Vec<MetadataRequestTopic>> [0..] null [1..];
        allow_auto_topic_creation: bool [4..] = true;
        include_cluster_authorized_operations: bool [8..=10];
        include_topic_authorized_operations: bool [8..];
    }

    MetadataRequestTopic {
        /// `TopicId::NONE` when the topic goes by name.
        topic_id: TopicId [10..];
        name: Option<Text> [0..] null [10..];
    }

    MetadataResponse {
        throttle_time_ms: i32 [3..];
        brokers: Vec<MetadataResponseBroker> [0..];
        cluster_id: Option<Text> [2..];
        /// Where to send what only the controller decides; −1 for unknown.
        controller_id: i32 [1..] = -1;
        topics: Vec<MetadataResponseTopic> [0..];
        /// A bit an operation; the default when not asked for.
        cluster_authorized_operations: i32 [8..=10] = i32::MIN;
        /// Of the request as a whole, such as REBOOTSTRAP_REQUIRED.
        error_code: i16 [13..];
    }

    MetadataResponseBroker {
        node_id: i32 [0..];
        host: Text [0..];
        port: i32 [0..];
        rack: Option<Text> [1..];
    }

    MetadataResponseTopic {
        error_code: i16 [0..];
        /// `None` when the topic was asked for by an unknown id.
        name: Option<Text> [0..] null [12..];
        topic_id: TopicId [10..];
        is_internal: bool [1..];
        partitions: Vec<MetadataResponsePartition> [0..];
        /// A bit an operation; the default when not asked for.
        topic_authorized_operations: i32 [8..] = i32::MIN;
    }

    MetadataResponsePartition {
        error_code: i16 [0..];
        partition_index: i32 [0..];
        /// −1 for none.
        leader_id: i32 [0..];
        leader_epoch: i32 [7..] = -1;
        replica_nodes: Vec<i32> [0..];
        isr_nodes: Vec<i32> [0..];
        offline_replicas: Vec<i32> [5..];
    }
}
