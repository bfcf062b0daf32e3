//! The other nodes of the cluster: how this node finds them, who is let in, and what travels
//! between them. What the frames mean is decided elsewhere.

mod calls;
mod door;
mod frames;
mod links;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quorate_core::controller::interface::{Input, Outcome};
use quorate_core::id::{DirectoryId, NodeEpoch, NodeId, PartitionId};
use quorate_core::partition::interface::Message;
use quorate_core::quorum::interface::Question;
use quorate_core::shard::interface::Input as ShardInput;
use quorate_core::{metadata, quorum};
use quorate_net::peer;
use quorate_net::peer::hello::{ADDRESS_BYTES_MAX, Hello, Known, Me, Refusal};
use quorate_net::peer::link::Surroundings;
use quorate_net::peer::{Channel, link};
use quorate_net::transport::Listener;
use tokio::sync::Notify;

use self::calls::Calls;
use self::frames::{ERRAND, QUESTION, QUORUM, REPLICAS, REPLY, REQUEST, Reply};
pub use self::links::LinkStatus;
use self::links::Links;
use crate::catalog::Catalog;
use crate::config::{NodeConfig, split_address};
use crate::driver::Command;
use crate::driver::ask::ShardClient;
use crate::listener::stop::{Pace, Stop};
use crate::quorum_cell::QuorumCell;
use crate::transactions::errand::{Done, Errand};

/// Refusals remembered for the status.
const REFUSALS_MAX: usize = 64;
/// Leaders remembered by hearsay: one is enough, and an election may be under way.
const HEARSAY_MAX: usize = 8;

/// Who this node is, and what it needs to speak to others.
pub(crate) struct Surrounded {
    pub(crate) around: Surroundings,
    pub(crate) quorum: Arc<QuorumCell>,
    pub(crate) directory: [u8; 16],
    /// Which start of the node on this directory.
    pub(crate) start: u64,
    /// `host:port` where others reach it; empty where nobody does.
    pub(crate) address: String,
    pub(crate) seed: u64,
}

/// The way to the other nodes. Clones are the same.
#[derive(Clone)]
pub(crate) struct Peers {
    links: Arc<Links>,
    shared: Arc<std::sync::OnceLock<Arc<Shared>>>,
}

/// What links and visitors have in common.
struct Shared {
    node: NodeId,
    directory: [u8; 16],
    start: u64,
    address: String,
    quorum: Arc<QuorumCell>,
    catalog: Arc<Catalog>,
    around: Surroundings,
    limits: peer::Limits,
    connections_max: usize,
    requests_max: usize,
    seed: u64,
    shards: Vec<ShardClient>,
    links: Arc<Links>,
    calls: Calls,
    /// From the configuration.
    voters: BTreeMap<NodeId, String>,
    visitors: Mutex<Visitors>,
    /// Where others have said that a leader listens which this node does not know of itself.
    hearsay: Mutex<BTreeMap<NodeId, String>>,
    /// Lives of nodes whose process is gone: there was a connection, and then nobody listened.
    gone: Mutex<BTreeMap<NodeId, NodeEpoch>>,
    died: Notify,
    /// Held while the links are aimed, so that they are aimed by what is known last.
    aiming: Mutex<()>,
    stop: Stop,
}

/// Who has greeted.
#[derive(Default)]
struct Visitors {
    /// The last that was let in of each node.
    known: BTreeMap<NodeId, Visitor>,
    refused: BTreeMap<NodeId, String>,
}

#[derive(Clone, Debug)]
struct Visitor {
    known: Known,
    address: String,
    /// Connections that stand.
    connections: usize,
}

/// A connection of a peer that stands.
struct Visit {
    shared: Arc<Shared>,
    node: NodeId,
    known: Known,
}

/// Why a request did not come back with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// Nothing was done: it was not sent, or that node does not lead.
    NotAsked,
    /// Nobody knows.
    Unknown,
}

impl Peers {
    /// Without a way to anybody, until `open`.
    pub(crate) fn new() -> Self {
        Self { links: Arc::default(), shared: Arc::default() }
    }

    /// Dials the voters and whoever is registered, and opens the door, if there is one. What
    /// arrives goes to `shards`.
    pub(crate) fn open(
        &self,
        config: &NodeConfig,
        surrounded: Surrounded,
        catalog: &Arc<Catalog>,
        shards: &[ShardClient],
        listener: Box<dyn Listener>,
    ) {
        let Surrounded { around, quorum, directory, start, address, seed } = surrounded;
        let voters = config.quorum.voters.iter();
        let shared = Arc::new(Shared {
            node: NodeId(config.node.id),
            directory,
            start,
            address,
            quorum,
            catalog: Arc::clone(catalog),
            around,
            limits: config.peer_limits(),
            connections_max: config.peer.connections_max,
            requests_max: config.peer.requests_max,
            seed,
            shards: shards.to_vec(),
            links: Arc::clone(&self.links),
            calls: Calls::default(),
            voters: voters.map(|(node, address)| (node, address.to_owned())).collect(),
            visitors: Mutex::default(),
            hearsay: Mutex::default(),
            gone: Mutex::default(),
            died: Notify::new(),
            aiming: Mutex::default(),
            stop: Stop::default(),
        });
        assert!(self.shared.set(Arc::clone(&shared)).is_ok(), "peers are opened once");
        shared.aim();
        tokio::spawn(door::listen(Arc::clone(&shared), listener));
        tokio::spawn(bury(Arc::clone(&shared)));
        tokio::spawn(follow(shared));
    }

    /// May be lost.
    pub(crate) fn send_quorum(&self, to: NodeId, message: &quorum::interface::Message) {
        self.links.send(to, Channel::Control, QUORUM, &(message.to_bytes(), Vec::new()));
    }

    /// What one round of a shard has for other nodes' replicas, in its order. May be lost.
    pub(crate) fn send_round(&self, round: &mut Vec<(NodeId, PartitionId, Message)>) {
        let mut nodes = BTreeMap::<NodeId, Vec<(PartitionId, Message)>>::new();
        for (to, partition, message) in round.drain(..) {
            nodes.entry(to).or_default().push((partition, message));
        }
        for (to, messages) in nodes {
            for parts in frames::replicas(messages) {
                self.links.send(to, Channel::Data, REPLICAS, &parts);
            }
        }
    }

    /// Asks the controller on node `to`. Waits until there is an answer, or surely none: callers
    /// set a deadline.
    pub(crate) async fn ask(&self, to: NodeId, input: &Input) -> Result<Outcome, NoAnswer> {
        match self.call(to, REQUEST, |id| frames::request(id, input)).await? {
            Reply::Outcome(outcome) => Ok(outcome),
            Reply::NotHere => Err(NoAnswer::NotAsked),
            Reply::Quorum(_) | Reply::Errand(_) => Err(NoAnswer::Unknown),
        }
    }

    /// Asks the member of the quorum on node `to`, as `ask` does the controller.
    pub(crate) async fn ask_quorum(
        &self,
        to: NodeId,
        question: Question,
    ) -> Result<quorum::interface::Outcome, NoAnswer> {
        match self.call(to, QUESTION, |id| frames::question(id, question)).await? {
            Reply::Quorum(outcome) => Ok(outcome),
            Reply::NotHere => Err(NoAnswer::NotAsked),
            Reply::Outcome(_) | Reply::Errand(_) => Err(NoAnswer::Unknown),
        }
    }

    /// Has an errand done on node `to`, as `ask` asks its controller. `NotAsked` where that node
    /// has too many of them.
    pub(crate) async fn run_errand(&self, to: NodeId, errand: &Errand) -> Result<Done, NoAnswer> {
        match self.call(to, ERRAND, |id| frames::errand(id, errand)).await? {
            Reply::Errand(done) => Ok(done),
            Reply::NotHere => Err(NoAnswer::NotAsked),
            Reply::Outcome(_) | Reply::Quorum(_) => Err(NoAnswer::Unknown),
        }
    }

    async fn call(
        &self,
        to: NodeId,
        kind: u8,
        parts: impl FnOnce(u64) -> frames::Parts,
    ) -> Result<Reply, NoAnswer> {
        let shared = self.shared.get().ok_or(NoAnswer::NotAsked)?;
        let call = shared.calls.begin(to, shared.requests_max).ok_or(NoAnswer::NotAsked)?;
        if !self.links.send(to, Channel::Control, kind, &parts(call.id)) {
            return Err(NoAnswer::NotAsked);
        }
        call.answered().await.ok_or(NoAnswer::Unknown)
    }

    /// How the links stand.
    pub(crate) fn status(&self) -> Vec<LinkStatus> {
        self.links.status()
    }

    /// Who was not let in since the start, and why.
    pub(crate) fn refused(&self) -> Vec<(NodeId, String)> {
        let Some(shared) = self.shared.get() else { return Vec::new() };
        let visitors = shared.visitors();
        visitors.refused.iter().map(|(&node, why)| (node, why.clone())).collect()
    }

    /// Why some of `nodes` cannot be reached, for a human.
    pub(crate) fn unreachable(&self) -> Vec<String> {
        let lines = self.status().into_iter().filter_map(|status| match status.control {
            link::State::Connected { .. } => None,
            link::State::Dialling { reason, .. } => {
                Some(format!("node {} at {}: {reason}", status.node, status.address))
            }
        });
        lines.collect()
    }

    /// Ends everything: nothing is sent or read any more.
    pub(crate) fn cut(&self) {
        if let Some(shared) = self.shared.get() {
            shared.stop.cut();
        }
        self.links.end();
    }
}

impl Shared {
    /// Who this node is at this moment: it may have joined a cluster since.
    fn me(&self) -> Me {
        Me {
            cluster: self.quorum.state().cluster.map(|cluster| cluster.0),
            node: self.node,
            directory: self.directory,
            start: self.start,
            address: self.address.clone(),
        }
    }

    fn visitors(&self) -> MutexGuard<'_, Visitors> {
        self.visitors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What speaks against letting `hello` in: its node has started again since, or is there with
    /// another data directory. A directory that is silent, and fenced, shuts nobody out: its disk
    /// may have been replaced. That it is fenced, or that another took its place, is heard from
    /// the leader alone, so without one what the metadata says may be long over: the very node
    /// that is shut out for it may be the leader, or have the vote that one needs.
    fn known(&self, hello: &Hello) -> Option<Known> {
        if let Some(visitor) = self.visitors().known.get(&hello.node)
            && (visitor.known.directory == hello.directory || visitor.connections > 0)
        {
            return Some(visitor.known);
        }
        self.quorum.state().leader(self.node)?;
        let state = self.catalog.read();
        let registered = state.image.node(hello.node)?;
        let directory = registered.directory;
        let is_there = !registered.fenced && directory != DirectoryId::NONE;
        (is_there && directory.0 != hello.directory)
            .then_some(Known { directory: directory.0, start: 0 })
    }

    fn gone(&self) -> MutexGuard<'_, BTreeMap<NodeId, NodeEpoch>> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of the node that this node knows of has ended, or there is a connection again.
    fn note_gone(&self, node: NodeId, is_gone: bool) {
        let life = self.catalog.read().image.node(node).map(|known| known.epoch);
        match life.filter(|_| is_gone) {
            Some(life) => {
                self.gone().insert(node, life);
                self.died.notify_one();
            }
            None => {
                self.gone().remove(&node);
            }
        }
    }

    fn note_refusal(&self, node: NodeId, refusal: &Refusal) {
        let why = refusal.to_string();
        let mut visitors = self.visitors();
        let refused = &mut visitors.refused;
        let is_known = refused.get(&node) == Some(&why);
        if !is_known && (refused.len() < REFUSALS_MAX || refused.contains_key(&node)) {
            // Once for the operator, not at each attempt.
            tracing::warn!(%node, why, "a node that dialled was not let in");
            refused.insert(node, why);
        }
    }

    /// A peer was let in: it is dialled where it listens, as long as it is there.
    fn enter(self: &Arc<Self>, hello: &Hello) -> Visit {
        let known = Known { directory: hello.directory, start: hello.start };
        let mut visitors = self.visitors();
        visitors.refused.remove(&hello.node);
        let address = hello.address.clone();
        let fresh = Visitor { known, address, connections: 0 };
        let visitor = visitors.known.entry(hello.node).or_insert_with(|| fresh.clone());
        if visitor.known != known {
            *visitor = fresh;
        }
        visitor.connections += 1;
        drop(visitors);
        self.aim();
        Visit { shared: Arc::clone(self), node: hello.node, known }
    }

    fn hearsay(&self) -> MutexGuard<'_, BTreeMap<NodeId, String>> {
        self.hearsay.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A peer says that `leader` leads, and listens at `address`: a node that is not registered
    /// yet may know neither from anywhere else.
    fn hear_of(self: &Arc<Self>, leader: NodeId, address: &str) {
        if address.len() > ADDRESS_BYTES_MAX || split_address(address).is_none() {
            return;
        }
        let mut hearsay = self.hearsay();
        if hearsay.get(&leader).is_some_and(|known| known == address) {
            return;
        }
        if hearsay.len() >= HEARSAY_MAX && !hearsay.contains_key(&leader) {
            hearsay.clear();
        }
        hearsay.insert(leader, address.to_owned());
        drop(hearsay);
        self.aim();
    }

    fn reply(&self, to: NodeId, id: u64, reply: &Reply) {
        self.links.send(to, Channel::Control, REPLY, &frames::reply(id, reply));
    }

    /// Links lead to the voters, to leaders that this node was told of, to whoever is registered,
    /// and to whoever is connected: what a node says of itself counts most, what the configuration
    /// says least.
    fn aim(self: &Arc<Self>) {
        let _aiming = self.aiming.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stop.pace() != Pace::Serve {
            return;
        }
        let mut wanted = self.voters.clone();
        wanted.extend(self.hearsay().clone());
        wanted.extend(registered(&self.catalog.read().image));
        for (&node, visitor) in &self.visitors().known {
            if visitor.connections > 0 && !visitor.address.is_empty() {
                wanted.insert(node, visitor.address.clone());
            }
        }
        wanted.remove(&self.node);
        self.links.aim(self, &wanted);
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        {
            let mut visitors = self.shared.visitors();
            let Some(visitor) = visitors.known.get_mut(&self.node) else { return };
            if visitor.known != self.known {
                return;
            }
            visitor.connections -= 1;
        }
        self.shared.aim();
    }
}

/// Where the registered nodes listen for peers.
fn registered(image: &metadata::Image) -> BTreeMap<NodeId, String> {
    let nodes = image.nodes().filter(|node| !node.peer.host.is_empty());
    nodes.map(|node| (node.id, node.peer.to_string())).collect()
}

/// Tells the controller, whenever it is here, whose process is gone: a session need not end first.
async fn bury(shared: Arc<Shared>) {
    let mut seen = shared.quorum.state();
    loop {
        tokio::select! {
            biased;
            () = shared.stop.told() => return,
            state = shared.quorum.until(|state| (state != seen).then_some(state)) => seen = state,
            () = shared.died.notified() => {}
        }
        if seen.leader(shared.node) != Some(shared.node) {
            continue;
        }
        let gone = shared.gone().clone();
        for (node, node_epoch) in gone {
            tracing::info!(%node, "nobody listens where the node did: its process is gone");
            let input = ShardInput::Controller(Input::Gone { node, node_epoch });
            if shared.shards[0].tell(Command::Tell(input)).await.is_err() {
                return;
            }
        }
    }
}

/// Aims the links whenever the cluster's nodes change, until the node stops.
async fn follow(shared: Arc<Shared>) {
    let mut aimed = BTreeMap::new();
    loop {
        tokio::select! {
            biased;
            () = shared.stop.told() => return,
            () = shared.catalog.until(|state| registered(&state.image) != aimed) => {}
        }
        aimed = registered(&shared.catalog.read().image);
        // Who is not registered and not connected is forgotten, and with it its starts.
        let nodes: BTreeSet<NodeId> = aimed.keys().copied().collect();
        shared.visitors().known.retain(|node, visitor| {
            visitor.connections > 0 || nodes.contains(node) || shared.voters.contains_key(node)
        });
        shared.hearsay().retain(|node, _| !nodes.contains(node));
        shared.aim();
    }
}
