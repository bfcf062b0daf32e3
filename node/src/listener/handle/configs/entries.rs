//! The settings of a topic and of a node as Kafka's tools list them.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::id::NodeId;
use quorate_core::metadata::config::{Kind, TOPIC_SETTINGS, TopicConfigs};

use crate::config::NodeConfig;
use crate::node::Node;

/// Kafka's numbers for where a value comes from.
const OF_TOPIC: i8 = 1;
const OF_NODE: i8 = 2;
const OF_ALL_NODES: i8 = 3;
const AT_START: i8 = 4;
pub(super) const DEFAULT: i8 = 5;

/// Kafka's numbers for kinds of values.
const BOOLEAN: i8 = 1;
const STRING: i8 = 2;
const INT: i8 = 3;
const LONG: i8 = 5;
const DOUBLE: i8 = 6;
const LIST: i8 = 7;

/// One setting with the value in force.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) source: i8,
    pub(super) default: Option<&'static str>,
    pub(super) kind: i8,
    pub(super) read_only: bool,
    pub(super) doc: &'static str,
}

/// All settings of a topic with `replicas` copies of each partition.
pub(crate) fn topic_entries(
    stored: &BTreeMap<String, String>,
    replicas: usize,
) -> impl Iterator<Item = Entry> {
    let configs = TopicConfigs::from_stored(stored);
    TOPIC_SETTINGS.iter().map(move |setting| {
        let value = match setting.name {
            "min.insync.replicas" => configs.min_insync_replicas(replicas).to_string(),
            name => configs.value(name).to_owned(),
        };
        Entry {
            name: setting.name,
            value,
            source: if configs.is_given(setting.name) { OF_TOPIC } else { DEFAULT },
            default: Some(setting.default),
            kind: kind_of(setting.kind),
            read_only: false,
            doc: setting.doc,
        }
    })
}

const fn kind_of(kind: Kind) -> i8 {
    match kind {
        Kind::Switch => BOOLEAN,
        Kind::Int { .. } => INT,
        Kind::Long { .. } => LONG,
        Kind::Share => DOUBLE,
        Kind::Choice(_) => STRING,
        Kind::List(_) | Kind::ReplicaList => LIST,
    }
}

/// The settings of this node under Kafka's names; with no `id`, what was set for all nodes.
pub(super) fn node_entries(node: &Node, id: Option<NodeId>) -> Vec<Entry> {
    let mut entries = if id.is_some() { static_entries(node) } else { Vec::new() };
    let state = node.catalog.read();
    let known = static_entries(node);
    for (of, source) in [(None, OF_ALL_NODES), (Some(node.id), OF_NODE)] {
        if of.is_some() && id.is_none() {
            continue;
        }
        for (name, value) in state.image.node_configs(of).into_iter().flatten() {
            let place = entries.iter().position(|entry| entry.name == name);
            match place {
                Some(place) => {
                    entries[place].value.clone_from(value);
                    entries[place].source = source;
                }
                None => {
                    entries.extend(known.iter().find(|entry| entry.name == name).map(|entry| {
                        Entry {
                            value: value.clone(),
                            source,
                            name: entry.name,
                            default: None,
                            kind: entry.kind,
                            read_only: false,
                            doc: entry.doc,
                        }
                    }))
                }
            }
        }
    }
    entries
}

fn row(name: &'static str, value: String, kind: i8, doc: &'static str) -> Entry {
    Entry { name, value, source: AT_START, default: None, kind, read_only: true, doc }
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}

fn static_entries(node: &Node) -> Vec<Entry> {
    let config = &node.config;
    let replication = match config.topics.replication {
        0 => 1,
        given => given,
    };
    let mut entries = vec![
        row("broker.id", node.id.0.to_string(), INT, "The node's number."),
        row("node.id", node.id.0.to_string(), INT, "The node's number."),
        row(
            "broker.rack",
            config.node.rack.clone().unwrap_or_default(),
            STRING,
            "Where it stands.",
        ),
        row("log.dirs", config.node.data.display().to_string(), LIST, "Where everything is kept."),
        row("num.partitions", config.topics.partitions.to_string(), INT, "Of a new topic."),
        row("default.replication.factor", replication.to_string(), INT, "Of a new topic."),
        row(
            "auto.create.topics.enable",
            config.topics.auto_create.to_string(),
            BOOLEAN,
            "Whether asking for a topic creates it.",
        ),
        row(
            "socket.request.max.bytes",
            config.request.bytes_max.to_string(),
            INT,
            "Bytes of the longest request.",
        ),
        row("fetch.max.bytes", config.fetch.bytes_max.to_string(), INT, "Bytes of one answer."),
        row(
            "message.max.bytes",
            "1048588".to_owned(),
            INT,
            "The largest batch, unless a topic says.",
        ),
        row(
            "max.connections",
            config.connections.connections_max.to_string(),
            INT,
            "Connections at one time.",
        ),
        row(
            "connections.max.idle.ms",
            millis(config.connections.idle_timeout),
            LONG,
            "A connection without requests is closed after this time.",
        ),
        row("log.retention.ms", "604800000".to_owned(), LONG, "How long records are kept."),
        row("log.segment.bytes", "1073741824".to_owned(), INT, "The size of a closed segment."),
        row("log.cleanup.policy", "delete".to_owned(), LIST, "What happens to old records."),
    ];
    entries.extend(group_entries(config));
    entries
}

fn group_entries(config: &NodeConfig) -> Vec<Entry> {
    vec![
        row(
            "group.min.session.timeout.ms",
            millis(config.group.session_timeout_min),
            INT,
            "The shortest session of a group's member.",
        ),
        row(
            "group.max.session.timeout.ms",
            millis(config.group.session_timeout_max),
            INT,
            "The longest session of a group's member.",
        ),
        row(
            "group.initial.rebalance.delay.ms",
            millis(config.group.initial_rebalance_delay),
            INT,
            "How long the first member of an empty group waits for others.",
        ),
        row(
            "offsets.topic.num.partitions",
            config.group.offsets_partitions.to_string(),
            INT,
            "Partitions of __consumer_offsets.",
        ),
    ]
}
