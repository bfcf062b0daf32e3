//! The language of the scripts about several replicas of one partition: their controller, their
//! disks and their network do what the script says, and nothing else.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::time::Duration;

use quorate_core::batch::Levels;
use quorate_core::id::{LeaderEpoch, NodeEpoch, NodeId, Offset, PartitionEpoch, RequestId};
use quorate_core::machine::Machine;
use quorate_core::partition::Replica;
use quorate_core::partition::interface::{
    Acks, Assignment, Effect, Input, Isolation, Limits, Message, PartitionConfig, ProposalProblem,
    Racks, Replicate, Replicated, Wait,
};
use quorate_core::time::{Instant, Now, Timestamp};

use super::cut_log::{CutLog, Done};
use super::partition::{WALL_START, batch, show_op, show_outcome, show_view};
use super::script::{Command, Stage, millis};

#[derive(Default)]
struct Node {
    replica: Option<Replica>,
    log: CutLog,
    reads: VecDeque<(NodeId, Offset, Offset, usize)>,
}

pub(crate) struct ReplicasStage {
    now: Now,
    config: PartitionConfig,
    limits: Limits,
    assignment: Assignment,
    nodes: BTreeMap<NodeId, Node>,
    /// From, to, what.
    packets: VecDeque<(NodeId, NodeId, Message)>,
    next_request: u64,
    next_node_epoch: i64,
}

impl ReplicasStage {
    pub(crate) fn new() -> Self {
        Self {
            now: Now { monotonic: Instant::ZERO, wall: Timestamp(WALL_START) },
            config: PartitionConfig { retention_time: None, ..PartitionConfig::default() },
            limits: Limits::default(),
            assignment: Assignment::default(),
            nodes: BTreeMap::new(),
            packets: VecDeque::new(),
            next_request: 0,
            next_node_epoch: 0,
        }
    }

    fn open(&mut self, command: &Command<'_>) -> String {
        let count: i32 = command.read("nodes").unwrap_or(3);
        let all = (1..=count).map(NodeId).collect::<Vec<_>>();
        self.config.in_sync_min = command.read("min").unwrap_or(1);
        let racks = command.value("racks").into_iter().flat_map(|racks| racks.split(','));
        let named = all.iter().copied().zip(racks.map(str::to_owned));
        self.config.racks = Racks::new(command.read("racks_min").unwrap_or(1), named);
        let replication = &mut self.limits.replication;
        replication.epochs_max = command.read("epochs_max").unwrap_or(replication.epochs_max);
        replication.window_bytes = command.read("window").unwrap_or(replication.window_bytes);
        replication.tail_bytes_max = command.read("tail").unwrap_or(replication.tail_bytes_max);
        self.assignment = Assignment {
            leader_epoch: LeaderEpoch(1),
            partition_epoch: PartitionEpoch(1),
            leader: Some(NodeId(1)),
            replicas: all.clone(),
            in_sync: nodes(command.value("isr")).unwrap_or_else(|| all.clone()),
            ..Assignment::default()
        };
        let mut out = String::new();
        for id in all {
            self.nodes.insert(id, Node::default());
            out += &self.start(id);
        }
        out
    }

    fn start(&mut self, id: NodeId) -> String {
        let (config, limits) = (self.config.clone(), self.limits.clone());
        let assignment = self.assignment.clone();
        let node = self.nodes.get_mut(&id).expect("a node");
        node.replica = Some(Replica::new(id, node.log.recover(), config, assignment, limits));
        self.next_node_epoch += 1;
        self.step(id, Input::Registered { node_epoch: NodeEpoch(self.next_node_epoch) })
    }

    fn step(&mut self, id: NodeId, input: Input) -> String {
        let mut effects = Vec::new();
        let node = self.nodes.get_mut(&id).expect("a node");
        let Some(replica) = node.replica.as_mut() else { return String::new() };
        replica.step(self.now, input, &mut effects);
        replica.check();
        let mut out = String::new();
        for effect in effects {
            let _ = match effect {
                Effect::Write { write, op, .. } => {
                    let shown = show_op(write, &op);
                    node.log.write(write, op);
                    writeln!(out, "n{id} {shown}")
                }
                Effect::Reply { request, outcome } => {
                    writeln!(out, "n{id} reply r{request} {}", show_outcome(&outcome))
                }
                Effect::Publish(view) => writeln!(out, "n{id} {}", show_view(&view)),
                Effect::TransactionEnded { producer, ending } => {
                    writeln!(out, "n{id} ended p{producer} {ending:?}")
                }
                Effect::Halt { reason } => writeln!(out, "n{id} halt {reason:?}"),
                Effect::Send { to, message } => {
                    let shown = show_message(&message);
                    self.packets.push_back((id, to, message));
                    writeln!(out, "n{id}→n{to} {shown}")
                }
                Effect::ReadLog { to, from, up_to, bytes_max } => {
                    node.reads.push_back((to, from, up_to, bytes_max));
                    writeln!(out, "n{id} read-log {from}..{up_to} for n{to}")
                }
                Effect::Propose(change) => {
                    let members = change.in_sync.iter();
                    let members = members.map(|(node, life)| format!("n{node}@{life}"));
                    let members = members.collect::<Vec<_>>().join(" ");
                    writeln!(out, "n{id} propose for p{} {members}", change.partition_epoch)
                }
                Effect::Clean(_) | Effect::Discard(_) => panic!("no topic is compacted here"),
            };
        }
        if node.log.in_flight() == 0 {
            assert_eq!(node.log.recover(), *replica.log(), "rebuilt is not live");
        }
        out
    }

    fn produce(&mut self, command: &Command<'_>) -> String {
        self.next_request += 1;
        let acks = match command.value("acks") {
            None | Some("all") => Acks::All,
            Some("1") => Acks::Leader,
            Some(copies) => Acks::AtLeast(copies.parse().expect("acks")),
        };
        let produce = quorate_core::partition::interface::Produce {
            request: RequestId(self.next_request),
            batch: batch(command, self.now.wall),
            levels: Levels::DEFAULT,
            acks,
            until: self.now.monotonic + Duration::from_secs(30),
            guard: None,
        };
        self.step(node(command), Input::Produce(produce))
    }

    /// `deliver n1>n2`: what is under way between them; `deliver`: all that is.
    fn take(&mut self, command: &Command<'_>) -> Vec<(NodeId, NodeId, Message)> {
        let between = command.words().find_map(|word| {
            let (from, to) = word.split_once('>')?;
            Some((number(from), number(to)))
        });
        let (mut taken, mut left) = (Vec::new(), VecDeque::new());
        for packet in self.packets.drain(..) {
            if between.is_none_or(|between| between == (packet.0, packet.1)) {
                taken.push(packet);
            } else {
                left.push_back(packet);
            }
        }
        self.packets = left;
        taken
    }

    fn deliver(&mut self, packets: Vec<(NodeId, NodeId, Message)>) -> String {
        let deliver = |(from, to, message)| self.step(to, Input::Message { from, message });
        packets.into_iter().map(deliver).collect()
    }

    fn written(&mut self, id: NodeId) -> String {
        let node = self.nodes.get_mut(&id).expect("a node");
        let Some(done) = node.log.complete(usize::MAX) else { return String::new() };
        self.step(
            id,
            match done {
                Done::Written(through) => Input::Written { through },
                Done::Truncated(write, recovered) => {
                    Input::Truncated { write, recovered: Box::new(recovered) }
                }
            },
        )
    }

    fn read(&mut self, id: NodeId) -> String {
        let node = self.nodes.get_mut(&id).expect("a node");
        let Some((to, from, up_to, bytes_max)) = node.reads.pop_front() else {
            return String::new();
        };
        let entries = node.log.read(from, up_to, bytes_max);
        self.step(id, Input::LogRead { to, from, entries })
    }

    /// Disks and network do all they have to.
    fn run_on(&mut self) -> String {
        let mut out = String::new();
        loop {
            let mut is_quiet = self.packets.is_empty();
            let packets = self.packets.drain(..).collect();
            out += &self.deliver(packets);
            for id in self.nodes.keys().copied().collect::<Vec<_>>() {
                let node = &self.nodes[&id];
                is_quiet &= node.log.in_flight() == 0 && node.reads.is_empty();
                out += &self.written(id);
                out += &self.read(id);
            }
            if is_quiet {
                return out;
            }
        }
    }

    fn pass(&mut self, time: Duration) -> String {
        let end = self.now.monotonic + time;
        let mut out = String::new();
        loop {
            let due = self.nodes.iter().filter_map(|(id, node)| {
                let at = node.replica.as_ref()?.deadline()?;
                (at <= end).then_some((at, *id))
            });
            let Some((at, id)) = due.min() else { break };
            self.now.monotonic = self.now.monotonic.max(at);
            out += &self.step(id, Input::Tick);
        }
        self.now.monotonic = end;
        out
    }

    /// `assign epoch=2 version=3 leader=2 isr=2,3 to=2,3`; what is not said stays.
    fn assign(&mut self, command: &Command<'_>) -> String {
        let next = &mut self.assignment;
        if let Some(epoch) = command.read("epoch") {
            next.leader_epoch = LeaderEpoch(epoch);
        }
        next.partition_epoch.0 += 1;
        if let Some(version) = command.read("version") {
            next.partition_epoch = PartitionEpoch(version);
        }
        if let Some(leader) = command.value("leader") {
            next.leader = leader.parse().ok().map(NodeId);
        }
        next.in_sync = nodes(command.value("isr")).unwrap_or_else(|| next.in_sync.clone());
        next.replicas = nodes(command.value("replicas")).unwrap_or_else(|| next.replicas.clone());
        let (all, next) = (self.nodes.keys().copied().collect(), next.clone());
        let to = nodes(command.value("to")).unwrap_or(all);
        to.into_iter().map(|id| self.step(id, Input::Assigned(next.clone()))).collect()
    }

    fn status(&self) -> String {
        let mut out = String::new();
        for (id, node) in &self.nodes {
            let _ = match &node.replica {
                Some(replica) => writeln!(out, "{replica}"),
                None => writeln!(out, "n{id} down"),
            };
        }
        out
    }

    fn log(&self, id: NodeId) -> String {
        let node = &self.nodes[&id];
        let show = |batch: &quorate_core::batch::Batch| {
            let header = batch.header();
            let (base, end) = (header.base_offset(), header.next_offset());
            format!("{base}..{end} e{}", header.leader_epoch())
        };
        let batches = node.log.batches().map(show).collect::<Vec<_>>().join(", ");
        let orphans = node.log.orphans.iter().map(show).collect::<Vec<_>>().join(", ");
        let orphans = if orphans.is_empty() { orphans } else { format!("; set aside: {orphans}") };
        format!("n{id} {batches}{orphans}\n")
    }
}

impl ReplicasStage {
    /// What happens to nodes. `None`: the command is another's.
    fn run_nodes(&mut self, command: &Command<'_>) -> Option<String> {
        Some(match command.name {
            "open" => self.open(command),
            "start" => self.start(node(command)),
            "crash" => {
                let node = self.nodes.get_mut(&node(command)).expect("a node");
                node.replica = None;
                node.reads.clear();
                node.log.crash(command.read("written").unwrap_or(0));
                String::new()
            }
            "wipe" => {
                let node = self.nodes.get_mut(&node(command)).expect("a node");
                *node = Node::default();
                String::new()
            }
            "close" => {
                self.next_request += 1;
                let request = RequestId(self.next_request);
                self.step(node(command), Input::Close { request })
            }
            "configure" => {
                self.config.in_sync_min = command.read("min").expect("min=");
                let config = self.config.clone();
                self.step(node(command), Input::Configured(config))
            }
            "status" => self.status(),
            "log" => self.log(node(command)),

            _ => return None,
        })
    }

    /// What the network does. `None`: the command is another's.
    fn run_network(&mut self, command: &Command<'_>) -> Option<String> {
        Some(match command.name {
            "deliver" => {
                let packets = self.take(command);
                self.deliver(packets)
            }
            "repeat" => {
                let packets = self.take(command);
                self.packets.extend(packets.clone());
                self.deliver(packets)
            }
            "reverse" => {
                let mut packets = self.take(command);
                packets.reverse();
                self.deliver(packets)
            }
            "drop" => {
                self.take(command);
                String::new()
            }
            "connect" => {
                let peer = number(command.value("peer").expect("peer="));
                self.step(node(command), Input::Connected { peer })
            }
            // A word that no replica would say.
            "unfence" => {
                let peer = NodeId(command.read("peer").expect("peer="));
                self.step(node(command), Input::Unfenced { peer })
            }
            "say" => {
                let said = Replicated {
                    leader_epoch: self.assignment.leader_epoch,
                    node_epoch: NodeEpoch(self.next_node_epoch),
                    end: Offset(command.read("end").expect("end=")),
                    high_watermark: Offset::ZERO,
                    log_start: Offset::ZERO,
                    resume: command.read("resume").map(Offset),
                };
                let to = number(command.value("to").expect("to="));
                self.deliver(vec![(node(command), to, Message::Replicated(said))])
            }
            "send" => {
                let mut batch = batch(command, self.now.wall);
                let offset = Offset(command.read("offset").expect("offset="));
                batch.stamp(offset, LeaderEpoch(command.read("epoch").expect("epoch=")));
                let message = Message::Replicate(Replicate {
                    leader_epoch: self.assignment.leader_epoch,
                    base: Offset(command.read("base").expect("base=")),
                    entries: vec![(batch, Levels::DEFAULT)],
                    high_watermark: Offset::ZERO,
                    log_start: Offset::ZERO,
                    ask: false,
                });
                let to = number(command.value("to").expect("to="));
                self.deliver(vec![(node(command), to, message)])
            }
            _ => return None,
        })
    }

    /// What clients ask. `None`: the command is another's.
    fn run_clients(&mut self, command: &Command<'_>) -> Option<String> {
        Some(match command.name {
            "produce" => self.produce(command),
            "wait" => {
                self.next_request += 1;
                let wait = Wait {
                    request: RequestId(self.next_request),
                    beyond: Offset(command.read("beyond").expect("beyond=")),
                    bytes_min: 1,
                    isolation: Isolation::ReadUncommitted,
                    until: self.now.monotonic + Duration::from_secs(60),
                };
                self.step(node(command), Input::Wait(wait))
            }
            "leads" => {
                self.next_request += 1;
                let request = RequestId(self.next_request);
                let until = self.now.monotonic + Duration::from_secs(60);
                self.step(node(command), Input::StillLeads { request, until })
            }
            "delete" => {
                self.next_request += 1;
                let request = RequestId(self.next_request);
                let before = command.read("before").map(Offset);
                let until = self.now.monotonic + Duration::from_secs(60);
                self.step(node(command), Input::DeleteRecords { request, before, until })
            }
            _ => return None,
        })
    }
}

impl Stage for ReplicasStage {
    fn run(&mut self, command: &Command<'_>) -> String {
        let done = self.run_nodes(command).or_else(|| self.run_network(command));
        if let Some(done) = done.or_else(|| self.run_clients(command)) {
            return done;
        }
        match command.name {
            "written" => self.written(node(command)),
            "read" => self.read(node(command)),
            "run" => self.run_on(),
            "pass" => {
                let time = millis(command.words().next().expect("a time"));
                self.pass(Duration::from_millis(u64::try_from(time).expect("a time")))
            }
            "assign" => self.assign(command),
            "refuse" => {
                let problem = match command.value("problem").expect("problem=") {
                    "stale" => ProposalProblem::Stale,
                    "behind" => ProposalProblem::Behind,
                    "fenced" => ProposalProblem::Fenced,
                    ineligible => ProposalProblem::Ineligible(number(ineligible)),
                };
                let partition_epoch = PartitionEpoch(
                    command.read("for").unwrap_or(self.assignment.partition_epoch.0),
                );
                self.step(node(command), Input::ProposalRefused { partition_epoch, problem })
            }
            "fail-read" => {
                let id = node(command);
                let read = self.nodes.get_mut(&id).and_then(|node| node.reads.pop_front());
                let (to, from, ..) = read.expect("a read");
                self.step(id, Input::LogRead { to, from, entries: Vec::new() })
            }
            other => panic!("no such command: {other}"),
        }
    }
}

fn number(text: &str) -> NodeId {
    NodeId(text.trim_start_matches('n').parse().expect("a node's number"))
}

/// The first word: `n2`.
fn node(command: &Command<'_>) -> NodeId {
    number(command.words().next().expect("a node"))
}

/// `1,2`; `none` is nobody.
fn nodes(list: Option<&str>) -> Option<Vec<NodeId>> {
    let list = list?;
    Some(if list == "none" { Vec::new() } else { list.split(',').map(number).collect() })
}

fn show_message(message: &Message) -> String {
    match message {
        Message::Follow(follow) => {
            let last =
                follow.last_epoch.map_or_else(|| "none".to_owned(), |epoch| format!("e{epoch}"));
            format!("follow e{} end={} last={last}", follow.leader_epoch, follow.end)
        }
        Message::Lead(lead) => {
            let epochs = lead.epochs.iter().map(|(epoch, start)| format!("e{epoch}:{start}"));
            let epochs = epochs.collect::<Vec<_>>().join(" ");
            let cut = if lead.is_cut { " cut" } else { "" };
            format!(
                "lead e{} [{epochs}]..{}{cut} start={} end={} hw={}",
                lead.leader_epoch, lead.epochs_end, lead.log_start, lead.end, lead.high_watermark
            )
        }
        Message::Replicate(replicate) => {
            let entries = replicate.entries.iter().map(|(batch, _)| {
                let header = batch.header();
                format!(
                    "{}..{} e{}",
                    header.base_offset(),
                    header.next_offset(),
                    header.leader_epoch()
                )
            });
            let entries = entries.collect::<Vec<_>>().join(", ");
            let ask = if replicate.ask { " ask" } else { "" };
            format!(
                "replicate e{} {}+[{entries}] start={} hw={}{ask}",
                replicate.leader_epoch,
                replicate.base,
                replicate.log_start,
                replicate.high_watermark
            )
        }
        Message::Replicated(said) => {
            let resume = said.resume.map_or_else(String::new, |from| format!(" resume={from}"));
            format!(
                "replicated e{} end={} hw={}{resume}",
                said.leader_epoch, said.end, said.high_watermark
            )
        }
        Message::Confirm(asked) => format!("confirm e{} round={}", asked.leader_epoch, asked.round),
        Message::Confirmed(said) => {
            format!("confirmed e{} round={}", said.leader_epoch, said.round)
        }
    }
}
