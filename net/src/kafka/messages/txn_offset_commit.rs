//! Store a group's offsets as part of a transaction: they count once it is committed. KIP-98; the
//! consumer's place in its group since KIP-447. From version 5 on the group's coordinator itself
//! adds the offsets to the transaction. KIP-890.

use super::structs;
use crate::wire::Text;

structs! {
    TxnOffsetCommitRequest {
        transactional_id: Text [0..];
        group_id: Text [0..];
        producer_id: i64 [0..];
        producer_epoch: i16 [0..];
        /// −1 where the group is not to be asked; the member epoch in a group of KIP-848.
        generation_id: i32 [3..] = -1;
        member_id: Text [3..];
        group_instance_id: Option<Text> [3..];
        topics: Vec<TxnOffsetCommitRequestTopic> [0..];
    }

    TxnOffsetCommitRequestTopic {
        name: Text [0..];
        partitions: Vec<TxnOffsetCommitRequestPartition> [0..];
    }

    TxnOffsetCommitRequestPartition {
        partition_index: i32 [0..];
        /// The next record to read.
        committed_offset: i64 [0..];
        committed_leader_epoch: i32 [2..] = -1;
        committed_metadata: Option<Text> [0..];
    }

    TxnOffsetCommitResponse {
        throttle_time_ms: i32 [0..];
        topics: Vec<TxnOffsetCommitResponseTopic> [0..];
    }

    TxnOffsetCommitResponseTopic {
        name: Text [0..];
        partitions: Vec<TxnOffsetCommitResponsePartition> [0..];
    }

    TxnOffsetCommitResponsePartition {
        partition_index: i32 [0..];
        error_code: i16 [0..];
    }
}
