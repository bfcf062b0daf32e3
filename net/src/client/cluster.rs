//! The nodes of a cluster, who leads what, and where replicas are to be, as an administrator asks
//! for them.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::id::NodeId;

use super::admin::{LogDirectory, accepted, log_directory};
use super::metadata::{partition_named, refusal};
use super::route::Lane;
use super::{Client, Error};
use crate::kafka::Call;
use crate::kafka::error::Code;
use crate::kafka::messages as m;
use crate::wire::Text;

/// A cluster's nodes, those included that are not heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterDescription {
    pub id: String,
    /// Where to send what only the controller decides.
    pub controller: Option<NodeId>,
    pub nodes: BTreeMap<NodeId, ClusterNode>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNode {
    pub id: NodeId,
    /// `host:port`.
    pub address: String,
    pub rack: Option<String>,
    /// It was not heard of: it leads nothing and is in sync with nothing.
    pub fenced: bool,
}

/// The quorum that keeps the metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumDescription {
    pub leader: Option<NodeId>,
    pub term: i32,
    /// Everything below is decided.
    pub high_watermark: i64,
    pub voters: Vec<QuorumMember>,
    pub observers: Vec<QuorumMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumMember {
    pub node: NodeId,
    /// Which disk it votes with.
    pub directory: [u8; 16],
    /// Where its log ends, if the answering node knows.
    pub end: Option<i64>,
    /// When the leader heard of it last, in Unix milliseconds, if known.
    pub heard: Option<i64>,
}

/// A partition as people name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartitionName {
    pub topic: String,
    pub partition: i32,
}

/// A partition that is on its way to other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reassignment {
    pub partition: PartitionName,
    pub replicas: Vec<NodeId>,
    pub adding: Vec<NodeId>,
    pub removing: Vec<NodeId>,
}

/// KIP-460.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Election {
    /// Whoever should lead, if it is in sync.
    Preferred,
    /// Any replica that is there, where nobody leads: acknowledged records may be lost.
    Unclean,
}

/// What became of each partition that something was asked of.
pub type PerPartition = Vec<(PartitionName, Result<(), Error>)>;

const QUORUM_TOPIC: &str = "__cluster_metadata";

fn nodes(ids: &[i32]) -> Vec<NodeId> {
    ids.iter().copied().map(NodeId).collect()
}

fn address(host: &str, port: i32) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn grouped(partitions: &[PartitionName]) -> BTreeMap<&str, Vec<i32>> {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for PartitionName { topic, partition } in partitions {
        topics.entry(topic).or_default().push(*partition);
    }
    topics
}

impl Client {
    /// All nodes, those included that are not heard of.
    ///
    /// # Errors
    ///
    /// If no node answers in time.
    pub async fn describe_cluster(&self) -> Result<ClusterDescription, Error> {
        let request = m::DescribeClusterRequest {
            include_fenced_brokers: true,
            ..m::DescribeClusterRequest::default()
        };
        let attempt = || async {
            let response = self.ask_any(&request, Duration::ZERO).await?;
            accepted("the cluster", response.error_code, response.error_message.as_ref())?;
            let nodes = response.brokers.iter().map(|broker| {
                let id = NodeId(broker.broker_id);
                let address = address(&broker.host, broker.port);
                let rack = broker.rack.as_ref().map(|rack| rack.to_string());
                (id, ClusterNode { id, address, rack, fenced: broker.is_fenced })
            });
            Ok(ClusterDescription {
                id: response.cluster_id.to_string(),
                controller: Some(NodeId(response.controller_id)).filter(|id| id.0 >= 0),
                nodes: nodes.collect(),
            })
        };
        self.retry("the cluster's nodes", attempt).await
    }

    /// The quorum, as the node that leads it or any other knows it. One attempt: it is asked when
    /// something may be wrong with it.
    ///
    /// # Errors
    ///
    /// If no node answers in time, or none speaks of a quorum.
    pub async fn describe_quorum(&self) -> Result<QuorumDescription, Error> {
        let request = m::DescribeQuorumRequest {
            topics: vec![m::describe_quorum::asked::TopicData {
                topic_name: QUORUM_TOPIC.into(),
                partitions: vec![m::describe_quorum::asked::PartitionData { partition_index: 0 }],
            }],
        };
        let what = "the metadata quorum";
        let response = self.ask_controller(&request, Duration::ZERO).await?;
        accepted(what, response.error_code, response.error_message.as_ref())?;
        let partitions = response.topics.into_iter().flat_map(|topic| topic.partitions);
        let found = partitions.into_iter().next();
        let found = found.ok_or_else(|| Error::refused(what, Code::InvalidRequest, None))?;
        accepted(what, found.error_code, found.error_message.as_ref())?;
        Ok(QuorumDescription {
            leader: Some(NodeId(found.leader_id)).filter(|id| id.0 >= 0),
            term: found.leader_epoch,
            high_watermark: found.high_watermark,
            voters: found.current_voters.iter().map(member).collect(),
            observers: found.observers.iter().map(member).collect(),
        })
    }

    /// Moves partitions to the nodes given, the preferred leader first; `None` takes a move back.
    /// Returns once the moves are decided, long before they are done.
    ///
    /// # Errors
    ///
    /// If nothing was decided; what was refused of single partitions stands with them.
    pub async fn reassign(
        &self,
        targets: &[(PartitionName, Option<Vec<NodeId>>)],
    ) -> Result<PerPartition, Error> {
        let (patience, timeout_ms) = self.work_time();
        let mut topics: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for (name, target) in targets {
            let replicas =
                target.as_ref().map(|nodes| nodes.iter().map(|node| node.0).collect::<Vec<_>>());
            topics.entry(&name.topic).or_default().push(
                m::alter_partition_reassignments::ReassignablePartition {
                    partition_index: name.partition,
                    replicas,
                },
            );
        }
        let topics = topics.into_iter().map(|(name, partitions)| {
            m::alter_partition_reassignments::ReassignableTopic { name: name.into(), partitions }
        });
        let request = m::AlterPartitionReassignmentsRequest {
            timeout_ms,
            allow_replication_factor_change: true,
            topics: topics.collect(),
        };
        let attempt = || async {
            let response = self.ask_controller(&request, patience).await?;
            accepted("the moves", response.error_code, response.error_message.as_ref())?;
            let rows = response.responses.into_iter().flat_map(|topic| {
                let name = topic.name.to_string();
                topic.partitions.into_iter().map(move |row| {
                    let done = (row.partition_index, row.error_code, row.error_message);
                    outcome(&name, done)
                })
            });
            Ok(rows.collect())
        };
        self.retry("moving partitions", attempt).await
    }

    /// All moves that run.
    ///
    /// # Errors
    ///
    /// If no controller answers in time.
    pub async fn reassignments(&self) -> Result<Vec<Reassignment>, Error> {
        let (patience, timeout_ms) = self.work_time();
        let request = m::ListPartitionReassignmentsRequest { timeout_ms, topics: None };
        let attempt = || async {
            let response = self.ask_controller(&request, patience).await?;
            accepted("the moves", response.error_code, response.error_message.as_ref())?;
            let rows = response.topics.into_iter().flat_map(|topic| {
                let name = topic.name.to_string();
                topic.partitions.into_iter().map(move |row| Reassignment {
                    partition: PartitionName {
                        topic: name.clone(),
                        partition: row.partition_index,
                    },
                    replicas: nodes(&row.replicas),
                    adding: nodes(&row.adding_replicas),
                    removing: nodes(&row.removing_replicas),
                })
            });
            Ok(rows.collect())
        };
        self.retry("listing moves", attempt).await
    }

    /// Elects leaders of the partitions named, or of all where it is needed.
    ///
    /// # Errors
    ///
    /// If nothing was decided; what was refused of single partitions stands with them.
    pub async fn elect_leaders(
        &self,
        election: Election,
        partitions: Option<&[PartitionName]>,
    ) -> Result<PerPartition, Error> {
        let (patience, timeout_ms) = self.work_time();
        let topic_partitions = partitions.map(|names| {
            let topics = grouped(names).into_iter().map(|(topic, partitions)| {
                m::elect_leaders::TopicPartitions { topic: topic.into(), partitions }
            });
            topics.collect()
        });
        let election_type = match election {
            Election::Preferred => 0,
            Election::Unclean => 1,
        };
        let request = m::ElectLeadersRequest { election_type, topic_partitions, timeout_ms };
        let attempt = || async {
            let response = self.ask_controller(&request, patience).await?;
            accepted("the election", response.error_code, None)?;
            let rows = response.replica_election_results.into_iter().flat_map(|topic| {
                let name = topic.topic.to_string();
                topic.partition_result.into_iter().map(move |row| {
                    let done = (row.partition_id, row.error_code, row.error_message);
                    outcome(&name, done)
                })
            });
            Ok(rows.collect())
        };
        self.retry("electing leaders", attempt).await
    }

    /// The cluster forgets a node that is gone for good and keeps nothing.
    ///
    /// # Errors
    ///
    /// If it is there, or still counts as keeping something.
    pub async fn unregister(&self, node: NodeId) -> Result<(), Error> {
        let request = m::UnregisterBrokerRequest { broker_id: node.0 };
        let what = format!("node {node}");
        let attempt = || async {
            let response = self.ask_controller(&request, Duration::ZERO).await?;
            accepted(&what, response.error_code, response.error_message.as_ref())
        };
        self.retry(&format!("forgetting {what}"), attempt).await
    }

    /// One voter more in the metadata quorum, known by its node and its directory.
    ///
    /// # Errors
    ///
    /// Why not.
    pub async fn add_voter(&self, node: NodeId, directory: [u8; 16]) -> Result<(), Error> {
        let (patience, timeout_ms) = self.work_time();
        let request = m::AddRaftVoterRequest {
            cluster_id: None,
            timeout_ms,
            voter_id: node.0,
            voter_directory_id: directory,
            listeners: Vec::new(),
        };
        let what = format!("voter {node}");
        let attempt = || async {
            let response = self.ask_controller(&request, patience).await?;
            accepted(&what, response.error_code, response.error_message.as_ref())
        };
        self.retry(&format!("adding {what}"), attempt).await
    }

    /// One voter less in the metadata quorum.
    ///
    /// # Errors
    ///
    /// Why not.
    pub async fn remove_voter(&self, node: NodeId, directory: [u8; 16]) -> Result<(), Error> {
        let (patience, _) = self.work_time();
        let request = m::RemoveRaftVoterRequest {
            cluster_id: None,
            voter_id: node.0,
            voter_directory_id: directory,
        };
        let what = format!("voter {node}");
        let attempt = || async {
            let response = self.ask_controller(&request, patience).await?;
            accepted(&what, response.error_code, response.error_message.as_ref())
        };
        self.retry(&format!("removing {what}"), attempt).await
    }

    /// One setting of a node that stands in the metadata, so that any node tells it; `None` if it
    /// has none.
    ///
    /// # Errors
    ///
    /// If no node answers, or none tells that setting of another.
    pub async fn node_config(&self, node: NodeId, key: &str) -> Result<Option<String>, Error> {
        const BROKER: i8 = 4;
        let request = m::DescribeConfigsRequest {
            resources: vec![m::describe_configs::DescribeConfigsResource {
                resource_type: BROKER,
                resource_name: Text::from(node.to_string()),
                configuration_keys: Some(vec![Text::from(key)]),
            }],
            ..m::DescribeConfigsRequest::default()
        };
        let response = self.ask_any(&request, Duration::ZERO).await?;
        let Some(found) = response.results.into_iter().next() else { return Ok(None) };
        accepted(&format!("node {node}"), found.error_code, found.error_message.as_ref())?;
        let config = found.configs.into_iter().find(|config| config.name == key);
        Ok(config.and_then(|config| config.value).map(|value| value.to_string()))
    }

    /// The data directories of one node.
    ///
    /// # Errors
    ///
    /// If that node does not answer.
    pub async fn log_directories_of(&self, address: &str) -> Result<Vec<LogDirectory>, Error> {
        let request = m::DescribeLogDirsRequest { topics: None };
        let response = self.inner.routes.call(address, Lane::Ask, &request, Duration::ZERO).await?;
        accepted("the data directories", response.error_code, None)?;
        response.results.iter().map(log_directory).collect()
    }

    /// Asks the controller, or any node where it is not known or not there. One attempt.
    async fn ask_controller<R: Call>(
        &self,
        request: &R,
        patience: Duration,
    ) -> Result<R::Response, Error> {
        let metadata = self.metadata(Some(&[]), false).await?;
        let controller = metadata.controller.and_then(|id| metadata.brokers.get(&id));
        if let Some(controller) = controller {
            let address = &controller.address;
            match self.inner.routes.call(address, Lane::Ask, request, patience).await {
                Err(Error::Unreachable { .. }) => {}
                outcome => return outcome,
            }
        }
        self.ask_any(request, patience).await
    }
}

fn member(state: &m::describe_quorum::ReplicaState) -> QuorumMember {
    QuorumMember {
        node: NodeId(state.replica_id),
        directory: state.replica_directory_id,
        end: Some(state.log_end_offset).filter(|end| *end >= 0),
        heard: Some(state.last_fetch_timestamp).filter(|at| *at >= 0),
    }
}

fn outcome(
    topic: &str,
    (partition, code, message): (i32, i16, Option<Text>),
) -> (PartitionName, Result<(), Error>) {
    let done = match refusal(code) {
        None => Ok(()),
        Some(code) => {
            let what = partition_named(topic, partition);
            Err(Error::refused(what, code, message.as_ref().map(Text::as_str)))
        }
    };
    (PartitionName { topic: topic.to_owned(), partition }, done)
}
