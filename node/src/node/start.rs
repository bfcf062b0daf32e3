//! The start of a node, step by step.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use quorate_core::controller::interface::{Input, Outcome, ProblemKind, RegisterNode};
use quorate_core::id::{DirectoryId, NodeId};
use quorate_core::metadata::Address;
use quorate_core::partition::retention::WallClock;
use quorate_core::rng::Rng;
use quorate_core::shard::Shard;
use quorate_core::shard::interface::Limits;
use quorate_core::{group, partition};
use quorate_net::transport::Listener;

use super::close::Running;
use super::{Node, NodeError, RunningNode, seat};
use crate::catalog::Catalog;
use crate::catalog::keeper::Keeper;
use crate::catalog::news::News;
use crate::config::{NodeConfig, split_address};
use crate::controller_client::{ControllerClient, PATIENCE};
use crate::driver::ask::ShardClient;
use crate::driver::lane::Lanes;
use crate::driver::{self, Surroundings};
use crate::halt::Halt;
use crate::listener;
use crate::listener::handle::Handlers;
use crate::listener::handle::fetch::sessions::FetchSessions;
use crate::listener::handle::producer_id::ProducerIds;
use crate::listener::lending::AnswerPools;
use crate::listener::permits::RequestPools;
use crate::listener::session::{Limits as SessionLimits, Shared};
use crate::listener::stop::Stop;
use crate::listener::unpacking::Unpacking;
use crate::metrics::Metrics;
use crate::quorum_cell::{QuorumCell, QuorumState};
use crate::scrubber::Scrubber;
use crate::storage::{Identity, Storage, StorageConfig};
use crate::timekeeper::{self, Timekeeper};
use crate::witness::Witness;
use crate::world::World;

/// The wait before a controller that has no room for a registration is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(2);

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
    let (halt, metrics, news) = (Arc::default(), Arc::new(Metrics::default()), Arc::default());
    let wall_clock = timekeeper::at_start(&config.clock, report.believed, world.clock.now());
    let machinery = Machinery { config: &config, world: &world, storage: &storage, lanes: &lanes };
    let quorum = Arc::default();
    let told = Told { halt: &halt, metrics: &metrics, news: &news, quorum: &quorum };
    let shards = machinery.shards(&mut rng, wall_clock, witness, &told);
    let controller = ControllerClient::new(shards[0].clone(), Arc::clone(&world.clock));
    let node = Arc::new(Node {
        id,
        directory: report.identity.directory,
        cluster: OnceLock::new(),
        quorum,
        address,
        clock: Arc::clone(&world.clock),
        catalog: Arc::new(Catalog::default()),
        shards,
        controller,
        storage,
        answers: AnswerPools::new(config.request.answer_memory_max),
        unpacking: Unpacking::new(
            config.request.uncompressed_bytes_max,
            config.request.memory_max / 4,
        ),
        fetch_sessions: fetch_sessions(&config, rng.u64()),
        producer_ids: ProducerIds::default(),
        metrics,
        config,
    });
    let running = Running::new(shared(&node), Arc::clone(&news));
    let started = RunningNode { node, address: local, report, halt, running };
    // From here on, an error drops `started`, which stops what runs.
    let node = &started.node;
    tokio::spawn(keeper(node, Arc::clone(&news), &started.halt).run());
    tokio::spawn(timekeeper(node, wall_clock, &started.halt).run());
    tokio::spawn(Scrubber::new(node).run());
    tokio::select! {
        biased;
        reason = started.halt.halted() => return Err(NodeError::Halted(reason)),
        joined = join(node, rng.u64(), &news) => joined?,
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
        batch_bytes_max: defaults.batch_bytes_max.max(config.request.bytes_max as u64 + 4096),
        open_files_max: settings.open_files_max,
        orphan_bytes_max: settings.orphan_bytes_max,
        orphan_age_max: settings.orphan_age_max,
        ..defaults
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
    storage: &'a Storage,
    lanes: &'a Lanes,
}

/// Who is told of what the shards do.
struct Told<'a> {
    halt: &'a Arc<Halt>,
    metrics: &'a Arc<Metrics>,
    news: &'a Arc<News>,
    quorum: &'a Arc<QuorumCell>,
}

impl Machinery<'_> {
    fn shards(
        &self,
        rng: &mut Rng,
        wall_clock: WallClock,
        witness: Option<Arc<dyn Witness>>,
        told: &Told<'_>,
    ) -> Vec<ShardClient> {
        let limits = limits(self.config, wall_clock);
        let start = |index| {
            let id = NodeId(self.config.node.id);
            let shard = Shard::new(id, limits.clone(), rng.u64());
            let around = Surroundings {
                clock: Arc::clone(&self.world.clock),
                writes: self.storage.writer(),
                lane: self.lanes.lane(index),
                news: Arc::clone(told.news),
                quorum: Arc::clone(told.quorum),
                halt: Arc::clone(told.halt),
                witness: witness.clone(),
                metrics: Arc::clone(told.metrics),
                batch_max: self.config.node.shard_batch_max,
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
            wall_clock,
            ..group::interface::GroupLimits::default()
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

fn keeper(node: &Arc<Node>, news: Arc<News>, halt: &Arc<Halt>) -> Keeper {
    Keeper {
        node: node.id,
        news,
        catalog: Arc::clone(&node.catalog),
        storage: Arc::clone(&node.storage),
        shards: node.shards.clone(),
        halt: Arc::clone(halt),
        uncompressed_bytes_max: node.config.request.uncompressed_bytes_max,
    }
}

/// Takes the node's seat, waits until somebody leads the cluster, and registers. Then all that the
/// metadata speaks of is open.
async fn join(node: &Arc<Node>, incarnation: u64, news: &News) -> Result<(), NodeError> {
    seat::take(node, BTreeSet::from([node.id])).await?;
    let is_led = |state: QuorumState| state.cluster.filter(|_| state.leader(node.id).is_some());
    let cluster = node.quorum.until(is_led).await;
    let cluster = node.cluster.get_or_init(|| seat::cluster_name(cluster)).clone();
    let register = RegisterNode {
        request: quorate_core::id::RequestId(0),
        node: node.id,
        incarnation,
        cluster,
        directory: DirectoryId(node.directory),
        address: node.address.clone(),
        rack: node.config.node.rack.clone(),
        ..RegisterNode::default()
    };
    let input = |request| Input::RegisterNode(RegisterNode { request, ..register.clone() });
    loop {
        let until = node.clock.now().monotonic + PATIENCE;
        match node.controller.ask(until, input).await? {
            Outcome::NodeRegistered { node_epoch } => {
                news.registered(node_epoch);
                break;
            }
            Outcome::Refused(problem) => match problem.kind {
                ProblemKind::Loading | ProblemKind::NotAvailable | ProblemKind::Busy => {
                    node.clock.sleep(ASK_AGAIN).await;
                }
                _ => return Err(NodeError::Refused(problem)),
            },
            other => unreachable!("a node is registered, not {other:?}"),
        }
    }
    node.catalog.until_registered(node.id, incarnation).await;
    Ok(())
}

fn tell_offline(node: &Node) {
    let offline = node.catalog.read().offline();
    if !offline.is_empty() {
        tracing::error!(?offline, "logs that are not what was written are not served");
    }
}
