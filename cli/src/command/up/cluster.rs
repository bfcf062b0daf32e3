//! The settings of several nodes in one process: ids from 1, a directory each, ports that count up.

use std::net::SocketAddr;

use quorate_core::id::NodeId;
use quorate_net::transport::os::OsNetwork;
use quorate_net::transport::{Listener, Network};
use quorate_node::config::NodeConfig;

use super::MEMORY;
use crate::failure::Failure;

/// Peers listen so much above the clients' port, or below it where there is no room above.
const PEER_PORTS: u16 = 10_000;
/// More voters make decisions slower; two of five may be gone.
const VOTERS_MAX: usize = 5;

/// One for each of `nodes`, made from `first`.
pub(super) async fn configs(first: &NodeConfig, nodes: u32) -> Result<Vec<NodeConfig>, Failure> {
    let listen = first.network.listen;
    let mut addresses = Vec::new();
    // Held until all are known, so that none is found twice.
    let mut held = Vec::new();
    for index in 0..nodes {
        addresses.push(match listen.port() {
            0 => (free(listen, &mut held).await?, free(listen, &mut held).await?),
            port => numbered(listen, port, index)?,
        });
    }
    drop(held);
    let count = addresses.len();
    // An even number of voters survives no more than one less.
    let voters = count.min(VOTERS_MAX).next_multiple_of(2) - 1;
    let ids = || (1..).map(NodeId);
    let voters = ids().zip(&addresses).take(voters);
    let voters = voters.map(|(node, (_, peer))| (node, peer.to_string())).collect();
    let configs = ids().zip(&addresses).map(|(node, (clients, peer))| {
        let mut config = first.clone();
        config.node.id = node.0;
        if config.node.data.as_os_str() != MEMORY {
            config.node.data = first.node.data.join(format!("node-{node}"));
        }
        config.network.listen = *clients;
        config.network.peer_listen = Some(*peer);
        config.quorum.voters = Clone::clone(&voters);
        config
    });
    Ok(configs.collect())
}

fn numbered(
    listen: SocketAddr,
    port: u16,
    index: u32,
) -> Result<(SocketAddr, SocketAddr), Failure> {
    let above = port.checked_add(PEER_PORTS + 100).map(|_| port + PEER_PORTS);
    let peers = above.unwrap_or_else(|| port - PEER_PORTS);
    let at = |first: u16| -> Result<SocketAddr, Failure> {
        let port = u16::try_from(u32::from(first) + index).map_err(|_| {
            Failure::usage(format!("there are not enough ports from {first} on"))
                .hint("--listen with a lower port, or with port 0 for any free ones")
        })?;
        Ok(SocketAddr::new(listen.ip(), port))
    };
    Ok((at(port)?, at(peers)?))
}

/// An address that nobody listens on at this moment.
async fn free(
    listen: SocketAddr,
    held: &mut Vec<Box<dyn Listener>>,
) -> Result<SocketAddr, Failure> {
    let listener = OsNetwork.listen(listen).await;
    let listener = listener.map_err(|error| Failure::new(format!("no free port: {error}")))?;
    let address = listener.local_address();
    held.push(listener);
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_has_one_for_peers() {
        let listen = |port| SocketAddr::from(([127, 0, 0, 1], port));
        for (port, peers) in [(1, 10_001), (9092, 19_092), (55_435, 65_435), (55_436, 45_436)] {
            let found = numbered(listen(port), port, 0);
            assert_eq!(found.ok(), Some((listen(port), listen(peers))), "port {port}");
        }
        let found = numbered(listen(65_535), 65_535, 0);
        assert_eq!(found.ok(), Some((listen(65_535), listen(55_535))));
        assert!(numbered(listen(65_535), 65_535, 1).is_err());
    }
}
