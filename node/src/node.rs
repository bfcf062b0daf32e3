//! One node: its parts wired together at the start, and stopped in order at the end.
//!
//! Start: the data directory is taken and recovered, the node takes its seat in the metadata
//! quorum, registers, opens every log that the metadata speaks of, and only then does the door
//! open. Stop: the door shuts, what was begun is answered, every log writes down what a fast
//! start needs, and the directory is marked as closed cleanly.

mod close;
mod join;
mod seat;
mod start;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use quorate_core::controller::interface::Problem;
use quorate_core::id::NodeId;
use quorate_core::metadata::Address;
use quorate_core::quorum_log::Unreadable;
use quorate_core::time::Instant;
use quorate_net::clock::Clock;

use crate::catalog::{Catalog, State};
use crate::config::{ConfigError, NodeConfig};
use crate::controller_client::ControllerClient;
use crate::driver::ask::{ShardClient, Stopped};
use crate::halt::Halt;
use crate::lag::LagBoard;
use crate::listener::handle::fetch::sessions::FetchSessions;
use crate::listener::handle::producer_id::ProducerIds;
use crate::listener::lending::AnswerPools;
use crate::listener::unpacking::Unpacking;
use crate::membership::Membership;
use crate::metrics::Metrics;
pub use crate::peers::LinkStatus;
use crate::peers::Peers;
use crate::quorum_cell::QuorumCell;
use crate::space::Space;
use crate::storage::{LogError, OpenReport, ReadError, Storage, StorageError};
use crate::witness::Witness;
use crate::world::World;

/// What requests need of their node.
pub(crate) struct Node {
    pub(crate) config: NodeConfig,
    pub(crate) id: NodeId,
    /// Of the data directory, for all time.
    pub(crate) directory: [u8; 16],
    /// Known before the door opens.
    pub(super) cluster: OnceLock<String>,
    pub(crate) quorum: Arc<QuorumCell>,
    /// What clients are told.
    pub(crate) address: Address,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) catalog: Arc<Catalog>,
    /// The controller's is the first.
    pub(crate) shards: Vec<ShardClient>,
    pub(crate) controller: ControllerClient,
    pub(crate) peers: Peers,
    /// From the time that this node is a member of its cluster.
    pub(crate) membership: OnceLock<Arc<Membership>>,
    pub(crate) storage: Arc<Storage>,
    /// Memory for answers with records.
    pub(crate) answers: AnswerPools,
    pub(crate) unpacking: Unpacking,
    pub(crate) fetch_sessions: FetchSessions,
    pub(crate) producer_ids: ProducerIds,
    pub(crate) space: Arc<Space>,
    /// How far the groups are behind that this node coordinates.
    pub(crate) lags: LagBoard,
    pub(crate) metrics: Arc<Metrics>,
}

impl Node {
    /// The cluster's id as Kafka writes it; empty before the cluster is known, which is before
    /// anybody can ask.
    pub(crate) fn cluster(&self) -> &str {
        self.cluster.get().map_or("", String::as_str)
    }

    /// Until when a client wants to wait for a decision, `millis` from now, within bounds.
    pub(crate) fn until(&self, millis: i32) -> Instant {
        let patience = self.patience(millis, self.config.request.produce_wait_max);
        self.clock.now().monotonic + patience
    }

    /// How long a client wants to wait, in milliseconds, within a limit.
    #[allow(clippy::unused_self)]
    pub(crate) fn patience(&self, millis: i32, max: Duration) -> Duration {
        Duration::from_millis(u64::try_from(millis).unwrap_or(0)).min(max)
    }
}

/// Starts a node and returns once it serves.
///
/// # Errors
///
/// Why it does not start, in a sentence. Nothing is left running.
pub async fn run(config: NodeConfig, world: World) -> Result<RunningNode, NodeError> {
    start::start(config, world, None).await
}

/// As `run`, with somebody who watches the logs.
///
/// # Errors
///
/// As `run`.
pub async fn run_watched(
    config: NodeConfig,
    world: World,
    witness: Arc<dyn Witness>,
) -> Result<RunningNode, NodeError> {
    start::start(config, world, Some(witness)).await
}

/// A node that serves. Dropping it is a kill: what is not durable may be lost, as with the
/// process.
pub struct RunningNode {
    node: Arc<Node>,
    address: SocketAddr,
    report: OpenReport,
    halt: Arc<Halt>,
    running: close::Running,
    http: Option<SocketAddr>,
}

impl RunningNode {
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.node.id
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it answers monitors, if it does.
    #[must_use]
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http
    }

    /// The cluster's id.
    #[must_use]
    pub fn cluster(&self) -> &str {
        self.node.cluster()
    }

    /// What the storage engine found at the start.
    #[must_use]
    pub fn report(&self) -> &OpenReport {
        &self.report
    }

    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.node.metrics
    }

    /// Bytes that requests and answers hold at this moment, within `request.memory_max` and
    /// `request.answer_memory_max`.
    #[must_use]
    pub fn memory_held(&self) -> (usize, usize) {
        (self.running.shared.pools.taken(), self.node.answers.taken())
    }

    /// How the links to the other nodes stand.
    #[must_use]
    pub fn links(&self) -> Vec<LinkStatus> {
        self.node.peers.status()
    }

    /// Nodes that dialled this one and were not let in, and why.
    #[must_use]
    pub fn refused(&self) -> Vec<(NodeId, String)> {
        self.node.peers.refused()
    }

    /// Completes once the cluster counts this node as there: it may lead and be in sync.
    pub async fn unfenced(&self) {
        let id = self.node.id;
        let is_there = |state: &State| state.image.node(id).is_some_and(|node| !node.fenced);
        self.node.catalog.until(is_there).await;
    }

    /// Completes with the reason if the node must not go on: its disk failed it.
    pub async fn halted(&self) -> String {
        self.halt.halted().await
    }

    /// Stops gracefully, within `node.stop_timeout`: answers what was begun, and closes all logs.
    ///
    /// # Errors
    ///
    /// What kept the data directory from being closed cleanly. All that was answered is there.
    pub async fn shutdown(self) -> Result<(), NodeError> {
        close::close(&self).await
    }
}

impl Drop for RunningNode {
    fn drop(&mut self) {
        self.running.cut(&self.node);
    }
}

impl fmt::Debug for RunningNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningNode").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Why a node does not start, or does not stop as it should.
#[derive(Debug)]
pub enum NodeError {
    Config(ConfigError),
    Storage(StorageError),
    /// The metadata log is not what was written.
    Metadata(LogError),
    /// It cannot be read from the disk.
    MetadataUnread(ReadError),
    /// It holds what this build does not understand.
    MetadataUnreadable(Unreadable),
    Listen {
        address: SocketAddr,
        error: io::Error,
    },
    /// The controller does not take this node.
    Refused(Problem),
    Halted(String),
    /// The logs were not closed in this time.
    SlowStop(Duration),
    /// Something that was waited for has ended.
    Stopped,
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Storage(error) => error.fmt(f),
            Self::Metadata(error) => write!(f, "the metadata log: {error}"),
            Self::MetadataUnread(error) => write!(f, "the metadata log: {error}"),
            Self::MetadataUnreadable(error) => write!(
                f,
                "the metadata log: {error}. A node that forgets a vote or a decision must not \
                 start; start the version that wrote it"
            ),
            Self::Listen { address, error } => write!(f, "cannot listen on {address}: {error}"),
            Self::Refused(problem) => {
                write!(f, "the cluster does not take this node: {}", problem.message)
            }
            Self::Halted(reason) => write!(f, "the node halted: {reason}"),
            Self::SlowStop(patience) => write!(
                f,
                "the logs were not closed within {patience:?} (node.stop_timeout): the next start \
                 reads more of them; nothing that was acknowledged is lost"
            ),
            Self::Stopped => f.write_str("the node was stopped"),
        }
    }
}

impl std::error::Error for NodeError {}

impl From<ConfigError> for NodeError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<StorageError> for NodeError {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

impl From<Stopped> for NodeError {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}
