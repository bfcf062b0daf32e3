//! Create topics.

use quorate_core::id::TopicId;

use super::structs;
use crate::wire::Text;

structs! {
    CreateTopicsRequest {
        topics: Vec<CreatableTopic> [0..];
        /// How long to wait until the topics are there.
        timeout_ms: i32 [0..] = 60000;
        /// Say what would happen, and do nothing.
        validate_only: bool [1..];
    }

    CreatableTopic {
        name: Text [0..];
        /// −1 for the cluster's default, or when `assignments` says it.
        num_partitions: i32 [0..];
        /// −1 for the cluster's default, or when `assignments` says it.
        replication_factor: i16 [0..];
        assignments: Vec<CreatableReplicaAssignment> [0..];
        configs: Vec<CreatableTopicConfig> [0..];
    }

    CreatableReplicaAssignment {
        partition_index: i32 [0..];
        /// The first is the preferred leader.
        broker_ids: Vec<i32> [0..];
    }

    CreatableTopicConfig {
        name: Text [0..];
        value: Option<Text> [0..];
    }

    CreateTopicsResponse {
        throttle_time_ms: i32 [2..];
        topics: Vec<CreatableTopicResult> [0..];
    }

    CreatableTopicResult {
        name: Text [0..];
        topic_id: TopicId [7..];
        error_code: i16 [0..];
        error_message: Option<Text> [1..];
        /// Why `configs` is missing.
        topic_config_error_code: i16 [5..] tag 0;
        num_partitions: i32 [5..] = -1;
        replication_factor: i16 [5..] = -1;
        configs: Option<Vec<CreatableTopicConfigs>> [5..];
    }

    CreatableTopicConfigs {
        name: Text [5..];
        value: Option<Text> [5..];
        read_only: bool [5..];
        /// As in DescribeConfigs.
        config_source: i8 [5..] = -1;
        is_sensitive: bool [5..];
    }
}
