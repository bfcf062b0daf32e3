//! The language of the scripts about a shard: several machines, and what passes between them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::batch::control::Ending;
use quorate_core::batch::{Batch, BatchBuilder, Codec, Levels};
use quorate_core::controller::interface as controller;
use quorate_core::group::interface as group;
use quorate_core::id::{
    LeaderEpoch, NodeEpoch, NodeId, Offset, PartitionId, ProducerEpoch, ProducerId, RequestId,
    TopicId,
};
use quorate_core::machine::Machine;
use quorate_core::partition::interface::{
    Acks, Assignment, Confirmed, Input as PartitionInput, Isolation, LogOp, Message,
    PartitionConfig, Produce, Replicated, Wait,
};
use quorate_core::quorum::interface as quorum;
use quorate_core::shard::Shard;
use quorate_core::shard::interface::{Effect, Input, Limits, Open, Outcome, Role};
use quorate_core::time::{Instant, Now, Timestamp};
use quorate_core::transaction::interface as transaction;

use crate::controller::{Names, show_outcome};
use crate::log::Log;
use crate::partition::{WALL_START, show_op, show_outcome as show_partition_outcome, show_view};
use crate::script::{Command, Stage, millis};

/// A shard without a seat, and the logs of its partitions. A partition is called `meta`, `offsets`,
/// `transactions`, or `data-N`.
pub(crate) struct ShardStage {
    shard: Shard,
    now: Now,
    logs: BTreeMap<PartitionId, Log>,
    /// What each log holds for a replay.
    batches: BTreeMap<PartitionId, Vec<Batch>>,
    in_flight: BTreeMap<PartitionId, Vec<LogOp>>,
    next_request: u64,
    names: Names,
}

const OFFSETS: TopicId = TopicId([0x0f; 16]);
const TRANSACTIONS: TopicId = TopicId([0x07; 16]);

impl ShardStage {
    pub(crate) fn new() -> Self {
        Self {
            shard: Shard::new(NodeId(1), Limits::default(), 1),
            now: Now { monotonic: Instant::ZERO, wall: Timestamp(WALL_START) },
            logs: BTreeMap::new(),
            batches: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            next_request: 1,
            names: Names::default(),
        }
    }

    fn request(&mut self) -> RequestId {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        request
    }

    fn step(&mut self, input: Input) -> String {
        let mut effects = Vec::new();
        self.shard.step(self.now, input, &mut effects);
        self.shard.check();
        let mut out = String::new();
        for effect in effects {
            self.show(&effect, &mut out);
            if let Effect::Write { partition, write, op, .. } = effect {
                self.in_flight.entry(partition).or_default().push(op.clone());
                self.logs.entry(partition).or_default().write(write, op);
            }
        }
        out
    }

    fn show(&mut self, effect: &Effect, out: &mut String) {
        let _ = match effect {
            Effect::Write { partition, write, op, .. } => {
                writeln!(out, "{} {}", name(*partition), show_op(*write, op))
            }
            Effect::Publish { partition, view } => {
                writeln!(out, "{} {} end={}", name(*partition), show_view(view), view.end)
            }
            Effect::Reply { request, outcome: Outcome::Partition(outcome) } => {
                writeln!(out, "reply r{request} {}", show_partition_outcome(outcome))
            }
            Effect::Reply { request, outcome: Outcome::Controller(outcome) } => {
                write!(out, "reply r{request} {}", show_outcome(outcome, &mut self.names))
            }
            Effect::Reply { request, outcome: Outcome::Quorum(outcome) } => {
                writeln!(out, "reply r{request} {outcome:?}")
            }
            Effect::Reply { request, outcome: Outcome::Group(outcome) } => {
                writeln!(out, "reply r{request} {outcome:?}")
            }
            Effect::Reply { request, outcome: Outcome::Transaction(outcome) } => {
                writeln!(out, "reply r{request} {outcome:?}")
            }
            Effect::SendMarker { coordinator, marker } => {
                writeln!(out, "coordinator {coordinator} sends {marker:?}")
            }
            Effect::Replay { partition } => writeln!(out, "replay {}", name(*partition)),
            Effect::Send { partition, to, .. } => {
                writeln!(out, "{} says something to n{to}", name(*partition))
            }
            Effect::ReadLog { partition, to, from, up_to, .. } => {
                writeln!(out, "{} is to be read from {from} to {up_to} for n{to}", name(*partition))
            }
            Effect::Halt { partition, reason } => {
                writeln!(out, "{} halt {reason:?}", name(*partition))
            }
            other => panic!("no seat, and one replica has nobody to turn to: {other:?}"),
        };
    }

    fn open(&mut self, partition: PartitionId, command: &Command<'_>) -> String {
        let log = self.logs.entry(partition).or_default();
        let recovered = log.recover();
        *log = Log::new(recovered.clone());
        let role = match partition.topic {
            OFFSETS => Role::Offsets,
            TRANSACTIONS => Role::Transactions,
            _ => Role::Data,
        };
        let epoch = command.read("epoch").unwrap_or(0);
        let assignment = assignment(epoch, Some(1), command.read("with"));
        let config = PartitionConfig::default();
        self.step(Input::Open(Box::new(Open { partition, role, recovered, config, assignment })))
    }

    fn written(&mut self, partition: PartitionId) -> String {
        let log = self.logs.entry(partition).or_default();
        let Some(through) = log.complete(log.in_flight()) else {
            return "nothing is in flight\n".to_owned();
        };
        for op in self.in_flight.remove(&partition).unwrap_or_default() {
            if let LogOp::Append { batch, .. } = op {
                self.batches.entry(partition).or_default().push(batch);
            }
        }
        self.step(Input::Partition { partition, input: PartitionInput::Written { through } })
    }

    fn replay(&mut self, partition: PartitionId) -> String {
        let mut out = String::new();
        for batch in self.batches.get(&partition).cloned().unwrap_or_default() {
            out.push_str(&self.step(Input::Replayed { partition, batch }));
        }
        out.push_str(&self.step(Input::ReplayEnded { partition }));
        out
    }

    fn pass(&mut self, time: Duration) -> String {
        let end = self.now.monotonic + time;
        let mut out = String::new();
        while let Some(at) = self.shard.deadline().filter(|at| *at <= end) {
            self.move_to(at.max(self.now.monotonic));
            let ticked = self.step(Input::Tick);
            let after = self.shard.deadline();
            assert!(after.is_none_or(|after| after > self.now.monotonic), "the driver would spin");
            for line in ticked.lines() {
                let _ = writeln!(out, "[{}] {line}", self.now.monotonic);
            }
        }
        self.move_to(end);
        out
    }

    fn move_to(&mut self, at: Instant) {
        let passed = at.saturating_since(self.now.monotonic).as_millis();
        self.now.monotonic = at;
        self.now.wall.0 += i64::try_from(passed).expect("a script's time");
    }

    /// The process dies: every machine is gone, every log keeps what was written.
    fn crash(&mut self) {
        self.shard = Shard::new(NodeId(1), Limits::default(), 2);
        self.now.monotonic = Instant::ZERO;
        self.in_flight.clear();
    }

    fn input(&mut self, command: &Command<'_>) -> Input {
        let request = self.request();
        let partition = || partition(command.words().next().expect("a partition"));
        match command.name {
            "produce" => {
                let mut builder = BatchBuilder::new(Codec::None);
                builder.append(self.now.wall, None, Some(b"0123456789"), []);
                let batch = builder.build();
                let until = self.now.monotonic + Duration::from_secs(30);
                let levels = Levels::DEFAULT;
                let (acks, guard) = (Acks::All, None);
                let produce = Produce { request, batch, levels, acks, until, guard };
                Input::Partition { partition: partition(), input: PartitionInput::Produce(produce) }
            }
            "wait" => {
                let wait = Wait {
                    request,
                    beyond: Offset(command.read("beyond").unwrap_or(0)),
                    bytes_min: 1,
                    isolation: Isolation::ReadUncommitted,
                    until: self.now.monotonic
                        + Duration::from_millis(
                            millis(command.value("for").unwrap_or("500ms")).unsigned_abs(),
                        ),
                };
                Input::Partition { partition: partition(), input: PartitionInput::Wait(wait) }
            }
            "close" => Input::Partition {
                partition: partition(),
                input: PartitionInput::Close { request },
            },
            "read" => Input::Quorum(quorum::Input::Read { request }),
            "create" => {
                let name = command.words().next().expect("a name").to_owned();
                let topics = vec![controller::NewTopic { name, ..Default::default() }];
                Input::Controller(controller::Input::CreateTopics {
                    request,
                    topics,
                    validate_only: false,
                })
            }
            "init" | "add" | "verify" | "end" => {
                Input::Transaction { coordinator: 0, input: transaction_input(request, command) }
            }
            "commit" | "offsets" | "join" | "heartbeat" | "beat" => {
                Input::Group { coordinator: 0, input: group_input(request, command) }
            }
            other => panic!("no such command: {other}"),
        }
    }
}

/// Of producer 100 with the transactional id `x`, in its first epoch.
fn transaction_input(request: RequestId, command: &Command<'_>) -> transaction::Input {
    let transactional_id = "x".to_owned();
    if command.name == "init" {
        return transaction::Input::InitProducer(transaction::InitProducer {
            request,
            transactional_id,
            timeout: Duration::from_secs(60),
            current: None,
            fresh: Some(ProducerId(100)),
        });
    }
    let (producer, epoch) = (ProducerId(100), ProducerEpoch(0));
    let claim = transaction::Claim { transactional_id, producer, epoch };
    let version = transaction::TransactionVersion::V2;
    let topic = command.value("topic").unwrap_or("orders").to_owned();
    let partitions = vec![transaction::TopicPartition { topic, partition: 0 }];
    if command.name == "verify" {
        return transaction::Input::Verify { request, claim, partitions };
    }
    if command.name == "add" {
        return transaction::Input::AddPartitions(transaction::AddPartitions {
            request,
            claim,
            partitions,
            version,
        });
    }
    let ending = Ending::Committed;
    transaction::Input::End(transaction::End { request, claim, ending, version, fresh: None })
}

fn group_input(request: RequestId, command: &Command<'_>) -> group::Input {
    let group = command.value("group").unwrap_or("g").to_owned();
    if command.name == "offsets" {
        return group::Input::FetchOffsets(group::FetchOffsets {
            request,
            group,
            member: None,
            partitions: None,
            require_stable: false,
        });
    }
    if command.name == "heartbeat" {
        let (member, instance) = ("somebody".to_owned(), None);
        let member = group::MemberClaim { group, member, instance, generation: 1 };
        return group::Input::Heartbeat { request, member };
    }
    if command.name == "beat" {
        return group::Input::ConsumerHeartbeat(group::ConsumerHeartbeat {
            request,
            group,
            member: command.words().next().expect("a member").to_owned(),
            rebalance_timeout: Some(Duration::from_secs(60)),
            topics: Some(vec!["orders".to_owned()]),
            owned: Some(group::Assignment::default()),
            ..group::ConsumerHeartbeat::default()
        });
    }
    if command.name == "join" {
        // A subscription of version 0 to `orders`.
        let metadata = Bytes::from_static(b"\0\0\0\0\0\x01\0\x06orders\xff\xff\xff\xff");
        return group::Input::Join(group::Join {
            request,
            group,
            member: String::new(),
            instance: None,
            client_id: "client".to_owned(),
            client_host: "host".to_owned(),
            session_timeout: Duration::from_secs(10),
            rebalance_timeout: Duration::from_secs(60),
            protocol_type: "consumer".to_owned(),
            protocols: vec![group::Protocol { name: "range".to_owned(), metadata }],
            member_id_required: false,
            skip_assignment: false,
        });
    }
    let partition = group::TopicPartition { topic: "orders".to_owned(), partition: 0 };
    let committed = group::CommittedOffset {
        offset: Offset(command.read("offset").expect("offset=")),
        leader_epoch: LeaderEpoch(-1),
        metadata: String::new(),
        topic: TopicId::NONE,
    };
    // A consumer without membership.
    let (member, instance) = (String::new(), None);
    group::Input::CommitOffsets(group::CommitOffsets {
        request,
        member: group::MemberClaim { group, member, instance, generation: -1 },
        knows_epochs: true,
        offsets: vec![(partition, committed)],
    })
}

impl Stage for ShardStage {
    fn run(&mut self, command: &Command<'_>) -> String {
        let first = command.words().next();
        match command.name {
            "open" => self.open(partition(first.expect("a partition")), command),
            // There is one, with as many partitions.
            "topics" => {
                let partitions = command.read("orders").expect("orders=");
                let orders = group::TopicInfo { id: TopicId([0x01; 16]), partitions };
                let topics = vec![("orders".to_owned(), Some(orders))];
                self.step(Input::Topics(group::TopicsNews { is_all: true, topics }))
            }
            "registered" => self.step(Input::Registered { node_epoch: NodeEpoch(1) }),
            "replicated" => {
                let partition = partition(first.expect("a partition"));
                let end = Offset(command.read("end").expect("end="));
                let message = Message::Replicated(Replicated {
                    leader_epoch: LeaderEpoch(command.read("epoch").expect("epoch=")),
                    node_epoch: NodeEpoch(2),
                    end,
                    high_watermark: Offset::ZERO,
                    log_start: Offset::ZERO,
                    resume: Some(end),
                });
                let input = PartitionInput::Message { from: NodeId(2), message };
                self.step(Input::Partition { partition, input })
            }
            "confirmed" => {
                let partition = partition(first.expect("a partition"));
                let leader_epoch = LeaderEpoch(command.read("epoch").expect("epoch="));
                let round = command.read("round").expect("round=");
                let confirmed = Confirmed { leader_epoch, round };
                let message = Message::Confirmed(confirmed);
                let input = PartitionInput::Message { from: NodeId(2), message };
                self.step(Input::Partition { partition, input })
            }
            "drop" => {
                let partition = partition(first.expect("a partition"));
                self.in_flight.remove(&partition);
                self.step(Input::Drop { partition })
            }
            "written" => self.written(partition(first.expect("a partition"))),
            "fail" => {
                let partition = partition(first.expect("a partition"));
                let write = self.logs[&partition].next_write().expect("a write in flight");
                let input = PartitionInput::WriteFailed { write };
                self.step(Input::Partition { partition, input })
            }
            "assign" => {
                let partition = partition(first.expect("a partition"));
                let epoch = command.read("epoch").expect("epoch=");
                let with = command.read("with");
                let assignment = assignment(epoch, command.read("leader"), with);
                let input = PartitionInput::Assigned(assignment);
                self.step(Input::Partition { partition, input })
            }
            "replay" => self.replay(partition(first.expect("a partition"))),
            "pass" => {
                let time = millis(first.expect("a time")).unsigned_abs();
                self.pass(Duration::from_millis(time))
            }
            "crash" => {
                self.crash();
                String::new()
            }
            "status" => self.shard.to_string(),
            _ => {
                let input = self.input(command);
                self.step(input)
            }
        }
    }
}

fn assignment(epoch: i32, leader: Option<i32>, with: Option<i32>) -> Assignment {
    let replicas: Vec<_> = [1].into_iter().chain(with).map(NodeId).collect();
    Assignment {
        leader_epoch: LeaderEpoch(epoch),
        leader: leader.map(NodeId),
        in_sync: replicas.clone(),
        replicas,
        ..Assignment::default()
    }
}

fn partition(name: &str) -> PartitionId {
    match name {
        "meta" => PartitionId::METADATA,
        "offsets" => PartitionId { topic: OFFSETS, index: 0 },
        "transactions" => PartitionId { topic: TRANSACTIONS, index: 0 },
        data => {
            let index = data.strip_prefix("data-").and_then(|index| index.parse().ok());
            PartitionId { topic: TopicId([0xda; 16]), index: index.expect("data-N") }
        }
    }
}

fn name(partition: PartitionId) -> String {
    match partition.topic {
        TopicId::METADATA => "meta".to_owned(),
        OFFSETS => "offsets".to_owned(),
        TRANSACTIONS => "transactions".to_owned(),
        _ => format!("data-{}", partition.index),
    }
}
