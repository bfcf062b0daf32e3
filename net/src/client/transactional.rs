//! A producer whose records, and a group's offsets with them, become visible together or never.
//! It speaks KIP-890's second part only: partitions are added by the brokers, and each end gives
//! the next transaction a producer epoch of its own. An older cluster is refused at the start,
//! since the older protocol cannot tell a late request of the last transaction from the next one.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use quorate_core::id::{Offset, ProducerEpoch, ProducerId};

use super::coordinator::Coordinated;
use super::metadata::{partition_named, refusal};
use super::produce::{Delivery, Message, Producer, ProducerConfig, SendError};
use super::route::Lane;
use super::{Client, Error, Fate, PartitionName};
use crate::kafka::Call;
use crate::kafka::error::Code;
use crate::kafka::messages as m;
use crate::wire::Text;

/// The feature whose level 2 is KIP-890's second part.
const FEATURE: &str = "transaction.version";

#[derive(Clone, Debug)]
pub struct TransactionConfig {
    /// Outlives the process: whoever comes with the same one ends what its predecessor left open,
    /// and shuts it out.
    pub transactional_id: String,
    /// A transaction that is open for longer is aborted by the coordinator, and its producer shut
    /// out. Kafka's `transaction.timeout.ms`.
    pub timeout: Duration,
    /// Idempotent, with acks=all.
    pub producer: ProducerConfig,
}

impl TransactionConfig {
    /// Kafka's usual times.
    #[must_use]
    pub fn new(transactional_id: &str) -> Self {
        Self {
            transactional_id: transactional_id.to_owned(),
            timeout: Duration::from_secs(60),
            producer: ProducerConfig::default(),
        }
    }
}

/// On whose behalf a group's offsets are committed: a member that has lost its place is refused.
/// KIP-447.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPlace {
    pub group: String,
    /// −1 where the group is not to be asked.
    pub generation: i32,
    pub member: String,
    pub instance: Option<String>,
}

/// Why a transaction did not end as asked, and whether it may have all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndError {
    pub error: Error,
    pub fate: Fate,
}

impl fmt::Display for EndError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fate {
            Fate::NotDone => write!(f, "{}", self.error),
            Fate::Unknown => write!(f, "{} (it may have happened all the same)", self.error),
        }
    }
}

impl std::error::Error for EndError {}

impl From<Error> for EndError {
    fn from(error: Error) -> Self {
        Self { error, fate: Fate::NotDone }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// No transaction is open.
    Ready,
    Open,
    /// Something in it failed: it can only be aborted.
    Broken(Error),
    /// Its end is not known, or another producer has its id: `init` finds out.
    Adrift,
}

/// One life of a transactional id. Its calls come one after another.
pub struct TransactionalProducer {
    client: Client,
    config: TransactionConfig,
    producer: Producer,
    identity: (ProducerId, ProducerEpoch),
    state: State,
    /// The open transaction may hold something: an empty one needs no end.
    touched: bool,
    coordinator: Option<String>,
}

impl fmt::Debug for TransactionalProducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("TransactionalProducer");
        shown.field("id", &self.config.transactional_id).field("identity", &self.identity);
        shown.field("state", &self.state).finish_non_exhaustive()
    }
}

impl Client {
    /// A producer of transactions, once its predecessors with the same id are shut out.
    ///
    /// # Errors
    ///
    /// `Invalid` for a configuration that is not idempotent, or a cluster that does not use
    /// `transaction.version` 2; what `TransactionalProducer::init` meets.
    pub async fn transactional(
        &self,
        config: TransactionConfig,
    ) -> Result<TransactionalProducer, Error> {
        if !config.producer.idempotent || config.transactional_id.is_empty() {
            let reason = "a transactional producer is idempotent, and has an id".to_owned();
            return Err(Error::Invalid { reason });
        }
        let id = Text::from(config.transactional_id.as_str());
        let producer = self.start_producer(config.producer.clone(), Some(id))?;
        let mut transactional = TransactionalProducer {
            client: self.clone(),
            config,
            producer,
            identity: (ProducerId::NONE, ProducerEpoch(-1)),
            state: State::Adrift,
            touched: false,
            coordinator: None,
        };
        transactional.init().await?;
        Ok(transactional)
    }
}

impl TransactionalProducer {
    /// What the present transaction goes by, or the next one.
    #[must_use]
    pub const fn identity(&self) -> (ProducerId, ProducerEpoch) {
        self.identity
    }

    /// Whether nothing more can be done before another `init`.
    #[must_use]
    pub fn is_adrift(&self) -> bool {
        self.state == State::Adrift
    }

    /// Ends what was left open under this id, by this producer or an earlier one, and shuts every
    /// earlier one out. Also the way on after an end whose outcome is not known.
    ///
    /// # Errors
    ///
    /// If the coordinator refuses the id or the timeout, or does not answer in time.
    pub async fn init(&mut self) -> Result<(), Error> {
        self.state = State::Adrift;
        self.producer.forsake().await;
        let request = m::InitProducerIdRequest {
            transactional_id: Some(self.id()),
            transaction_timeout_ms: i32::try_from(self.config.timeout.as_millis())
                .unwrap_or(i32::MAX),
            ..m::InitProducerIdRequest::default()
        };
        let code_of = |response: &m::InitProducerIdResponse| response.error_code;
        let response = self.ask(&request, code_of).await.map_err(|end| end.error)?;
        let address = self.coordinator().await?;
        let level = self.client.inner.routes.feature(&address, FEATURE).await?;
        if level < 2 {
            let reason = format!("transactions need {FEATURE} 2, and {address} has {level}");
            return Err(Error::Invalid { reason });
        }
        self.go_by(response.producer_id, response.producer_epoch);
        Ok(())
    }

    fn go_by(&mut self, producer_id: i64, producer_epoch: i16) {
        let (id, epoch) = (ProducerId(producer_id), ProducerEpoch(producer_epoch));
        self.identity = (id, epoch);
        self.producer.tell(id, epoch);
        self.state = State::Ready;
    }

    /// Begins a transaction. The cluster learns of it with the first record.
    ///
    /// # Errors
    ///
    /// `Invalid` while another is open, or after an end that is not known.
    pub fn begin(&mut self) -> Result<(), Error> {
        match self.state {
            State::Ready => {
                self.state = State::Open;
                self.touched = false;
                Ok(())
            }
            State::Open | State::Broken(_) => invalid("the last transaction has not been ended"),
            State::Adrift => invalid("how the last transaction ended is not known: init again"),
        }
    }

    /// As `Producer::send`, in the open transaction.
    ///
    /// # Errors
    ///
    /// Only if the record was not accepted.
    pub async fn send(&mut self, message: Message) -> Result<Delivery, SendError> {
        self.may_go_on()?;
        self.touched = true;
        self.producer.send(message).await
    }

    /// Commits offsets of a group with the transaction.
    ///
    /// # Errors
    ///
    /// If the group's coordinator refuses them, or does not answer in time; then the transaction
    /// can only be aborted.
    pub async fn send_offsets(
        &mut self,
        place: &GroupPlace,
        offsets: &BTreeMap<PartitionName, Offset>,
    ) -> Result<(), Error> {
        self.may_go_on()?;
        if offsets.is_empty() {
            return Ok(());
        }
        self.touched = true;
        let outcome = self.commit_offsets(place, offsets).await;
        if let Err(error) = &outcome {
            self.state = State::Broken(error.clone());
        }
        outcome
    }

    async fn commit_offsets(
        &self,
        place: &GroupPlace,
        offsets: &BTreeMap<PartitionName, Offset>,
    ) -> Result<(), Error> {
        let mut topics: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for (name, offset) in offsets {
            let row = m::txn_offset_commit::TxnOffsetCommitRequestPartition {
                partition_index: name.partition,
                committed_offset: offset.0,
                committed_metadata: Some(Text::from_static("")),
                ..Default::default()
            };
            topics.entry(&name.topic).or_default().push(row);
        }
        let topics = topics.into_iter().map(|(name, partitions)| {
            m::txn_offset_commit::TxnOffsetCommitRequestTopic { name: Text::from(name), partitions }
        });
        let request = m::TxnOffsetCommitRequest {
            transactional_id: self.id(),
            group_id: Text::from(place.group.as_str()),
            producer_id: self.identity.0.0,
            producer_epoch: self.identity.1.0,
            generation_id: place.generation,
            member_id: Text::from(place.member.as_str()),
            group_instance_id: place.instance.as_deref().map(Text::from),
            topics: topics.collect(),
        };
        let verdict = |response: &m::TxnOffsetCommitResponse| {
            let rows = response.topics.iter().flat_map(|topic| {
                let name = topic.name.as_str();
                topic.partitions.iter().map(move |row| (name, row))
            });
            let refused = rows.filter_map(|(topic, row)| {
                let what = partition_named(topic, row.partition_index);
                refusal(row.error_code).map(|code| Error::refused(what, code, None))
            });
            refused.into_iter().next().map_or(Ok(()), Err)
        };
        self.client.ask_group(&place.group, &request, verdict).await.map(|_| ())
    }

    /// Sends what lingers, and commits once all of it is stored.
    ///
    /// # Errors
    ///
    /// `NotDone` if something in the transaction failed: it is still open, to be aborted. With
    /// `Unknown` it may be committed, or not; `init` settles it without telling.
    pub async fn commit(&mut self) -> Result<(), EndError> {
        self.producer.flush().await;
        self.may_go_on()?;
        self.end(true).await
    }

    /// Aborts the open transaction, whatever has become of its records.
    ///
    /// # Errors
    ///
    /// If the coordinator does not answer in time, or this producer was shut out; then `init` is
    /// the way on.
    pub async fn abort(&mut self) -> Result<(), EndError> {
        if self.state == State::Ready || self.state == State::Adrift {
            return invalid("no transaction is open").map_err(EndError::from);
        }
        self.producer.forsake().await;
        self.end(false).await
    }

    async fn end(&mut self, committed: bool) -> Result<(), EndError> {
        if !self.touched {
            self.state = State::Ready;
            return Ok(());
        }
        let request = m::EndTxnRequest {
            transactional_id: self.id(),
            producer_id: self.identity.0.0,
            producer_epoch: self.identity.1.0,
            committed,
        };
        // Whatever follows but an answer, this producer no longer knows what it goes by.
        self.state = State::Adrift;
        let code_of = |response: &m::EndTxnResponse| response.error_code;
        match self.ask(&request, code_of).await {
            Ok(ended) => {
                self.go_by(ended.producer_id, ended.producer_epoch);
                Ok(())
            }
            Err(end) if end.error.code() == Some(Code::TransactionAbortable) && committed => {
                self.state = State::Broken(end.error.clone());
                Err(end)
            }
            Err(end) => Err(end),
        }
    }

    /// Returns once all that was sent is stored, or has failed.
    pub async fn flush(&self) {
        self.producer.flush().await;
    }

    fn id(&self) -> Text {
        Text::from(self.config.transactional_id.as_str())
    }

    fn may_go_on(&mut self) -> Result<(), Error> {
        if let (State::Open, Some(error)) = (&self.state, self.producer.failure()) {
            self.state = State::Broken(error);
        }
        match &self.state {
            State::Open => Ok(()),
            State::Broken(error) => Err(error.clone()),
            State::Ready | State::Adrift => invalid("no transaction is open"),
        }
    }

    async fn coordinator(&mut self) -> Result<String, Error> {
        if let Some(address) = &self.coordinator {
            return Ok(address.clone());
        }
        let id = &self.config.transactional_id;
        let (_, address) = self.client.coordinator_once(Coordinated::Transaction, id).await?;
        Ok(self.coordinator.insert(address).clone())
    }

    /// Asks the coordinator until it decides. An attempt that a coordinator may have begun makes
    /// the outcome uncertain for good: one that lost its place while its record was on the way
    /// says so in words that would mean "not done" elsewhere.
    async fn ask<R: Call>(
        &mut self,
        request: &R,
        code_of: impl Fn(&R::Response) -> i16,
    ) -> Result<R::Response, EndError> {
        let what = format!("transactional id {}", self.config.transactional_id);
        let config = self.client.config().clone();
        let deadline = self.client.now() + config.operation_timeout;
        let mut backoff = config.retry_backoff;
        let mut fate = Fate::NotDone;
        loop {
            let asked = match self.coordinator().await {
                Ok(address) => self.ask_once(&address, request, &code_of).await,
                // No coordinator has been asked anything.
                Err(error) if fate == Fate::NotDone => Err((error, Fate::NotDone)),
                Err(error) => Err((error, Fate::Unknown)),
            };
            let (error, of_attempt) = match asked {
                Ok(response) => return Ok(response),
                Err(failed) => failed,
            };
            if of_attempt == Fate::Unknown {
                fate = Fate::Unknown;
            }
            if !error.is_retriable() {
                return Err(EndError { error, fate });
            }
            self.coordinator = None;
            if self.client.now() + backoff >= deadline {
                let after = config.operation_timeout;
                let error = Error::Expired { what, after, last: Some(Box::new(error)) };
                return Err(EndError { error, fate });
            }
            tracing::debug!(what, %error, "trying again");
            self.client.clock().sleep(backoff).await;
            backoff = (backoff * 2).min(config.retry_backoff_max);
        }
    }

    /// One attempt, and what it leaves behind if it fails.
    async fn ask_once<R: Call>(
        &self,
        address: &str,
        request: &R,
        code_of: impl Fn(&R::Response) -> i16,
    ) -> Result<R::Response, (Error, Fate)> {
        let routes = &self.client.inner.routes;
        let response = routes.call(address, Lane::Ask, request, Duration::ZERO).await;
        let response = response.map_err(|error| {
            let fate = error.fate();
            (error, fate)
        })?;
        let Some(code) = refusal(code_of(&response)) else { return Ok(response) };
        let what = format!("transactional id {}", self.config.transactional_id);
        let fate = if code.is_retriable() { Fate::Unknown } else { Fate::NotDone };
        Err((Error::refused(what, code, None), fate))
    }

    /// Aborts what is open, and ends the producer's task.
    ///
    /// # Errors
    ///
    /// What `abort` meets.
    pub async fn close(mut self) -> Result<(), EndError> {
        match self.state {
            State::Open | State::Broken(_) => self.abort().await,
            State::Ready | State::Adrift => Ok(()),
        }
    }
}

fn invalid<T>(reason: &str) -> Result<T, Error> {
    Err(Error::Invalid { reason: reason.to_owned() })
}
