//! Records and outcomes of the controller as scripts show them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use quorate_core::controller::interface::{
    InSyncRefusal, NodeStatus, Outcome, Problem, Resource, TopicName,
};
use quorate_core::id::{NodeId, PartitionEpoch, PartitionId, TopicId};
use quorate_core::metadata::{ConfigResource, Placement, Record};
use quorate_core::partition::interface::Assignment;

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

pub(crate) fn show_record(record: &Record, names: &mut Names) -> String {
    match record {
        Record::ClusterNamed { cluster } => format!("cluster {cluster}"),
        Record::NodeRegistered(told) => {
            let rack = told.rack.as_ref().map(|rack| format!(" rack={rack}")).unwrap_or_default();
            let fenced = if told.fenced { " fenced" } else { "" };
            format!(
                "node {} #{} e{} {}:{}{rack}{fenced}",
                told.node, told.incarnation, told.epoch, told.address.host, told.address.port
            )
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
                ConfigResource::Topic(topic) => {
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
        Record::PartitionsChanged { topic, partitions } => {
            let name = names.name(*topic);
            let lines = partitions.iter().map(|(index, placement)| {
                format!("change {name}/{index} {}", show_placement(placement))
            });
            lines.collect::<Vec<_>>().join("\n  ")
        }
        Record::NodeFenced { node, epoch } => format!("fence {node} e{epoch}"),
        Record::NodeUnfenced { node, epoch } => format!("unfence {node} e{epoch}"),
        Record::NodeWished { node, epoch, wish } => format!("node {node} e{epoch} wishes {wish:?}"),
        Record::NodeDutySet { node, duty } => format!("node {node} shall {duty:?}"),
        Record::NodeUnregistered { node, epoch } => format!("unregister {node} e{epoch}"),
        Record::FeatureLevelSet { feature, level } => format!("feature {feature}={level}"),
        Record::NodeEpochsGiven { next } => format!("epochs next=e{next}"),
    }
}

fn ids(nodes: &[NodeId]) -> String {
    let ids = nodes.iter().map(NodeId::to_string);
    ids.collect::<Vec<_>>().join(" ")
}

/// `e1.2 leader=1 [1 2 3] in-sync [1 2]`, and the rest only where there is something.
pub(crate) fn show_placement(placement: &Placement) -> String {
    let leader = placement.leader.map_or_else(|| "none".to_owned(), |leader| leader.to_string());
    let (epoch, version) = (placement.leader_epoch, placement.partition_epoch);
    let mut out = format!("e{epoch}.{version} leader={leader} [{}]", ids(&placement.replicas));
    let _ = write!(out, " in-sync [{}]", ids(&placement.in_sync));
    for (what, nodes) in [
        ("eligible", &placement.eligible),
        ("adding", &placement.adding),
        ("removing", &placement.removing),
    ] {
        if !nodes.is_empty() {
            let _ = write!(out, " {what} [{}]", ids(nodes));
        }
    }
    out
}

pub(crate) fn show_assignment(assignment: &Assignment) -> String {
    show_placement(&assignment.clone().into())
}

fn show_status(status: &NodeStatus) -> String {
    let mut out = format!(
        "  {} e{} {:?} {:?}{} leads={} replicas={} lagging={} leaving={}",
        status.node,
        status.epoch,
        status.duty,
        status.wish,
        if status.fenced { " fenced" } else { "" },
        status.leads,
        status.replicas,
        status.lagging,
        status.leaving,
    );
    if let Some(retreat) = status.retreat {
        let _ = write!(out, " {retreat} stuck={}", status.stuck);
    }
    out
}

fn show_in_sync(
    changes: &[(PartitionId, Result<PartitionEpoch, InSyncRefusal>)],
    names: &mut Names,
) -> String {
    let mut out = "in-sync\n".to_owned();
    for (partition, result) in changes {
        let name = format!("{}/{}", names.name(partition.topic), partition.index);
        let _ = match result {
            Ok(epoch) => writeln!(out, "  {name}: version {epoch}"),
            Err(refusal) => writeln!(out, "  {name}: {refusal:?}: {refusal}"),
        };
    }
    out
}

pub(crate) fn show_outcome(outcome: &Outcome, names: &mut Names) -> String {
    match outcome {
        Outcome::NodeRegistered { node_epoch } => format!("registered e{node_epoch}\n"),
        Outcome::Heartbeat(standing) => {
            let fenced = if standing.fenced { "fenced" } else { "serves" };
            let stop = if standing.may_stop { " may-stop" } else { "" };
            format!("{fenced} leads={}{stop}\n", standing.leads)
        }
        Outcome::InSyncChanged(changes) => show_in_sync(changes, names),
        Outcome::Reassigned(done) => lines("reassigned", done, |name, result| {
            (name.to_string(), result.clone().map(|()| "begun".to_owned()))
        }),
        Outcome::LeadersElected(done) => lines("elected", done, |name, result| {
            (name.to_string(), result.clone().map(|()| "done".to_owned()))
        }),
        Outcome::Reassignments(all) => {
            let mut out = "reassignments\n".to_owned();
            for running in all {
                let (adding, removing) = (ids(&running.adding), ids(&running.removing));
                let _ = writeln!(
                    out,
                    "  {} [{}] adding [{adding}] removing [{removing}]",
                    running.partition,
                    ids(&running.replicas)
                );
            }
            out
        }
        Outcome::DutySet => "duty set\n".to_owned(),
        Outcome::Nodes(nodes) => {
            let lines = nodes.iter().map(show_status).collect::<Vec<_>>();
            format!("nodes\n{}\n", lines.join("\n"))
        }
        Outcome::NodeUnregistered => "unregistered\n".to_owned(),
        Outcome::FeaturesUpdated(done) => lines("features", done, |name, result| {
            (name.clone(), result.clone().map(|()| "done".to_owned()))
        }),
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
