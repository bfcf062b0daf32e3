//! Members of a quorum with their disks, clocks and a network that loses, doubles, delays and
//! overtakes; every step is watched by the shadow.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quorate_core::id::{NodeId, RequestId};
use quorate_core::machine::Machine;
use quorate_core::quorum::interface::{
    Body, Change, DirectoryId, Effect, Index, Input, Limits, Member, Message, Outcome, Recovered,
    Refusal, Role, Setup, Term,
};
use quorate_core::quorum::{Quorum, votes};
use quorate_core::rng::{Ratio, Rng};
use quorate_core::time::{Instant, Now, Timestamp};

use super::disk::Disk;
use super::shadow::{App, Shadow};

const MESSAGES_MAX: usize = 400;

pub(crate) struct Node {
    pub(crate) member: Member,
    pub(crate) quorum: Option<Quorum>,
    pub(crate) disk: Disk,
    pub(crate) app: App,
    /// The application asked for it, or was asked.
    pub(crate) wants_snapshot: bool,
    /// When it started, in the world's time; its own clock began at zero then.
    started: u64,
    /// Its clock's speed, in thousandths of the world's.
    speed: u64,
    committed: Index,
}

impl Node {
    fn now(&self, world: u64) -> Now {
        let micros = (world - self.started) * self.speed / 1000;
        Now { monotonic: Instant::from_micros(micros), wall: Timestamp::NONE }
    }

    /// When its deadline comes, in the world's time.
    fn deadline(&self) -> Option<u64> {
        let deadline = self.quorum.as_ref()?.deadline()?.as_duration().as_micros();
        Some(self.started + (u64::try_from(deadline).expect("short") * 1000).div_ceil(self.speed))
    }
}

pub(crate) struct World {
    pub(crate) rng: Rng,
    /// Microseconds.
    pub(crate) time: u64,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) messages: Vec<(NodeId, Message)>,
    /// Pairs between which nothing passes, in this direction.
    pub(crate) cuts: BTreeSet<(NodeId, NodeId)>,
    pub(crate) shadow: Shadow,
    pub(crate) limits: Limits,
    founders: BTreeSet<NodeId>,
    pub(crate) wiped: BTreeSet<Member>,
    next_request: u64,
    next_directory: u8,
}

impl World {
    pub(crate) fn new(seed: u64, voters: i32, others: i32) -> Self {
        let mut rng = Rng::new(seed);
        let limits = draw_limits(&mut rng);
        let mut world = Self {
            rng,
            time: 1_000_000,
            nodes: BTreeMap::new(),
            messages: Vec::new(),
            cuts: BTreeSet::new(),
            shadow: Shadow::default(),
            limits,
            founders: (1..=voters).map(NodeId).collect(),
            wiped: BTreeSet::new(),
            next_request: 0,
            next_directory: 0,
        };
        for id in 1..=voters + others {
            let node = Node {
                member: Member { node: NodeId(id), directory: world.directory() },
                quorum: None,
                disk: Disk::default(),
                app: App::default(),
                wants_snapshot: false,
                started: 0,
                speed: 950 + world.rng.below(100),
                committed: Index::ZERO,
            };
            world.nodes.insert(NodeId(id), node);
            world.start(NodeId(id));
        }
        world
    }

    fn directory(&mut self) -> DirectoryId {
        self.next_directory += 1;
        DirectoryId([self.next_directory; 16])
    }

    pub(crate) fn request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    pub(crate) fn any_node(&mut self) -> NodeId {
        NodeId(1 + i32::try_from(self.rng.below(self.nodes.len() as u64)).expect("small"))
    }

    pub(crate) fn is_up(&self, id: NodeId) -> bool {
        self.nodes[&id].quorum.is_some()
    }

    /// The node that is in charge in the newest term, if any.
    pub(crate) fn leading(&self) -> Option<(NodeId, Term)> {
        let leads = |(id, node): (&NodeId, &Node)| match node.quorum.as_ref()?.role() {
            Role::Leading { term } => Some((term, *id)),
            Role::Following { .. } => None,
        };
        self.nodes.iter().filter_map(leads).max().map(|(term, id)| (id, term))
    }

    pub(crate) fn start(&mut self, id: NodeId) {
        let seed = self.rng.u64();
        let recovered = {
            let node = self.nodes.get_mut(&id).expect("a node");
            node.disk.crash(0)
        };
        // Who writes configuration files knows who votes now: a lone founder of long ago would
        // otherwise found a second cluster when its disk is lost.
        let voters = self.shadow.configuration().into_iter().flat_map(|all| &all.voters);
        let founders =
            voters.map(|voter| voter.node).chain(self.founders.iter().copied()).collect();
        let setup = Setup { me: self.nodes[&id].member, founders };
        let quorum = Quorum::new(setup, recovered, self.limits.clone(), seed);
        let time = self.time;
        let node = self.nodes.get_mut(&id).expect("a node");
        node.quorum = Some(quorum);
        node.app = App::default();
        node.wants_snapshot = false;
        node.started = time;
        node.committed = Index::ZERO;
        self.step(id, Input::Tick);
    }

    /// The power fails; some writes may have landed.
    pub(crate) fn crash(&mut self, id: NodeId) {
        let landed = self.rng.below(3);
        let node = self.nodes.get_mut(&id).expect("a node");
        node.quorum = None;
        node.disk.crash(usize::try_from(landed).expect("small"));
    }

    /// The disk is lost: from here on it is somebody else.
    pub(crate) fn wipe(&mut self, id: NodeId) {
        let directory = self.directory();
        let node = self.nodes.get_mut(&id).expect("a node");
        self.wiped.insert(node.member);
        node.member = Member { node: id, directory };
        node.disk = Disk::default();
        node.quorum = None;
    }

    /// Whether every configuration that somebody might act on keeps its majority without the
    /// wiped voters and without `also`.
    pub(crate) fn survives(&self, also: Option<Member>) -> bool {
        let logs = self.nodes.values().flat_map(|node| {
            [node.disk.durable().log.configuration(), node.disk.issued().log.configuration()]
        });
        let mut all = logs.chain([self.shadow.configuration()]).flatten();
        all.all(|configuration| {
            let gone = |voter: Member| Some(voter) == also || self.wiped.contains(&voter);
            configuration.has_majority(|voter| !gone(voter))
        })
    }

    pub(crate) fn deliver(&mut self, place: usize) {
        let (to, message) = self.messages.remove(place);
        if self.is_up(to) && !self.cuts.contains(&(message.from.node, to)) {
            self.step(to, Input::Received(message));
        }
    }

    pub(crate) fn complete(&mut self, id: NodeId, count: usize) {
        let node = self.nodes.get_mut(&id).expect("a node");
        if node.quorum.is_some()
            && let Some(through) = node.disk.complete(count)
        {
            self.step(id, Input::Persisted { through });
        }
    }

    /// Time passes; whose deadline comes is told, in the order of deadlines.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.time + u64::try_from(time.as_micros()).expect("short");
        loop {
            let due = self.nodes.iter().filter_map(|(id, node)| Some((node.deadline()?, *id)));
            let Some((at, id)) = due.min().filter(|(at, _)| *at <= end) else { break };
            self.time = self.time.max(at);
            self.step(id, Input::Tick);
            let after = self.nodes[&id].deadline();
            assert!(after.is_none_or(|after| after > self.time), "the driver would spin");
        }
        self.time = end;
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.nodes.values().filter_map(Node::deadline).min()
    }

    pub(crate) fn step(&mut self, id: NodeId, input: Input) {
        let node = self.nodes.get_mut(&id).expect("a node");
        let Some(mut quorum) = node.quorum.take() else { return };
        let now = node.now(self.time);
        let before = quorum.deadline();
        let is_pre_vote =
            matches!(&input, Input::Received(Message { body: Body::PreVote { .. }, .. }));
        let is_resignation = input == Input::Resign;
        let mut effects = Vec::new();
        quorum.step(now, input, &mut effects);
        quorum.check();
        if is_pre_vote {
            assert_eq!(quorum.deadline(), before, "a pre-vote moves the next election");
            let writes = effects.iter().any(|effect| matches!(effect, Effect::Persist { .. }));
            assert!(!writes, "a pre-vote leaves a trace");
        }
        if is_resignation {
            assert!(quorum.leader() != Some(id), "it resigned and leads");
        }
        for effect in effects {
            self.perform(id, &quorum, effect);
        }
        self.watch(id, &quorum);
        self.nodes.get_mut(&id).expect("a node").quorum = Some(quorum);
    }

    fn perform(&mut self, id: NodeId, quorum: &Quorum, effect: Effect) {
        let node = self.nodes.get_mut(&id).expect("a node");
        match effect {
            Effect::Persist { write, op } => node.disk.write(write, op),
            Effect::Send { to, message } => self.send(id, to, message, quorum),
            Effect::Committed { entries } => {
                self.shadow.on_committed(&mut node.app, quorum.term(), &entries);
                let durable = node.disk.durable();
                let last = node.app.applied;
                self.shadow.on_acknowledged(last, quorum, durable);
            }
            Effect::Restore { snapshot } => self.shadow.on_restore(&mut node.app, &snapshot),
            Effect::TakeSnapshot => node.wants_snapshot = true,
            Effect::Reply { request, outcome } => match outcome {
                Outcome::Committed { position } => self.shadow.on_answered(request, position),
                Outcome::Readable { through } => {
                    self.shadow.on_readable(request, through, &node.app);
                }
                Outcome::Transferred | Outcome::Described(_) | Outcome::Refused(_) => {
                    assert_ne!(outcome, Outcome::Refused(Refusal::Storage));
                }
            },
            Effect::RoleChanged(_) => {}
            Effect::Halt { reason } => panic!("{reason:?}"),
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: Message, quorum: &Quorum) {
        let directory = message.to;
        let meant = directory.map(|directory| Member { node: to, directory });
        let disk = self.nodes[&from].disk.durable();
        self.shadow.on_sent(&message, meant, disk);
        if let Body::Appended { through, .. } | Body::HeartbeatReply { through, .. } = message.body
        {
            self.shadow.on_acknowledged(through, quorum, disk);
        }
        if self.messages.len() >= MESSAGES_MAX {
            let place = self.rng.below(MESSAGES_MAX as u64);
            self.messages.remove(usize::try_from(place).expect("small"));
        }
        let through_bytes = self.rng.happens(Ratio::new(1, 16));
        let message = if through_bytes {
            Message::from_bytes(&message.to_bytes()).expect("a message of ours")
        } else {
            message
        };
        self.messages.push((to, message));
    }

    /// What can be said of a node after each step.
    fn watch(&mut self, id: NodeId, quorum: &Quorum) {
        let node = &self.nodes[&id];
        let issued = node.disk.issued();
        assert_eq!(quorum.log().last(), issued.log.last(), "the disk is not told everything");
        assert_eq!(quorum.log().base(), issued.log.base(), "the disk keeps something else");
        assert_eq!(quorum.term(), issued.hard.term);
        assert_eq!(quorum.configuration(), issued.log.configuration(), "the disk has other voters");
        let member = node.member;
        let committed = quorum.committed();
        let is_leader = quorum.leader() == Some(id);
        if is_leader {
            self.shadow.on_leader(member, quorum);
            if committed > node.committed && committed > quorum.log().base().index {
                let disks = self.nodes.values();
                let disks: BTreeMap<Member, &Recovered> =
                    disks.map(|node| (node.member, node.disk.durable())).collect();
                self.shadow.on_leader_committed(quorum, &disks);
            }
        }
        self.nodes.get_mut(&id).expect("a node").committed = committed;
    }

    /// Everybody's status line.
    pub(crate) fn status(&self) -> String {
        let quorums = self.nodes.values().filter_map(|node| node.quorum.as_ref());
        let voters = |quorum: &Quorum| {
            let voters = quorum.configuration().into_iter().flat_map(|all| &all.voters);
            voters.map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        quorums.map(|quorum| format!("\n  {quorum} voters={}", voters(quorum))).collect()
    }

    pub(crate) fn take_snapshot(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).expect("a node");
        node.wants_snapshot = false;
        let (through, data) = (node.app.applied, node.app.snapshot());
        self.step(id, Input::SnapshotTaken { through, data });
    }

    /// One voter more or less, never so that the wiped ones could block the rest.
    pub(crate) fn change(&mut self, id: NodeId) {
        let quorum = self.nodes[&id].quorum.as_ref();
        let Some(configuration) = quorum.and_then(|quorum| quorum.configuration()).cloned() else {
            return;
        };
        let mut voters = configuration.voters.clone();
        let other = self.any_node();
        let voter = configuration.on_node(other).next();
        let change = match voter {
            Some(voter) if self.rng.below(2) == 0 || voter == self.nodes[&other].member => {
                voters.remove(&voter);
                Change::RemoveVoter(voter)
            }
            _ => {
                voters.insert(self.nodes[&other].member);
                Change::AddVoter(self.nodes[&other].member)
            }
        };
        let gone = voters.iter().filter(|voter| self.wiped.contains(voter)).count();
        if gone * 2 < voters.len() && voters.len() <= 6 {
            let request = self.request();
            self.step(id, Input::Change { request, change });
        }
    }
}

impl World {
    /// The rule of `votes`, as the node `id` sees it; whether there was something to do.
    pub(crate) fn restore_votes(&mut self, id: NodeId) -> bool {
        let node = &self.nodes[&id];
        let Some(quorum) = &node.quorum else { return false };
        let current = |node| self.nodes.get(&node).map(|node| node.member);
        let behind_max = self.limits.catch_up_entries;
        let status = quorum.status(node.now(self.time));
        let Some(change) = votes::next_change(&status, current, behind_max) else { return false };
        let request = self.request();
        self.step(id, Input::Change { request, change });
        true
    }

    /// A vote that is kept, or of a lost disk whose node has another one without a vote.
    pub(crate) fn missing_vote(&self) -> Option<NodeId> {
        let voters = self.shadow.configuration()?;
        let lost = voters.voters.iter().filter(|voter| self.wiped.contains(voter));
        let has_other = |node: NodeId| voters.is_voter(self.nodes[&node].member);
        let lost = lost.map(|voter| voter.node).find(|node| !has_other(*node));
        voters.kept.first().copied().or(lost)
    }
}

fn draw_limits(rng: &mut Rng) -> Limits {
    Limits {
        election_timeout: Duration::from_millis(500),
        heartbeat_interval: Duration::from_millis(50 + rng.below(100)),
        observer_timeout: Duration::from_secs(2),
        observers_max: 10,
        inflight_max: usize::try_from(1 + rng.below(6)).expect("small"),
        inflight_bytes_max: 1 + rng.below(500),
        append_bytes_max: 1 + rng.below(300),
        entry_bytes_max: 100,
        uncommitted_bytes_max: 200 + rng.below(2000),
        requests_max: usize::try_from(1 + rng.below(20)).expect("small"),
        snapshot_after_bytes: 100 + rng.below(2000),
        entries_kept: rng.below(6),
        snapshot_bytes_max: 1000,
        chunk_bytes: 8 + rng.below(30),
        catch_up_entries: rng.below(5),
        restores_votes: true,
    }
}
