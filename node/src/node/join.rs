//! How a node becomes a member of its cluster: it takes its seat in the quorum, opens its way to
//! the other nodes, waits until somebody leads, and registers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use quorate_core::controller::interface::RegisterNode;
use quorate_core::id::DirectoryId;
use quorate_core::metadata::Address;
use quorate_core::quorum::interface::{Input as QuorumInput, Outcome as QuorumOutcome};
use quorate_core::shard::interface::{Input as ShardInput, Outcome as ShardOutcome};
use quorate_net::peer::link;
use quorate_net::transport::{Listener, Network};
use tokio::sync::mpsc;

use super::{Node, NodeError, seat};
use crate::catalog::news::News;
use crate::config::{NodeConfig, split_address};
use crate::driver::ask::{Stopped, Withdrawal};
use crate::halt::Halt;
use crate::listener::api_versions::features;
use crate::listener::stop::Stop;
use crate::membership::proposals::Wish;
use crate::membership::{Membership, NoMember, Said};
use crate::peers::Surrounded;
use crate::quorum_cell::QuorumState;
use crate::storage::OpenReport;
use crate::world::World;

/// A node that waits for its cluster says so after this time, and again each time.
const SAY_INTERVAL: Duration = Duration::from_secs(3);

/// What a node joins its cluster with.
pub(super) struct Joining<'a> {
    /// Where other nodes come in.
    pub(super) door: Option<Box<dyn Listener>>,
    pub(super) wishes: mpsc::Receiver<Vec<Wish>>,
    pub(super) news: Arc<News>,
    pub(super) network: Arc<dyn Network>,
    pub(super) incarnation: u64,
    pub(super) seed: u64,
    pub(super) report: &'a OpenReport,
    pub(super) halt: &'a Arc<Halt>,
    pub(super) stop: &'a Arc<Stop>,
}

/// Where other nodes come in; a lone node has no such place.
pub(super) async fn door(
    config: &NodeConfig,
    world: &World,
) -> Result<Option<Box<dyn Listener>>, NodeError> {
    let Some(address) = config.network.peer_listen else { return Ok(None) };
    let listening = world.network.listen(address).await;
    listening.map(Some).map_err(|error| NodeError::Listen { address, error })
}

/// Where other nodes reach this one, which listens at `door`.
fn peer_address(node: &Node, door: Option<&dyn Listener>) -> Address {
    let network = &node.config.network;
    let told = network.peer_advertise.as_deref();
    let told = told.or_else(|| node.config.quorum.voters.address(node.id));
    match (told.and_then(split_address), door) {
        (Some((host, port)), _) => Address { host: host.to_owned(), port },
        (None, Some(door)) => {
            let local = door.local_address();
            Address { host: local.ip().to_string(), port: local.port() }
        }
        (None, None) => Address::default(),
    }
}

impl Joining<'_> {
    /// Returns once the node is registered, knows it, and has opened what the metadata speaks of.
    pub(super) async fn join(self, node: &Arc<Node>) -> Result<(), NodeError> {
        let peer = peer_address(node, self.door.as_deref());
        seat::take(node, node.config.founders()).await?;
        // A greeting names the cluster, if the seat remembers one.
        node.shards[0].barrier().await?;
        if let Some(door) = self.door {
            let surrounded = Surrounded {
                around: link::Surroundings {
                    network: Arc::clone(&self.network),
                    clock: Arc::clone(&node.clock),
                },
                quorum: Arc::clone(&node.quorum),
                directory: node.directory,
                start: self.report.start,
                address: peer.to_string(),
                seed: self.seed,
            };
            node.peers.open(&node.config, surrounded, &node.catalog, &node.shards, door);
        }
        wait_for_cluster(node).await?;
        let registration = RegisterNode {
            node: node.id,
            incarnation: self.incarnation,
            cluster: node.cluster().to_owned(),
            directory: DirectoryId(node.directory),
            address: node.address.clone(),
            peer,
            rack: node.config.node.rack.clone(),
            roles: node.config.node.roles.into(),
            clean_stop: self.report.clean,
            rotten: self.report.rot.iter().map(|rot| rot.partition).collect(),
            features: features(),
            ..RegisterNode::default()
        };
        let membership = Arc::new(Membership {
            registration,
            session_timeout: node.config.controller_limits().session_timeout,
            controller: node.controller.clone(),
            catalog: Arc::clone(&node.catalog),
            news: self.news,
            quorum: Arc::clone(&node.quorum),
            shards: node.shards.clone(),
            clock: Arc::clone(&node.clock),
            said: Said::default(),
        });
        let refused = |error| match error {
            NoMember::Stopped => NodeError::Stopped,
            NoMember::Refused(problem) => NodeError::Refused(problem),
        };
        membership.join().await.map_err(refused)?;
        node.catalog.until_registered(node.id, self.incarnation).await;
        membership.tell_rot().await.map_err(refused)?;
        stay(node, &membership, self.wishes, self.halt, self.stop);
        assert!(node.membership.set(membership).is_ok(), "a node joins once");
        Ok(())
    }
}

/// What a member does, until the node stops or halts.
fn stay(
    node: &Node,
    membership: &Arc<Membership>,
    wishes: mpsc::Receiver<Vec<Wish>>,
    halt: &Arc<Halt>,
    stop: &Arc<Stop>,
) {
    let (member, word, end) = (Arc::clone(membership), Arc::clone(stop), Arc::clone(halt));
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = word.told() => {}
            _ = end.halted() => {}
            () = member.propose(wishes) => {}
        }
    });
    let (member, word, end) = (Arc::clone(membership), Arc::clone(stop), Arc::clone(halt));
    let peers = node.peers.clone();
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = word.told() => {}
            // What a node that may not go on says would only keep others from taking its place.
            _ = end.halted() => peers.cut(),
            () = member.keep(&end) => {}
        }
    });
}

/// Returns once somebody leads the cluster; says meanwhile whom this node waits for.
async fn wait_for_cluster(node: &Node) -> Result<(), NodeError> {
    let is_led = |state: QuorumState| state.cluster.filter(|_| state.leader(node.id).is_some());
    loop {
        let led = Box::pin(node.quorum.until(is_led));
        match select(led, node.clock.sleep(SAY_INTERVAL)).await {
            Either::Left((cluster, _)) => {
                node.cluster.get_or_init(|| seat::cluster_name(cluster));
                return Ok(());
            }
            Either::Right(_) => say_what_is_waited_for(node).await?,
        }
    }
}

async fn say_what_is_waited_for(node: &Node) -> Result<(), Stopped> {
    let input = |request| ShardInput::Quorum(QuorumInput::Describe { request });
    let founding = match node.shards[0].ask(Withdrawal::Never, input).await?.await? {
        ShardOutcome::Quorum(QuorumOutcome::Described(status)) => status.founding,
        _ => None,
    };
    let waits = match founding {
        Some(founding) => founding.to_string(),
        None => "no node leads the cluster; more than half of its voters must be there".to_owned(),
    };
    let unreachable = node.peers.unreachable().join("; ");
    tracing::warn!(id = %node.id, waits, unreachable, "this node waits for its cluster");
    for (other, why) in node.peers.refused() {
        tracing::warn!(id = %node.id, %other, why, "not let in");
    }
    Ok(())
}
