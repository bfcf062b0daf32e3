//! Three nodes of one cluster in one process, on loopback, each with a disk in memory that outlives
//! its node.

use std::future::Future;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use quorate_net::client::{Client, ClientConfig, Metadata};
use quorate_net::clock::Clock;
use quorate_net::transport::os::OsNetwork;
use quorate_node::clock::OsClock;
use quorate_node::config::NodeConfig;
use quorate_node::disk::Disk;
use quorate_node::disk::memory::MemoryDisk;
use quorate_node::node::{NodeError, RunningNode, run};
use quorate_node::storage::StorageError;
use quorate_node::world::World;

static SEEDS: AtomicU64 = AtomicU64::new(1);
const DISK_BYTES: u64 = 256 << 20;

/// Where a node stands, running or not.
pub(crate) struct Place {
    pub config: NodeConfig,
    pub disk: Arc<dyn Disk>,
    lives: u64,
}

impl Place {
    pub(crate) fn new(config: NodeConfig) -> Self {
        Self { config, disk: Arc::new(MemoryDisk::ephemeral(DISK_BYTES)), lives: 0 }
    }

    /// One more life of the node. What a killed one holds of its directory and ports
    /// goes soon after it.
    pub(crate) fn start(
        &mut self,
    ) -> impl Future<Output = Result<RunningNode, NodeError>> + Send + 'static {
        self.lives += 1;
        // Directories are drawn from it: no two may be alike.
        let seed = SEEDS.fetch_add(1, Ordering::Relaxed);
        let (config, disk, is_first) = (self.config.clone(), self.disk.clone(), self.lives == 1);
        async move {
            let clock = Arc::new(OsClock::new());
            loop {
                let (network, disk) = (Arc::new(OsNetwork), Arc::clone(&disk));
                let world = World { disk, network, clock: clock.clone(), seed };
                match run(config.clone(), world).await {
                    Err(
                        NodeError::Storage(StorageError::Locked { .. }) | NodeError::Listen { .. },
                    ) if !is_first => {
                        clock.sleep(Duration::from_millis(5)).await;
                    }
                    started => return started,
                }
            }
        }
    }

    /// The disk is replaced by an empty one.
    pub(crate) fn wipe(&mut self) {
        self.disk = Arc::new(MemoryDisk::ephemeral(DISK_BYTES));
    }
}

/// Ports of loopback that nobody listens on now.
pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    let held: [TcpListener; N] =
        std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    std::array::from_fn(|index| held[index].local_addr().expect("an address").port())
}

/// The settings of node `id` among those that vote.
pub(crate) fn config(id: i32, kafka: u16, peer: u16, voters: &str) -> NodeConfig {
    let mut config = NodeConfig::default();
    let settings = [
        ("node.id", id.to_string()),
        ("node.shards", "2".to_owned()),
        ("node.stop_timeout", "5s".to_owned()),
        ("network.listen", format!("127.0.0.1:{kafka}")),
        ("network.peer_listen", format!("127.0.0.1:{peer}")),
        ("quorum.voters", voters.to_owned()),
        ("storage.journal_file_bytes", "1MiB".to_owned()),
        ("group.initial_rebalance_delay", "0".to_owned()),
        ("group.offsets_partitions", "3".to_owned()),
    ];
    for (key, value) in settings {
        config.set(key, &value).unwrap();
    }
    config
}

/// Places for nodes 1, 2 and 3.
pub(crate) fn places() -> [Place; 3] {
    let ports: [u16; 6] = free_ports();
    let voters =
        format!("1@127.0.0.1:{},2@127.0.0.1:{},3@127.0.0.1:{}", ports[3], ports[4], ports[5]);
    std::array::from_fn(|index| {
        let id = i32::try_from(index).unwrap() + 1;
        Place::new(config(id, ports[index], ports[index + 3], &voters))
    })
}

/// Starts them all at once, and waits until each counts as there.
pub(crate) async fn start(places: &mut [Place]) -> Vec<RunningNode> {
    let starting = places.iter_mut().map(|place| tokio::spawn(place.start()));
    let mut nodes = Vec::new();
    for node in soon(join_all(starting)).await {
        nodes.push(node.unwrap().expect("a node of a whole cluster starts"));
    }
    for node in &nodes {
        soon(node.unfenced()).await;
    }
    nodes
}

pub(crate) fn client(node: &RunningNode) -> Client {
    let mut config = ClientConfig::new(&node.address().to_string());
    config.operation_timeout = Duration::from_secs(15);
    Client::new(Arc::new(OsNetwork), Arc::new(OsClock::new()), config)
}

/// Waits for what should come soon.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    let patience = OsClock::new().sleep(Duration::from_secs(30));
    match select(Box::pin(what), patience).await {
        Either::Left((done, _)) => done,
        Either::Right(_) => panic!("it did not come in thirty seconds"),
    }
}

/// What node `of` tells of the cluster, once `holds` is true of it.
pub(crate) async fn until_told(of: &RunningNode, holds: impl Fn(&Metadata) -> bool) -> Metadata {
    soon(async {
        let client = client(of);
        loop {
            if let Ok(told) = client.cluster().await
                && holds(&told)
            {
                return told;
            }
            OsClock::new().sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}
