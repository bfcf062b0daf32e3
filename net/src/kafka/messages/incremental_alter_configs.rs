//! Change single entries of the configuration of topics and brokers. KIP-339.

use super::structs;
use crate::wire::Text;

structs! {
    IncrementalAlterConfigsRequest {
        resources: Vec<AlterConfigsResource> [0..];
        /// Say what would happen, and do nothing.
        validate_only: bool [0..];
    }

    AlterConfigsResource {
        /// 2 topic, 4 broker, 8 broker logger.
        resource_type: i8 [0..];
        resource_name: Text [0..];
        configs: Vec<AlterableConfig> [0..];
    }

    AlterableConfig {
        name: Text [0..];
        /// 0 set, 1 delete, 2 append to a list, 3 subtract from it.
        config_operation: i8 [0..];
        value: Option<Text> [0..];
    }

    IncrementalAlterConfigsResponse {
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
