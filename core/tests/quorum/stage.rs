//! The language of the scripts about the quorum: several members, whose messages wait until the
//! script delivers, drops or doubles them, and whose disks are done when it says so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::id::{NodeId, RequestId};
use quorate_core::machine::Machine;
use quorate_core::quorum::Quorum;
use quorate_core::quorum::interface::{
    Body, Change, ClusterId, Configuration, DirectoryId, Effect, Entry, Index, Input, Limits,
    LogOp, Member, Message, Outcome, Payload, Position, Role, Setup, Term,
};
use quorate_core::time::{Instant, Now, Timestamp};

use super::disk::Disk;
use super::script::{Command, Stage, millis};

struct Node {
    me: Member,
    quorum: Option<Quorum>,
    disk: Disk,
    applied: Index,
    started: Duration,
    life: u64,
}

/// Members, their disks, and what is on its way between them.
pub(crate) struct QuorumStage {
    time: Duration,
    nodes: BTreeMap<NodeId, Node>,
    messages: Vec<(NodeId, Message)>,
    founders: BTreeSet<NodeId>,
    limits: Limits,
    next_request: u64,
    next_directory: u8,
    is_instant: bool,
}

impl QuorumStage {
    pub(crate) fn new() -> Self {
        let limits = Limits { entries_kept: 0, chunk_bytes: 8, ..Limits::default() };
        Self {
            time: Duration::ZERO,
            nodes: BTreeMap::new(),
            messages: Vec::new(),
            founders: BTreeSet::new(),
            limits,
            next_request: 1,
            next_directory: 0,
            is_instant: false,
        }
    }

    /// `cluster voters=3 others=1 election=…`: nodes that have just been formatted.
    fn cluster(&mut self, command: &Command<'_>) -> String {
        let voters: i32 = command.read("voters").unwrap_or(3);
        let others: i32 = command.read("others").unwrap_or(0);
        for (key, value) in command.pairs() {
            let number = || value.parse().unwrap_or_else(|_| panic!("{key}={value}"));
            match key {
                "voters" | "others" => {}
                "requests_max" => self.limits.requests_max = number() as usize,
                "uncommitted_bytes_max" => self.limits.uncommitted_bytes_max = number(),
                "entry_bytes_max" => self.limits.entry_bytes_max = number(),
                "snapshot_after" => self.limits.snapshot_after_bytes = number(),
                "snapshot_bytes_max" => self.limits.snapshot_bytes_max = number(),
                "observers_max" => self.limits.observers_max = number() as usize,
                other => panic!("no such setting: {other}"),
            }
        }
        self.founders = (1..=voters).map(NodeId).collect();
        for id in 1..=voters + others {
            let me = self.member(NodeId(id));
            let (disk, applied, started) = (Disk::default(), Index::ZERO, self.time);
            let node = Node { me, quorum: None, disk, applied, started, life: 0 };
            self.nodes.insert(NodeId(id), node);
        }
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        ids.into_iter().map(|id| self.start(id)).collect()
    }

    fn member(&mut self, node: NodeId) -> Member {
        self.next_directory += 1;
        Member { node, directory: DirectoryId([self.next_directory; 16]) }
    }

    fn node(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).expect("such a node")
    }

    fn start(&mut self, id: NodeId) -> String {
        let (founders, limits, time) = (self.founders.clone(), self.limits.clone(), self.time);
        let node = self.node(id);
        let recovered = node.disk.crash(0);
        let seed = u64::try_from(id.0).expect("not negative") * 100 + node.life;
        node.life += 1;
        node.started = time;
        node.applied = Index::ZERO;
        node.quorum = Some(Quorum::new(Setup { me: node.me, founders }, recovered, limits, seed));
        self.step(id, Input::Tick)
    }

    fn step(&mut self, id: NodeId, input: Input) -> String {
        let (time, is_instant) = (self.time, self.is_instant);
        let mut out = String::new();
        let node = self.node(id);
        let Some(quorum) = &mut node.quorum else { return out };
        let monotonic = Instant::since_start(time.checked_sub(node.started).expect("later"));
        let now = Now { monotonic, wall: Timestamp::NONE };
        let mut effects = Vec::new();
        quorum.step(now, input, &mut effects);
        quorum.check();
        for effect in effects {
            let shown = match effect {
                Effect::Persist { write, op } => {
                    let shown = format!("write w{write} {}", show_op(&op));
                    self.node(id).disk.write(write, op);
                    if is_instant { String::new() } else { shown }
                }
                Effect::Send { to, message } => {
                    let shown = format!("→ n{to} {}", show_body(&message));
                    self.messages.push((to, message));
                    if is_instant { String::new() } else { shown }
                }
                Effect::Committed { entries } => {
                    self.node(id).applied = entries.last().expect("some").index;
                    format!("committed {}", show_entries(&entries))
                }
                Effect::Restore { snapshot } => {
                    self.node(id).applied = snapshot.position.index;
                    format!("restore {}", snapshot.position)
                }
                Effect::TakeSnapshot => "wants a snapshot".to_owned(),
                Effect::Reply { request, outcome } => {
                    format!("reply r{request} {}", show_outcome(&outcome))
                }
                Effect::RoleChanged(Role::Leading { term }) => format!("leads t{term}"),
                Effect::RoleChanged(Role::Following { term, leader: Some(leader) }) => {
                    format!("follows n{leader} in t{term}")
                }
                Effect::RoleChanged(Role::Following { term, leader: None }) => {
                    format!("follows nobody in t{term}")
                }
                Effect::Halt { reason } => format!("halt {reason:?}"),
            };
            if !shown.is_empty() {
                let _ = writeln!(out, "n{id} {shown}");
            }
        }
        let node = self.node(id);
        let last = node.quorum.as_ref().map(|quorum| quorum.log().last());
        assert_eq!(last, Some(node.disk.issued().log.last()), "the disk is not told everything");
        assert!(node.applied <= node.disk.durable().log.last().index, "applied before durable");
        out
    }

    fn sync(&mut self, id: NodeId, count: usize) -> String {
        match self.node(id).disk.complete(count) {
            Some(through) => self.step(id, Input::Persisted { through }),
            None => String::new(),
        }
    }

    /// Takes messages of `n1>n2 Kind` out of the network; all kinds if none is named.
    fn take(&mut self, command: &Command<'_>) -> Vec<(NodeId, Message)> {
        let words: Vec<&str> = command.words().collect();
        let (pair, kind) = (words.first().copied(), words.get(1).copied());
        let ends = pair.map(|pair| pair.split_once('>').expect("n1>n2"));
        let is_end = |word: &str, node: NodeId| word == "*" || node_id(word) == node;
        let fits = |(to, message): &(NodeId, Message)| {
            ends.is_none_or(|(one, other)| is_end(one, message.from.node) && is_end(other, *to))
                && kind.is_none_or(|kind| show_body(message).starts_with(kind))
        };
        let limit = command.read("count").unwrap_or(usize::MAX);
        let mut taken = Vec::new();
        let mut left = Vec::new();
        for message in std::mem::take(&mut self.messages) {
            let place = if fits(&message) && taken.len() < limit { &mut taken } else { &mut left };
            place.push(message);
        }
        self.messages = left;
        taken
    }

    fn deliver(&mut self, command: &Command<'_>) -> String {
        let taken = self.take(command);
        if command.value("again").is_some() {
            self.messages.extend(taken.iter().cloned());
        }
        let deliver = |(to, message)| self.step(to, Input::Received(message));
        taken.into_iter().map(deliver).collect()
    }

    /// Everything arrives and every disk is done, except on `but=n3` and between its peers.
    fn settle(&mut self, command: &Command<'_>) -> String {
        let apart: BTreeSet<NodeId> = nodes(command.value("but"));
        self.is_instant = true;
        let mut out = String::new();
        for _ in 0..1000 {
            let is_quiet = self.messages.is_empty();
            if !is_quiet {
                let (to, message) = self.messages.remove(0);
                if apart.contains(&to) == apart.contains(&message.from.node) {
                    out += &self.step(to, Input::Received(message));
                }
            }
            let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
            let busy = ids.iter().filter(|id| self.nodes[*id].disk.in_flight() > 0).count();
            for id in ids {
                out += &self.sync(id, usize::MAX);
            }
            if is_quiet && busy == 0 {
                break;
            }
        }
        self.is_instant = false;
        out
    }

    /// Time passes; members are ticked when they want to be. `only=n1`: the others stand still.
    fn pass(&mut self, command: &Command<'_>) -> String {
        let time = command.words().next().expect("a time");
        let end = self.time + Duration::from_millis(u64::try_from(millis(time)).expect("time"));
        let only = nodes(command.value("only"));
        let is_settled = command.value("settle").is_some();
        let mut out = String::new();
        loop {
            let due = |(id, node): (&NodeId, &Node)| {
                let deadline = node.quorum.as_ref()?.deadline()?;
                let runs = only.is_empty() || only.contains(id);
                runs.then_some((node.started + deadline.as_duration(), *id))
            };
            let next = self.nodes.iter().filter_map(due).min();
            let Some((at, id)) = next.filter(|(at, _)| *at <= end) else { break };
            self.time = self.time.max(at);
            self.is_instant = is_settled;
            out += &self.step(id, Input::Tick);
            self.is_instant = false;
            if is_settled {
                out += &self.settle(command);
            }
        }
        self.time = end;
        out
    }

    fn request(&mut self, command: &Command<'_>) -> String {
        let mut words = command.words();
        let id = node_id(words.next().expect("a node"));
        let request = RequestId(self.next_request);
        self.next_request += 1;
        let other = words.next();
        let input = match command.name {
            "propose" => {
                let term = self.node(id).quorum.as_ref().expect("it is up").term();
                let data = Bytes::from(other.expect("data").to_owned());
                Input::Propose { request, term, data }
            }
            "read" => Input::Read { request },
            "transfer" => Input::Transfer { request, to: other.map(node_id) },
            _ => {
                let node = node_id(other.expect("a node"));
                let member = match command.read("directory") {
                    Some(directory) => Member { node, directory: DirectoryId([directory; 16]) },
                    None => self.nodes[&node].me,
                };
                let change = match command.name {
                    "add" => Change::AddVoter(member),
                    "keep" => Change::KeepVote(member),
                    _ => Change::RemoveVoter(member),
                };
                Input::Change { request, change }
            }
        };
        self.step(id, input)
    }

    fn on_node(&mut self, command: &Command<'_>) -> String {
        let id = node_id(command.words().next().expect("a node"));
        match command.name {
            "start" => self.start(id),
            "crash" => {
                self.node(id).quorum = None;
                let landed = command.read("landed").unwrap_or(0);
                self.node(id).disk.crash(landed);
                String::new()
            }
            "wipe" => {
                let me = self.member(id);
                let node = self.node(id);
                (node.quorum, node.disk, node.me) = (None, Disk::default(), me);
                format!("n{id} is {me}\n")
            }
            "sync" => self.sync(id, command.read("count").unwrap_or(usize::MAX)),
            "resign" => self.step(id, Input::Resign),
            "cancel" => {
                let request = RequestId(command.read("request").expect("request="));
                self.step(id, Input::Cancelled { request })
            }
            "snapshot" => {
                let applied = self.node(id).applied;
                let through = command.read("through").map_or(applied, Index);
                let size = command.read("bytes").unwrap_or(20);
                self.step(id, Input::SnapshotTaken { through, data: vec![7; size].into() })
            }
            "fail" => {
                let write = self.node(id).disk.next_write().expect("a write in flight");
                self.step(id, Input::PersistFailed { write })
            }
            other => panic!("no such command: {other}"),
        }
    }

    /// `forge n3>n1 Vote term=9 directory=7 cluster=8`: what n3, or somebody in its name, says.
    fn forge(&mut self, command: &Command<'_>) -> String {
        let mut words = command.words();
        let (from, to) = words.next().and_then(|pair| pair.split_once('>')).expect("n1>n2");
        let (from, to) = (node_id(from), node_id(to));
        let mut me = self.nodes[&from].me;
        if let Some(directory) = command.read("directory") {
            me.directory = DirectoryId([directory; 16]);
        }
        let term = Term(command.read("term").expect("term="));
        let written_in = Term(command.read("of").unwrap_or(1));
        let position = Position::new(Index(command.read("at").unwrap_or(9)), written_in);
        let committed = Index(command.read("committed").unwrap_or(0));
        let body = match words.next().expect("a kind") {
            "Vote" => Body::Vote { last: position, transfer: false },
            "Outdated" => Body::Outdated,
            "Take" => Body::Take { instead_of: None, cluster: ClusterId([7; 16]) },
            "Heartbeat" => Body::Heartbeat { committed, round: 1 },
            "Append" => {
                Body::Append { previous: position, entries: Vec::new(), committed, round: 1 }
            }
            "Chunk" => Body::Chunk {
                position,
                configuration: Configuration::default(),
                bytes_total: 3,
                offset: 0,
                data: Bytes::from_static(b"new"),
                round: 1,
            },
            "Leads" => {
                let leader = NodeId(command.read("leader").expect("leader="));
                let leader = self.nodes[&leader].me;
                Body::Leads { leader, address: String::new() }
            }
            kind => panic!("cannot forge {kind}"),
        };
        let quorum = self.node(to).quorum.as_ref().expect("it is up");
        let cluster = quorum.configuration().map(|configuration| configuration.cluster);
        let cluster = command.read("cluster").map(|byte| ClusterId([byte; 16])).or(cluster);
        let to_directory = Some(self.nodes[&to].me.directory);
        let message = Message { cluster, from: me, to: to_directory, term, body };
        self.step(to, Input::Received(message))
    }

    fn status(&self) -> String {
        let quorums = self.nodes.values().filter_map(|node| node.quorum.as_ref());
        quorums.map(|quorum| format!("{quorum}\n")).collect()
    }

    fn log(&mut self, command: &Command<'_>) -> String {
        let id = node_id(command.words().next().expect("a node"));
        let quorum = self.node(id).quorum.as_ref().expect("it is up");
        let entries: Vec<Entry> = quorum.log().entries().cloned().collect();
        format!("n{id} {}\n", show_entries(&entries))
    }
}

impl Stage for QuorumStage {
    fn run(&mut self, command: &Command<'_>) -> String {
        match command.name {
            "cluster" => self.cluster(command),
            "deliver" => self.deliver(command),
            "drop" => {
                self.take(command);
                String::new()
            }
            "settle" => self.settle(command),
            "pass" => self.pass(command),
            "propose" | "read" | "transfer" | "add" | "remove" | "keep" => self.request(command),
            "forge" => self.forge(command),
            "status" => self.status(),
            "log" => self.log(command),
            "founding" => {
                let id = node_id(command.words().next().expect("a node"));
                let now = Now::default();
                let status = self.node(id).quorum.as_ref().expect("it is up").status(now);
                let why = status.founding.as_ref().map(ToString::to_string);
                format!("{}\n", why.as_deref().unwrap_or("founded"))
            }
            "messages" => {
                let show = |(to, message): &(NodeId, Message)| {
                    format!("n{} → n{to} {}\n", message.from.node, show_body(message))
                };
                self.messages.iter().map(show).collect()
            }
            _ => self.on_node(command),
        }
    }
}

fn node_id(word: &str) -> NodeId {
    NodeId(word.trim_start_matches('n').parse().expect("a node"))
}

fn nodes(list: Option<&str>) -> BTreeSet<NodeId> {
    list.into_iter().flat_map(|list| list.split(',')).map(node_id).collect()
}

fn show_op(op: &LogOp) -> String {
    match op {
        LogOp::HardState(hard) => match hard.vote {
            Some(vote) => format!("t{} vote={vote}", hard.term),
            None => format!("t{}", hard.term),
        },
        LogOp::Append { entries } => format!("append {}", show_entries(entries)),
        LogOp::Truncate { after } => format!("truncate after {after}"),
        LogOp::Snapshot { snapshot, forget } => {
            format!("snapshot {} forget={forget}", snapshot.position)
        }
        LogOp::Install { snapshot } => format!("install {}", snapshot.position),
    }
}

fn show_entries(entries: &[Entry]) -> String {
    let show = |entry: &Entry| match &entry.payload {
        Payload::Data(data) => format!("{}:{}", entry.position(), String::from_utf8_lossy(data)),
        Payload::Configuration(configuration) => {
            let kept = configuration.kept.iter().map(|node| format!("{node}/kept"));
            let voters = configuration.voters.iter().map(ToString::to_string).chain(kept);
            format!("{}:{{{}}}", entry.position(), voters.collect::<Vec<_>>().join(" "))
        }
        Payload::LeaderChange => format!("{}:leader", entry.position()),
    };
    let shown: Vec<String> = entries.iter().map(show).collect();
    format!("[{}]", shown.join(" "))
}

fn show_body(message: &Message) -> String {
    let body = match &message.body {
        Body::Ask { .. } => "Ask".to_owned(),
        Body::Answer { .. } => "Answer".to_owned(),
        Body::PreVote { term, last } => format!("PreVote for=t{term} last={last}"),
        Body::PreVoteReply { granted, .. } => format!("PreVoteReply granted={granted}"),
        Body::Vote { last, transfer } => {
            format!("Vote last={last}{}", if *transfer { " transfer" } else { "" })
        }
        Body::VoteReply { granted } => format!("VoteReply granted={granted}"),
        Body::Append { previous, entries, committed, .. } => {
            format!("Append {previous} {} committed={committed}", show_entries(entries))
        }
        Body::Appended { through, .. } => format!("Appended {through}"),
        Body::Mismatch { previous, hint, .. } => format!("Mismatch {previous} hint={hint}"),
        Body::Heartbeat { committed, round } => {
            format!("Heartbeat committed={committed} round={round}")
        }
        Body::HeartbeatReply { round, through, received } => {
            format!("HeartbeatReply round={round} through={through} received={received}")
        }
        Body::Chunk { position, bytes_total, offset, data, .. } => {
            let end = *offset + data.len() as u64;
            format!("Chunk {position} {offset}..{end} of {bytes_total}")
        }
        Body::ChunkReply { position, received, .. } => {
            format!("ChunkReply {position} received={received}")
        }
        Body::TimeoutNow => "TimeoutNow".to_owned(),
        Body::Outdated => "Outdated".to_owned(),
        Body::Leads { leader, .. } => format!("Leads {leader}"),
        Body::Bare { .. } => "Bare".to_owned(),
        Body::Take { .. } => "Take".to_owned(),
    };
    format!("{body} t{}", message.term)
}

fn show_outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Committed { position } => format!("committed {position}"),
        Outcome::Readable { through } => format!("readable {through}"),
        Outcome::Transferred => "transferred".to_owned(),
        Outcome::Described(status) => format!("described {status:?}"),
        Outcome::Refused(refusal) => format!("refused {refusal:?}"),
    }
}
