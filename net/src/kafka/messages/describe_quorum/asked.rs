//! The request of DescribeQuorum: its structs have the names of those in the answer.

use super::super::structs;
use crate::wire::Text;

structs! {
    DescribeQuorumRequest {
        /// Partition 0 of `__cluster_metadata`, and nothing else.
        topics: Vec<TopicData> [0..];
    }

    TopicData {
        topic_name: Text [0..];
        partitions: Vec<PartitionData> [0..];
    }

    PartitionData {
        partition_index: i32 [0..];
    }
}
