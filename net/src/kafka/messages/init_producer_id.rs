//! An id and epoch for an idempotent or transactional producer. KIP-98.

use super::structs;
use crate::wire::Text;

structs! {
    InitProducerIdRequest {
        /// `None` for a producer that is idempotent only.
        transactional_id: Option<Text> [0..];
        transaction_timeout_ms: i32 [0..];
        /// The one it has, to get a higher epoch (KIP-360); −1 for a new one.
        producer_id: i64 [3..] = -1;
        producer_epoch: i16 [3..] = -1;
    }

    InitProducerIdResponse {
        throttle_time_ms: i32 [0..];
        error_code: i16 [0..];
        producer_id: i64 [0..] = -1;
        producer_epoch: i16 [0..];
    }
}
