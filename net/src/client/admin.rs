//! Topics and their configuration, as an administrator asks for them. Every call is one request,
//! repeated while the cluster says that it may succeed later.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::id::{NodeId, Offset, TopicId};

use super::metadata::{partition_named, refusal, topic_named};
use super::route::Lane;
use super::{Client, Error, Metadata};
use crate::kafka::error::Code;
use crate::kafka::messages as m;
use crate::wire::Text;

/// A topic to be created. `None` leaves a number to the cluster's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewTopic {
    pub name: String,
    pub partitions: Option<i32>,
    pub replication_factor: Option<i16>,
    /// Kafka's names and values.
    pub configs: Vec<(String, String)>,
}

/// What was created, as far as the broker says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedTopic {
    pub id: TopicId,
    pub partitions: Option<i32>,
    pub replication_factor: Option<i16>,
}

/// Whose configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    Topic(String),
    Broker(i32),
}

/// One entry of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    pub name: String,
    /// `None` if there is none, or it is a secret.
    pub value: Option<String>,
    /// Whether nobody has set it.
    pub default: bool,
    pub read_only: bool,
    pub documentation: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigurationChange {
    Set(String, String),
    /// Back to the default.
    Unset(String),
}

/// A data directory of a node and what the partitions in it take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDirectory {
    pub path: String,
    /// Bytes of the file system, and of what is left of it; `None` if not told.
    pub total_bytes: Option<u64>,
    pub usable_bytes: Option<u64>,
    pub partitions: Vec<PartitionSize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionSize {
    pub topic: String,
    pub partition: i32,
    pub bytes: u64,
}

impl Resource {
    fn kind(&self) -> i8 {
        match self {
            Self::Topic(_) => 2,
            Self::Broker(_) => 4,
        }
    }

    fn name(&self) -> Text {
        match self {
            Self::Topic(name) => Text::from(name.as_str()),
            Self::Broker(id) => Text::from(id.to_string()),
        }
    }

    fn described(&self) -> String {
        match self {
            Self::Topic(name) => topic_named(name),
            Self::Broker(id) => format!("broker {id}"),
        }
    }
}

/// `Err` if the code in an answer is an error.
pub(super) fn accepted(what: &str, code: i16, message: Option<&Text>) -> Result<(), Error> {
    match refusal(code) {
        None => Ok(()),
        Some(code) => Err(Error::refused(what, code, message.map(Text::as_str))),
    }
}

/// The one result that an answer to one question must hold.
fn only<T>(mut results: Vec<T>, what: &str) -> Result<T, Error> {
    match results.pop() {
        Some(result) if results.is_empty() => Ok(result),
        _ => Err(Error::Malformed {
            address: "the broker".to_owned(),
            reason: format!("not one result about {what}"),
        }),
    }
}

impl Client {
    /// How long the broker may work on an administrator's request, and tells it so.
    pub(super) fn work_time(&self) -> (Duration, i32) {
        let time = self.inner.config.operation_timeout;
        (time, i32::try_from(time.as_millis()).unwrap_or(i32::MAX))
    }

    /// The whole cluster: brokers and all topics. Retried.
    pub async fn cluster(&self) -> Result<Metadata, Error> {
        self.retry("the cluster's metadata", || self.metadata(None, false)).await
    }

    /// Creates a topic. A retry that finds the topic there reports `TOPIC_ALREADY_EXISTS`, since
    /// it may be somebody else's.
    pub async fn create_topic(&self, topic: &NewTopic) -> Result<CreatedTopic, Error> {
        let what = topic_named(&topic.name);
        let (patience, timeout_ms) = self.work_time();
        let configs = topic.configs.iter().map(|(name, value)| {
            let (name, value) = (Text::from(name.as_str()), Some(Text::from(value.as_str())));
            m::create_topics::CreatableTopicConfig { name, value }
        });
        let request = m::CreateTopicsRequest {
            topics: vec![m::create_topics::CreatableTopic {
                name: Text::from(topic.name.as_str()),
                num_partitions: topic.partitions.unwrap_or(-1),
                replication_factor: topic.replication_factor.unwrap_or(-1),
                configs: configs.collect(),
                ..Default::default()
            }],
            timeout_ms,
            validate_only: false,
        };
        let attempt = || async {
            let response = self.ask_any(&request, patience).await?;
            let created = only(response.topics, &what)?;
            accepted(&what, created.error_code, created.error_message.as_ref())?;
            Ok(CreatedTopic {
                id: created.topic_id,
                partitions: Some(created.num_partitions).filter(|&count| count > 0),
                replication_factor: Some(created.replication_factor).filter(|&count| count > 0),
            })
        };
        self.retry(&format!("creating {what}"), attempt).await
    }

    pub async fn delete_topic(&self, name: &str) -> Result<(), Error> {
        let what = topic_named(name);
        let (patience, timeout_ms) = self.work_time();
        // Each version reads its own of the two.
        let request = m::DeleteTopicsRequest {
            topics: vec![m::delete_topics::DeleteTopicState {
                name: Some(Text::from(name)),
                ..Default::default()
            }],
            topic_names: vec![Text::from(name)],
            timeout_ms,
        };
        let attempt = || async {
            let response = self.ask_any(&request, patience).await?;
            let deleted = only(response.responses, &what)?;
            accepted_for_good(&what, deleted.error_code, deleted.error_message.as_ref())
        };
        let outcome = self.retry(&format!("deleting {what}"), attempt).await?;
        self.inner.metadata.expire();
        outcome
    }

    /// Raises the number of partitions to `total`.
    pub async fn add_partitions(&self, name: &str, total: i32) -> Result<(), Error> {
        let what = topic_named(name);
        let (patience, timeout_ms) = self.work_time();
        let topic = m::create_partitions::CreatePartitionsTopic {
            name: Text::from(name),
            count: total,
            assignments: None,
        };
        let request =
            m::CreatePartitionsRequest { topics: vec![topic], timeout_ms, validate_only: false };
        let attempt = || async {
            let response = self.ask_any(&request, patience).await?;
            let added = only(response.results, &what)?;
            accepted_for_good(&what, added.error_code, added.error_message.as_ref())
        };
        let outcome = self.retry(&format!("adding partitions to {what}"), attempt).await?;
        self.inner.metadata.expire();
        outcome
    }

    /// Deletes the records below `before`, or all up to the high watermark; gives the new start
    /// of the log.
    pub async fn delete_records(
        &self,
        topic: &str,
        partition: i32,
        before: Option<Offset>,
    ) -> Result<Offset, Error> {
        let what = partition_named(topic, partition);
        let (patience, timeout_ms) = self.work_time();
        let wanted = m::delete_records::DeleteRecordsPartition {
            partition_index: partition,
            offset: before.map_or(-1, |offset| offset.0),
        };
        let request = m::DeleteRecordsRequest {
            topics: vec![m::delete_records::DeleteRecordsTopic {
                name: Text::from(topic),
                partitions: vec![wanted],
            }],
            timeout_ms,
        };
        let attempt = || async {
            let address = self.leader_once(topic, partition).await?;
            let response = self.inner.routes.call(&address, Lane::Ask, &request, patience).await?;
            let partitions = response.topics.into_iter().flat_map(|topic| topic.partitions);
            let deleted = only(partitions.collect(), &what)?;
            accepted(&what, deleted.error_code, None)?;
            Ok(Offset(deleted.low_watermark))
        };
        self.retry(&format!("deleting records of {what}"), attempt).await
    }

    /// The whole configuration of `resource`, sorted by name.
    pub async fn describe_configs(&self, resource: &Resource) -> Result<Vec<Configuration>, Error> {
        const DEFAULT: i8 = 5;
        let what = resource.described();
        let request = m::DescribeConfigsRequest {
            resources: vec![m::describe_configs::DescribeConfigsResource {
                resource_type: resource.kind(),
                resource_name: resource.name(),
                configuration_keys: None,
            }],
            include_synonyms: false,
            include_documentation: true,
        };
        let attempt = || async {
            let response = match resource {
                // What a node is configured with, it alone can tell.
                Resource::Broker(id) => {
                    let address = self.broker_once(NodeId(*id)).await?;
                    let routes = &self.inner.routes;
                    routes.call(&address, Lane::Ask, &request, Duration::ZERO).await?
                }
                Resource::Topic(_) => self.ask_any(&request, Duration::ZERO).await?,
            };
            let described = only(response.results, &what)?;
            let message = described.error_message.as_ref();
            accepted_for_good(&what, described.error_code, message)
                .map(|accepted| accepted.map(|()| described.configs))
        };
        let described = self.retry(&format!("the configuration of {what}"), attempt).await??;
        let mut configs: Vec<Configuration> = described
            .iter()
            .map(|config| Configuration {
                name: config.name.to_string(),
                value: config.value.as_ref().map(|value| value.to_string()),
                default: config.config_source == DEFAULT,
                read_only: config.read_only,
                documentation: config.documentation.as_ref().map(|text| text.to_string()),
            })
            .collect();
        configs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(configs)
    }

    /// Changes single entries of a configuration and leaves the others. KIP-339.
    pub async fn alter_configs(
        &self,
        resource: &Resource,
        changes: &[ConfigurationChange],
    ) -> Result<(), Error> {
        const SET: i8 = 0;
        const DELETE: i8 = 1;
        let what = resource.described();
        let configs = changes.iter().map(|change| {
            let (name, operation, value) = match change {
                ConfigurationChange::Set(name, value) => (name, SET, Some(value)),
                ConfigurationChange::Unset(name) => (name, DELETE, None),
            };
            m::incremental_alter_configs::AlterableConfig {
                name: Text::from(name.as_str()),
                config_operation: operation,
                value: value.map(|value| Text::from(value.as_str())),
            }
        });
        let request = m::IncrementalAlterConfigsRequest {
            resources: vec![m::incremental_alter_configs::AlterConfigsResource {
                resource_type: resource.kind(),
                resource_name: resource.name(),
                configs: configs.collect(),
            }],
            validate_only: false,
        };
        let attempt = || async {
            let response = self.ask_any(&request, Duration::ZERO).await?;
            let altered = only(response.responses, &what)?;
            accepted_for_good(&what, altered.error_code, altered.error_message.as_ref())
        };
        self.retry(&format!("configuring {what}"), attempt).await?
    }

    /// The data directories of the node at the first reachable address.
    pub async fn log_directories(&self) -> Result<Vec<LogDirectory>, Error> {
        let request = m::DescribeLogDirsRequest { topics: None };
        let attempt = || async {
            let response = self.ask_any(&request, Duration::ZERO).await?;
            accepted("the data directories", response.error_code, None)?;
            response.results.iter().map(log_directory).collect()
        };
        self.retry("the data directories", attempt).await
    }

    /// Bytes on disk by topic, each partition by its largest copy. A node that does not answer is
    /// left out, unless none does.
    pub async fn topic_bytes(&self) -> Result<BTreeMap<String, u64>, Error> {
        let mut copies: BTreeMap<(String, i32), u64> = BTreeMap::new();
        let mut failed = None;
        for broker in self.cluster().await?.brokers.values() {
            let directories = match self.log_directories_of(&broker.address).await {
                Ok(directories) => directories,
                Err(error) => {
                    failed = Some(error);
                    continue;
                }
            };
            for partition in directories.into_iter().flat_map(|directory| directory.partitions) {
                let place = (partition.topic, partition.partition);
                let largest = copies.entry(place).or_default();
                *largest = (*largest).max(partition.bytes);
            }
        }
        if let Some(error) = failed.filter(|_| copies.is_empty()) {
            return Err(error);
        }
        let mut bytes = BTreeMap::new();
        for ((topic, _), largest) in copies {
            *bytes.entry(topic).or_default() += largest;
        }
        Ok(bytes)
    }
}

/// An absent topic is retriable for those who produce to it; for an administrator it is an answer.
fn accepted_for_good(
    what: &str,
    code: i16,
    message: Option<&Text>,
) -> Result<Result<(), Error>, Error> {
    match accepted(what, code, message) {
        Err(error) if error.code() == Some(Code::UnknownTopicOrPartition) => Ok(Err(error)),
        Err(error) => Err(error),
        Ok(()) => Ok(Ok(())),
    }
}

pub(super) fn log_directory(
    result: &m::describe_log_dirs::DescribeLogDirsResult,
) -> Result<LogDirectory, Error> {
    accepted(&format!("directory {}", result.log_dir), result.error_code, None)?;
    let partitions = result.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|partition| PartitionSize {
            topic: topic.name.to_string(),
            partition: partition.partition_index,
            bytes: u64::try_from(partition.partition_size).unwrap_or_default(),
        })
    });
    Ok(LogDirectory {
        path: result.log_dir.to_string(),
        total_bytes: u64::try_from(result.total_bytes).ok(),
        usable_bytes: u64::try_from(result.usable_bytes).ok(),
        partitions: partitions.collect(),
    })
}
