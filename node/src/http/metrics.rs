//! `/metrics`: the names of kafka_exporter and of Strimzi's alerts, so that what people have works
//! on, and our own. Over the whole cluster each series comes from one node: of a partition from its
//! leader, of a group from its coordinator, of the cluster from its controller.

use std::collections::BTreeMap;

use quorate_core::group::lag::Progress;
use quorate_core::metadata::config::TopicConfigs;
use quorate_core::quorum::interface::Role;

use super::exposition::{Exposition, Kind};
use super::health;
use crate::catalog::{Log, OFFSETS_TOPIC, State};
use crate::lag::GroupLag;
use crate::listener::handle::groups::coordinator;
use crate::listener::stop::Pace;
use crate::metrics::Counter;
use crate::node::Node;

use Kind::{Counter as Rising, Gauge};

pub(super) fn exposition(node: &Node, pace: Pace) -> String {
    let mut told = Exposition::default();
    let ready = u8::from(health::is_ready(node, pace).is_ok());
    told.one(("quorate_ready", Gauge, "Whether the node is to be given work."), ready);
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    let family = ("quorate_build_info", Gauge, "Which build this is.");
    told.family(family, [(Vec::from(version), 1)]);
    let state = node.catalog.read();
    of_the_cluster(node, &state, &mut told);
    of_partitions(&state, &mut told);
    let lags = node.lags.read();
    let offsets = state.topic_named(OFFSETS_TOPIC);
    // A group may have got another coordinator since it was measured.
    let still_ours = |group: &&GroupLag| {
        let found = offsets.and_then(|offsets| coordinator(&state, offsets, &group.group));
        found.is_some_and(|found| found.id == node.id)
    };
    let groups: Vec<&GroupLag> = lags.iter().filter(still_ours).collect();
    of_groups(&groups, &mut told);
    lag_of_groups(&groups, node.clock.now().wall.millis(), &mut told);
    of_this_node(node, &state, &mut told);
    told.finish()
}

/// What the controller alone tells.
fn of_the_cluster(node: &Node, state: &State, told: &mut Exposition) {
    let is_controller = matches!(node.quorum.state().role, Role::Leading { .. });
    told.one(
        (
            "kafka_controller_kafkacontroller_activecontrollercount",
            Gauge,
            "Whether this node is the controller.",
        ),
        u8::from(is_controller),
    );
    let image = &state.image;
    let leaderless = image.partitions().filter(|(_, partition)| partition.leader.is_none());
    let leaderless = if is_controller { leaderless.count() } else { 0 };
    told.one(
        (
            "kafka_controller_kafkacontroller_offlinepartitionscount",
            Gauge,
            "Partitions without a leader, as the controller sees it.",
        ),
        leaderless,
    );
    if !is_controller {
        return;
    }
    let brokers = image.nodes().filter(|node| node.is_live()).count();
    told.one(("kafka_brokers", Gauge, "Nodes that are there."), brokers);
    let topics =
        image.topics().map(|topic| (vec![("topic", topic.name.as_str())], topic.partitions.len()));
    told.family(("kafka_topic_partitions", Gauge, "Partitions of a topic."), topics);
    let numbers = Numbers::upto(image.topics().map(|topic| topic.partitions.len()).max());
    let each = || {
        image.topics().flat_map(|topic| {
            let names = numbers.0.iter().zip(&topic.partitions);
            names.map(|(number, partition)| {
                let labels = vec![("topic", topic.name.as_str()), ("partition", number.as_str())];
                (labels, partition)
            })
        })
    };
    told.family(
        ("kafka_topic_partition_leader", Gauge, "The node that leads it; -1 for none."),
        each().map(|(labels, it)| (labels, it.leader.map_or(-1, |leader| leader.0))),
    );
    told.family(
        ("kafka_topic_partition_replicas", Gauge, "Copies that it is to have."),
        each().map(|(labels, it)| (labels, it.replicas.len())),
    );
    told.family(
        ("kafka_topic_partition_in_sync_replica", Gauge, "Copies that are in sync."),
        each().map(|(labels, it)| (labels, it.in_sync.len())),
    );
    told.family(
        ("kafka_topic_partition_leader_is_preferred", Gauge, "Whether its first replica leads."),
        each().map(|(labels, it)| (labels, u8::from(it.leader == it.replicas.first().copied()))),
    );
    told.family(
        (
            "kafka_topic_partition_under_replicated_partition",
            Gauge,
            "Whether fewer copies are in sync than it is to have.",
        ),
        each().map(|(labels, it)| (labels, u8::from(it.in_sync.len() < it.copies()))),
    );
}

/// The numbers of partitions as labels, made once.
struct Numbers(Vec<String>);

impl Numbers {
    fn upto(count: Option<usize>) -> Self {
        Self((0..count.unwrap_or(0)).map(|number| number.to_string()).collect())
    }
}

/// Of the partitions that this node leads.
fn of_partitions(state: &State, told: &mut Exposition) {
    let numbers = Numbers::upto(state.topics().map(|topic| topic.partitions.len()).max());
    let mut led = Vec::new();
    let (mut few, mut too_few) = (0, 0);
    for topic in state.topics() {
        let stored = state.image.topic(topic.id).map(|found| &found.configs);
        let configs = stored.map(TopicConfigs::from_stored);
        for (number, partition) in numbers.0.iter().zip(&topic.partitions) {
            let Log::Open(log) = &partition.log else { continue };
            let view = log.view();
            if !view.is_leader {
                continue;
            }
            let assignment = &partition.assignment;
            let (in_sync, copies) = (assignment.in_sync.len(), assignment.copies());
            few += usize::from(in_sync < copies);
            let wanted = configs.as_ref().map_or(1, |it| it.min_insync_replicas(copies));
            too_few += usize::from(in_sync < wanted);
            let labels = vec![("topic", topic.name.as_str()), ("partition", number.as_str())];
            led.push((labels, view, log.reader.bytes()));
        }
    }
    told.family(
        ("kafka_topic_partition_current_offset", Gauge, "Behind its last committed record."),
        led.iter().map(|(labels, view, _)| (labels.clone(), view.high_watermark.0)),
    );
    told.family(
        ("kafka_topic_partition_oldest_offset", Gauge, "Of its first record."),
        led.iter().map(|(labels, view, _)| (labels.clone(), view.log_start.0)),
    );
    told.family(
        ("quorate_partition_bytes", Gauge, "On the disk of its leader."),
        led.iter().map(|(labels, _, bytes)| (labels.clone(), *bytes)),
    );
    told.one(
        (
            "kafka_server_replicamanager_underreplicatedpartitions",
            Gauge,
            "Partitions led here with fewer copies in sync than they are to have.",
        ),
        few,
    );
    told.one(
        (
            "kafka_server_replicamanager_underminisrpartitioncount",
            Gauge,
            "Partitions led here with too few copies in sync to be written with acks=all.",
        ),
        too_few,
    );
}

type Labels<'a> = Vec<(&'static str, &'a str)>;

fn labels<'a>(group: &'a GroupLag, topic: &'a str, number: Option<&'a str>) -> Labels<'a> {
    let mut labels = vec![("consumergroup", group.group.as_str()), ("topic", topic)];
    labels.extend(number.map(|number| ("partition", number)));
    labels
}

/// What kafka_exporter tells of groups.
fn of_groups(groups: &[&GroupLag], told: &mut Exposition) {
    told.family(
        ("kafka_consumergroup_members", Gauge, "Members of a group."),
        groups.iter().map(|it| (vec![("consumergroup", it.group.as_str())], it.members)),
    );
    let numbers = numbers_of(groups);
    let each = || {
        groups.iter().flat_map(|group| {
            group.partitions.iter().map(|it| {
                let number = numbers.0[it.name.partition as usize].as_str();
                (labels(group, &it.name.topic, Some(number)), it)
            })
        })
    };
    told.family(
        ("kafka_consumergroup_current_offset", Gauge, "The next record of a group."),
        each().map(|(labels, it)| (labels, it.committed.0)),
    );
    told.family(
        ("kafka_consumergroup_lag", Gauge, "Records that a group is behind."),
        each().filter_map(|(labels, it)| Some((labels, it.lag?.records))),
    );
    let mut sums: BTreeMap<(usize, &str), (i64, Option<u64>)> = BTreeMap::new();
    for (at, group) in groups.iter().enumerate() {
        for it in &group.partitions {
            let sum = sums.entry((at, &it.name.topic)).or_insert((0, Some(0)));
            sum.0 += it.committed.0;
            sum.1 = sum.1.zip(it.lag).map(|(sum, lag)| sum + lag.records);
        }
    }
    let each = || sums.iter().map(|((at, topic), sum)| (labels(groups[*at], topic, None), sum));
    told.family(
        ("kafka_consumergroup_current_offset_sum", Gauge, "Over the partitions of a topic."),
        each().map(|(labels, sum)| (labels, sum.0)),
    );
    told.family(
        ("kafka_consumergroup_lag_sum", Gauge, "Records behind, over the partitions of a topic."),
        each().filter_map(|(labels, sum)| Some((labels, sum.1?))),
    );
}

fn numbers_of(groups: &[&GroupLag]) -> Numbers {
    let partitions = groups.iter().flat_map(|group| &group.partitions);
    let most = partitions.map(|it| it.name.partition).max();
    Numbers::upto(most.and_then(|most| usize::try_from(most).ok()).map(|most| most + 1))
}

/// What no outside exporter can tell.
fn lag_of_groups(groups: &[&GroupLag], now: i64, told: &mut Exposition) {
    let numbers = numbers_of(groups);
    let each = || {
        groups.iter().flat_map(|group| {
            group.partitions.iter().map(|it| {
                let number = numbers.0[it.name.partition as usize].as_str();
                (labels(group, &it.name.topic, Some(number)), it)
            })
        })
    };
    told.family(
        (
            "quorate_consumergroup_lag_seconds",
            Gauge,
            "Age of the first record that a group has not consumed; 0 if it has consumed all.",
        ),
        each().filter_map(|(labels, it)| Some((labels, it.lag?.age?.as_secs_f64()))),
    );
    told.family(
        ("quorate_consumergroup_lag_bytes", Gauge, "Bytes of the log that a group is behind."),
        each().filter_map(|(labels, it)| Some((labels, it.lag?.bytes?))),
    );
    told.family(
        ("quorate_consumergroup_commit_age_seconds", Gauge, "Since a group's last commit."),
        each().map(|(labels, it)| {
            (labels, now.saturating_sub(it.committed_at.millis()).max(0) as f64 / 1000.0)
        }),
    );
    let progress = groups.iter().flat_map(|group| {
        Progress::ALL.into_iter().map(|progress| {
            let count = group.partitions.iter().filter(|it| it.progress == progress).count();
            let labels =
                vec![("consumergroup", group.group.as_str()), ("progress", progress.name())];
            (labels, count)
        })
    });
    told.family(
        (
            "quorate_consumergroup_partitions",
            Gauge,
            "Partitions of a group by how it gets on in them, in Burrow's words.",
        ),
        progress,
    );
}

/// What each node counts of itself.
fn of_this_node(node: &Node, state: &State, told: &mut Exposition) {
    let metrics = &node.metrics;
    told.one(
        ("quorate_connections", Gauge, "Connections of clients."),
        metrics.connections_open.value(),
    );
    told.one(
        ("quorate_storage_short", Gauge, "Whether producers are refused for want of room."),
        u8::from(node.space.is_short()),
    );
    told.one(
        ("quorate_logs_offline", Gauge, "Copies that are not what was written."),
        state.offline().len(),
    );
    let counters: &[(&str, &str, &Counter)] = &[
        ("connections_accepted", "Connections of clients.", &metrics.connections_accepted),
        ("connections_refused", "Closed since there were too many.", &metrics.connections_refused),
        ("connections_given_up", "Closed for what clients did.", &metrics.connections_given_up),
        ("requests", "Requests.", &metrics.requests),
        ("received_bytes", "From clients.", &metrics.bytes_received),
        ("sent_bytes", "To clients.", &metrics.bytes_sent),
        ("produced_batches", "Handed to partitions.", &metrics.batches_produced),
        ("produced_bytes", "Of those batches.", &metrics.batch_bytes_produced),
        ("refused_batches", "Not handed to a partition.", &metrics.batches_refused),
        ("fetched_bytes", "Of records read by clients.", &metrics.bytes_fetched),
        ("rot_found", "Places that the scrubber found rotten.", &metrics.rot_found),
        ("compaction_passes", "Passes of compaction.", &metrics.passes_made),
        ("compaction_passes_failed", "Passes that could not be made.", &metrics.passes_failed),
        ("compaction_read_bytes", "Of segments before passes.", &metrics.bytes_cleaned),
        ("compaction_left_bytes", "Of segments after passes.", &metrics.bytes_left_by_cleaning),
    ];
    for (name, help, counter) in counters {
        told.one((&format!("quorate_{name}_total"), Rising, help), counter.value());
    }
}
