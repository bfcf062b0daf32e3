//! Transactions as an administrator asks for them: which there are, what they wait for, who has one
//! open in a partition; and one that hangs ended by hand. KIP-664.

use std::time::Duration;

use quorate_core::id::{NodeId, Offset, ProducerEpoch, ProducerId};
use quorate_core::time::Timestamp;

use super::admin::accepted;
use super::coordinator::Coordinated;
use super::metadata::{partition_named, refusal};
use super::route::Lane;
use super::{Client, Error, PartitionName};
use crate::kafka::error::Code;
use crate::kafka::messages as m;
use crate::wire::Text;

/// Which transactions to list; empty for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionFilter {
    /// Kafka's names: `Ongoing`, `PrepareCommit`, ...
    pub states: Vec<String>,
    pub producers: Vec<ProducerId>,
    /// Only those that are open for longer.
    pub longer_than: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTransaction {
    pub transactional_id: String,
    pub producer: ProducerId,
    /// Kafka's name of it.
    pub state: String,
    pub coordinator: NodeId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionDescription {
    pub transactional_id: String,
    pub coordinator: NodeId,
    /// Kafka's name of it.
    pub state: String,
    /// When the coordinator aborts it, counted from its begin.
    pub timeout: Duration,
    /// `None` where none is open.
    pub started: Option<Timestamp>,
    pub producer: ProducerId,
    pub epoch: ProducerEpoch,
    /// What is in it; while it ends, what has no marker yet.
    pub partitions: Vec<PartitionName>,
}

/// A producer that a partition's leader remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerDescription {
    pub producer: ProducerId,
    pub epoch: ProducerEpoch,
    pub last_sequence: i32,
    pub last_timestamp: Timestamp,
    /// Of the last marker; `None` before the first.
    pub coordinator_epoch: Option<i32>,
    /// Where its open transaction begins.
    pub open_since: Option<Offset>,
}

fn named(id: &str) -> String {
    format!("transactional id {id}")
}

impl Client {
    /// Transactional ids, by name, with those that did not answer, and why. Each node lists those
    /// that it coordinates, so all are asked.
    ///
    /// # Errors
    ///
    /// If the cluster cannot be asked, none of its nodes answers, or a state has no such name.
    pub async fn list_transactions(
        &self,
        filter: &TransactionFilter,
    ) -> Result<(Vec<ListedTransaction>, Vec<(NodeId, Error)>), Error> {
        let longer = filter.longer_than.map(|time| i64::try_from(time.as_millis()));
        let request = m::ListTransactionsRequest {
            state_filters: filter.states.iter().map(|state| Text::from(state.as_str())).collect(),
            producer_id_filters: filter.producers.iter().map(|id| id.0).collect(),
            duration_filter: longer.map_or(-1, |millis| millis.unwrap_or(i64::MAX)),
            transactional_id_pattern: None,
        };
        let (mut listed, mut silent) = (Vec::new(), Vec::new());
        let brokers = self.cluster().await?.brokers;
        for (&coordinator, broker) in &brokers {
            let what = format!("the transactions of node {coordinator}");
            let attempt = || async {
                let routes = &self.inner.routes;
                let call = routes.call(&broker.address, Lane::Ask, &request, Duration::ZERO);
                let response = call.await?;
                accepted(&what, response.error_code, None)?;
                Ok(response)
            };
            match self.retry(&format!("listing {what}"), attempt).await {
                Ok(response) => {
                    if let Some(unknown) = response.unknown_state_filters.first() {
                        let reason = format!("{} is no state of a transaction", unknown.as_str());
                        return Err(Error::Invalid { reason });
                    }
                    listed.extend(response.transaction_states.iter().map(|it| ListedTransaction {
                        transactional_id: it.transactional_id.to_string(),
                        producer: ProducerId(it.producer_id),
                        state: it.transaction_state.to_string(),
                        coordinator,
                    }));
                }
                Err(error) => silent.push((coordinator, error)),
            }
        }
        if silent.len() == brokers.len()
            && let Some((_, error)) = silent.pop()
        {
            return Err(error);
        }
        listed.sort_by(|a, b| a.transactional_id.cmp(&b.transactional_id));
        listed.dedup_by(|a, b| a.transactional_id == b.transactional_id);
        Ok((listed, silent))
    }

    /// What the coordinator knows of a transactional id.
    ///
    /// # Errors
    ///
    /// `TRANSACTIONAL_ID_NOT_FOUND`, or no answer in time.
    pub async fn describe_transaction(&self, id: &str) -> Result<TransactionDescription, Error> {
        let request = m::DescribeTransactionsRequest { transactional_ids: vec![Text::from(id)] };
        let attempt = || async {
            let (node, address) = self.coordinator_once(Coordinated::Transaction, id).await?;
            let routes = &self.inner.routes;
            let response = routes.call(&address, Lane::Ask, &request, Duration::ZERO).await?;
            let missing = || {
                let reason = format!("{} is missing", named(id));
                Error::Malformed { address: address.clone(), reason }
            };
            let found = response.transaction_states.into_iter().next().ok_or_else(missing)?;
            let words = match refusal(found.error_code) {
                Some(Code::TransactionalIdNotFound) => Some(Text::from_static("nobody uses it")),
                _ => None,
            };
            accepted(&named(id), found.error_code, words.as_ref())?;
            Ok((node, found))
        };
        let (coordinator, found) = self.retry(&named(id), attempt).await?;
        let partitions = found.topics.iter().flat_map(|topic| {
            let name = topic.topic.to_string();
            topic
                .partitions
                .iter()
                .map(move |&partition| PartitionName { topic: name.clone(), partition })
        });
        let timeout = u64::try_from(found.transaction_timeout_ms).unwrap_or_default();
        Ok(TransactionDescription {
            transactional_id: id.to_owned(),
            coordinator,
            state: found.transaction_state.to_string(),
            timeout: Duration::from_millis(timeout),
            started: Some(Timestamp(found.transaction_start_time_ms)).filter(|at| at.0 >= 0),
            producer: ProducerId(found.producer_id),
            epoch: ProducerEpoch(found.producer_epoch),
            partitions: partitions.collect(),
        })
    }

    /// The producers that the partition's leader remembers, by id.
    ///
    /// # Errors
    ///
    /// If there is no such partition, or its leader does not answer in time.
    pub async fn describe_producers(
        &self,
        topic: &str,
        partition: i32,
    ) -> Result<Vec<ProducerDescription>, Error> {
        let request = m::DescribeProducersRequest {
            topics: vec![m::describe_producers::TopicRequest {
                name: Text::from(topic),
                partition_indexes: vec![partition],
            }],
        };
        let what = partition_named(topic, partition);
        let attempt = || async {
            let address = self.leader_once(topic, partition).await?;
            let routes = &self.inner.routes;
            let response = routes.call(&address, Lane::Ask, &request, Duration::ZERO).await?;
            let mut rows = response.topics.into_iter().flat_map(|topic| topic.partitions);
            let missing = || Error::Malformed { address, reason: format!("{what} is missing") };
            let row = rows.next().ok_or_else(missing)?;
            accepted(&what, row.error_code, row.error_message.as_ref())?;
            Ok(row.active_producers)
        };
        let found = self.retry(&what, attempt).await?;
        let mut producers: Vec<ProducerDescription> = found
            .iter()
            .map(|it| ProducerDescription {
                producer: ProducerId(it.producer_id),
                epoch: ProducerEpoch(i16::try_from(it.producer_epoch).unwrap_or(i16::MAX)),
                last_sequence: it.last_sequence,
                last_timestamp: Timestamp(it.last_timestamp),
                coordinator_epoch: Some(it.coordinator_epoch).filter(|&epoch| epoch >= 0),
                open_since: Some(Offset(it.current_txn_start_offset)).filter(|at| at.0 >= 0),
            })
            .collect();
        producers.sort_by_key(|it| it.producer);
        Ok(producers)
    }

    /// Ends a producer's open transaction in one partition as aborted, past the coordinator: for
    /// one that hangs. The marker carries the producer's own epoch, as that of Kafka's tool does.
    ///
    /// # Errors
    ///
    /// If the leader refuses the marker, or does not answer in time.
    pub async fn write_abort_marker(
        &self,
        name: &PartitionName,
        it: &ProducerDescription,
    ) -> Result<(), Error> {
        let request = m::WriteTxnMarkersRequest {
            markers: vec![m::write_txn_markers::WritableTxnMarker {
                producer_id: it.producer.0,
                producer_epoch: it.epoch.0,
                transaction_result: false,
                topics: vec![m::write_txn_markers::WritableTxnMarkerTopic {
                    name: Text::from(name.topic.as_str()),
                    partition_indexes: vec![name.partition],
                }],
                coordinator_epoch: it.coordinator_epoch.unwrap_or_default(),
                transaction_version: 0,
            }],
        };
        let what = partition_named(&name.topic, name.partition);
        let attempt = || async {
            let address = self.leader_once(&name.topic, name.partition).await?;
            let routes = &self.inner.routes;
            let response = routes.call(&address, Lane::Ask, &request, Duration::ZERO).await?;
            let topics = response.markers.into_iter().flat_map(|marker| marker.topics);
            let row = topics.flat_map(|topic| topic.partitions).next();
            let missing = || Error::Malformed { address, reason: format!("{what} is missing") };
            accepted(&what, row.ok_or_else(missing)?.error_code, None)
        };
        self.retry(&what, attempt).await
    }
}
