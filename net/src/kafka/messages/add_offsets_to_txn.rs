//! Add a group's offsets to a transaction, before they are sent to the group's coordinator. KIP-98.

use super::structs;
use crate::wire::Text;

structs! {
    AddOffsetsToTxnRequest {
        transactional_id: Text [0..];
        producer_id: i64 [0..];
        producer_epoch: i16 [0..];
        group_id: Text [0..];
    }

    AddOffsetsToTxnResponse {
        throttle_time_ms: i32 [0..];
        error_code: i16 [0..];
    }
}
