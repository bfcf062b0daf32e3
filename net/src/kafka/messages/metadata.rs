//! Who the brokers are, which topics exist, and who leads their partitions.

use quorate_core::id::TopicId;

use super::structs;
use crate::wire::Text;

structs! {
    MetadataRequest {
        topics: Option<Vec<MetadataRequestTopic>> [0..] null [1..];
        allow_auto_topic_creation: bool [4..] = true;
        include_cluster_authorized_operations: bool [8..=10];
        include_topic_authorized_operations: bool [8..];
    }

    MetadataRequestTopic {
        topic_id: TopicId [10..];
        name: Option<Text> [0..] null [10..];
    }

    MetadataResponse {
        throttle_time_ms: i32 [3..];
        brokers: Vec<MetadataResponseBroker> [0..];
        cluster_id: Option<Text> [2..];
        controller_id: i32 [1..] = -1;
        topics: Vec<MetadataResponseTopic> [0..];
        cluster_authorized_operations: i32 [8..=10] = i32::MIN;
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
        name: Option<Text> [0..] null [12..];
        topic_id: TopicId [10..];
        is_internal: bool [1..];
        partitions: Vec<MetadataResponsePartition> [0..];
        topic_authorized_operations: i32 [8..] = i32::MIN;
    }

    MetadataResponsePartition {
        error_code: i16 [0..];
        partition_index: i32 [0..];
        leader_id: i32 [0..];
        leader_epoch: i32 [7..] = -1;
        replica_nodes: Vec<i32> [0..];
        isr_nodes: Vec<i32> [0..];
        offline_replicas: Vec<i32> [5..];
    }
}
