//! DescribeCluster: the nodes and who controls them. KIP-700.

use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::describe_cluster::DescribeClusterBroker;
use quorate_net::kafka::messages::{DescribeClusterRequest, DescribeClusterResponse};
use quorate_net::wire::Text;

use super::metadata::CLUSTER_OPERATIONS;
use crate::node::Node;

/// The kind of endpoint that clients ask for; 2 would be controllers.
const BROKERS: i8 = 1;

pub(crate) fn describe_cluster(
    node: &Node,
    request: &DescribeClusterRequest,
) -> DescribeClusterResponse {
    if request.endpoint_type != BROKERS {
        return DescribeClusterResponse {
            error_code: Code::MismatchedEndpointType.code(),
            error_message: Some("this listener is the brokers'".into()),
            endpoint_type: request.endpoint_type,
            ..DescribeClusterResponse::default()
        };
    }
    let state = node.catalog.read();
    let brokers = state.image.nodes().map(|node| DescribeClusterBroker {
        broker_id: node.id.0,
        host: node.address.host.as_str().into(),
        port: i32::from(node.address.port),
        rack: node.rack.as_deref().map(Text::from),
        is_fenced: false,
    });
    DescribeClusterResponse {
        cluster_id: node.cluster.as_str().into(),
        controller_id: node.id.0,
        brokers: brokers.collect(),
        cluster_authorized_operations: if request.include_cluster_authorized_operations {
            CLUSTER_OPERATIONS
        } else {
            i32::MIN
        },
        ..DescribeClusterResponse::default()
    }
}
