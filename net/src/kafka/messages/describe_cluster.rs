//! The cluster's id, controller and nodes. KIP-700.

use super::structs;
use crate::wire::Text;

structs! {
    DescribeClusterRequest {
        include_cluster_authorized_operations: bool [0..];
        /// 1 brokers, 2 controllers.
        endpoint_type: i8 [1..] = 1;
        include_fenced_brokers: bool [2..];
    }

    DescribeClusterResponse {
        throttle_time_ms: i32 [0..];
        error_code: i16 [0..];
        error_message: Option<Text> [0..];
        endpoint_type: i8 [1..] = 1;
        cluster_id: Text [0..];
        controller_id: i32 [0..] = -1;
        brokers: Vec<DescribeClusterBroker> [0..];
        cluster_authorized_operations: i32 [0..] = i32::MIN;
    }

    DescribeClusterBroker {
        broker_id: i32 [0..];
        host: Text [0..];
        port: i32 [0..];
        rack: Option<Text> [0..];
        is_fenced: bool [2..];
    }
}
