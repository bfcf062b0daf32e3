//! Replace the whole configuration of topics and brokers; superseded by incremental changes.

use super::structs;
use crate::wire::Text;

structs! {
    AlterConfigsRequest {
        resources: Vec<AlterConfigsResource> [0..];
        /// Say what would happen, and do nothing.
        validate_only: bool [0..];
    }

    AlterConfigsResource {
        /// 2 topic, 4 broker, 8 broker logger.
        resource_type: i8 [0..];
        resource_name: Text [0..];
        /// All of it: what is not named returns to its default.
        configs: Vec<AlterableConfig> [0..];
    }

    AlterableConfig {
        name: Text [0..];
        value: Option<Text> [0..];
    }

    AlterConfigsResponse {
        throttle_time_ms: i32 [0..];
        responses: Vec<AlterConfigsResourceResponse> [0..];
    }

    AlterConfigsResourceResponse {
        error_code: i16 [0..];
        error_message: Option<Text> [0..];
        resource_type: i8 [0..];
        resource_name: Text [0..];
    }
}
