//! Configurations changed at run time. Kafka's `ConfigurationControlManager`.

use std::collections::BTreeSet;

use super::Controller;
use super::interface::{
    AlterConfig, ConfigChange, ConfigOp, Outcome, Problem, ProblemKind, Resource,
};
use super::topics::problem;
use crate::metadata::config::{Change, TopicConfigs};
use crate::metadata::{ConfigResource, Record};

impl Controller {
    pub(super) fn alter_configs(
        &mut self,
        resources: Vec<AlterConfig>,
        validate_only: bool,
    ) -> Outcome {
        let altered = resources.into_iter().map(|alter| {
            let result = self.alter_config(&alter).map(|record| match record {
                Some(record) if !validate_only => self.push(record),
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
            Resource::Node(node) => {
                let whose = node.map_or("all nodes".to_owned(), |node| format!("node {node}"));
                let message = format!(
                    "settings of {whose} cannot be changed at run time: they stand in its \
                     configuration file"
                );
                return problem(ProblemKind::InvalidConfig, message);
            }
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
