//! A node of the world of cores as a member of its cluster: it registers, says that it is there,
//! brings its leaders' wishes before the controller, and asks before it leaves. A thin version of
//! the node's own membership.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::controller::interface::{
    ChangeInSync, Heartbeat, InSyncChange, InSyncRefusal, Input, Outcome, ProblemKind,
    RegisterNode, Standing,
};
use quorate_core::id::RequestId;
use quorate_core::id::{DirectoryId, NodeEpoch, NodeId, PartitionEpoch, PartitionId, ProducerId};
use quorate_core::metadata::{Address, Wish};
use quorate_core::partition::interface::{
    InSyncChange as Wished, Input as ForReplica, ProposalProblem,
};
use quorate_core::shard::interface::Input as ShardInput;

use super::asks::Purpose;
use super::{Cluster, Event};
use crate::trace::Mark;

/// `broker.session.timeout.ms`.
pub(super) const SESSION: Duration = Duration::from_millis(1500);
/// Heartbeats in one session: a few may be lost.
const BEATS: u32 = 5;
/// A node that wishes to stop asks so often whether it may.
const STOPPING_INTERVAL: Duration = Duration::from_millis(20);
/// The wait before a refused registration is tried again.
const AGAIN: Duration = Duration::from_millis(50);
/// How long the controller is asked on behalf of leaders, who ask again by themselves.
const PROPOSING: Duration = Duration::from_secs(1);
/// How long a registration is asked for before it is begun anew.
const REGISTERING: Duration = Duration::from_secs(10);

/// What a node and the controller have said to one another.
#[derive(Default)]
pub(super) struct Member {
    /// Drawn at each start.
    pub(super) incarnation: u64,
    /// A registration is under way, or done.
    is_joining: bool,
    /// This life's, once the node has applied its registration.
    epoch: Option<NodeEpoch>,
    /// All that was decided before is open: the door is open.
    pub(super) is_ready: bool,
    pub(super) wish: Wish,
    /// Nothing more is said.
    pub(super) is_over: bool,
    beat_turn: u64,
    beat_began: Duration,
    is_beating: bool,
    pub(super) wishes: Vec<(PartitionId, Wished)>,
    is_proposing: bool,
    /// Ids that may be handed out.
    producer_ids: Option<(ProducerId, ProducerId)>,
    wants_producer_ids: bool,
}

impl Cluster {
    /// Registers, once somebody leads the cluster.
    pub(super) fn wants_to_join(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        let is_led = node.cluster.is_some() && node.leader().is_some();
        if is_led && !std::mem::replace(&mut node.member.is_joining, true) {
            self.register(n);
        }
    }

    fn register(&mut self, n: usize) {
        let node = &self.nodes[n];
        let cluster = node.cluster.map(|id| id.to_string()).unwrap_or_default();
        let name = Address { host: node.name.to_owned(), port: 9092 };
        let register = RegisterNode {
            node: node.id,
            incarnation: node.member.incarnation,
            cluster,
            directory: DirectoryId(node.directory()),
            address: name.clone(),
            peer: name,
            rack: node.rack.clone(),
            clean_stop: node.was_clean,
            ..RegisterNode::default()
        };
        self.ask(n, Purpose::Register, REGISTERING, Input::RegisterNode(register));
    }

    fn on_registered(&mut self, n: usize, outcome: Outcome) {
        match outcome {
            Outcome::NodeRegistered { node_epoch } => {
                self.nodes[n].keeper.registered = Some(node_epoch);
                self.wake_keeper(n);
            }
            Outcome::Refused(problem) => {
                let patience = match problem.kind {
                    // The node that had the id before counts as there for a session.
                    ProblemKind::DuplicateNode => SESSION / 4,
                    _ => AGAIN,
                };
                self.note(n, Mark::Node, 0, "is not registered yet");
                self.nodes[n].member.is_joining = false;
                self.beat_at(n, patience);
            }
            other => unreachable!("a node is registered, not {other:?}"),
        }
    }

    /// The node has looked at what was committed.
    pub(super) fn on_image(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        let next = node.keeper.image.next_node_epoch();
        let applied = node.keeper.registered.filter(|epoch| next > *epoch);
        if let Some(node_epoch) = applied.filter(|epoch| node.member.epoch < Some(*epoch)) {
            node.member.epoch = Some(node_epoch);
            self.tell(n, ShardInput::Registered { node_epoch });
        }
        let node = &mut self.nodes[n];
        let known = node.keeper.image.node(node.id);
        let is_known = known.is_some_and(|known| known.incarnation == node.member.incarnation);
        if node.keeper.is_current && is_known && !node.member.is_ready {
            node.member.is_ready = true;
            self.note(n, Mark::Node, 0, "is ready");
            self.beat_at(n, Duration::ZERO);
        }
    }

    /// The next heartbeat, or the next attempt to register, comes after `delay`.
    fn beat_at(&mut self, n: usize, delay: Duration) {
        let node = &mut self.nodes[n];
        node.member.beat_turn += 1;
        let (life, turn) = (node.life, node.member.beat_turn);
        self.agenda.after(delay, Event::Beat { n, life, turn });
    }

    /// What the node wishes is told at once.
    pub(super) fn beat_now(&mut self, n: usize) {
        if !self.nodes[n].member.is_beating {
            self.beat_at(n, Duration::ZERO);
        }
    }

    fn interval(&self, n: usize) -> Duration {
        match self.nodes[n].member.wish {
            Wish::Stop => STOPPING_INTERVAL,
            _ => SESSION / BEATS,
        }
    }

    pub(super) fn on_beat(&mut self, n: usize, turn: u64) {
        let interval = self.interval(n);
        let node = &mut self.nodes[n];
        if node.member.beat_turn != turn || node.member.is_over || node.member.is_beating {
            return;
        }
        let Some(node_epoch) = node.member.epoch.filter(|_| node.member.is_ready) else {
            self.wants_to_join(n);
            return;
        };
        node.member.is_beating = true;
        node.member.beat_began = self.agenda.now;
        let applied = node.keeper.image.next_node_epoch();
        let (id, wish) = (node.id, node.member.wish);
        let request = RequestId(0);
        let beat = Heartbeat { request, node: id, node_epoch, applied, wish };
        self.ask(n, Purpose::Beat, interval.max(AGAIN), Input::Heartbeat(beat));
    }

    fn on_beaten(&mut self, n: usize, outcome: Outcome) {
        let interval = self.interval(n);
        let node = &mut self.nodes[n];
        node.member.is_beating = false;
        let next = (node.member.beat_began + interval).saturating_sub(self.agenda.now);
        match outcome {
            Outcome::Heartbeat(standing) => self.on_standing(n, standing),
            Outcome::Refused(problem) => match problem.kind {
                ProblemKind::UnknownNode | ProblemKind::StaleNodeEpoch => {
                    if self.is_replaced(n) {
                        let why = format!("another life of it is registered: {}", problem.message);
                        self.shadow.blame("replaced", self.nodes[n].name, why);
                    }
                    self.note(n, Mark::Node, 0, "registers again");
                    self.register(n);
                }
                _ => {}
            },
            other => unreachable!("a heartbeat is answered with the standing, not {other:?}"),
        }
        if !self.nodes[n].member.is_over {
            self.beat_at(n, next);
        }
    }

    /// Whether the node has applied that another process registered in its place: there is none.
    fn is_replaced(&self, n: usize) -> bool {
        let node = &self.nodes[n];
        let known = node.keeper.image.node(node.id);
        known.is_some_and(|known| {
            Some(known.epoch) > node.member.epoch && known.incarnation != node.member.incarnation
        })
    }

    fn on_standing(&mut self, n: usize, standing: Standing) {
        if self.nodes[n].stopping.is_some() {
            self.on_stop_standing(n, standing.may_stop);
        }
    }

    /// Brings what the leaders here wish before the controller, unless that is under way.
    pub(super) fn propose(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        if node.member.is_proposing {
            return;
        }
        let wishes = std::mem::take(&mut node.member.wishes);
        let Some(node_epoch) = node.member.epoch else { return };
        node.member.is_proposing = true;
        let change = |(partition, wished): &(PartitionId, Wished)| InSyncChange {
            partition: *partition,
            leader_epoch: wished.leader_epoch,
            partition_epoch: wished.partition_epoch,
            in_sync: wished.in_sync.clone(),
        };
        let changes = wishes.iter().map(change).collect();
        let change = ChangeInSync { request: RequestId(0), node: node.id, node_epoch, changes };
        self.ask(n, Purpose::Propose(wishes), PROPOSING, Input::ChangeInSync(change));
    }

    fn on_proposed(&mut self, n: usize, wishes: &[(PartitionId, Wished)], outcome: Outcome) {
        let node = self.nodes[n].id;
        self.nodes[n].member.is_proposing = false;
        let refused: Vec<(PartitionId, ProposalProblem)> = match outcome {
            Outcome::InSyncChanged(told) => told
                .into_iter()
                .filter_map(|(partition, done)| Some((partition, problem(node, done.err()?))))
                .collect(),
            Outcome::Refused(why) => {
                let problem = match why.kind {
                    ProblemKind::StaleNodeEpoch | ProblemKind::UnknownNode => {
                        ProposalProblem::Fenced
                    }
                    _ => ProposalProblem::Behind,
                };
                wishes.iter().map(|(partition, _)| (*partition, problem)).collect()
            }
            other => unreachable!("the replicas in sync are changed, not {other:?}"),
        };
        let epochs: BTreeMap<PartitionId, PartitionEpoch> =
            wishes.iter().map(|(partition, wished)| (*partition, wished.partition_epoch)).collect();
        for (partition, problem) in refused {
            if let Some(&partition_epoch) = epochs.get(&partition) {
                let input = ForReplica::ProposalRefused { partition_epoch, problem };
                self.tell(n, ShardInput::Partition { partition, input });
            }
        }
        if !self.nodes[n].member.wishes.is_empty() {
            self.propose(n);
        }
    }

    /// An id for a producer; `None` while the node has none to give.
    pub(super) fn producer_id(&mut self, n: usize) -> Option<ProducerId> {
        let member = &mut self.nodes[n].member;
        let (next, end) = member.producer_ids.unwrap_or_default();
        if next < end {
            member.producer_ids = Some((ProducerId(next.0 + 1), end));
            return Some(next);
        }
        if !std::mem::replace(&mut member.wants_producer_ids, true) {
            let input =
                Input::AllocateProducerIds { request: RequestId(0), node: self.nodes[n].id };
            self.ask(n, Purpose::ProducerIds, PROPOSING, input);
        }
        None
    }

    /// The controller has answered, or nobody has in time.
    pub(super) fn on_answered(&mut self, n: usize, purpose: Purpose, outcome: Outcome) {
        match purpose {
            Purpose::Register => self.on_registered(n, outcome),
            Purpose::Beat => self.on_beaten(n, outcome),
            Purpose::Propose(wishes) => self.on_proposed(n, &wishes, outcome),
            Purpose::ProducerIds => {
                self.nodes[n].member.wants_producer_ids = false;
                if let Outcome::ProducerIds { first, end } = outcome {
                    self.shadow.on_producer_ids(first, end);
                    self.nodes[n].member.producer_ids = Some((first, end));
                }
            }
            Purpose::Operate => {}
            Purpose::Act { act, turn } => self.on_act_answered(act, turn, outcome),
        }
    }

    /// There is a new connection between two nodes.
    pub(super) fn on_connected(&mut self, n: usize, peer: usize) {
        self.nodes[n].gone.remove(&peer);
        let peer = self.nodes[peer].id;
        self.tell(n, ShardInput::Connected { peer });
    }

    /// Nobody listens where `peer` did: its process is gone.
    pub(super) fn on_gone(&mut self, n: usize, peer: usize) {
        let known = self.nodes[n].keeper.image.node(self.nodes[peer].id).map(|known| known.epoch);
        // It may listen again by now.
        if let Some(epoch) = known.filter(|_| !self.nodes[peer].is_up()) {
            self.nodes[n].gone.insert(peer, epoch);
            if self.nodes[n].leader() == Some(self.nodes[n].id) {
                self.tell_gone(n);
            }
        }
    }

    /// The controller here hears whose processes are gone.
    pub(super) fn tell_gone(&mut self, n: usize) {
        for (peer, node_epoch) in self.nodes[n].gone.clone() {
            let node = self.nodes[peer].id;
            self.tell(n, ShardInput::Controller(Input::Gone { node, node_epoch }));
        }
    }

    /// The node has just started: it and the others dial each other.
    pub(super) fn connect_all(&mut self, n: usize) {
        for peer in 0..self.nodes.len() {
            if peer != n && self.nodes[peer].is_up() {
                self.connect(n, peer);
            }
        }
    }

    /// A new connection between two nodes, where neither direction is cut.
    pub(super) fn connect(&mut self, n: usize, peer: usize) {
        let now = self.agenda.now;
        let both = self.wires.reaches(now, n, peer) && self.wires.reaches(now, peer, n);
        if !both || !self.nodes[n].is_up() || !self.nodes[peer].is_up() {
            return;
        }
        for (n, peer) in [(n, peer), (peer, n)] {
            let (life, latency) = (self.nodes[n].life, self.wires.latency());
            self.agenda.after(latency, Event::Connected { n, life, peer });
        }
    }

    /// The process has died and its host has not: whoever reaches it is told so.
    pub(super) fn bury(&mut self, peer: usize) {
        for n in 0..self.nodes.len() {
            let now = self.agenda.now;
            let hears = self.wires.reaches(now, n, peer) && self.wires.reaches(now, peer, n);
            if n != peer && hears && self.nodes[n].is_up() {
                let (life, latency) = (self.nodes[n].life, self.wires.latency() * 2);
                self.agenda.after(latency, Event::Gone { n, life, peer });
            }
        }
    }
}

const fn problem(node: NodeId, refusal: InSyncRefusal) -> ProposalProblem {
    match refusal {
        InSyncRefusal::ControllerBehind => ProposalProblem::Behind,
        InSyncRefusal::Ineligible(member) if member.0 == node.0 => ProposalProblem::Fenced,
        InSyncRefusal::Ineligible(member) => ProposalProblem::Ineligible(member),
        InSyncRefusal::UnknownPartition
        | InSyncRefusal::StaleLeaderEpoch
        | InSyncRefusal::StalePartitionEpoch
        | InSyncRefusal::Invalid => ProposalProblem::Stale,
    }
}
