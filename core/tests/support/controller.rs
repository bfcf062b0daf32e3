//! The language of the scripts about the controller.

#[path = "controller/cluster.rs"]
mod cluster;
#[path = "controller/show.rs"]
mod show;

use std::fmt::Write as _;
use std::time::Duration;

use quorate_core::batch::{Batch, BatchBuilder, Codec};
use quorate_core::controller::Controller;
use quorate_core::controller::interface::{
    AlterConfig, ConfigChange, ConfigOp, Effect, Input, Limits, MorePartitions, NewTopic, Resource,
    TopicName,
};
use quorate_core::id::{LeaderEpoch, NodeId, RequestId};
use quorate_core::machine::Machine;
use quorate_core::metadata::payload::records_of;
use quorate_core::own_log::{self, AppendId, Input as Log};
use quorate_core::time::{Instant, Now, Timestamp};

pub(crate) use self::show::{Names, show_outcome, show_record};
use super::script::{Command, Stage};

/// A controller, the metadata log, and short names for topic ids.
pub(crate) struct ControllerStage {
    controller: Controller,
    limits: Limits,
    log: Vec<Batch>,
    in_flight: Option<(AppendId, Batch)>,
    next_request: u64,
    lives: u64,
    names: Names,
    now: Duration,
    /// The log takes every append at once.
    takes: bool,
}

impl ControllerStage {
    pub(crate) fn new() -> Self {
        let limits = Limits::default();
        Self {
            controller: Controller::new(limits.clone(), 1),
            limits,
            log: Vec::new(),
            in_flight: None,
            next_request: 1,
            lives: 1,
            names: Names::default(),
            now: Duration::ZERO,
            takes: false,
        }
    }

    fn step(&mut self, input: Input) -> String {
        let mut out = self.step_once(input);
        while self.takes && self.in_flight.is_some() {
            out.push_str(&self.appended());
        }
        out
    }

    fn appended(&mut self) -> String {
        let Some((append, batch)) = self.in_flight.take() else {
            return "nothing is on its way\n".to_owned();
        };
        self.log.push(batch);
        self.step_once(Input::Log(Log::Appended { append }))
    }

    fn step_once(&mut self, input: Input) -> String {
        let mut effects = Vec::new();
        let now = Now { monotonic: Instant::since_start(self.now), wall: Timestamp(0) };
        self.controller.step(now, input, &mut effects);
        self.controller.check();
        let mut out = String::new();
        for effect in effects {
            let _ = match &effect {
                Effect::Log(own_log::Effect::Replay) => writeln!(out, "replay"),
                Effect::Log(own_log::Effect::Append { append, batch }) => {
                    let records = records_of(batch).expect("our own records");
                    let _ = writeln!(out, "append a{}", append.0);
                    for record in records {
                        let _ = writeln!(out, "  {}", show_record(&record, &mut self.names));
                    }
                    self.in_flight = Some((*append, batch.clone()));
                    Ok(())
                }
                Effect::Committed(records) => writeln!(out, "committed {}", records.len()),
                Effect::Reply { request, outcome } => {
                    write!(out, "reply r{request} {}", show_outcome(outcome, &mut self.names))
                }
                Effect::Halt { reason } => writeln!(out, "halt: {reason}"),
            };
        }
        out
    }

    fn request(&mut self) -> RequestId {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        request
    }

    fn replay(&mut self) -> String {
        let mut out = String::new();
        for batch in self.log.clone() {
            out.push_str(&self.step(Input::Log(Log::Replayed { batch })));
        }
        out.push_str(&self.step(Input::Log(Log::ReplayEnded)));
        out
    }

    /// The process dies; the append in flight is lost.
    fn crash(&mut self) -> String {
        self.lives += 1;
        self.in_flight = None;
        self.controller = Controller::new(self.limits.clone(), self.lives);
        let mut out = self.step(Input::Log(Log::Elected { leader_epoch: LeaderEpoch(0) }));
        out.push_str(&self.replay());
        out
    }

    fn limit(&mut self, command: &Command<'_>) {
        if command.words().any(|word| word == "cluster") {
            self.limits =
                Limits { session_timeout: Some(Duration::from_secs(2)), ..Limits::cluster() };
        }
        for (key, value) in command.pairs() {
            if self.limit_of_time(key, value) {
                continue;
            }
            let number: i64 = value.parse().expect("a number");
            let size = usize::try_from(number).expect("a size");
            match key {
                "topics_max" => self.limits.topics_max = size,
                "partitions_max" => self.limits.partitions_max = size,
                "topic_partitions_max" => self.limits.topic_partitions_max = size,
                "config_bytes_max" => self.limits.config_bytes_max = size,
                "waiting_max" => self.limits.waiting_max = size,
                "append_bytes_max" => self.limits.append_bytes_max = size,
                "nodes_max" => self.limits.nodes_max = size,
                "replicas_max" => self.limits.replicas_max = size,
                "features_max" => self.limits.features_max = size,
                "leader_moves_max" => self.limits.leader_moves_max = size,
                "replica_moves_max" => self.limits.replica_moves_max = size,
                "partitions_default" => {
                    self.limits.partitions_default = i32::try_from(number).expect("an i32");
                }
                other => panic!("no such limit: {other}"),
            }
        }
        self.controller = Controller::new(self.limits.clone(), self.lives);
    }

    fn input(&mut self, command: &Command<'_>) -> Input {
        let request = self.request();
        let words = command.words().collect::<Vec<_>>();
        let validate_only = words.contains(&"validate-only");
        let named = words.iter().copied().filter(|word| *word != "validate-only");
        match command.name {
            "create" => {
                let topics = named.map(|name| new_topic(name, command)).collect();
                Input::CreateTopics { request, topics, validate_only }
            }
            "delete" => {
                let ids = command.value("id").map(|name| TopicName::Id(self.names.id(name)));
                let names = named.map(|name| TopicName::Name(name.to_owned()));
                Input::DeleteTopics { request, topics: names.chain(ids).collect() }
            }
            "partitions" => {
                let more = named.map(|name| MorePartitions {
                    topic: name.to_owned(),
                    count: command.read("count").expect("count="),
                    assignments: command.value("assign").map(assignments).unwrap_or_default(),
                });
                Input::CreatePartitions { request, topics: more.collect(), validate_only }
            }
            "alter" | "replace" => {
                let resource = match words[0].strip_prefix("node:") {
                    Some(node) => Resource::Node(node.parse().ok().map(NodeId)),
                    None => Resource::Topic(words[0].to_owned()),
                };
                let change = change(command);
                let resources = vec![AlterConfig { resource, change }];
                Input::AlterConfigs { request, resources, validate_only }
            }
            "pids" => Input::AllocateProducerIds {
                request,
                node: NodeId(words[0].parse().expect("a node")),
            },
            _ => self.cluster_input(request, command),
        }
    }
}

impl Stage for ControllerStage {
    fn run(&mut self, command: &Command<'_>) -> String {
        match command.name {
            "limits" => {
                self.limit(command);
                String::new()
            }
            "elect" => {
                let mut out = self.step(Input::Log(Log::Elected { leader_epoch: LeaderEpoch(0) }));
                out.push_str(&self.replay());
                out
            }
            "elect-only" => self.step(Input::Log(Log::Elected { leader_epoch: LeaderEpoch(0) })),
            "replay" => self.replay(),
            "replay-unreadable" => {
                let mut builder = BatchBuilder::new(Codec::None);
                builder.append(Timestamp(0), None, Some(&[3, 0]), []);
                self.step(Input::Log(Log::Replayed { batch: builder.build() }))
            }
            "resign" => {
                self.in_flight = None;
                self.step(Input::Log(Log::Resigned))
            }
            "appended" => self.appended(),
            "log-takes" => {
                self.takes = true;
                String::new()
            }
            "log-waits" => {
                self.takes = false;
                String::new()
            }
            "after" => self.after(command),
            "partitions-of" => self.partitions(command),
            "append-refused" => {
                let (append, _) = self.in_flight.take().expect("an append in flight");
                self.step(Input::Log(Log::AppendRefused { append }))
            }
            "crash" => self.crash(),
            "status" => format!("{}\n", self.controller),
            "topics" => self.topics(),
            _ => {
                let input = self.input(command);
                self.step(input)
            }
        }
    }
}

impl ControllerStage {
    fn topics(&mut self) -> String {
        let mut out = String::new();
        for topic in self.controller.image().topics() {
            let _ = write!(out, "{} {}", self.names.name(topic.id), topic.name);
            for partition in &topic.partitions {
                let replicas = partition.replicas.iter().map(|id| id.to_string());
                let _ = write!(out, " [{}]", replicas.collect::<Vec<_>>().join(" "));
            }
            for (name, value) in &topic.configs {
                let _ = write!(out, " {name}={value}");
            }
            out.push('\n');
        }
        out
    }
}

/// `partitions=2 replication=1 assign=1/1 retention.ms=1`; names with a dot are configurations.
fn new_topic(name: &str, command: &Command<'_>) -> NewTopic {
    let placed = command.value("assign").map(assignments).unwrap_or_default();
    let configs = command.pairs().filter(|(key, _)| key.contains('.'));
    let value = |value: &str| (value != "null").then(|| value.to_owned());
    NewTopic {
        name: if name == "''" { String::new() } else { name.to_owned() },
        partitions: command.read("partitions").filter(|&count: &i32| count != -1),
        replication: command.read("replication").filter(|&count: &i16| count != -1),
        assignments: (0..).zip(placed).collect(),
        configs: configs.map(|(key, given)| (key.to_owned(), value(given))).collect(),
    }
}

/// `1,2/2,3`: the replicas of each partition.
fn assignments(text: &str) -> Vec<Vec<NodeId>> {
    let replicas = |partition: &str| {
        let ids = partition.split(',').filter(|id| !id.is_empty());
        ids.map(|id| NodeId(id.parse().expect("a node"))).collect()
    };
    text.split('/').map(replicas).collect()
}

/// `set:NAME=VALUE`, `append:NAME=VALUE`, `subtract:NAME=VALUE`, `delete:NAME=`; or with `replace`
/// just `NAME=VALUE`.
fn change(command: &Command<'_>) -> ConfigChange {
    let value = |value: &str| (value != "null").then(|| value.to_owned());
    if command.name == "replace" {
        let values = command.pairs().map(|(name, given)| (name.to_owned(), value(given)));
        return ConfigChange::Replace(values.collect());
    }
    let edits = command.pairs().map(|(edit, given)| {
        let (op, name) = edit.split_once(':').expect("set:NAME=VALUE");
        let op = match op {
            "set" => ConfigOp::Set(value(given)),
            "delete" => ConfigOp::Delete,
            "append" => ConfigOp::Append(value(given)),
            "subtract" => ConfigOp::Subtract(value(given)),
            other => panic!("no such operation: {other}"),
        };
        (name.to_owned(), op)
    });
    ConfigChange::Edit(edits.collect())
}
