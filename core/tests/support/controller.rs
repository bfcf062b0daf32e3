//! The language of the scripts about the controller.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use quorate_core::batch::{Batch, BatchBuilder, Codec};
use quorate_core::controller::interface::{
    AlterConfig, AppendId, ConfigChange, ConfigOp, Effect, Input, Limits, MorePartitions, NewTopic,
    Outcome, Problem, RegisterNode, Resource, TopicName,
};
use quorate_core::controller::{Controller, records_of};
use quorate_core::id::{LeaderEpoch, NodeId, RequestId, TopicId};
use quorate_core::machine::Machine;
use quorate_core::metadata::{Address, Record};
use quorate_core::time::{Now, Timestamp};

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
}

/// Topic ids as `t1`, `t2`, in the order in which they appeared.
#[derive(Default)]
pub(crate) struct Names(BTreeMap<TopicId, usize>);

impl Names {
    pub(crate) fn name(&mut self, id: TopicId) -> String {
        let next = self.0.len() + 1;
        format!("t{}", self.0.entry(id).or_insert(next))
    }

    pub(crate) fn id(&self, name: &str) -> TopicId {
        let place = name.strip_prefix('t').and_then(|number| number.parse().ok());
        let known = self.0.iter().find(|(_, known)| Some(**known) == place);
        known.map_or(TopicId([0xee; 16]), |(id, _)| *id)
    }
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
        }
    }

    fn step(&mut self, input: Input) -> String {
        let mut effects = Vec::new();
        self.controller.step(Now::default(), input, &mut effects);
        self.controller.check();
        let mut out = String::new();
        for effect in effects {
            let _ = match &effect {
                Effect::Replay => writeln!(out, "replay"),
                Effect::Append { append, batch } => {
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
            out.push_str(&self.step(Input::Replayed { batch }));
        }
        out.push_str(&self.step(Input::ReplayEnded));
        out
    }

    /// The process dies; the append in flight is lost.
    fn crash(&mut self) -> String {
        self.lives += 1;
        self.in_flight = None;
        self.controller = Controller::new(self.limits.clone(), self.lives);
        let mut out = self.step(Input::Elected { leader_epoch: LeaderEpoch(0) });
        out.push_str(&self.replay());
        out
    }

    fn limit(&mut self, command: &Command<'_>) {
        for (key, value) in command.pairs() {
            let number: i64 = value.parse().expect("a number");
            let size = usize::try_from(number).expect("a size");
            match key {
                "topics_max" => self.limits.topics_max = size,
                "partitions_max" => self.limits.partitions_max = size,
                "topic_partitions_max" => self.limits.topic_partitions_max = size,
                "config_bytes_max" => self.limits.config_bytes_max = size,
                "waiting_max" => self.limits.waiting_max = size,
                "append_bytes_max" => self.limits.append_bytes_max = size,
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
            "register" => Input::RegisterNode(RegisterNode {
                request,
                node: NodeId(words[0].parse().expect("a node")),
                incarnation: command.read("incarnation").unwrap_or(1),
                cluster: command.value("cluster").unwrap_or("abc").to_owned(),
                address: Address {
                    host: command.value("host").unwrap_or("localhost").to_owned(),
                    port: 9092,
                },
                rack: command.value("rack").map(str::to_owned),
            }),
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
            other => panic!("no such command: {other}"),
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
                let mut out = self.step(Input::Elected { leader_epoch: LeaderEpoch(0) });
                out.push_str(&self.replay());
                out
            }
            "elect-only" => self.step(Input::Elected { leader_epoch: LeaderEpoch(0) }),
            "replay" => self.replay(),
            "replay-unreadable" => {
                let mut builder = BatchBuilder::new(Codec::None);
                builder.append(Timestamp(0), None, Some(&[2, 0]), []);
                self.step(Input::Replayed { batch: builder.build() })
            }
            "resign" => {
                self.in_flight = None;
                self.step(Input::Resigned)
            }
            "appended" => {
                let (append, batch) = self.in_flight.take().expect("an append in flight");
                self.log.push(batch);
                self.step(Input::Appended { append })
            }
            "append-refused" => {
                let (append, _) = self.in_flight.take().expect("an append in flight");
                self.step(Input::AppendRefused { append })
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

pub(crate) fn show_record(record: &Record, names: &mut Names) -> String {
    match record {
        Record::ClusterNamed { cluster } => format!("cluster {cluster}"),
        Record::NodeRegistered { node, incarnation, address, rack } => {
            let rack = rack.as_ref().map(|rack| format!(" rack={rack}")).unwrap_or_default();
            format!("node {node} #{incarnation} {}:{}{rack}", address.host, address.port)
        }
        Record::TopicCreated { topic, name, partitions, configs } => {
            let mut out =
                format!("topic {} {name} partitions={}", names.name(*topic), partitions.len());
            for (name, value) in configs {
                let _ = write!(out, " {name}={value}");
            }
            out
        }
        Record::PartitionsAdded { topic, first, partitions } => {
            format!("partitions {} {first}..+{}", names.name(*topic), partitions.len())
        }
        Record::TopicDeleted { topic } => format!("delete {}", names.name(*topic)),
        Record::ConfigsSet { resource, changes } => {
            let mut out = match resource {
                quorate_core::metadata::ConfigResource::Topic(topic) => {
                    format!("configure {}", names.name(*topic))
                }
                other => format!("configure {other:?}"),
            };
            for (name, value) in changes {
                let _ = write!(out, " {name}={}", value.as_deref().unwrap_or("(default)"));
            }
            out
        }
        Record::ProducerIdsAllocated { node, next } => format!("pids node={node} next={next}"),
    }
}

pub(crate) fn show_outcome(outcome: &Outcome, names: &mut Names) -> String {
    match outcome {
        Outcome::NodeRegistered => "registered\n".to_owned(),
        Outcome::TopicsCreated(topics) => lines("created", topics, |name, result| {
            let told = result.as_ref().map(|topic| {
                let id = match topic.id {
                    TopicId::NONE => "no id".to_owned(),
                    id => names.name(id),
                };
                format!("{id} partitions={} replication={}", topic.partitions, topic.replication)
            });
            (name.clone(), told.map_err(Clone::clone))
        }),
        Outcome::TopicsDeleted(topics) => lines("deleted", topics, |name, result| {
            let told = result.as_ref().map(|topic| topic.name.clone());
            let name = match name {
                TopicName::Name(name) => name.clone(),
                TopicName::Id(_) => "by id".to_owned(),
            };
            (name, told.map_err(Clone::clone))
        }),
        Outcome::PartitionsCreated(topics) => lines("partitions", topics, |name, result| {
            (name.clone(), result.clone().map(|()| "more".to_owned()))
        }),
        Outcome::ConfigsAltered(resources) => lines("altered", resources, |resource, result| {
            let name = match resource {
                Resource::Topic(name) => name.clone(),
                Resource::Node(node) => format!("node {node:?}"),
            };
            (name, result.clone().map(|()| "done".to_owned()))
        }),
        Outcome::ProducerIds { first, end } => format!("pids {first}..{end}\n"),
        Outcome::Refused(problem) => format!("refused {:?}: {}\n", problem.kind, problem.message),
    }
}

fn lines<K, V>(
    what: &str,
    results: &[(K, V)],
    mut show: impl FnMut(&K, &V) -> (String, Result<String, Problem>),
) -> String {
    let mut out = format!("{what}\n");
    for (key, result) in results {
        let _ = match show(key, result) {
            (name, Ok(told)) => writeln!(out, "  {name}: {told}"),
            (name, Err(problem)) => {
                writeln!(out, "  {name}: {:?}: {}", problem.kind, problem.message)
            }
        };
    }
    out
}
