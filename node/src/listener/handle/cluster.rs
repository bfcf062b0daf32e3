//! DescribeCluster: the nodes and who controls them. KIP-700.

use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::describe_cluster::DescribeClusterBroker;
use quorate_net::kafka::messages::{DescribeClusterRequest, DescribeClusterResponse};
use quorate_net::wire::Text;

use super::metadata::CLUSTER_OPERATIONS;
use crate::node::Node;

/// The kinds of endpoints that clients may ask for.
const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

pub(crate) fn describe_cluster(
    node: &Node,
    request: &DescribeClusterRequest,
) -> DescribeClusterResponse {
    let (code, why) = match request.endpoint_type {
        BROKERS => (Code::None, None),
        CONTROLLERS => (Code::MismatchedEndpointType, Some("this listener is the brokers'")),
        _ => (Code::UnsupportedEndpointType, Some("there is no such kind of endpoint")),
    };
    if why.is_some() {
        return DescribeClusterResponse {
            error_code: code.code(),
            error_message: why.map(Text::from),
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
