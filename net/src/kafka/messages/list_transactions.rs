//! The transactional ids that a node coordinates. KIP-664; how long they are open KIP-994, a
//! pattern of names KIP-1152.

use super::structs;
use crate::wire::Text;

structs! {
    ListTransactionsRequest {
        /// Empty for all.
        state_filters: Vec<Text> [0..];
        /// Empty for all.
        producer_id_filters: Vec<i64> [0..];
        /// Only those that have been open for longer; below 0 for all.
        duration_filter: i64 [1..] = -1;
        /// A regular expression for the whole id; null or empty for all.
        transactional_id_pattern: Option<Text> [2..];
    }

    ListTransactionsResponse {
        throttle_time_ms: i32 [0..];
        error_code: i16 [0..];
        /// Those asked for that are no names of states.
        unknown_state_filters: Vec<Text> [0..];
        transaction_states: Vec<TransactionState> [0..];
    }

    TransactionState {
        transactional_id: Text [0..];
        producer_id: i64 [0..];
        transaction_state: Text [0..];
    }
}
