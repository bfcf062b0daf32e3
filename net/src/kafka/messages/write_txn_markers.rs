//! Write into partitions that a producer's transaction has ended, and how: what the coordinator
//! tells the partitions' leaders, and an administrator who ends a hanging transaction. KIP-98,
//! KIP-664.

use super::structs;
use crate::wire::Text;

structs! {
    WriteTxnMarkersRequest {
        markers: Vec<WritableTxnMarker> [1..];
    }

    WritableTxnMarker {
        producer_id: i64 [1..];
        producer_epoch: i16 [1..];
        /// Whether it was committed; else it was aborted.
        transaction_result: bool [1..];
        topics: Vec<WritableTxnMarkerTopic> [1..];
        /// Of the partition of the transactions' log that keeps this transaction.
        coordinator_epoch: i32 [1..];
        /// By which protocol it ended: from 2 on the epoch was raised for the marker. KIP-1228.
        transaction_version: i8 [2..];
    }

    WritableTxnMarkerTopic {
        name: Text [1..];
        partition_indexes: Vec<i32> [1..];
    }

    WriteTxnMarkersResponse {
        markers: Vec<WritableTxnMarkerResult> [1..];
    }

    WritableTxnMarkerResult {
        producer_id: i64 [1..];
        topics: Vec<WritableTxnMarkerTopicResult> [1..];
    }

    WritableTxnMarkerTopicResult {
        name: Text [1..];
        partitions: Vec<WritableTxnMarkerPartitionResult> [1..];
    }

    WritableTxnMarkerPartitionResult {
        partition_index: i32 [1..];
        error_code: i16 [1..];
    }
}
