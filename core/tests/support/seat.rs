//! The language of the scripts about seats in the metadata quorum.
//!
//! `cluster voters=3 others=1` formats and starts nodes. Their messages and writes wait for
//! `settle`, which lets everything arrive and be done, or for `sync n1` and `deliver n1`. From
//! `cut n1` to `join n1` nothing passes to or from that node. `oversleep n1 9s` has everybody do
//! nothing for that time, and then wakes that node.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::batch::{Batch, Records};
use quorate_core::controller::interface as controller;
use quorate_core::id::{DirectoryId, NodeEpoch, NodeId, RequestId};
use quorate_core::metadata::Address;
use quorate_core::partition::interface::{Input as LogInput, LogOp};
use quorate_core::quorum::interface::{Input as QuorumInput, Payload, Role};
use quorate_core::quorum::recovered::LogOp as Operation;
use quorate_core::shard::interface::{Effect, Input, Outcome};
use quorate_core::shard::seat::Seat;

use crate::controller::{Names, show_outcome, show_record};
use crate::partition::{show_op, show_outcome as show_log_outcome};
use crate::script::{Command, Stage, millis};
use crate::seats::Seats;

pub(crate) struct SeatStage {
    seats: Seats,
    cut: BTreeSet<NodeId>,
    next_request: u64,
    names: Names,
    /// Writes and what is in them are shown.
    shows_writes: bool,
}

impl SeatStage {
    pub(crate) fn new() -> Self {
        Self {
            seats: Seats::new(1),
            cut: BTreeSet::new(),
            next_request: 1,
            names: Names::default(),
            shows_writes: true,
        }
    }

    fn cluster(&mut self, command: &Command<'_>) -> String {
        if let Some(bytes) = command.read("snapshot_after") {
            self.seats.quorum_limits.snapshot_after_bytes = bytes;
        }
        if let Some(bytes) = command.read("entry_bytes_max") {
            self.seats.quorum_limits.entry_bytes_max = bytes;
        }
        if let Some(restores) = command.read("restores_votes") {
            self.seats.quorum_limits.restores_votes = restores;
        }
        if let Some(session) = command.read::<u64>("session") {
            self.seats.limits.controller.session_timeout = Some(Duration::from_millis(session));
        }
        let (voters, others) = (command.read("voters"), command.read("others"));
        self.seats.format(voters.unwrap_or(1), others.unwrap_or(0));
        let mut out = String::new();
        for id in self.seats.ids() {
            let effects = self.seats.start(id);
            out += &self.show(id, effects);
        }
        out
    }

    fn show(&mut self, id: NodeId, effects: Vec<Effect>) -> String {
        let mut out = String::new();
        for effect in effects {
            let shown = match &effect {
                Effect::Write { .. } if !self.shows_writes => continue,
                Effect::SendQuorum { .. } => continue,
                Effect::Write { write, op, .. } => match op {
                    LogOp::Append { batch, .. } => format!("write w{write} {}", operations(batch)),
                    op => show_op(*write, op),
                },
                Effect::Reply { request, outcome: Outcome::Controller(outcome) } => {
                    format!("reply r{request} {}", show_outcome(outcome, &mut self.names))
                }
                Effect::Reply { request, outcome: Outcome::Quorum(outcome) } => {
                    format!("reply r{request} {outcome:?}")
                }
                Effect::Reply { request, outcome: Outcome::Partition(outcome) } => {
                    format!("reply r{request} {}", show_log_outcome(outcome))
                }
                Effect::Committed(records) | Effect::Restored(records) => {
                    let is_new = matches!(effect, Effect::Committed(_));
                    let records = records.iter();
                    let shown = records.map(|record| show_record(record, &mut self.names));
                    let shown = shown.collect::<Vec<_>>().join(" · ");
                    format!("{} {shown}", if is_new { "committed" } else { "restored" })
                }
                Effect::QuorumRole { role: Role::Leading { term }, .. } => format!("leads t{term}"),
                Effect::QuorumRole { role: Role::Following { term, leader }, cluster } => {
                    let leader = leader.map_or_else(|| "nobody".to_owned(), |id| format!("n{id}"));
                    let cluster = if cluster.is_some() { "" } else { ", no cluster" };
                    format!("follows {leader} in t{term}{cluster}")
                }
                Effect::Halt { reason, .. } => format!("halt {reason:?}"),
                other => panic!("not of a seat: {other:?}"),
            };
            let _ = writeln!(out, "n{id} {}", shown.trim_end());
        }
        out
    }

    /// What a step of `id` came to; all but writes and messages.
    fn quietly(&mut self, id: NodeId, effects: Vec<Effect>) -> String {
        let before = std::mem::replace(&mut self.shows_writes, false);
        let out = self.show(id, effects);
        self.shows_writes = before;
        out
    }

    /// Everything arrives and is done until nothing is on its way.
    fn settle(&mut self) -> String {
        let mut out = String::new();
        for _ in 0..1000 {
            let mut is_quiet = true;
            for id in self.seats.ids() {
                let in_flight = self.seats.nodes[&id].log.in_flight();
                is_quiet &= in_flight == 0 || self.seats.nodes[&id].shard.is_none();
                let effects = self.seats.complete(id, in_flight);
                out += &self.quietly(id, effects);
            }
            if !self.seats.messages.is_empty() {
                is_quiet = false;
                let (to, message) = &self.seats.messages[0];
                if self.cut.contains(to) || self.cut.contains(&message.from.node) {
                    self.seats.messages.remove(0);
                } else {
                    let (to, effects) = self.seats.deliver(0);
                    out += &self.quietly(to, effects);
                }
            }
            if is_quiet {
                return out;
            }
        }
        panic!("messages go round for ever");
    }

    fn status(&self) -> String {
        let nodes = self.seats.nodes.values().filter_map(|node| node.shard.as_ref());
        nodes.filter_map(|shard| Some(format!("{}\n", shard.seat()?))).collect()
    }

    fn votes(&self) -> String {
        let nodes = self.seats.nodes.iter();
        nodes.filter_map(|(id, node)| Some(votes(*id, node.shard.as_ref()?.seat()?))).collect()
    }

    fn pass(&mut self, time: Duration) -> String {
        let until = self.seats.time + time;
        let mut out = String::new();
        while let Some((id, effects)) = self.seats.tick(until) {
            out += &self.quietly(id, effects);
            out += &self.settle();
        }
        out
    }

    fn input(&mut self, command: &Command<'_>) -> Input {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        let name = command.words().nth(1).unwrap_or_default().to_owned();
        match command.name {
            "register" => {
                let port = command.read("port").unwrap_or(9092);
                let node = NodeId(command.read("node").unwrap_or(1));
                let directory = match command.value("directory") {
                    Some(_) => DirectoryId(self.seats.nodes[&node].member.directory.0),
                    None => DirectoryId::NONE,
                };
                let register = controller::RegisterNode {
                    request,
                    node,
                    directory,
                    incarnation: 1,
                    cluster: "abc".to_owned(),
                    address: Address { host: "localhost".to_owned(), port },
                    ..Default::default()
                };
                Input::Controller(controller::Input::RegisterNode(register))
            }
            "beat" => Input::Controller(controller::Input::Heartbeat(controller::Heartbeat {
                request,
                node: NodeId(1),
                node_epoch: NodeEpoch(1),
                applied: NodeEpoch(2),
                ..Default::default()
            })),
            "create" => {
                let partitions = command.read("partitions");
                let topics = vec![controller::NewTopic { name, partitions, ..Default::default() }];
                let validate_only = false;
                Input::Controller(controller::Input::CreateTopics {
                    request,
                    topics,
                    validate_only,
                })
            }
            "delete" => {
                let topics = vec![controller::TopicName::Name(name)];
                Input::Controller(controller::Input::DeleteTopics { request, topics })
            }
            "read" => Input::Quorum(QuorumInput::Read { request }),
            "transfer" => {
                let to = command.read("to").map(NodeId);
                Input::Quorum(QuorumInput::Transfer { request, to })
            }
            "resign" => Input::Quorum(QuorumInput::Resign),
            // Somebody of another version is the leader.
            "junk" => Input::Quorum(QuorumInput::Propose {
                request,
                term: self.seats.nodes[&node(command)].term(),
                data: Bytes::from_static(b"records of a later version"),
            }),
            other => panic!("no such command: {other}"),
        }
    }
}

impl crate::seats::Node {
    fn term(&self) -> quorate_core::quorum::interface::Term {
        let seat = self.shard.as_ref().and_then(|shard| shard.seat()).expect("it is up");
        seat.quorum().term()
    }
}

impl Stage for SeatStage {
    fn run(&mut self, command: &Command<'_>) -> String {
        match command.name {
            "cluster" => self.cluster(command),
            "settle" => self.settle(),
            "pass" => {
                let time = millis(command.words().next().expect("a time")).unsigned_abs();
                self.pass(Duration::from_millis(time))
            }
            // Nobody does anything for so long; then the node wakes to all that is due.
            "oversleep" => {
                let id = node(command);
                let time = millis(command.words().nth(1).expect("a time")).unsigned_abs();
                self.seats.time += Duration::from_millis(time);
                let effects = self.seats.step(id, Input::Tick);
                self.show(id, effects)
            }
            "sync" => {
                let id = node(command);
                let effects = self.seats.complete(id, usize::MAX);
                self.show(id, effects)
            }
            "deliver" => {
                let id = node(command);
                let place = self.seats.messages.iter().position(|(to, _)| *to == id);
                let (id, effects) = self.seats.deliver(place.expect("a message for it"));
                self.show(id, effects)
            }
            "cut" => {
                self.cut.insert(node(command));
                String::new()
            }
            "join" => {
                self.cut.remove(&node(command));
                String::new()
            }
            "crash" => {
                self.seats.crash(node(command), 0);
                String::new()
            }
            "wipe" => {
                self.seats.wipe(node(command));
                String::new()
            }
            "votes" => self.votes(),
            "start" => {
                let id = node(command);
                let effects = self.seats.start(id);
                self.show(id, effects)
            }
            "close" => {
                let id = node(command);
                let request = RequestId(self.next_request);
                self.next_request += 1;
                let effects = self.seats.tell_log(id, LogInput::Close { request });
                self.show(id, effects)
            }
            "fail" => {
                let id = node(command);
                let write = self.seats.nodes[&id].log.next_write().expect("a write in flight");
                let effects = self.seats.tell_log(id, LogInput::WriteFailed { write });
                self.show(id, effects)
            }
            "status" => self.status(),
            _ => {
                let id = node(command);
                let input = self.input(command);
                let effects = self.seats.step(id, input);
                self.show(id, effects)
            }
        }
    }
}

/// Who votes, as a seat knows it: `n1 1/01010101 3/03030303, kept for 2`.
fn votes(id: NodeId, seat: &Seat) -> String {
    let voters = seat.quorum().configuration().cloned().unwrap_or_default();
    let shown = voters.voters.iter().map(|voter| format!(" {voter}"));
    let kept = voters.kept.iter().map(|node| format!(", kept for {node}"));
    format!("n{id}{}\n", shown.chain(kept).collect::<String>())
}

fn node(command: &Command<'_>) -> NodeId {
    let word = command.words().next().expect("a node");
    NodeId(word.trim_start_matches('n').parse().expect("a node"))
}

/// `vote t1`, `entries 2..3`.
fn operations(batch: &Batch) -> String {
    let bytes = batch.uncompressed(1 << 20).expect("not compressed");
    let records = Records::new(&bytes, batch.header().record_count());
    let shown = records.map(|record| {
        let value = record.expect("a record of ours").value.unwrap_or_default();
        match Operation::from_bytes(value).expect("an operation of ours") {
            Operation::HardState(hard) if hard.vote.is_some() => format!("vote t{}", hard.term),
            Operation::HardState(hard) => format!("t{}", hard.term),
            Operation::Append { entries } => {
                let data = |payload: &Payload| matches!(payload, Payload::Data(_));
                let count = entries.iter().filter(|entry| data(&entry.payload)).count();
                let ends = entries.first().zip(entries.last()).expect("some");
                format!("entries {}..{} data={count}", ends.0.position(), ends.1.position())
            }
            Operation::Truncate { after } => format!("truncate after {after}"),
            Operation::Snapshot { snapshot, .. } => format!("snapshot {}", snapshot.position),
            Operation::Install { snapshot } => format!("sum {}", snapshot.position),
        }
    });
    shown.collect::<Vec<_>>().join(", ")
}
