//! DescribeCluster: the nodes and who controls them. KIP-700.

use quorate_core::id::NodeId;
use quorate_core::metadata;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::describe_cluster::DescribeClusterBroker;
use quorate_net::kafka::messages::{DescribeClusterRequest, DescribeClusterResponse};
use quorate_net::wire::Text;

use super::metadata::CLUSTER_OPERATIONS;
use crate::catalog::State;
use crate::node::Node;

/// The kinds of endpoints that clients may ask for.
const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

/// Nodes that clients may turn to, ascending by id.
pub(super) fn live(state: &State) -> impl Iterator<Item = &metadata::Node> {
    state.image.nodes().filter(|node| node.is_live())
}

pub(super) fn is_live(state: &State, node: NodeId) -> bool {
    state.image.node(node).is_some_and(metadata::Node::is_live)
}

/// Where clients send what only the controller decides: to the controller if they can reach it;
/// otherwise any node will do, since it passes that on.
pub(super) fn controller_id(node: &Node, state: &State) -> i32 {
    let controller = node.quorum.state().leader(node.id);
    controller.filter(|leader| is_live(state, *leader)).unwrap_or(node.id).0
}

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
    let fenced = request.include_fenced_brokers;
    let nodes = state.image.nodes().filter(|node| node.is_live() || (fenced && node.roles.broker));
    let brokers = nodes.map(|node| DescribeClusterBroker {
        broker_id: node.id.0,
        host: node.address.host.as_str().into(),
        port: i32::from(node.address.port),
        rack: node.rack.as_deref().map(Text::from),
        is_fenced: node.fenced,
    });
    DescribeClusterResponse {
        cluster_id: node.cluster().into(),
        controller_id: controller_id(node, &state),
        brokers: brokers.collect(),
        cluster_authorized_operations: if request.include_cluster_authorized_operations {
            CLUSTER_OPERATIONS
        } else {
            i32::MIN
        },
        ..DescribeClusterResponse::default()
    }
}
