//! DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: of topics, and of this node, whose
//! settings are shown and changed in its file.

use std::sync::Arc;

use quorate_core::controller::interface::{
    AlterConfig, ConfigChange, ConfigOp, Input, Outcome, Problem, Resource,
};
use quorate_core::id::NodeId;
use quorate_core::metadata::Duty;
use quorate_core::metadata::config::{Kind, TOPIC_SETTINGS, TopicConfigs};
use quorate_net::kafka::error::Code;
use quorate_net::kafka::messages::describe_configs::{
    DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResult,
    DescribeConfigsSynonym,
};
use quorate_net::kafka::messages::{
    AlterConfigsRequest, AlterConfigsResponse, DescribeConfigsRequest, DescribeConfigsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, alter_configs,
    incremental_alter_configs,
};
use quorate_net::wire::Text;

use super::duty;
use super::repeated::once;
use crate::config::NodeConfig;
use crate::controller_client::PATIENCE;
use crate::driver::ask::Stopped;
use crate::node::Node;

/// Kafka's kinds of resources.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;

/// Kafka's sources of a value.
pub(super) const SOURCE_TOPIC: i8 = 1;
const SOURCE_NODE: i8 = 2;
pub(super) const SOURCE_STATIC_NODE: i8 = 4;
pub(super) const SOURCE_DEFAULT: i8 = 5;

/// Kafka's types of a value.
const BOOLEAN: i8 = 1;
const STRING: i8 = 2;
const INT: i8 = 3;
const LONG: i8 = 5;
const DOUBLE: i8 = 6;
const LIST: i8 = 7;

/// Always told, since it is never a default: it follows from where the node listens.
const ADVERTISED: &str = "advertised.listeners";

/// A node's settings that tools know by Kafka's names.
const KAFKA_NAMES: &[(&str, &str)] = &[
    (ADVERTISED, "network.advertise"),
    ("auto.create.topics.enable", "topic.auto_create"),
    ("broker.id", "node.id"),
    ("broker.rack", "node.rack"),
    ("broker.session.timeout.ms", "node.session_timeout"),
    ("connections.max.idle.ms", "network.idle_timeout"),
    ("controller.quorum.election.timeout.ms", "quorum.election_timeout"),
    ("controller.quorum.voters", "quorum.voters"),
    ("default.replication.factor", "topic.replication"),
    ("fetch.max.bytes", "fetch.bytes_max"),
    ("group.consumer.assignment.interval.ms", "group.consumer_assignment_interval"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer_heartbeat_interval"),
    ("group.consumer.migration.policy", "group.consumer_migration"),
    ("group.consumer.session.timeout.ms", "group.consumer_session_timeout"),
    ("group.initial.rebalance.delay.ms", "group.initial_rebalance_delay"),
    ("group.max.session.timeout.ms", "group.session_timeout_max"),
    ("group.max.size", "group.members_max"),
    ("group.min.session.timeout.ms", "group.session_timeout_min"),
    ("listeners", "network.listen"),
    ("log.dirs", "node.data"),
    ("max.connections", "network.connections_max"),
    ("max.incremental.fetch.session.cache.slots", "fetch.sessions_max"),
    ("node.id", "node.id"),
    ("num.partitions", "topic.partitions"),
    ("offset.metadata.max.bytes", "group.offset_metadata_bytes_max"),
    ("offsets.retention.check.interval.ms", "group.offsets_check_interval"),
    ("offsets.retention.minutes", "group.offsets_retention"),
    ("offsets.topic.num.partitions", "group.offsets_partitions"),
    ("process.roles", "node.roles"),
    ("queued.max.request.bytes", "request.memory_max"),
    ("socket.request.max.bytes", "request.bytes_max"),
];

pub(crate) fn describe(
    node: &Node,
    mut request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let resources = std::mem::take(&mut request.resources);
    let resources = once(resources, |named| (named.resource_type, named.resource_name.clone()));
    let results = resources.map(|resource| {
        let found = match resource.resource_type {
            TOPIC => topic_configs(node, &request, &resource),
            BROKER => node_configs(node, &request, &resource),
            _ => Err((Code::InvalidRequest, "only topics and nodes have configurations here")),
        };
        let (code, why, configs) = match found {
            Ok(configs) => (Code::None, None, configs),
            Err((code, why)) => (code, Some(why.into()), Vec::new()),
        };
        DescribeConfigsResult {
            error_code: code.code(),
            error_message: why,
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
            configs,
        }
    });
    DescribeConfigsResponse { results: results.collect(), ..DescribeConfigsResponse::default() }
}

type Configs = Result<Vec<DescribeConfigsResourceResult>, (Code, &'static str)>;

fn asks_for(resource: &DescribeConfigsResource, name: &str) -> bool {
    let keys = resource.configuration_keys.as_ref();
    keys.is_none_or(|keys| keys.iter().any(|key| *key == name))
}

fn topic_configs(
    node: &Node,
    request: &DescribeConfigsRequest,
    resource: &DescribeConfigsResource,
) -> Configs {
    let topic = node.catalog.topic_named(&resource.resource_name);
    let topic = topic.ok_or((Code::UnknownTopicOrPartition, "there is no such topic"))?;
    let replicas = topic.partitions.first().map_or(1, |first| first.assignment.copies());
    let settings = TOPIC_SETTINGS.iter().filter(|setting| asks_for(resource, setting.name));
    let rows = settings.map(|setting| {
        let value = value_in_force(&topic.configs, setting.name, replicas);
        let given = topic.configs.is_given(setting.name);
        let mut synonyms = Vec::new();
        if request.include_synonyms {
            let synonym = |value: &str, source| DescribeConfigsSynonym {
                name: setting.name.into(),
                value: Some(value.into()),
                source,
            };
            if given {
                synonyms.push(synonym(&value, SOURCE_TOPIC));
            }
            synonyms.push(synonym(setting.default, SOURCE_DEFAULT));
        }
        DescribeConfigsResourceResult {
            name: setting.name.into(),
            value: Some(value.into()),
            config_source: if given { SOURCE_TOPIC } else { SOURCE_DEFAULT },
            synonyms,
            config_type: kind(setting.kind),
            documentation: request.include_documentation.then(|| setting.doc.into()),
            ..DescribeConfigsResourceResult::default()
        }
    });
    Ok(rows.collect())
}

/// What counts, where the default depends on the topic's shape.
fn value_in_force(configs: &TopicConfigs, name: &str, replicas: usize) -> String {
    if name == "min.insync.replicas" {
        return configs.min_insync_replicas(replicas).to_string();
    }
    configs.value(name).to_owned()
}

const fn kind(kind: Kind) -> i8 {
    match kind {
        Kind::Switch => BOOLEAN,
        Kind::Int { .. } => INT,
        Kind::Long { .. } => LONG,
        Kind::Share => DOUBLE,
        Kind::Choice(_) => STRING,
        Kind::List(_) | Kind::ReplicaList => LIST,
    }
}

/// A value in the form that Kafka gives it: times are numbers, listeners have their protocol.
fn as_kafka(node: &Node, name: &str, value: String) -> String {
    match name {
        ADVERTISED => format!("PLAINTEXT://{}:{}", node.address.host, node.address.port),
        "listeners" => format!("PLAINTEXT://{value}"),
        _ if name.ends_with(".ms") => value.trim_end_matches("ms").to_owned(),
        _ if name.ends_with(".minutes") => {
            let millis = value.trim_end_matches("ms").parse::<u64>().unwrap_or_default();
            (millis / 60_000).to_string()
        }
        _ => value,
    }
}

/// This node's settings under Kafka's names, and all of them under ours.
fn node_configs(
    node: &Node,
    request: &DescribeConfigsRequest,
    resource: &DescribeConfigsResource,
) -> Configs {
    let name = &resource.resource_name;
    let id = if name.is_empty() { Ok(node.id.0) } else { name.parse() };
    let duty = id
        .as_ref()
        .ok()
        .and_then(|id| node.catalog.read().image.node(NodeId(*id)).map(|found| found.duty));
    let duty = duty.map(|duty| duty_row(request, duty));
    if id != Ok(node.id.0) {
        // What a node is configured with stands in its file, its duty stands in the metadata.
        let is_about_duty = resource
            .configuration_keys
            .as_ref()
            .is_some_and(|keys| !keys.is_empty() && keys.iter().all(|key| *key == duty::NAME));
        return match duty.filter(|_| is_about_duty) {
            Some(row) => Ok(vec![row]),
            None => Err((Code::InvalidRequest, "that is not this node: ask it")),
        };
    }
    let (values, defaults) = (node.config.values(), NodeConfig::default().values());
    let ours = NodeConfig::KEYS.iter().map(|key| (format!("quorate.{key}"), *key));
    let kafkas = KAFKA_NAMES.iter().map(|(name, key)| ((*name).to_owned(), *key));
    let rows =
        kafkas.chain(ours).filter(|(name, _)| asks_for(resource, name)).map(|(name, key)| {
            let value = values.get(key).cloned().unwrap_or_default();
            let changed =
                defaults.get(key).is_some_and(|default| *default != value) || name == ADVERTISED;
            let value = as_kafka(node, &name, value);
            let doc = || NodeConfig::descriptions().into_iter().find(|(found, _)| *found == key);
            DescribeConfigsResourceResult {
                name: name.into(),
                value: Some(value.into()),
                read_only: true,
                config_source: if changed { SOURCE_STATIC_NODE } else { SOURCE_DEFAULT },
                config_type: STRING,
                documentation: request
                    .include_documentation
                    .then(|| doc().map_or_else(String::new, |(_, words)| words).into()),
                ..DescribeConfigsResourceResult::default()
            }
        });
    Ok(rows.chain(duty.filter(|_| asks_for(resource, duty::NAME))).collect())
}

fn duty_row(request: &DescribeConfigsRequest, duty: Duty) -> DescribeConfigsResourceResult {
    DescribeConfigsResourceResult {
        name: duty::NAME.into(),
        value: Some(duty::value(duty).into()),
        config_source: if duty == Duty::Serve { SOURCE_DEFAULT } else { SOURCE_NODE },
        config_type: STRING,
        documentation: request.include_documentation.then(|| duty::DOC.into()),
        ..DescribeConfigsResourceResult::default()
    }
}

/// What a request says of one resource: for the controller, or wrong in its form.
struct Asked {
    resource_type: i8,
    resource_name: Text,
    change: Result<AlterConfig, (Code, Text)>,
}

/// What became of it.
struct Altered {
    code: Code,
    why: Option<Text>,
    resource_type: i8,
    resource_name: Text,
}

fn resource(resource_type: i8, name: &Text) -> Result<Resource, (Code, Text)> {
    let no_node = |_| (Code::InvalidRequest, Text::from("a node's name is its number"));
    match resource_type {
        TOPIC => Ok(Resource::Topic(name.to_string())),
        BROKER if name.is_empty() => Ok(Resource::Node(None)),
        BROKER => name.parse().map(|id| Resource::Node(Some(NodeId(id)))).map_err(no_node),
        _ => Err((Code::InvalidRequest, "only topics and nodes have configurations here".into())),
    }
}

fn text(value: Option<Text>) -> Option<String> {
    value.map(|value| value.to_string())
}

pub(crate) async fn replace(
    node: &Arc<Node>,
    request: AlterConfigsRequest,
) -> Result<AlterConfigsResponse, Stopped> {
    let asked = request.resources.into_iter().map(|asked| {
        let change = resource(asked.resource_type, &asked.resource_name).map(|resource| {
            let configs = asked.configs.into_iter();
            let all = configs.map(|config| (config.name.to_string(), text(config.value)));
            AlterConfig { resource, change: ConfigChange::Replace(all.collect()) }
        });
        let (resource_type, resource_name) = (asked.resource_type, asked.resource_name);
        Asked { resource_type, resource_name, change }
    });
    let rows = alter(node, asked.collect(), request.validate_only).await?;
    let rows = rows.into_iter().map(|row| alter_configs::AlterConfigsResourceResponse {
        error_code: row.code.code(),
        error_message: row.why,
        resource_type: row.resource_type,
        resource_name: row.resource_name,
    });
    Ok(AlterConfigsResponse { responses: rows.collect(), ..AlterConfigsResponse::default() })
}

pub(crate) async fn edit(
    node: &Arc<Node>,
    request: IncrementalAlterConfigsRequest,
) -> Result<IncrementalAlterConfigsResponse, Stopped> {
    let asked = request.resources.into_iter().map(|asked| {
        let change = resource(asked.resource_type, &asked.resource_name).and_then(|resource| {
            let edits: Result<_, _> = asked.configs.into_iter().map(edit_of).collect();
            edits.map(|edits| AlterConfig { resource, change: ConfigChange::Edit(edits) })
        });
        let (resource_type, resource_name) = (asked.resource_type, asked.resource_name);
        Asked { resource_type, resource_name, change }
    });
    let rows = alter(node, asked.collect(), request.validate_only).await?;
    let rows =
        rows.into_iter().map(|row| incremental_alter_configs::AlterConfigsResourceResponse {
            error_code: row.code.code(),
            error_message: row.why,
            resource_type: row.resource_type,
            resource_name: row.resource_name,
        });
    let responses = rows.collect();
    Ok(IncrementalAlterConfigsResponse { responses, ..IncrementalAlterConfigsResponse::default() })
}

fn edit_of(
    config: incremental_alter_configs::AlterableConfig,
) -> Result<(String, ConfigOp), (Code, Text)> {
    let op = match config.config_operation {
        0 => ConfigOp::Set(text(config.value)),
        1 => ConfigOp::Delete,
        2 => ConfigOp::Append(text(config.value)),
        3 => ConfigOp::Subtract(text(config.value)),
        other => {
            let why = format!("there is no operation {other} on a configuration");
            return Err((Code::InvalidRequest, why.into()));
        }
    };
    Ok((config.name.to_string(), op))
}

/// In the order of the request.
async fn alter(
    node: &Node,
    asked: Vec<Asked>,
    validate_only: bool,
) -> Result<Vec<Altered>, Stopped> {
    // What is changed elsewhere than in a configuration, and is told in its place.
    let mut duties = Vec::with_capacity(asked.len());
    let mut resources: Vec<AlterConfig> = Vec::new();
    for asked in &asked {
        let wanted = asked.change.as_ref().ok().and_then(duty::wanted);
        if wanted.is_none() {
            resources.extend(asked.change.as_ref().ok().cloned());
        }
        duties.push(match wanted {
            Some(wanted) => Some(duty::set(node, wanted, validate_only).await?),
            None => None,
        });
    }
    let until = node.clock.now().monotonic + PATIENCE;
    let input =
        |request| Input::AlterConfigs { request, resources: resources.clone(), validate_only };
    let outcome = node.controller.ask(until, input).await?;
    let mut done: Vec<Result<(), Problem>> = match outcome {
        Outcome::ConfigsAltered(rows) => rows.into_iter().map(|(_, done)| done).collect(),
        Outcome::Refused(problem) => vec![Err(problem); resources.len()],
        other => unreachable!("configurations are altered, not {other:?}"),
    };
    done.reverse();
    let rows = asked.into_iter().zip(duties).map(|(asked, duty)| {
        let (code, why) = match (duty, asked.change) {
            (Some(told), _) => told,
            (None, Err((code, why))) => (code, Some(why)),
            (None, Ok(_)) => match done.pop() {
                Some(Err(problem)) => (problem.kind.into(), Some(problem.message.into())),
                _ => (Code::None, None),
            },
        };
        let (resource_type, resource_name) = (asked.resource_type, asked.resource_name);
        Altered { code, why, resource_type, resource_name }
    });
    Ok(rows.collect())
}
