//! The simulated network: hosts, links with a delay, a width and cuts per direction, and what
//! becomes of connections when a host dies.
//!
//! The ends of connections are in `connection.rs`, what programs hold in `stream.rs`, how they get
//! it in `dial.rs`.

pub mod connection;
pub mod dial;
pub mod stream;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::time::Duration;

use madsim::task::NodeId;
use madsim::time::TimeHandle;
use quorate_net::transport::Network;

use self::connection::Connection;
use self::dial::HostNetwork;
use crate::chance::{Between, Chance};
use crate::plan;
use crate::trace::{self, Mark};

/// A machine in the network.
pub type HostId = usize;

/// Names a connection; rises.
pub type ConnectionId = u64;

/// All hosts and what is between them.
pub struct SimNetwork {
    time: TimeHandle,
    state: Mutex<State>,
}

pub(super) struct State {
    time: TimeHandle,
    seed: u64,
    model: plan::Link,
    hosts: Vec<Host>,
    links: BTreeMap<(HostId, HostId), Link>,
    listeners: BTreeMap<SocketAddr, Listening>,
    connections: BTreeMap<ConnectionId, Connection>,
    next_connection: ConnectionId,
}

struct Host {
    name: &'static str,
    address: IpAddr,
    node: Option<NodeId>,
    /// The machine has power.
    up: bool,
    /// The next death takes the machine, not only the process.
    loses_power: bool,
    /// Rises with each death: what an earlier life holds does nothing.
    incarnation: u32,
    next_port: u16,
}

/// One direction between two hosts.
struct Link {
    chance: Chance,
    /// How many cuts lie on it.
    cuts: u32,
    /// Added to the delay.
    extra: Duration,
    /// Until when earlier segments occupy it.
    busy_until: Duration,
}

struct Listening {
    host: HostId,
    backlog: VecDeque<(Duration, ConnectionId, SocketAddr)>,
    waker: Option<Waker>,
}

/// Connections that wait to be accepted, per listener.
const BACKLOG_MAX: usize = 128;

impl SimNetwork {
    pub(super) fn new(time: TimeHandle) -> Self {
        let never = Between { low: Duration::ZERO, high: Duration::ZERO };
        let fragment = crate::chance::Ratio::NEVER;
        let state = State {
            time: time.clone(),
            seed: 0,
            model: plan::Link { latency: never, bandwidth: 0, window: 65536, fragment },
            hosts: Vec::new(),
            links: BTreeMap::new(),
            listeners: BTreeMap::new(),
            connections: BTreeMap::new(),
            next_connection: 0,
        };
        Self { time, state: Mutex::new(state) }
    }

    /// The node dies.
    pub(super) fn reset_node(&self, id: NodeId) {
        let mut state = self.state();
        if let Some(host) = state.hosts.iter().position(|host| host.node == Some(id)) {
            state.die(host);
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("one thread")
    }

    pub fn configure(&self, seed: u64, model: plan::Link) {
        let mut state = self.state();
        state.seed = seed;
        state.model = model;
    }

    /// Adds a host; its address is 10.0.0.(place + 1).
    pub fn add(&self, name: &'static str) -> HostId {
        let mut state = self.state();
        let place = state.hosts.len();
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, place as u8 + 1));
        state.hosts.push(Host {
            name,
            address,
            node: None,
            up: true,
            loses_power: false,
            incarnation: 0,
            next_port: 32768,
        });
        place
    }

    /// The host dies with this node from now on.
    pub fn attach(&self, node: NodeId, host: HostId) {
        self.state().hosts[host].node = Some(node);
    }

    pub fn address(&self, host: HostId) -> IpAddr {
        self.state().hosts[host].address
    }

    /// The network as programs on this host, in its present life, see it.
    pub fn of(self: &Arc<Self>, host: HostId) -> Arc<dyn Network> {
        let incarnation = self.state().hosts[host].incarnation;
        Arc::new(HostNetwork { network: Arc::clone(self), host, incarnation })
    }

    /// Whether the next death of the host is a loss of power.
    pub fn set_loses_power(&self, host: HostId, loses_power: bool) {
        self.state().hosts[host].loses_power = loses_power;
    }

    /// The machine has power again. Whoever still sends to its old connections is told so.
    pub fn power_on(&self, host: HostId) {
        let mut state = self.state();
        if std::mem::replace(&mut state.hosts[host].up, true) {
            return;
        }
        for (id, end) in state.ends_at(host) {
            if state.connections[&id].ends[end].unanswered {
                state.refuse(id, end);
            }
        }
    }

    /// Nothing passes from one host to the other, until `heal` was called as often.
    pub fn cut(&self, from: HostId, to: HostId) {
        self.state().link(from, to).cuts += 1;
    }

    pub fn heal(&self, from: HostId, to: HostId) {
        let mut state = self.state();
        let link = state.link(from, to);
        link.cuts = link.cuts.saturating_sub(1);
        if link.cuts == 0 {
            state.release(from, to);
        }
    }

    /// Ends every cut and every extra delay.
    pub fn heal_all(&self) {
        let mut state = self.state();
        let links: Vec<(HostId, HostId)> = state.links.keys().copied().collect();
        for (from, to) in links {
            let link = state.link(from, to);
            link.extra = Duration::ZERO;
            if std::mem::take(&mut link.cuts) > 0 {
                state.release(from, to);
            }
        }
    }

    /// Every segment from one host to the other takes so much longer.
    pub fn set_extra(&self, from: HostId, to: HostId, extra: Duration) {
        self.state().link(from, to).extra = extra;
    }

    /// Resets all connections between two hosts, wherever their bytes are.
    pub fn reset(&self, one: HostId, other: HostId) {
        let mut state = self.state();
        let between: Vec<ConnectionId> = state
            .connections
            .iter()
            .filter(|(_, connection)| connection.is_between(one, other))
            .map(|(id, _)| *id)
            .collect();
        for id in between {
            state.reset(id);
        }
    }
}

impl State {
    fn link(&mut self, from: HostId, to: HostId) -> &mut Link {
        let (seed, hosts) = (self.seed, &self.hosts);
        self.links.entry((from, to)).or_insert_with(|| {
            let source = format!("link {} {}", hosts[from].name, hosts[to].name);
            let chance = Chance::new(seed, &source);
            Link { chance, cuts: 0, extra: Duration::ZERO, busy_until: Duration::ZERO }
        })
    }

    fn is_cut(&mut self, from: HostId, to: HostId) -> bool {
        self.link(from, to).cuts > 0
    }

    /// When something of so many bytes, sent now, arrives.
    fn arrival(&mut self, from: HostId, to: HostId, bytes: usize) -> Duration {
        let now = self.time.elapsed();
        let (latency, bandwidth) = (self.model.latency, self.model.bandwidth);
        let link = self.link(from, to);
        let mut sent = now;
        if let Some(nanos) = (bytes as u64 * 1_000_000_000).checked_div(bandwidth) {
            sent = link.busy_until.max(now) + Duration::from_nanos(nanos);
            link.busy_until = sent;
        }
        sent + link.chance.duration(latency) + link.extra
    }

    fn host_of(&self, name: &str) -> Option<HostId> {
        match name.parse::<IpAddr>() {
            Ok(address) => self.hosts.iter().position(|host| host.address == address),
            Err(_) => self.hosts.iter().position(|host| host.name == name),
        }
    }

    fn free_port(&mut self, host: HostId) -> u16 {
        let host = &mut self.hosts[host];
        host.next_port = if host.next_port == u16::MAX { 32768 } else { host.next_port + 1 };
        host.next_port
    }

    fn die(&mut self, host: HostId) {
        let silent = std::mem::take(&mut self.hosts[host].loses_power);
        self.hosts[host].incarnation += 1;
        self.hosts[host].up = !silent;
        self.listeners.retain(|_, listening| listening.host != host);
        for (id, end) in self.ends_at(host) {
            if silent {
                self.vanish(id, end);
            } else {
                self.close(id, end);
            }
        }
        trace::event(
            self.time.elapsed(),
            Mark::Connection,
            self.hosts[host].name,
            [u64::from(silent), 0, 0],
            || if silent { "falls silent" } else { "closes its connections" },
        );
    }

    /// The ends that stand on a host.
    fn ends_at(&self, host: HostId) -> Vec<(ConnectionId, usize)> {
        let ends = self.connections.iter().flat_map(|(id, connection)| {
            (0..2).filter(|end| connection.ends[*end].host == host).map(|end| (*id, end))
        });
        ends.collect()
    }
}
