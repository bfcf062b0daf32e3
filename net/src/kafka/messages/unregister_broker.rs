//! Forget a node that is gone for good. KIP-631.

use super::structs;
use crate::wire::Text;

structs! {
    UnregisterBrokerRequest {
        broker_id: i32 [0..];
    }

    UnregisterBrokerResponse {
        throttle_time_ms: i32 [0..];
        error_code: i16 [0..];
        error_message: Option<Text> [0..];
    }
}
