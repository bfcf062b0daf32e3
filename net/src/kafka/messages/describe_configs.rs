//! The configuration of topics and brokers.

use super::structs;
use crate::wire::Text;

structs! {
    DescribeConfigsRequest {
        resources: Vec<DescribeConfigsResource> [0..];
        include_synonyms: bool [1..];
        include_documentation: bool [3..];
    }

    DescribeConfigsResource {
        resource_type: i8 [0..];
        resource_name: Text [0..];
        configuration_keys: Option<Vec<Text>> [0..];
    }

    DescribeConfigsResponse {
        throttle_time_ms: i32 [0..];
        results: Vec<DescribeConfigsResult> [0..];
    }

    DescribeConfigsResult {
        error_code: i16 [0..];
        error_message: Option<Text> [0..];
        resource_type: i8 [0..];
        resource_name: Text [0..];
        configs: Vec<DescribeConfigsResourceResult> [0..];
    }

    DescribeConfigsResourceResult {
        name: Text [0..];
        value: Option<Text> [0..];
        read_only: bool [0..];
        config_source: i8 [1..] = -1;
        is_sensitive: bool [0..];
        synonyms: Vec<DescribeConfigsSynonym> [1..];
        config_type: i8 [3..];
        documentation: Option<Text> [3..];
    }

    DescribeConfigsSynonym {
        name: Text [1..];
        value: Option<Text> [1..];
        source: i8 [1..];
    }
}
