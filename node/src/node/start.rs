//! The start of a node, step by step.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use quorate_core::id::NodeId;
use quorate_core::metadata::Address;
use quorate_core::partition::retention::WallClock;
use quorate_core::rng::Rng;
use quorate_core::shard::Shard;
use quorate_core::shard::interface::Limits;
use quorate_core::{group, partition, transaction};
use quorate_net::transport::Listener;
use tokio::sync::mpsc;

use super::close::Running;
use super::join::{self, Joining};
use super::{Node, NodeError, RunningNode};
use crate::catalog::Catalog;
use crate::catalog::keeper::Keeper;
use crate::catalog::news::News;
use crate::cleaner::{self, Cleaner, Job};
use crate::config::{NodeConfig, split_address};
use crate::controller_client::ControllerClient;
use crate::driver::ask::ShardClient;
use crate::driver::lane::Lanes;
use crate::driver::{self, Surroundings};
use crate::halt::Halt;
use crate::http;
use crate::lag::{LagBoard, Measurer};
use crate::listener;
use crate::listener::handle::Handlers;
use crate::listener::handle::fetch::sessions::FetchSessions;
use crate::listener::handle::producer_id::ProducerIds;
use crate::listener::lending::AnswerPools;
use crate::listener::permits::RequestPools;
use crate::listener::session::{Limits as SessionLimits, Shared};
use crate::listener::stop::Stop;
use crate::listener::unpacking::Unpacking;
use crate::membership::proposals::{self, Proposals, Wish};
use crate::metrics::Metrics;
use crate::peers::Peers;
use crate::quorum_cell::QuorumCell;
use crate::scrubber::Scrubber;
use crate::space;
use crate::storage::{Identity, Storage, StorageConfig};
use crate::timekeeper::{self, Timekeeper};
use crate::transactions::rounds::{self, Round, Rounds};
use crate::witness::Witness;
use crate::world::World;

pub(super) async fn start(
    config: NodeConfig,
    world: World,
    witness: Option<Arc<dyn Witness>>,
) -> Result<RunningNode, NodeError> {
    config.check()?;
    let began = world.clock.now().monotonic;
    let mut rng = Rng::new(world.seed);
    let id = NodeId(config.node.id);
    let lanes = Arc::new(Lanes::new(shard_count(&config)));
    let identity = Identity { node: id, directory: rng.bytes() };
    let completions = Arc::clone(&lanes) as Arc<_>;
    let (storage, report) =
        Storage::open(Arc::clone(&world.disk), storage_config(&config, identity), completions)
            .await?;
    let storage = Arc::new(storage);
    let listener = listen(&config, &world).await?;
    let local = listener.local_address();
    let address = advertised(&config, local);
    let monitors = monitors(&config, &world).await?;
    let door = join::door(&config, &world).await?;
    let (told, wishes, markers) = Told::new();
    let wall_clock = timekeeper::at_start(&config.clock, report.believed, world.clock.now());
    let (cleaner, jobs) = cleaner::channel();
    let (storage, lanes) = (&storage, &*lanes);
    let machinery = Machinery { config: &config, world: &world, storage, lanes, cleaner };
    let shards = machinery.shards(&mut rng, wall_clock, witness.clone(), &told);
    let node = machinery.node(report.identity.directory, address, shards, &told, rng.u64());
    let Told { news, halt, .. } = told;
    let running = Running::new(shared(&node), Arc::clone(&news));
    let http = monitors.as_ref().map(|listener| listener.local_address());
    let started = RunningNode { node, address: local, report, halt, running, http };
    // From here on, an error drops `started`, which stops what runs.
    let node = &started.node;
    answer_monitors(&started, monitors);
    let joining = Joining {
        door,
        wishes,
        news: Arc::clone(&news),
        network: Arc::clone(&world.network),
        incarnation: rng.u64(),
        seed: rng.u64(),
        report: &started.report,
        halt: &started.halt,
        stop: &started.running.shared.stop,
    };
    tokio::spawn(keeper(node, Arc::clone(&news), &started.halt, witness).run());
    tokio::spawn(rounds::carry(Arc::downgrade(node), markers));
    tokio::spawn(timekeeper(node, wall_clock, &started.halt).run());
    tokio::spawn(Scrubber::new(node).run());
    let (storage, clock) = (Arc::downgrade(&node.storage), Arc::clone(&node.clock));
    // A disk in memory is full when its process is at its limit.
    let settings = &node.config.storage;
    let min_free = if settings.ephemeral { 0 } else { settings.min_free };
    tokio::spawn(space::watch(Arc::clone(&node.space), storage, clock, min_free));
    tokio::spawn(Cleaner::new(node, Arc::clone(&started.halt), rng.bytes()).run(jobs));
    tokio::select! {
        biased;
        reason = started.halt.halted() => return Err(NodeError::Halted(reason)),
        joined = joining.join(node) => joined?,
    }
    tell_offline(node);
    let Running { shared, sessions, .. } = &started.running;
    let connections_max = node.config.network.connections_max;
    tokio::spawn(listener::listen(
        listener,
        connections_max,
        Arc::clone(shared),
        Arc::clone(sessions),
    ));
    measure(&started, &world);
    let took = world.clock.now().monotonic.saturating_since(began);
    tracing::info!(%id, address = %local, cluster = node.cluster(), ?took, "the node serves");
    Ok(started)
}

fn fetch_sessions(config: &NodeConfig, seed: u64) -> FetchSessions {
    let fetch = &config.fetch;
    let (sessions_max, partitions_max) = (fetch.sessions_max, fetch.session_partitions_max);
    FetchSessions::new(sessions_max, partitions_max, fetch.session_idle, seed)
}

fn shard_count(config: &NodeConfig) -> usize {
    match config.node.shards {
        // One core is left to the threads of the disk.
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get() - 1).max(1),
        shards => shards,
    }
}

fn storage_config(config: &NodeConfig, identity: Identity) -> StorageConfig {
    let settings = &config.storage;
    let defaults = StorageConfig::new(&config.node.data, identity);
    StorageConfig {
        ephemeral: settings.ephemeral,
        queue_writes_max: settings.queue_max,
        group_bytes_max: settings.group_bytes_max,
        direct_bytes_min: defaults.direct_bytes_min.min(settings.journal_file_bytes / 4 * 3),
        journal_file_bytes: settings.journal_file_bytes,
        journal_files_max: settings.journal_files_max,
        checkpoint_bytes: settings.checkpoint_bytes,
        ahead_bytes: settings.ahead_bytes,
        batch_bytes_max: defaults.batch_bytes_max.max(config.request.bytes_max as u64 + 4096),
        open_files_max: settings.open_files_max,
        orphan_bytes_max: settings.orphan_bytes_max,
        orphan_age_max: settings.orphan_age_max,
        ..defaults
    }
}

/// Where monitors are answered, if they are.
async fn monitors(
    config: &NodeConfig,
    world: &World,
) -> Result<Option<Box<dyn Listener>>, NodeError> {
    let Some(address) = config.http.listen else { return Ok(None) };
    let listener = world.network.listen(address).await;
    listener.map(Some).map_err(|error| NodeError::Listen { address, error })
}

/// From the beginning on, so that it says that it starts.
fn answer_monitors(started: &RunningNode, listener: Option<Box<dyn Listener>>) {
    if let Some(listener) = listener {
        let stop = Arc::clone(&started.running.shared.stop);
        tokio::spawn(http::serve(listener, Arc::clone(&started.node), stop));
    }
}

/// Once it serves, where somebody may ask.
fn measure(started: &RunningNode, world: &World) {
    if started.http.is_some() {
        let network = Arc::clone(&world.network);
        tokio::spawn(Measurer::new(&started.node, network, &started.address.to_string()).run());
    }
}

async fn listen(config: &NodeConfig, world: &World) -> Result<Box<dyn Listener>, NodeError> {
    let address = config.network.listen;
    world.network.listen(address).await.map_err(|error| NodeError::Listen { address, error })
}

/// What clients are told; without a setting, where the node listens.
fn advertised(config: &NodeConfig, local: SocketAddr) -> Address {
    let advertise = config.network.advertise.as_deref().and_then(split_address);
    match advertise {
        Some((host, port)) => Address { host: host.to_owned(), port },
        // An address that stands for all of them cannot be connected to from elsewhere; from here
        // it can, by the name of this host's own.
        None if local.ip().is_unspecified() => {
            Address { host: "localhost".to_owned(), port: local.port() }
        }
        None => Address { host: local.ip().to_string(), port: local.port() },
    }
}

struct Machinery<'a> {
    config: &'a NodeConfig,
    world: &'a World,
    storage: &'a Arc<Storage>,
    lanes: &'a Lanes,
    cleaner: mpsc::Sender<Job>,
}

/// Who is told of what the shards do.
struct Told {
    halt: Arc<Halt>,
    metrics: Arc<Metrics>,
    news: Arc<News>,
    quorum: Arc<QuorumCell>,
    peers: Peers,
    proposals: Proposals,
    rounds: Rounds,
}

impl Told {
    /// With where the proposals, and the markers of transactions, arrive.
    fn new() -> (Self, mpsc::Receiver<Vec<Wish>>, mpsc::Receiver<Round>) {
        let (proposals, wishes) = proposals::channel();
        let (rounds, markers) = rounds::channel();
        let told = Self {
            halt: Arc::default(),
            metrics: Arc::new(Metrics::default()),
            news: Arc::default(),
            quorum: Arc::default(),
            peers: Peers::new(),
            proposals,
            rounds,
        };
        (told, wishes, markers)
    }
}

impl Machinery<'_> {
    fn node(
        &self,
        directory: [u8; 16],
        address: Address,
        shards: Vec<ShardClient>,
        told: &Told,
        seed: u64,
    ) -> Arc<Node> {
        let (config, id) = (self.config.clone(), NodeId(self.config.node.id));
        let clock = &self.world.clock;
        let controller = ControllerClient::new(
            id,
            shards[0].clone(),
            Arc::clone(&told.quorum),
            told.peers.clone(),
            Arc::clone(clock),
        );
        Arc::new(Node {
            id,
            directory,
            cluster: OnceLock::new(),
            quorum: Arc::clone(&told.quorum),
            address,
            clock: Arc::clone(clock),
            catalog: Arc::new(Catalog::default()),
            shards,
            controller,
            peers: told.peers.clone(),
            membership: OnceLock::new(),
            storage: Arc::clone(self.storage),
            answers: AnswerPools::new(config.request.answer_memory_max),
            unpacking: Unpacking::new(
                config.request.uncompressed_bytes_max,
                config.request.memory_max / 4,
            ),
            fetch_sessions: fetch_sessions(&config, seed),
            producer_ids: ProducerIds::default(),
            space: Arc::default(),
            lags: LagBoard::default(),
            metrics: Arc::clone(&told.metrics),
            config,
        })
    }

    fn shards(
        &self,
        rng: &mut Rng,
        wall_clock: WallClock,
        witness: Option<Arc<dyn Witness>>,
        told: &Told,
    ) -> Vec<ShardClient> {
        let limits = limits(self.config, wall_clock);
        let start = |index| {
            let id = NodeId(self.config.node.id);
            let shard = Shard::new(id, limits.clone(), rng.u64());
            let around = Surroundings {
                clock: Arc::clone(&self.world.clock),
                writes: self.storage.writer(),
                lane: self.lanes.lane(index),
                news: Arc::clone(&told.news),
                quorum: Arc::clone(&told.quorum),
                peers: told.peers.clone(),
                proposals: told.proposals.clone(),
                rounds: told.rounds.clone(),
                halt: Arc::clone(&told.halt),
                witness: witness.clone(),
                metrics: Arc::clone(&told.metrics),
                batch_max: self.config.node.shard_batch_max,
                catch_up_max: self.config.peer.catch_up_max,
                cleaner: self.cleaner.clone(),
            };
            driver::start(shard, around, self.config.node.shard_inbox_max)
        };
        (0..shard_count(self.config)).map(start).collect()
    }
}

fn limits(config: &NodeConfig, wall_clock: WallClock) -> Limits {
    let group = &config.group;
    Limits {
        partition: partition::interface::Limits {
            wall_clock,
            compaction_check_interval: config.storage.clean_check_interval,
            retention_check_interval: config.topic.retention_check_interval,
            replication: partition::interface::ReplicationLimits {
                lag_time_max: config.peer.lag_time_max,
                ..partition::interface::ReplicationLimits::default()
            },
            ..partition::interface::Limits::default()
        },
        group: group::interface::GroupLimits {
            session_timeout_min: group.session_timeout_min,
            session_timeout_max: group.session_timeout_max,
            initial_rebalance_delay: group.initial_rebalance_delay,
            group_members_max: group.members_max,
            groups_max: group.groups_max,
            offset_metadata_bytes_max: group.offset_metadata_bytes_max,
            offsets_retention: group.offsets_retention,
            offsets_check_interval: group.offsets_check_interval,
            consumer_session_timeout: group.consumer_session_timeout,
            consumer_heartbeat_interval: group.consumer_heartbeat_interval,
            consumer_assignment_interval: group.consumer_assignment_interval,
            migration: group.consumer_migration,
            wall_clock,
            ..group::interface::GroupLimits::default()
        },
        transaction: transaction::interface::TransactionLimits {
            timeout_max: config.transaction.timeout_max,
            id_expiration: config.transaction.id_expiration,
            ids_max: config.transaction.ids_max,
            partitions_max: config.transaction.partitions_max,
            marker_patience: config.transaction.marker_patience,
            wall_clock,
            ..transaction::interface::TransactionLimits::default()
        },
        controller: config.controller_limits(),
    }
}

fn shared(node: &Arc<Node>) -> Arc<Shared> {
    let (network, request) = (&node.config.network, &node.config.request);
    Arc::new(Shared {
        serve: Arc::new(Handlers { node: Arc::clone(node) }),
        clock: Arc::clone(&node.clock),
        pools: RequestPools::new(request.memory_max),
        answers: node.answers.clone(),
        stop: Arc::new(Stop::default()),
        metrics: Arc::clone(&node.metrics),
        limits: SessionLimits {
            frame_bytes_max: request.bytes_max,
            in_flight_max: network.in_flight_max,
            idle_timeout: network.idle_timeout,
            receive_timeout: network.receive_timeout,
            send_timeout: network.send_timeout,
            pressed_patience: network.pressed_patience,
            request_time_max: request.time_max,
        },
    })
}

fn timekeeper(node: &Arc<Node>, wall_clock: WallClock, halt: &Arc<Halt>) -> Timekeeper {
    Timekeeper {
        clock: Arc::clone(&node.clock),
        storage: Arc::downgrade(&node.storage),
        wall_clock,
        halt: Arc::clone(halt),
    }
}

fn keeper(
    node: &Arc<Node>,
    news: Arc<News>,
    halt: &Arc<Halt>,
    witness: Option<Arc<dyn Witness>>,
) -> Keeper {
    Keeper {
        node: node.id,
        news,
        catalog: Arc::clone(&node.catalog),
        storage: Arc::clone(&node.storage),
        shards: node.shards.clone(),
        halt: Arc::clone(halt),
        uncompressed_bytes_max: node.config.request.uncompressed_bytes_max,
        witness,
    }
}

fn tell_offline(node: &Node) {
    let offline = node.catalog.read().offline();
    if !offline.is_empty() {
        tracing::error!(?offline, "logs that are not what was written are not served");
    }
}
