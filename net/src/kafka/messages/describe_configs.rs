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
        /// 2 topic, 4 broker, 8 broker logger.
        resource_type: i8 [0..];
        /// A topic's name, or a node's id in decimal; empty for the default of all nodes.
        resource_name: Text [0..];
        /// `None` for all.
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
        /// `None` when it is sensitive.
        value: Option<Text> [0..];
        read_only: bool [0..];
        /// Where the value comes from: 1 topic, 2 node, 3 default of all nodes, 4 start of the
        /// node, 5 built in.
        config_source: i8 [1..] = -1;
        is_sensitive: bool [0..];
        /// All places that give a value, the one that counts first.
        synonyms: Vec<DescribeConfigsSynonym> [1..];
        /// 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password.
        config_type: i8 [3..];
        documentation: Option<Text> [3..];
    }

    DescribeConfigsSynonym {
        name: Text [1..];
        value: Option<Text> [1..];
        source: i8 [1..];
    }
}
