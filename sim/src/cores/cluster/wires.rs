//! What lies between nodes, and between clients and nodes, in the world of cores. Between nodes a
//! message may be late, lost, repeated and overtaken: the machines bear that.

use std::time::Duration;

use crate::chance::{Between, Chance, Ratio};
use crate::fault::cut::Direction;
use crate::plan::{Link, Plan};

/// How much later than usual a message may be that is overtaken by others.
const LATE: Duration = Duration::from_millis(200);

/// One direction between two nodes.
#[derive(Clone, Copy, Default)]
struct Wire {
    /// Nothing passes before this time.
    cut_until: Duration,
    slow_until: Duration,
    extra: Duration,
    /// When the last message arrives.
    arrives: Duration,
}

/// What lies between a client and a node.
#[derive(Clone, Copy, Default)]
struct ClientLink {
    /// Nothing passes before these times.
    to_node: Duration,
    from_node: Duration,
    /// Answers sent before this time are lost.
    replies_lost: Duration,
    slow_until: Duration,
    extra: Duration,
    /// When something was sent last, and when it arrives.
    sent: Duration,
    arrives: Duration,
    /// What was sent before this time and arrives later was on a connection that broke.
    reset_at: Duration,
}

/// What a seed does to messages between nodes, all the time until the healing.
#[derive(Clone, Copy)]
struct Weather {
    loss: Ratio,
    doubling: Ratio,
    /// How often a message is late; others overtake it.
    lateness: Ratio,
    /// Whether what is not late keeps its order.
    in_order: bool,
}

impl Weather {
    const FAIR: Self =
        Self { loss: Ratio::NEVER, doubling: Ratio::NEVER, lateness: Ratio::NEVER, in_order: true };

    fn draw(chance: &mut Chance) -> Self {
        let rare = [Ratio::NEVER, Ratio::NEVER, Ratio::new(1, 1000), Ratio::new(1, 100)];
        Self {
            loss: *chance.pick(&rare),
            doubling: *chance.pick(&[Ratio::NEVER, Ratio::new(1, 100), Ratio::new(1, 10)]),
            lateness: *chance.pick(&rare),
            in_order: chance.one_in(2),
        }
    }
}

pub(super) struct Wires {
    nodes: usize,
    wires: Vec<Wire>,
    clients: Vec<ClientLink>,
    latency: Between<Duration>,
    weather: Weather,
    chance: Chance,
    client_chance: Chance,
}

impl Wires {
    pub(super) fn new(plan: &Plan) -> Self {
        let nodes = plan.cluster.nodes as usize;
        let Link { latency, .. } = plan.link;
        let clients = plan.clients_end() as usize;
        Self {
            nodes,
            wires: vec![Wire::default(); nodes * nodes],
            clients: vec![ClientLink::default(); clients * nodes],
            latency,
            weather: Weather::draw(&mut Chance::new(plan.seed, "weather")),
            chance: Chance::new(plan.seed, "wires"),
            client_chance: Chance::new(plan.seed, "links"),
        }
    }

    fn wire(&mut self, from: usize, to: usize) -> &mut Wire {
        &mut self.wires[from * self.nodes + to]
    }

    /// When a message that is sent now arrives: never, once or twice.
    pub(super) fn send(&mut self, now: Duration, from: usize, to: usize) -> [Option<Duration>; 2] {
        let Weather { loss, doubling, lateness, in_order } = self.weather;
        if self.chance.hit(loss) {
            return [None, None];
        }
        let late = self.chance.hit(lateness).then(|| self.chance.below(LATE.as_nanos() as u64));
        let again = self.chance.hit(doubling).then(|| self.chance.below(LATE.as_nanos() as u64));
        let latency = self.chance.duration(self.latency);
        let wire = *self.wire(from, to);
        // Some of what is sent into a cut is sent again by the connection, and arrives after it.
        if now < wire.cut_until && !self.chance.one_in(4) {
            return [None, None];
        }
        let extra = if now < wire.slow_until { wire.extra } else { Duration::ZERO };
        let mut at = now.max(wire.cut_until) + latency + extra;
        if in_order && late.is_none() {
            at = at.max(wire.arrives);
            self.wire(from, to).arrives = at;
        }
        at += Duration::from_nanos(late.unwrap_or(0));
        [Some(at), again.map(|more| at + Duration::from_nanos(more))]
    }

    /// Whether `from` reaches `to` now.
    pub(super) fn reaches(&mut self, now: Duration, from: usize, to: usize) -> bool {
        now >= self.wire(from, to).cut_until
    }

    pub(super) fn latency(&mut self) -> Duration {
        self.chance.duration(self.latency)
    }

    /// Between `node` and `other`, as `node` sees it.
    pub(super) fn cut(&mut self, node: usize, other: usize, direction: Direction, until: Duration) {
        if direction != Direction::FromNode {
            self.wire(other, node).cut_until = until;
        }
        if direction != Direction::ToNode {
            self.wire(node, other).cut_until = until;
        }
    }

    pub(super) fn slow(&mut self, node: usize, other: usize, extra: Duration, until: Duration) {
        for (from, to) in [(node, other), (other, node)] {
            let wire = self.wire(from, to);
            (wire.extra, wire.slow_until) = (extra, until);
        }
    }

    fn client(&mut self, client: u32, node: usize) -> &mut ClientLink {
        &mut self.clients[client as usize * self.nodes + node]
    }

    fn client_latency(&mut self, client: u32, node: usize, now: Duration) -> Duration {
        let link = *self.client(client, node);
        let extra = if now < link.slow_until { link.extra } else { Duration::ZERO };
        self.client_chance.duration(self.latency) + extra
    }

    /// When what a client sends now reaches the node: not before what it sent at the same time.
    pub(super) fn request_arrives(&mut self, client: u32, node: usize, now: Duration) -> Duration {
        let latency = self.client_latency(client, node, now);
        let link = self.client(client, node);
        let mut at = link.to_node.max(now) + latency;
        if link.sent == now {
            at = at.max(link.arrives);
        }
        (link.sent, link.arrives) = (now, at);
        at
    }

    /// When what the node sends now reaches the client; `None` for never.
    pub(super) fn reply_arrives(
        &mut self,
        client: u32,
        node: usize,
        now: Duration,
    ) -> Option<Duration> {
        let latency = self.client_latency(client, node, now);
        let link = self.client(client, node);
        (now >= link.replies_lost).then(|| link.from_node.max(now) + latency)
    }

    /// Whether what was sent at `sent` still arrives, although its connection may have broken.
    pub(super) fn survives(&mut self, client: u32, node: usize, sent: Duration) -> bool {
        sent >= self.client(client, node).reset_at || self.client_chance.one_in(2)
    }

    fn clients_of(
        &mut self,
        client: Option<u32>,
        node: usize,
    ) -> impl Iterator<Item = &mut ClientLink> {
        let nodes = self.nodes;
        let links = self.clients.iter_mut().skip(node).step_by(nodes).enumerate();
        links
            .filter(move |(place, _)| client.is_none_or(|client| client as usize == *place))
            .map(|(_, link)| link)
    }

    pub(super) fn cut_clients(
        &mut self,
        client: Option<u32>,
        node: usize,
        direction: Direction,
        until: Duration,
    ) {
        for link in self.clients_of(client, node) {
            if direction != Direction::FromNode {
                link.to_node = until;
            }
            if direction != Direction::ToNode {
                link.from_node = until;
            }
        }
    }

    pub(super) fn slow_clients(
        &mut self,
        client: Option<u32>,
        node: usize,
        extra: Duration,
        until: Duration,
    ) {
        for link in self.clients_of(client, node) {
            (link.extra, link.slow_until) = (extra, until);
        }
    }

    pub(super) fn lose_replies(&mut self, client: Option<u32>, node: usize, until: Duration) {
        self.clients_of(client, node).for_each(|link| link.replies_lost = until);
    }

    pub(super) fn reset_clients(&mut self, client: Option<u32>, node: usize, now: Duration) {
        self.clients_of(client, node).for_each(|link| link.reset_at = now);
    }

    /// Ends all faults.
    pub(super) fn heal(&mut self) {
        self.wires.fill(Wire::default());
        self.clients.fill(ClientLink::default());
        self.weather = Weather::FAIR;
    }
}
