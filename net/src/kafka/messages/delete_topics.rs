//! Delete topics by name, or by id from version 6 on.

use quorate_core::id::TopicId;

use super::structs;
use crate::wire::Text;

structs! {
    DeleteTopicsRequest {
        topics: Vec<DeleteTopicState> [6..];
        topic_names: Vec<Text> [0..=5];
        timeout_ms: i32 [0..];
    }

    DeleteTopicState {
        /// `None` when the topic goes by id.
        name: Option<Text> [6..];
        topic_id: TopicId [6..];
    }

    DeleteTopicsResponse {
        throttle_time_ms: i32 [1..];
        responses: Vec<DeletableTopicResult> [0..];
    }

    DeletableTopicResult {
        /// `None` when the id is unknown, or names may not be told.
        name: Option<Text> [0..] null [6..];
        topic_id: TopicId [6..];
        error_code: i16 [0..];
        error_message: Option<Text> [5..];
    }
}
