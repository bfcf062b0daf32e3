//! A small asynchronous Kafka client: what the command line, the simulator's workloads and the
//! tests of real processes use. It comes to its network and clock as a node does, so it runs
//! unchanged in the simulated world. Not a driver for applications: Kafka's own clients are those.

mod admin;
mod cluster;
mod connection;
mod consume;
mod coordinator;
mod error;
mod fetch;
mod group;
mod groups;
mod metadata;
pub mod partitioner;
mod produce;
mod route;
mod transactional;
mod transactions;
mod unread;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::time::Instant;

pub use self::admin::{
    Configuration, ConfigurationChange, CreatedTopic, LogDirectory, NewTopic, PartitionSize,
    Resource,
};
pub use self::cluster::{
    ClusterDescription, ClusterNode, Election, PartitionName, PerPartition, QuorumDescription,
    QuorumMember, Reassignment,
};
pub use self::consume::{Consumer, ConsumerConfig, OnReset, PartitionBatches};
pub use self::error::{Error, Fate};
pub use self::fetch::{
    ConsumedRecord, FetchOptions, Fetched, ListedOffset, Position, RecordHeader, records_of,
};
pub use self::group::{GroupConfig, GroupConsumer, Polled, TopicPartition};
pub use self::groups::{GroupDescription, GroupMember, GroupOffset, GroupOffsets, ListedGroup};
use self::metadata::MetadataCache;
pub use self::metadata::{Broker, Metadata, Partition, Topic};
pub use self::produce::{Delivery, Message, Producer, ProducerConfig, Receipt, SendError};
use self::route::Routes;
pub use self::transactional::{EndError, GroupPlace, TransactionConfig, TransactionalProducer};
pub use self::transactions::{
    ListedTransaction, ProducerDescription, TransactionDescription, TransactionFilter,
};
pub use self::unread::{PartitionUnread, Readers, Unread};
use crate::clock::Clock;
use crate::transport::Network;

/// How a client finds and treats brokers. Durations are on the client's own monotonic clock.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// `host:port` of brokers to ask first; at least one.
    pub bootstrap: Vec<String>,
    /// What the client calls itself in each request.
    pub client_id: String,
    /// How long one connection attempt may take, the version handshake included.
    pub connect_timeout: Duration,
    /// How long one answer may take. A connection that misses it is closed.
    pub request_timeout: Duration,
    /// How long a whole operation may take, attempts and pauses included. Producers have their
    /// own `delivery_timeout`.
    pub operation_timeout: Duration,
    /// The pause before the second attempt; each further pause is twice as long.
    pub retry_backoff: Duration,
    /// The longest pause between attempts.
    pub retry_backoff_max: Duration,
    /// Metadata older than this are asked for again. Kafka's `metadata.max.age.ms`.
    pub metadata_age_max: Duration,
    /// The longest answer that is read, in bytes.
    pub answer_bytes_max: usize,
    /// Where chance is drawn from: partitions for records without a key, the first broker asked.
    pub seed: u64,
}

impl ClientConfig {
    /// Kafka's usual times, with `bootstrap` as `host:port[,host:port...]`.
    #[must_use]
    pub fn new(bootstrap: &str) -> Self {
        let addresses = bootstrap.split(',').map(str::trim).filter(|one| !one.is_empty());
        Self {
            bootstrap: addresses.map(str::to_owned).collect(),
            client_id: "quorate".to_owned(),
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
            operation_timeout: Duration::from_secs(60),
            retry_backoff: Duration::from_millis(50),
            retry_backoff_max: Duration::from_secs(1),
            metadata_age_max: Duration::from_secs(300),
            answer_bytes_max: 128 * 1024 * 1024,
            seed: 0,
        }
    }
}

/// A handle on one client; clones share connections and metadata. Needs a tokio runtime.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Arc<dyn Clock>,
    config: ClientConfig,
    routes: Routes,
    metadata: MetadataCache,
}

impl Client {
    /// Connects to nothing yet.
    #[must_use]
    pub fn new(network: Arc<dyn Network>, clock: Arc<dyn Clock>, config: ClientConfig) -> Self {
        let routes = Routes::new(network, Arc::clone(&clock), &config);
        let metadata = MetadataCache::default();
        Self { inner: Arc::new(Inner { clock, config, routes, metadata }) }
    }

    #[must_use]
    pub fn config(&self) -> &ClientConfig {
        &self.inner.config
    }

    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    fn now(&self) -> Instant {
        self.inner.clock.now().monotonic
    }

    /// Repeats `attempt` until it succeeds, fails for good, or the operation's time is over.
    /// `what` names the operation for the error.
    async fn retry<T, F, A>(&self, what: &str, mut attempt: A) -> Result<T, Error>
    where
        A: FnMut() -> F,
        F: Future<Output = Result<T, Error>>,
    {
        let config = &self.inner.config;
        let deadline = self.now() + config.operation_timeout;
        let mut backoff = config.retry_backoff;
        let expired = |last: Option<Error>| Error::Expired {
            what: what.to_owned(),
            after: config.operation_timeout,
            last: last.map(Box::new),
        };
        // What became of the operation is what became of its most uncertain attempt.
        let mut uncertain = None;
        loop {
            let outcome = tokio::select! {
                biased;
                outcome = attempt() => outcome,
                () = self.inner.clock.sleep_until(deadline) => {
                    let late = Error::Interrupted {
                        address: "the cluster".to_owned(),
                        reason: "the time was over".to_owned(),
                    };
                    return Err(expired(uncertain.or(Some(late))));
                }
            };
            let error = match outcome {
                Err(error) if error.is_retriable() => error,
                outcome => return outcome,
            };
            if error.blames_metadata() {
                self.inner.metadata.expire();
            }
            if self.now() + backoff >= deadline {
                return Err(expired(uncertain.or(Some(error))));
            }
            tracing::debug!(what, %error, "trying again");
            uncertain = Some(error).filter(|error| error.fate() == Fate::Unknown).or(uncertain);
            self.inner.clock.sleep(backoff).await;
            backoff = (backoff * 2).min(config.retry_backoff_max);
        }
    }
}

#[cfg(test)]
mod tests;
