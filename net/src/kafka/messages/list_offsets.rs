//! The offset for a timestamp, or for one of Kafka's special times: −1 latest, −2 earliest, −3
//! largest timestamp, −4 earliest local, −5 latest tiered.
//!
//! Tag 10000 is Quorate's own, and other brokers and clients leave it alone: what readers at some
//! offsets have before them. docs/decisions/0123.

use super::structs;
use crate::wire::Text;

structs! {
    ListOffsetsRequest {
        /// −1 for consumers.
        replica_id: i32 [0..];
        /// Whether "latest" is the high watermark (0) or the last stable offset (1).
        isolation_level: i8 [2..];
        topics: Vec<ListOffsetsTopic> [0..];
        /// How long a search in tiered storage may take.
        timeout_ms: i32 [10..];
    }

    ListOffsetsTopic {
        name: Text [0..];
        partitions: Vec<ListOffsetsPartition> [0..];
    }

    ListOffsetsPartition {
        partition_index: i32 [0..];
        current_leader_epoch: i32 [4..] = -1;
        /// Milliseconds, or one of the special times.
        timestamp: i64 [0..];
        /// Offsets of readers, each once; with timestamp −1 only.
        unread_from: Vec<i64> [11..] tag 10000;
    }

    ListOffsetsResponse {
        throttle_time_ms: i32 [2..];
        topics: Vec<ListOffsetsTopicResponse> [0..];
    }

    ListOffsetsTopicResponse {
        name: Text [0..];
        partitions: Vec<ListOffsetsPartitionResponse> [0..];
    }

    ListOffsetsPartitionResponse {
        partition_index: i32 [0..];
        error_code: i16 [0..];
        /// Of the record found; −1 for none and for special times.
        timestamp: i64 [1..] = -1;
        /// Of the first record at or after the timestamp; −1 for none.
        offset: i64 [1..] = -1;
        leader_epoch: i32 [4..] = -1;
        /// Of the offsets asked about, those that could be answered.
        unread: Vec<Unread> [11..] tag 10000;
    }

    Unread {
        /// As it was asked about.
        from: i64 [11..];
        /// Where the reader really is: not below the log's start.
        clamped: i64 [11..];
        /// The first record of a user from there on; −1 for none below the end.
        first: i64 [11..] = -1;
        /// Of that record; −1 for none.
        timestamp: i64 [11..] = -1;
        /// From the batch that holds `clamped` to the end, as they stand on the leader's disk.
        bytes: i64 [11..];
    }
}
