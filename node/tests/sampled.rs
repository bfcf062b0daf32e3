//! Requests that no client would send: every API in every version, filled at random. Each gets an
//! answer of its own kind or the connection is closed; nothing panics, and the node goes on.

#[path = "node/house.rs"]
#[allow(dead_code)]
mod house;

use std::collections::BTreeMap;
use std::mem;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use quorate_core::batch::{BatchBuilder, Codec};
use quorate_core::id::{ProducerEpoch, ProducerId, TopicId};
use quorate_core::rng::Rng;
use quorate_core::time::Timestamp;
use quorate_net::clock::Clock;
use quorate_net::connection::Frames;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::header::RequestHeader;
use quorate_net::kafka::messages::delete_topics::DeleteTopicState;
use quorate_net::kafka::messages::describe_configs::DescribeConfigsResource;
use quorate_net::kafka::messages::join_group::JoinGroupRequestProtocol;
use quorate_net::kafka::messages::metadata::MetadataRequestTopic;
use quorate_net::kafka::messages::{
    ApiVersionsRequest, DeleteTopicsRequest, DescribeConfigsRequest, MetadataRequest,
};
use quorate_net::kafka::{ApiKey, Request, Response};
use quorate_net::wire::sample::Source;
use quorate_net::wire::{Reader, Records, Text, Writer};
use quorate_node::clock::OsClock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Nothing that is asked here may wait longer; a node that is silent for so long has hung.
const PATIENCE: Duration = Duration::from_secs(20);

const SETTINGS: [(&str, &str); 3] = [
    ("fetch.wait_max", "200ms"),
    ("request.produce_wait_max", "2s"),
    ("group.session_timeout_min", "50ms"),
];

/// What became of a request.
#[derive(Debug)]
enum Fate {
    Answered(Response),
    /// acks=0 wants no answer.
    Silent,
    Closed,
}

/// What answers have told, to be used in later requests.
#[derive(Debug, Default)]
struct Known {
    topics: Vec<(Text, TopicId)>,
    /// Group, member and generation.
    members: Vec<(Text, Text, i32)>,
    /// A fetch session and the epoch of its next request.
    session: (i32, i32),
}

impl Known {
    fn learn(&mut self, request: &Request, response: &Response) {
        match (request, response) {
            (_, Response::Metadata(metadata)) => {
                let there = metadata.topics.iter().filter(|topic| topic.error_code == 0);
                let there = there.filter_map(|topic| Some((topic.name.clone()?, topic.topic_id)));
                let there: Vec<_> = there.collect();
                self.topics = if there.is_empty() { mem::take(&mut self.topics) } else { there };
            }
            (Request::JoinGroup(asked), Response::JoinGroup(joined))
                if [Code::None, Code::MemberIdRequired]
                    .map(Code::code)
                    .contains(&joined.error_code) =>
            {
                let member = joined.member_id.clone();
                self.members.push((asked.group_id.clone(), member, joined.generation_id));
                let before = self.members.len().saturating_sub(8);
                self.members.drain(..before);
            }
            (Request::Fetch(asked), Response::Fetch(fetched)) if fetched.session_id > 0 => {
                self.session = (fetched.session_id, asked.session_epoch.max(0).saturating_add(1));
            }
            _ => {}
        }
    }

    fn topic(&self, rng: &mut Rng) -> (Text, TopicId) {
        match self.topics.len() as u64 {
            0 => Default::default(),
            count => self.topics[rng.below(count) as usize].clone(),
        }
    }

    /// Makes a request about what there is, as far as it is about groups, sessions or ids.
    fn apply(&self, rng: &mut Rng, request: &mut Request) {
        match request {
            Request::Fetch(fetch) => {
                (fetch.session_id, fetch.session_epoch) = self.session;
                for topic in &mut fetch.topics {
                    (topic.topic, topic.topic_id) = self.topic(rng);
                }
            }
            Request::Produce(produce) => {
                for topic in &mut produce.topic_data {
                    (topic.name, topic.topic_id) = self.topic(rng);
                }
            }
            _ => {}
        }
        let Some(count) = (self.members.len() as u64).checked_sub(1) else { return };
        let (group, member, generation) = self.members[rng.below(count + 1) as usize].clone();
        match request {
            Request::JoinGroup(join) => (join.group_id, join.member_id) = (group, member),
            Request::SyncGroup(sync) => {
                (sync.group_id, sync.member_id, sync.generation_id) = (group, member, generation);
            }
            Request::Heartbeat(beat) => {
                (beat.group_id, beat.member_id, beat.generation_id) = (group, member, generation);
            }
            Request::LeaveGroup(leave) => {
                (leave.group_id, leave.member_id) = (group, member.clone());
                leave.members.iter_mut().for_each(|leaving| leaving.member_id = member.clone());
            }
            Request::OffsetCommit(commit) => {
                (commit.group_id, commit.member_id) = (group, member);
                commit.generation_id_or_member_epoch = generation;
            }
            _ => {}
        }
    }
}

/// A sampled request, made a little more likely to mean something.
fn request(rng: &mut Rng, known: &Known, key: ApiKey, version: i16) -> Request {
    let length = rng.below(300) as usize;
    let source: Vec<u8> = (0..length).map(|_| rng.below(256) as u8).collect();
    let mut request = Request::sample(key, &mut Source::new(&source), version);
    if rng.below(3) > 0 {
        known.apply(rng, &mut request);
    }
    match &mut request {
        Request::Produce(produce) => {
            for data in produce.topic_data.iter_mut().flat_map(|topic| &mut topic.partition_data) {
                if rng.below(4) > 0 {
                    data.records = Some(batch(rng));
                    data.index = rng.below(3) as i32;
                }
            }
        }
        Request::JoinGroup(join) => {
            // Otherwise the longest of all waits is right.
            join.rebalance_timeout_ms = join.rebalance_timeout_ms.clamp(-1, 20);
            if rng.below(4) > 0 {
                join.session_timeout_ms = 100;
                join.protocol_type = "consumer".into();
                join.group_instance_id = None;
                let metadata = vec![0; 10].into();
                join.protocols = vec![JoinGroupRequestProtocol { name: "range".into(), metadata }];
            }
            if rng.below(4) == 0 {
                join.member_id = Text::default();
            }
        }
        _ => {}
    }
    request
}

fn batch(rng: &mut Rng) -> Records {
    let codec = Codec::ALL[rng.below(Codec::ALL.len() as u64) as usize];
    let mut builder = BatchBuilder::new(codec);
    if rng.below(2) == 0 {
        let (id, epoch) = (ProducerId(rng.below(3) as i64), ProducerEpoch(rng.below(3) as i16));
        builder = builder.producer(id, epoch, rng.below(5) as i32);
    }
    for _ in 0..=rng.below(3) {
        builder.append(Timestamp(rng.below(1 << 42) as i64), None, Some(b"value"), []);
    }
    builder.build().chunks().into_iter().collect()
}

struct Asker {
    address: SocketAddr,
    stream: Option<TcpStream>,
    asked: i32,
}

impl Asker {
    async fn ask(&mut self, request: &Request, version: i16) -> Fate {
        self.asked += 1;
        let key = request.key();
        let header = RequestHeader {
            key,
            version,
            correlation_id: self.asked,
            client_id: Some(Text::from_static("sampled")),
        };
        let mut writer = Writer::framed();
        header.encode(&mut writer);
        request.encode(&mut writer, version);
        let bytes = writer.finish().expect("samples are short").concat();
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => TcpStream::connect(self.address).await.expect("the node listens"),
        };
        if stream.write_all(&bytes).await.is_err() {
            return Fate::Closed;
        }
        if matches!(request, Request::Produce(produce) if produce.acks == 0) {
            return Fate::Silent;
        }
        let clock = OsClock::new();
        let late = clock.sleep_until(clock.now().monotonic + PATIENCE);
        let frame = match select(pin!(receive(&mut stream)), late).await {
            Either::Left((Some(frame), _)) => frame,
            Either::Left((None, _)) => return Fate::Closed,
            Either::Right(_) => panic!("no answer to {request:?}"),
        };
        let mut reader = Reader::new(&frame);
        assert_eq!(reader.i32(), Ok(self.asked), "{request:?}");
        if key.response_header_is_flexible(version) {
            assert_eq!(reader.i8(), Ok(0));
        }
        let response = Response::decode(key, &mut reader, version)
            .unwrap_or_else(|error| panic!("{error} in the answer to {request:?}"));
        assert_eq!(reader.remaining(), 0, "{response:?} answers {request:?}");
        self.stream = Some(stream);
        Fate::Answered(response)
    }
}

/// `None` when the node has closed the connection.
async fn receive(stream: &mut TcpStream) -> Option<bytes::Bytes> {
    let mut frames = Frames::new(64 << 20);
    loop {
        if let Some(frame) = frames.next_frame().expect("answers have a length") {
            return Some(frame);
        }
        let room = frames.room().expect("answers have a length");
        match stream.read_buf(room).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_is_answered_whatever_is_in_it() {
    let panics = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&panics);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        counted.fetch_add(1, Ordering::Relaxed);
        usual(info);
    }));
    let node = house::in_memory(&SETTINGS).await;
    let seed = std::env::var("SAMPLED_SEED").ok().and_then(|seed| seed.parse().ok());
    let count = std::env::var("SAMPLED_COUNT").ok().and_then(|count| count.parse().ok());
    let mut rng = Rng::new(seed.unwrap_or(1));
    let mut asker = Asker { address: node.address(), stream: None, asked: 0 };
    let served = served(&mut asker).await;
    let mut known = Known::default();
    let mut closed: BTreeMap<ApiKey, usize> = BTreeMap::new();
    for _ in 0..count.unwrap_or(3000) {
        let key = served[rng.below(served.len() as u64) as usize];
        let versions = key.versions();
        let span = u64::from((versions.end() - versions.start()).unsigned_abs()) + 1;
        let version = versions.start() + rng.below(span) as i16;
        let request = request(&mut rng, &known, key, version);
        match asker.ask(&request, version).await {
            Fate::Answered(response) => known.learn(&request, &response),
            Fate::Silent => {}
            Fate::Closed => *closed.entry(key).or_default() += 1,
        }
        assert_eq!(panics.load(Ordering::Relaxed), 0, "{request:?}");
    }
    // Kafka closes for a refused acks=0 only, which is found out by the request behind it.
    let by_others: usize = closed.values().sum();
    assert!(by_others < 100, "{closed:?}");
    assert!(known.members.iter().any(|(_, _, generation)| *generation > 0), "{known:?}");
    assert!(!known.topics.is_empty() && known.session.0 > 0, "{known:?}");
    let client = house::client(&node);
    house::produce(&client, "afterwards", 0..10).await;
    house::assert_values(&house::consume(&client, "afterwards", 10).await);
    node.shutdown().await.expect("the node stops in good order");
}

/// What the node says it answers.
async fn served(asker: &mut Asker) -> Vec<ApiKey> {
    let request = ApiVersionsRequest::default();
    let Response::ApiVersions(told) = answered(asker, request, 0).await else { unreachable!() };
    let keys: Option<_> = told.api_keys.iter().map(|row| ApiKey::from_code(row.api_key)).collect();
    keys.expect("a node tells what it reads")
}

/// Asks what must be answered.
async fn answered(asker: &mut Asker, request: impl Into<Request>, version: i16) -> Response {
    match asker.ask(&request.into(), version).await {
        Fate::Answered(response) => response,
        fate => panic!("{fate:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_named_often_is_answered_once() {
    let node = house::in_memory(&SETTINGS).await;
    let mut asker = Asker { address: node.address(), stream: None, asked: 0 };
    let topic = MetadataRequestTopic { name: Some("often".into()), ..Default::default() };
    let request = MetadataRequest { topics: Some(vec![topic; 10_000]), ..Default::default() };
    match answered(&mut asker, request, 12).await {
        Response::Metadata(response) => assert_eq!(response.topics.len(), 1),
        other => panic!("{other:?}"),
    }
    let resource = DescribeConfigsResource {
        resource_type: 2,
        resource_name: "often".into(),
        ..Default::default()
    };
    let request =
        DescribeConfigsRequest { resources: vec![resource; 10_000], ..Default::default() };
    match answered(&mut asker, request, 4).await {
        Response::DescribeConfigs(response) => assert_eq!(response.results.len(), 1),
        other => panic!("{other:?}"),
    }
    node.shutdown().await.expect("the node stops in good order");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_is_deleted_by_one_name_only() {
    let node = house::in_memory(&SETTINGS).await;
    house::produce(&house::client(&node), "kept", 0..1).await;
    let mut asker = Asker { address: node.address(), stream: None, asked: 0 };
    let both = DeleteTopicState { name: Some("kept".into()), topic_id: TopicId([7; 16]) };
    let topics = vec![both, DeleteTopicState::default()];
    let request = DeleteTopicsRequest { topics, timeout_ms: 1000, ..Default::default() };
    match answered(&mut asker, request, 6).await {
        Response::DeleteTopics(response) => {
            let codes: Vec<i16> = response.responses.iter().map(|row| row.error_code).collect();
            assert_eq!(codes, [Code::InvalidRequest.code(); 2]);
        }
        other => panic!("{other:?}"),
    }
    house::assert_values(&house::consume(&house::client(&node), "kept", 1).await);
    node.shutdown().await.expect("the node stops in good order");
}

/// Three bytes a topic in the frame, some fifty when taken apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_grow_when_taken_apart_take_turns() {
    let settings = [("request.memory_max", "1MiB"), ("request.bytes_max", "256KiB")];
    let node = house::in_memory(&settings).await;
    let topic = MetadataRequestTopic { name: Some("x".into()), ..Default::default() };
    let request = MetadataRequest {
        topics: Some(vec![topic; 30_000]),
        allow_auto_topic_creation: false,
        ..Default::default()
    };
    let askers = (0..12).map(|_| {
        let (address, request) = (node.address(), request.clone());
        tokio::spawn(async move {
            let mut asker = Asker { address, stream: None, asked: 0 };
            for _ in 0..3 {
                answered(&mut asker, request.clone(), 9).await;
            }
        })
    });
    for asker in askers.collect::<Vec<_>>() {
        asker.await.expect("all are answered");
    }
    node.shutdown().await.expect("the node stops in good order");
}
