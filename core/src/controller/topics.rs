//! Topics created, deleted and given more partitions. Kafka's `ReplicationControlManager`.

use std::collections::{BTreeMap, BTreeSet};

use super::Controller;
use super::interface::{
    CreatedTopic, DeletedTopic, MorePartitions, NewTopic, Outcome, Problem, ProblemKind, TopicName,
};
use super::placement::{Loads, Places};
use crate::id::{NodeId, TopicId};
use crate::metadata::config::TopicConfigs;
use crate::metadata::topic::{self, Topic};
use crate::metadata::{Node, Placement, Record};
use crate::reached;

/// `default.replication.factor` unless configured: as many as there are nodes, up to this.
pub const REPLICATION_GOAL: usize = 3;

impl Controller {
    pub(super) fn create_topics(&mut self, topics: Vec<NewTopic>, validate_only: bool) -> Outcome {
        let mut names = BTreeMap::<String, usize>::new();
        for topic in &topics {
            *names.entry(topic.name.clone()).or_default() += 1;
        }
        let mut loads = Loads::of(&self.decided);
        let created = topics.into_iter().map(|topic| {
            let name = topic.name.clone();
            let result = if names[&name] > 1 {
                problem(ProblemKind::InvalidRequest, format!("topic {name} stands there twice"))
            } else {
                self.create_topic(&mut loads, topic, validate_only)
            };
            (name, result)
        });
        Outcome::TopicsCreated(created.collect())
    }

    fn create_topic(
        &mut self,
        loads: &mut Loads,
        topic: NewTopic,
        validate_only: bool,
    ) -> Result<CreatedTopic, Problem> {
        self.check_new_name(&topic.name)?;
        let mut partitions = self.place(loads, &topic)?;
        let configs = new_configs(&topic.configs, self.limits.config_bytes_max)?;
        qualify(&configs, &mut partitions);
        self.check_room(1, partitions.len())?;
        let created = CreatedTopic {
            id: if validate_only { TopicId::NONE } else { self.draw_topic_id() },
            partitions: i32::try_from(partitions.len()).expect("within topic_partitions_max"),
            replication: replication_of(&partitions),
            configs: configs.given().map(|(name, value)| (name.into(), value.into())).collect(),
        };
        if !validate_only {
            let configs = created.configs.clone().into_iter().collect();
            let (topic, name) = (created.id, topic.name);
            self.push(Record::TopicCreated { topic, name, partitions, configs });
        }
        Ok(created)
    }

    fn check_new_name(&self, name: &str) -> Result<(), Problem> {
        if let Err(invalid) = topic::check_name(name) {
            return problem(ProblemKind::InvalidTopic, invalid.to_string());
        }
        if self.decided.topic_named(name).is_some() {
            return problem(ProblemKind::TopicExists, format!("topic '{name}' already exists"));
        }
        if let Some(other) = self.decided.topic_like(name) {
            reached!("topic-names-collide");
            let message = format!(
                "topic '{name}' collides with '{}': metrics do not tell '.' from '_'",
                other.name
            );
            return problem(ProblemKind::InvalidTopic, message);
        }
        if name == topic::METADATA_TOPIC {
            let message = format!("'{name}' is the name of the cluster's own log");
            return problem(ProblemKind::InvalidRequest, message);
        }
        Ok(())
    }

    fn check_room(&self, topics: usize, partitions: usize) -> Result<(), Problem> {
        let limits = &self.limits;
        if self.decided.topics_count() + topics > limits.topics_max {
            reached!("topics-full");
            let message = format!("this cluster has room for {} topics", limits.topics_max);
            return problem(ProblemKind::Policy, message);
        }
        if self.decided.partitions_count() + partitions > limits.partitions_max {
            reached!("partitions-full");
            let message = format!("this cluster has room for {} partitions", limits.partitions_max);
            return problem(ProblemKind::Policy, message);
        }
        Ok(())
    }

    fn draw_topic_id(&mut self) -> TopicId {
        loop {
            let mut bytes = self.rng.bytes();
            // A random UUID says so, as Kafka's do. RFC 9562, version 4.
            bytes[6] = (bytes[6] & 0x0f) | 0x40;
            bytes[8] = (bytes[8] & 0x3f) | 0x80;
            let id = TopicId(bytes);
            if self.decided.topic(id).is_none() {
                return id;
            }
        }
    }

    /// Where the replicas of a new topic go: as asked for, or spread.
    fn place(&self, loads: &mut Loads, topic: &NewTopic) -> Result<Vec<Placement>, Problem> {
        loads.begin_topic(&[]);
        let max = self.limits.topic_partitions_max;
        if !topic.assignments.is_empty() {
            if topic.partitions.is_some() || topic.replication.is_some() {
                let message = "an assignment says all: the numbers of partitions and of replicas \
                               must be -1";
                return problem(ProblemKind::InvalidRequest, message);
            }
            if topic.assignments.len() > max {
                return problem(ProblemKind::InvalidPartitions, too_many(max));
            }
            if !topic.assignments.keys().copied().eq((0..).take(topic.assignments.len())) {
                let message = "the partitions of an assignment count from 0 without a gap";
                return problem(ProblemKind::InvalidAssignment, message);
            }
            return self.assigned(topic.assignments.values());
        }
        let partitions = topic.partitions.unwrap_or(self.limits.partitions_default);
        let partitions = usize::try_from(partitions).unwrap_or(0);
        if partitions == 0 {
            let message = "a topic has at least 1 partition (-1 leaves the number to the cluster)";
            return problem(ProblemKind::InvalidPartitions, message);
        }
        if partitions > max {
            return problem(ProblemKind::InvalidPartitions, too_many(max));
        }
        self.spread(loads, partitions, self.replication(topic.replication)?)
    }

    fn replication(&self, asked: Option<i16>) -> Result<usize, Problem> {
        let nodes = Places::staying(&self.decided).count();
        let Some(asked) = asked.or(self.limits.replication_default) else {
            return Ok(nodes.clamp(1, REPLICATION_GOAL));
        };
        let replication = usize::try_from(asked).unwrap_or(0);
        if replication == 0 {
            let message = "a topic has at least 1 replica (-1 leaves the number to the cluster)";
            return problem(ProblemKind::InvalidReplication, message);
        }
        let max = self.limits.replicas_max;
        if replication > max {
            let message = format!("a partition has at most {max} replicas here");
            return problem(ProblemKind::InvalidReplication, message);
        }
        Ok(replication)
    }

    /// `count` more partitions of the topic that `loads` counts.
    fn spread(
        &self,
        loads: &mut Loads,
        count: usize,
        replication: usize,
    ) -> Result<Vec<Placement>, Problem> {
        let mut places = Places::willing(&self.decided);
        if places.count() < replication {
            places = Places::staying(&self.decided);
        }
        if places.count() < replication {
            let message = format!(
                "{replication} replicas need as many nodes, and this cluster has {}",
                places.count()
            );
            return problem(ProblemKind::InvalidReplication, message);
        }
        let mut placed = Vec::with_capacity(count);
        for _ in 0..count {
            let replicas = places.place(loads, replication);
            loads.add(&replicas);
            placed.push(self.placement(replicas)?);
        }
        Ok(placed)
    }

    /// A new partition, on whatever of its nodes is there.
    fn placement(&self, replicas: Vec<NodeId>) -> Result<Placement, Problem> {
        let node = |id: &NodeId| self.decided.node(*id);
        let in_sync = replicas.iter().copied();
        let in_sync = in_sync.filter(|id| node(id).is_some_and(Node::is_live)).collect::<Vec<_>>();
        let willing = in_sync.iter().find(|id| node(id).is_some_and(Node::is_willing));
        let Some(leader) = willing.or_else(|| in_sync.first()).copied() else {
            let message = "none of the nodes where it would be is there";
            return problem(ProblemKind::InvalidAssignment, message);
        };
        Ok(Placement { leader: Some(leader), in_sync, replicas, ..Placement::default() })
    }

    fn assigned<'a>(
        &self,
        assignments: impl Iterator<Item = &'a Vec<NodeId>> + Clone,
    ) -> Result<Vec<Placement>, Problem> {
        let first = assignments.clone().next().map_or(0, Vec::len);
        for replicas in assignments.clone() {
            let distinct = replicas.iter().collect::<BTreeSet<_>>().len();
            if replicas.is_empty() || distinct != replicas.len() {
                let message = "a partition's replicas are at least one, each on another node";
                return problem(ProblemKind::InvalidAssignment, message);
            }
            if replicas.len() != first {
                let message = "all partitions of a topic have as many replicas";
                return problem(ProblemKind::InvalidAssignment, message);
            }
            let broker = |id: &NodeId| self.decided.node(*id).is_some_and(|node| node.roles.broker);
            if let Some(unknown) = replicas.iter().find(|id| !broker(id)) {
                let message = format!("there is no node {unknown}");
                return problem(ProblemKind::InvalidAssignment, message);
            }
            if replicas.len() > self.limits.replicas_max {
                let max = self.limits.replicas_max;
                let message = format!("a partition has at most {max} replicas here");
                return problem(ProblemKind::InvalidAssignment, message);
            }
        }
        assignments.map(|replicas| self.placement(replicas.clone())).collect()
    }

    pub(super) fn delete_topics(&mut self, topics: Vec<TopicName>) -> Outcome {
        let deleted = topics.into_iter().map(|topic| {
            let result = self.delete_topic(&topic);
            (topic, result)
        });
        Outcome::TopicsDeleted(deleted.collect())
    }

    fn delete_topic(&mut self, topic: &TopicName) -> Result<DeletedTopic, Problem> {
        let found = match topic {
            TopicName::Name(name) => self.named(name)?,
            TopicName::Id(id) => self.decided.topic(*id).ok_or_else(|| {
                Problem::new(ProblemKind::UnknownTopicId, format!("there is no topic {id}"))
            })?,
        };
        let deleted = DeletedTopic { id: found.id, name: found.name.clone() };
        if topic::is_internal(&deleted.name) {
            let message = format!("'{}' belongs to the cluster itself", deleted.name);
            return problem(ProblemKind::Policy, message);
        }
        self.push(Record::TopicDeleted { topic: deleted.id });
        Ok(deleted)
    }

    pub(super) fn create_partitions(
        &mut self,
        topics: Vec<MorePartitions>,
        validate_only: bool,
    ) -> Outcome {
        let created = topics.into_iter().map(|more| {
            let result = self.add_partitions(&more).map(|record| {
                if !validate_only {
                    self.push(record);
                }
            });
            (more.topic, result)
        });
        Outcome::PartitionsCreated(created.collect())
    }

    fn add_partitions(&self, more: &MorePartitions) -> Result<Record, Problem> {
        let topic = self.named(&more.topic)?;
        let (id, has) = (topic.id, topic.partitions.len());
        let count = usize::try_from(more.count).unwrap_or(0);
        if count <= has {
            let message =
                format!("topic '{}' has {has} partitions; {} is not more", topic.name, more.count);
            return problem(ProblemKind::InvalidPartitions, message);
        }
        if count > self.limits.topic_partitions_max {
            let message = too_many(self.limits.topic_partitions_max);
            return problem(ProblemKind::InvalidPartitions, message);
        }
        let added = count - has;
        let replication = topic.partitions.first().map_or(1, |first| first.targets().count());
        let mut partitions = if more.assignments.is_empty() {
            let mut loads = Loads::of(&self.decided);
            loads.begin_topic(&topic.partitions);
            self.spread(&mut loads, added, replication)?
        } else if more.assignments.len() != added {
            let message = format!(
                "{added} partitions are added, and {} are assigned",
                more.assignments.len()
            );
            return problem(ProblemKind::InvalidAssignment, message);
        } else {
            self.assigned(more.assignments.iter())?
        };
        if usize::from(replication_of(&partitions).unsigned_abs()) != replication {
            let message = format!("the topic's other partitions have {replication} replicas");
            return problem(ProblemKind::InvalidAssignment, message);
        }
        self.check_room(0, added)?;
        qualify(&TopicConfigs::from_stored(&topic.configs), &mut partitions);
        let first = u32::try_from(has).expect("within topic_partitions_max");
        Ok(Record::PartitionsAdded { topic: id, first, partitions })
    }

    pub(super) fn named(&self, name: &str) -> Result<&Topic, Problem> {
        self.decided.topic_named(name).ok_or_else(|| {
            Problem::new(ProblemKind::UnknownTopic, format!("there is no topic '{name}'"))
        })
    }
}

/// Nothing is committed before `min.insync.replicas` are in sync: while a new partition has fewer,
/// whoever is to keep a copy and is not there yet has all that is committed. KIP-966.
fn qualify(configs: &TopicConfigs, partitions: &mut [Placement]) {
    for Placement { replicas, in_sync, eligible, .. } in partitions {
        if in_sync.len() < configs.min_insync_replicas(replicas.len()) {
            reached!("born-with-too-few");
            *eligible = replicas.iter().copied().filter(|node| !in_sync.contains(node)).collect();
        }
    }
}

fn replication_of(partitions: &[Placement]) -> i16 {
    let replicas = partitions.first().map_or(0, |first| first.replicas.len());
    i16::try_from(replicas).unwrap_or(i16::MAX)
}

fn new_configs(
    given: &[(String, Option<String>)],
    bytes_max: usize,
) -> Result<TopicConfigs, Problem> {
    let mut values = Vec::with_capacity(given.len());
    for (name, value) in given {
        let Some(value) = value else {
            let message = format!("configuration {name} has no value");
            return problem(ProblemKind::InvalidConfig, message);
        };
        if value.len() > bytes_max {
            let message = format!("the value of {name} is longer than {bytes_max} bytes");
            return problem(ProblemKind::InvalidConfig, message);
        }
        values.push((name.clone(), value.clone()));
    }
    TopicConfigs::from_given(values)
        .map_err(|invalid| Problem::new(ProblemKind::InvalidConfig, invalid.reason))
}

fn too_many(max: usize) -> String {
    format!("a topic has at most {max} partitions here")
}

pub(super) fn problem<T>(kind: ProblemKind, message: impl Into<String>) -> Result<T, Problem> {
    Err(Problem::new(kind, message))
}
