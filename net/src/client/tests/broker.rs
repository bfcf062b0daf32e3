//! A broker in memory for the client's tests: one topic of one partition, real frames, and faults
//! that a test orders. It stores batches as they come and knows copies by their sequence numbers.

mod transactions;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

pub(super) use self::transactions::Transactions;
use bytes::Bytes;
use quorate_core::batch::Batch;
use quorate_core::id::{LeaderEpoch, Offset, TopicId};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::kafka::frame::{
    RequestError, decode_request, encode_response, unsupported_api_versions,
};
use crate::kafka::messages as m;
use crate::kafka::{ApiKey, Request, Response};
use crate::transport::{Io, Listener, Network, Stream};
use crate::wire::{Records, Text};

pub(super) const TOPIC: &str = "orders";
const ID: TopicId = TopicId([7; 16]);
const MUTE: i32 = 3;

/// What happens to one produce request, or to one about metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is stored, and the connection breaks before the answer.
    LoseAnswer,
    /// It is not stored, and the connection breaks.
    LoseRequest,
    /// It is stored, and no answer ever comes.
    Silence,
    /// It is about metadata, and the connection breaks.
    LoseMetadata,
    /// It is refused with this code.
    Refuse(i16),
}

#[derive(Default)]
pub(super) struct State {
    pub log: Vec<Batch>,
    pub log_start: i64,
    pub faults: VecDeque<Fault>,
    /// Which of the two brokers leads.
    pub leader: i32,
    /// The highest version told for each API; all of ours where none stands.
    pub versions_max: BTreeMap<ApiKey, i16>,
    /// Each request that came: broker, API, version.
    pub requests: Vec<(i32, ApiKey, i16)>,
    pub transactions: Transactions,
    next_producer: i64,
}

/// Two brokers, at `one:1` and `two:2`, over the same log. Who listens at `mute:3` says nothing.
#[derive(Clone, Default)]
pub(super) struct Cluster(pub Arc<Mutex<State>>);

impl Network for Cluster {
    fn listen(&self, _: SocketAddr) -> Io<'_, Box<dyn Listener>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    fn connect<'a>(&'a self, address: &'a str) -> Io<'a, Box<dyn Stream>> {
        Box::pin(async move {
            let broker = match address {
                "one:1" => 1,
                "two:2" => 2,
                "mute:3" => MUTE,
                _ => return Err(io::ErrorKind::ConnectionRefused.into()),
            };
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            tokio::spawn(serve(self.clone(), broker, theirs));
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

async fn serve(cluster: Cluster, broker: i32, mut stream: DuplexStream) {
    if broker == MUTE {
        std::future::pending::<()>().await;
    }
    loop {
        let Ok(length) = stream.read_u32().await else { return };
        let mut frame = vec![0; usize::try_from(length).unwrap()];
        if stream.read_exact(&mut frame).await.is_err() {
            return;
        }
        let Some(chunks) = cluster.answer(broker, &Bytes::from(frame)) else {
            if cluster.is_silent() {
                std::future::pending::<()>().await;
            }
            return;
        };
        for chunk in chunks {
            if stream.write_all(&chunk).await.is_err() {
                return;
            }
        }
    }
}

impl Cluster {
    fn is_silent(&self) -> bool {
        self.0.lock().unwrap().faults.front() == Some(&Fault::Silence)
    }

    /// The frames that answer; `None` breaks the connection, or stays silent.
    fn answer(&self, broker: i32, frame: &Bytes) -> Option<Vec<Bytes>> {
        let mut state = self.0.lock().unwrap();
        let api_versions_max = state.version_max(ApiKey::ApiVersions);
        let (header, request) = match decode_request(frame) {
            Ok((header, _))
                if header.key == ApiKey::ApiVersions && header.version > api_versions_max =>
            {
                let versions = state.api_versions();
                return unsupported_api_versions(header.correlation_id, versions).ok();
            }
            Ok(request) => request,
            Err(RequestError::Malformed { error, .. }) => panic!("our own request: {error}"),
            Err(error) => panic!("{error}"),
        };
        state.requests.push((broker, header.key, header.version));
        assert!(header.version <= state.version_max(header.key), "{:?} was not told", header.key);
        let response = match request {
            Request::ApiVersions(_) => state.api_versions().into(),
            Request::Metadata(_) if state.faults.front() == Some(&Fault::LoseMetadata) => {
                state.faults.pop_front();
                return None;
            }
            Request::Metadata(_) => state.metadata().into(),
            Request::InitProducerId(init) if init.transactional_id.is_some() => {
                state.init_transactional(&init).into()
            }
            Request::FindCoordinator(find) => transactions::coordinator(&find).into(),
            Request::EndTxn(end) => state.end(&end)?.into(),
            Request::TxnOffsetCommit(commit) => state.commit_offsets(&commit).into(),
            Request::InitProducerId(_) => {
                state.next_producer += 1;
                let producer_id = state.next_producer;
                m::InitProducerIdResponse { producer_id, ..Default::default() }.into()
            }
            Request::Produce(produce) => state.produce(broker, &produce)?,
            Request::Fetch(fetch) => state.fetch(broker, &fetch).into(),
            Request::ListOffsets(list) => state.list_offsets(broker, &list).into(),
            other => panic!("{:?} is not played", other.key()),
        };
        encode_response(header.correlation_id, header.version, &response)
            .ok()
            .map(|encoded| encoded.chunks)
    }
}

impl State {
    fn version_max(&self, key: ApiKey) -> i16 {
        self.versions_max.get(&key).copied().unwrap_or_else(|| *key.versions().end())
    }

    fn api_versions(&self) -> m::ApiVersionsResponse {
        let keys = ApiKey::ALL.iter().map(|&key| m::api_versions::ApiVersion {
            api_key: key.code(),
            min_version: *key.versions().start(),
            max_version: self.version_max(key),
        });
        let finalized_features = self.transactions.features();
        let api_keys = keys.collect();
        m::ApiVersionsResponse { api_keys, finalized_features, ..Default::default() }
    }

    fn metadata(&self) -> m::MetadataResponse {
        let broker = |node_id: i32, host: &'static str| m::metadata::MetadataResponseBroker {
            node_id,
            host: Text::from_static(host),
            port: node_id,
            rack: None,
        };
        m::MetadataResponse {
            brokers: vec![broker(1, "one"), broker(2, "two")],
            topics: vec![m::metadata::MetadataResponseTopic {
                name: Some(Text::from_static(TOPIC)),
                topic_id: ID,
                partitions: vec![m::metadata::MetadataResponsePartition {
                    leader_id: self.leader,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    fn end_of_log(&self) -> i64 {
        self.log.last().map_or(self.log_start, |batch| batch.header().next_offset().0)
    }

    /// Stores the batch unless it is a copy; gives its base offset.
    fn store(&mut self, mut batch: Batch) -> i64 {
        let numbers = |batch: &Batch| {
            let header = batch.header();
            (header.producer_id(), header.producer_epoch(), header.base_sequence())
        };
        let known = self
            .log
            .iter()
            .find(|known| numbers(known) == numbers(&batch) && numbers(known).0.is_some());
        if let Some(known) = known {
            return known.header().base_offset().0;
        }
        let base = self.end_of_log();
        self.note(&batch, base);
        batch.stamp(Offset(base), LeaderEpoch(1));
        self.log.push(batch);
        base
    }

    fn produce(&mut self, broker: i32, request: &m::ProduceRequest) -> Option<Response> {
        let topic = &request.topic_data[0];
        let records = topic.partition_data[0].records.clone().unwrap();
        let batch = Batch::parse(records.into_bytes()).unwrap();
        let fault = match self.faults.front() {
            Some(Fault::Silence) => {
                self.store(batch);
                return None;
            }
            _ => self.faults.pop_front(),
        };
        let (error_code, base_offset) = match fault {
            Some(Fault::LoseRequest) => return None,
            Some(Fault::LoseAnswer) => {
                self.store(batch);
                return None;
            }
            Some(Fault::Refuse(code)) => (code, -1),
            _ if self.is_fenced(&batch) => (47, -1),
            _ if broker != self.leader => (6, -1),
            _ => (0, self.store(batch)),
        };
        let partition =
            m::produce::PartitionProduceResponse { error_code, base_offset, ..Default::default() };
        let topic = m::produce::TopicProduceResponse {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partition_responses: vec![partition],
        };
        Some(m::ProduceResponse { responses: vec![topic], ..Default::default() }.into())
    }

    fn fetch(&self, broker: i32, request: &m::FetchRequest) -> m::FetchResponse {
        let topic = &request.topics[0];
        let from = topic.partitions[0].fetch_offset;
        let error_code = match from {
            _ if broker != self.leader => 6,
            from if from < self.log_start || from > self.end_of_log() => 1,
            _ => 0,
        };
        let committed = request.isolation_level == 1;
        let end = if committed { self.stable() } else { self.end_of_log() };
        let batches = self.log.iter().filter(|batch| {
            let header = batch.header();
            header.next_offset().0 > from && header.base_offset().0 < end
        });
        let records: Records = batches.take(2).flat_map(|batch| batch.chunks()).collect();
        let partition = m::fetch::PartitionData {
            error_code,
            high_watermark: self.end_of_log(),
            last_stable_offset: self.stable(),
            aborted_transactions: committed.then(|| self.aborted(from)),
            log_start_offset: self.log_start,
            records: (error_code == 0).then_some(records),
            ..Default::default()
        };
        let topic = m::fetch::FetchableTopicResponse {
            topic: topic.topic.clone(),
            topic_id: topic.topic_id,
            partitions: vec![partition],
        };
        m::FetchResponse { responses: vec![topic], ..Default::default() }
    }

    fn list_offsets(&self, broker: i32, request: &m::ListOffsetsRequest) -> m::ListOffsetsResponse {
        let (error_code, offset) = match request.topics[0].partitions[0].timestamp {
            _ if broker != self.leader => (6, -1),
            -2 => (0, self.log_start),
            _ => (0, self.end_of_log()),
        };
        let partition = m::list_offsets::ListOffsetsPartitionResponse {
            error_code,
            offset,
            ..Default::default()
        };
        let topic = m::list_offsets::ListOffsetsTopicResponse {
            name: Text::from_static(TOPIC),
            partitions: vec![partition],
        };
        m::ListOffsetsResponse { topics: vec![topic], ..Default::default() }
    }
}
