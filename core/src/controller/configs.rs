//! Configurations changed at run time. Kafka's `ConfigurationControlManager`.

use std::collections::{BTreeMap, BTreeSet};

use super::Controller;
use super::election::Revision;
use super::interface::{
    AlterConfig, ConfigChange, ConfigOp, Outcome, Problem, ProblemKind, Resource,
};
use super::topics::problem;
use crate::id::{NodeId, PartitionId, TopicId};
use crate::metadata::config::{Change, TopicConfigs};
use crate::metadata::{ConfigResource, Record};

/// Bytes a second at which replicas catch up, where they are led and where they follow (KIP-73),
/// and one that Kafka's tools take away with these.
const NODE_RATES: &[&str] = &[
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
];

impl Controller {
    pub(super) fn alter_configs(
        &mut self,
        resources: Vec<AlterConfig>,
        validate_only: bool,
    ) -> Outcome {
        let altered = resources.into_iter().map(|alter| {
            let result = self.alter_config(&alter).map(|record| match record {
                Some(record) if !validate_only => self.push_configs(record),
                _ => {}
            });
            (alter.resource, result)
        });
        Outcome::ConfigsAltered(altered.collect())
    }

    /// The record that says the change, or none if there is nothing to change.
    fn alter_config(&self, alter: &AlterConfig) -> Result<Option<Record>, Problem> {
        let name = match &alter.resource {
            Resource::Topic(name) => name,
            Resource::Node(node) => return self.alter_node(*node, &alter.change),
        };
        let topic = self.named(name)?;
        let before = TopicConfigs::from_stored(&topic.configs);
        let after = self.changed(&before, &alter.change)?;
        let removed = topic.configs.keys().filter(|name| !after.is_given(name));
        let mut changes = removed.map(|name| (name.clone(), None)).collect::<Vec<_>>();
        for (name, value) in after.given() {
            if topic.configs.get(name).is_none_or(|known| known != value) {
                changes.push((name.to_owned(), Some(value.to_owned())));
            }
        }
        changes.sort();
        if changes.is_empty() {
            return Ok(None);
        }
        Ok(Some(Record::ConfigsSet { resource: ConfigResource::Topic(topic.id), changes }))
    }

    /// Who is eligible may change with `min.insync.replicas`: whoever applies the records must see
    /// that first, since with a lower minimum more is committed.
    fn push_configs(&mut self, record: Record) {
        let before = match &record {
            Record::ConfigsSet { resource: ConfigResource::Topic(topic), changes } => {
                self.qualified(*topic, changes)
            }
            _ => None,
        };
        self.begin_together();
        before.into_iter().for_each(|before| self.push(before));
        self.push(record);
        self.end_together();
    }

    fn qualified(&self, id: TopicId, changes: &[(String, Option<String>)]) -> Option<Record> {
        let topic = self.decided.topic(id)?;
        let mut stored = topic.configs.clone();
        for (name, value) in changes {
            match value {
                Some(value) => stored.insert(name.clone(), value.clone()),
                None => stored.remove(name),
            };
        }
        let configs = TopicConfigs::from_stored(&stored);
        let mut partitions = Vec::new();
        for (index, before) in (0..).zip(&topic.partitions) {
            if before.eligible.is_empty() {
                continue;
            }
            let partition = PartitionId { topic: id, index: index.try_into().ok()? };
            let revision = Revision::new(&self.decided, &configs, partition, before);
            partitions.extend(revision.finish().map(|next| (index, next.into())));
        }
        (!partitions.is_empty()).then_some(Record::PartitionsChanged { topic: id, partitions })
    }

    /// Of a node's settings only how fast replicas may move changes at run time.
    fn alter_node(
        &self,
        node: Option<NodeId>,
        change: &ConfigChange,
    ) -> Result<Option<Record>, Problem> {
        if let Some(node) = node.filter(|node| self.decided.node(*node).is_none()) {
            return problem(ProblemKind::InvalidConfig, format!("there is no node {node}"));
        }
        let known = self.decided.node_configs(node).cloned().unwrap_or_default();
        let mut changes = BTreeMap::new();
        let edits = match change {
            ConfigChange::Replace(values) => {
                changes.extend(known.keys().map(|name| (name.clone(), None)));
                let set = |(name, value): &(String, Option<String>)| {
                    (name.clone(), ConfigOp::Set(value.clone()))
                };
                values.iter().map(set).collect()
            }
            ConfigChange::Edit(edits) => edits.clone(),
        };
        for (name, op) in &edits {
            if !NODE_RATES.contains(&name.as_str()) {
                let whose =
                    node.map_or_else(|| "all nodes".to_owned(), |node| format!("node {node}"));
                let message = format!(
                    "settings of {whose} cannot be changed at run time: they stand in its \
                     configuration file"
                );
                return problem(ProblemKind::InvalidConfig, message);
            }
            let value = match op {
                ConfigOp::Delete => None,
                ConfigOp::Set(value) => Some(self.value(name, value.as_ref())?),
                ConfigOp::Append(_) | ConfigOp::Subtract(_) => {
                    return problem(ProblemKind::InvalidConfig, format!("{name} is not a list"));
                }
            };
            if value.as_ref().is_some_and(|rate| !rate.parse::<i64>().is_ok_and(|rate| rate >= 0)) {
                let message = format!("{name} is a number of bytes a second, at least 0");
                return problem(ProblemKind::InvalidConfig, message);
            }
            changes.insert(name.clone(), value);
        }
        changes.retain(|name, value| known.get(name) != value.as_ref());
        if changes.is_empty() {
            return Ok(None);
        }
        let (resource, changes) = (ConfigResource::Node(node), changes.into_iter().collect());
        Ok(Some(Record::ConfigsSet { resource, changes }))
    }

    fn changed(
        &self,
        before: &TopicConfigs,
        change: &ConfigChange,
    ) -> Result<TopicConfigs, Problem> {
        match change {
            ConfigChange::Replace(values) => {
                let mut after = TopicConfigs::default();
                for (name, value) in values {
                    let value = self.value(name, value.as_ref())?;
                    after.change(name, &Change::Set(value)).map_err(invalid)?;
                }
                Ok(after)
            }
            ConfigChange::Edit(edits) => {
                let mut names = BTreeSet::new();
                let mut after = before.clone();
                for (name, op) in edits {
                    if !names.insert(name) {
                        let message = format!("configuration {name} is changed twice");
                        return problem(ProblemKind::InvalidRequest, message);
                    }
                    let change = match op {
                        ConfigOp::Delete => Change::Delete,
                        ConfigOp::Set(value) => Change::Set(self.value(name, value.as_ref())?),
                        ConfigOp::Append(value) => {
                            Change::Append(self.value(name, value.as_ref())?)
                        }
                        ConfigOp::Subtract(value) => {
                            Change::Subtract(self.value(name, value.as_ref())?)
                        }
                    };
                    after.change(name, &change).map_err(invalid)?;
                }
                Ok(after)
            }
        }
    }

    fn value(&self, name: &str, value: Option<&String>) -> Result<String, Problem> {
        let bytes_max = self.limits.config_bytes_max;
        match value {
            None => {
                problem(ProblemKind::InvalidConfig, format!("configuration {name} has no value"))
            }
            Some(value) if value.len() > bytes_max => problem(
                ProblemKind::InvalidConfig,
                format!("the value of {name} is longer than {bytes_max} bytes"),
            ),
            Some(value) => Ok(value.clone()),
        }
    }
}

fn invalid(invalid: crate::metadata::config::InvalidSetting) -> Problem {
    Problem::new(ProblemKind::InvalidConfig, invalid.reason)
}
