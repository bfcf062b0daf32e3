//! Commit or abort a transaction. KIP-98. From version 5 on every end raises the producer's epoch,
//! and the answer says what the next transaction goes by. KIP-890.

use super::structs;
use crate::wire::Text;

structs! {
    EndTxnRequest {
        transactional_id: Text [0..];
        producer_id: i64 [0..];
        producer_epoch: i16 [0..];
        /// Whether to commit; else to abort.
        committed: bool [0..];
    }

    EndTxnResponse {
        throttle_time_ms: i32 [0..];
        error_code: i16 [0..];
        /// −1 with an error. Another id than before once the epochs of the old one are used up.
        producer_id: i64 [5..] = -1;
        producer_epoch: i16 [5..] = -1;
    }
}
