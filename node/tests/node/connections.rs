//! Connections at the edges of their limits: frames that are too long, half-written or garbage,
//! too many connections, readers that do not read, and the order of answers.

use crate::house::{assert_values, client, consume, in_memory, pause, produce, soon, until};
use bytes::Bytes;
use quorate_core::batch::{BatchBuilder, Codec};
use quorate_core::time::Timestamp;
use quorate_net::kafka::error::Code;
use quorate_net::kafka::frame::{decode_response, encode_request};
use quorate_net::kafka::header::RequestHeader;
use quorate_net::kafka::messages::fetch::{FetchPartition, FetchTopic};
use quorate_net::kafka::messages::metadata::MetadataRequestTopic;
use quorate_net::kafka::messages::produce::{PartitionProduceData, TopicProduceData};
use quorate_net::kafka::messages::{
    ApiVersionsRequest, FetchRequest, HeartbeatRequest, MetadataRequest, ProduceRequest,
};
use quorate_net::kafka::{ApiKey, Call};
use quorate_net::transport::Stream;
use quorate_net::wire::Text;
use quorate_node::node::RunningNode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) struct Raw {
    pub(crate) stream: Box<dyn Stream>,
}

impl Raw {
    pub(crate) async fn connect(node: &RunningNode) -> Self {
        Self::over(TcpStream::connect(node.address()).await.unwrap())
    }

    pub(crate) fn over(stream: impl Stream) -> Self {
        Self { stream: Box::new(stream) }
    }

    pub(crate) async fn send<R: Call>(&mut self, correlation_id: i32, version: i16, request: &R) {
        let key = R::KEY;
        let header = RequestHeader { key, version, correlation_id, client_id: None };
        for chunk in encode_request(&header, request).unwrap() {
            self.stream.write_all(&chunk).await.unwrap();
        }
    }

    /// In one write.
    async fn send_all(&mut self, requests: &[(i32, ProduceRequest)]) {
        let bytes: Vec<u8> =
            requests.iter().flat_map(|(id, request)| encoded(*id, request)).collect();
        self.stream.write_all(&bytes).await.unwrap();
    }

    async fn frame(&mut self) -> Bytes {
        let length = soon(self.stream.read_u32()).await.unwrap();
        self.body(length as usize).await
    }

    async fn body(&mut self, length: usize) -> Bytes {
        let mut frame = vec![0; length];
        soon(self.stream.read_exact(&mut frame)).await.unwrap();
        Bytes::from(frame)
    }

    /// The response whose length has been read already.
    pub(crate) async fn rest_of_frame<R: Call>(
        &mut self,
        length: usize,
        version: i16,
    ) -> (i32, R::Response) {
        decode_response::<R>(&self.body(length).await, version).unwrap()
    }

    async fn receive<R: Call>(&mut self, version: i16) -> (i32, R::Response) {
        decode_response::<R>(&self.frame().await, version).unwrap()
    }

    pub(crate) async fn ask<R: Call>(&mut self, version: i16, request: &R) -> R::Response {
        self.send(1, version, request).await;
        self.receive::<R>(version).await.1
    }

    /// Whether the node closes the connection without another word.
    async fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        matches!(soon(self.stream.read(&mut byte)).await, Ok(0) | Err(_))
    }
}

/// The bytes of a Produce of version 9.
pub(crate) fn encoded(correlation_id: i32, request: &ProduceRequest) -> Vec<u8> {
    let header =
        RequestHeader { key: ApiKey::Produce, version: 9, correlation_id, client_id: None };
    encode_request(&header, request).unwrap().concat()
}

pub(crate) fn metadata(topic: &str) -> MetadataRequest {
    let topic = MetadataRequestTopic { name: Some(Text::from(topic)), ..Default::default() };
    MetadataRequest { topics: Some(vec![topic]), ..MetadataRequest::default() }
}

pub(crate) fn produce_request(topic: &str, acks: i16, value: &[u8]) -> ProduceRequest {
    let mut batch = BatchBuilder::new(Codec::None);
    batch.append(Timestamp(1), None, Some(value), []);
    let records = batch.build().chunks().into_iter().collect();
    let partition = PartitionProduceData { index: 0, records: Some(records) };
    ProduceRequest {
        acks,
        timeout_ms: 10_000,
        topic_data: vec![TopicProduceData {
            name: Text::from(topic),
            partition_data: vec![partition],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    }
}

pub(crate) fn fetch_request(topic: &str, max_wait_ms: i32) -> FetchRequest {
    let partition = FetchPartition { partition_max_bytes: 1 << 20, ..FetchPartition::default() };
    FetchRequest {
        max_wait_ms,
        min_bytes: 1,
        topics: vec![FetchTopic {
            topic: Text::from(topic),
            partitions: vec![partition],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_requests_are_answered_in_order() {
    let node = in_memory(&[]).await;
    let mut raw = Raw::connect(&node).await;
    raw.ask(9, &metadata("t")).await;
    // A fetch that waits stands between: what follows may not overtake it.
    for round in 0..20 {
        let id = round * 3;
        raw.send(id, 9, &produce_request("t", -1, b"a")).await;
        raw.send(id + 1, 12, &fetch_request("nowhere", 50)).await;
        raw.send(id + 2, 9, &produce_request("t", 1, b"b")).await;
    }
    for round in 0..20 {
        let (id, first) = raw.receive::<ProduceRequest>(9).await;
        assert_eq!(id, round * 3);
        assert_eq!(first.responses[0].partition_responses[0].base_offset, i64::from(round) * 2);
        assert_eq!(raw.receive::<FetchRequest>(12).await.0, round * 3 + 1);
        assert_eq!(raw.receive::<ProduceRequest>(9).await.0, round * 3 + 2);
    }
    // All at once, without waiting for any answer.
    for id in 0..200 {
        raw.send(id, 9, &produce_request("t", -1, b"c")).await;
    }
    for id in 0..200 {
        let (found, response) = raw.receive::<ProduceRequest>(9).await;
        assert_eq!(found, id);
        assert_eq!(response.responses[0].partition_responses[0].base_offset, 40 + i64::from(id));
    }
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_acknowledgement_nothing_is_said_and_errors_close() {
    let node = in_memory(&[]).await;
    let mut raw = Raw::connect(&node).await;
    raw.ask(9, &metadata("t")).await;
    raw.send(1, 9, &produce_request("t", 0, b"a")).await;
    raw.send(2, 9, &produce_request("t", -1, b"b")).await;
    let (id, response) = raw.receive::<ProduceRequest>(9).await;
    assert_eq!((id, response.responses[0].partition_responses[0].base_offset), (2, 1));
    // Refused, with more behind it that will not be looked at.
    raw.send_all(&[
        (3, produce_request("absent", 0, b"c")),
        (4, produce_request("t", 0, b"d")),
        (5, produce_request("t", -1, b"e")),
    ])
    .await;
    assert!(raw.is_closed().await);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_frame_is_taken_and_one_byte_more_closes() {
    let node = in_memory(&[("request.bytes_max", "65536")]).await;
    let mut raw = Raw::connect(&node).await;
    // Metadata version 1 takes any bytes behind its body, so the frame can have any length.
    let mut frame = Vec::new();
    frame.extend_from_slice(&3_i16.to_be_bytes());
    frame.extend_from_slice(&1_i16.to_be_bytes());
    frame.extend_from_slice(&7_i32.to_be_bytes());
    frame.extend_from_slice(&(-1_i16).to_be_bytes());
    frame.extend_from_slice(&0_i32.to_be_bytes());
    frame.resize(65536, 0);
    raw.stream.write_u32(65536).await.unwrap();
    raw.stream.write_all(&frame).await.unwrap();
    assert_eq!(raw.receive::<MetadataRequest>(1).await.0, 7);
    raw.stream.write_u32(65537).await.unwrap();
    assert!(raw.is_closed().await);
    for length in [i32::MAX, -1, i32::MIN] {
        let mut raw = Raw::connect(&node).await;
        raw.stream.write_i32(length).await.unwrap();
        assert!(raw.is_closed().await);
    }
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_and_unknown_requests_close() {
    let node = in_memory(&[]).await;
    let bodies: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\n\r\n",
        // An unknown key; a version of Produce that is advertised and not spoken; a body cut off.
        &[0x7f, 0x7f, 0, 0, 0, 0, 0, 1, 0xff, 0xff],
        &[0, 0, 0, 2, 0, 0, 0, 1, 0xff, 0xff],
        &[0, 3, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xff, 0x0f],
    ];
    for body in bodies {
        let mut raw = Raw::connect(&node).await;
        raw.stream.write_u32(body.len() as u32).await.unwrap();
        raw.stream.write_all(body).await.unwrap();
        assert!(raw.is_closed().await, "{body:?}");
    }
    assert_eq!(node.metrics().connections_given_up.value(), 4);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_of_api_versions_beyond_ours_is_told_ours() {
    let node = in_memory(&[]).await;
    let mut raw = Raw::connect(&node).await;
    let mut frame = vec![0, 18, 0, 9, 0, 0, 0, 5, 0xff, 0xff, 0];
    frame.extend_from_slice(b"whatever");
    raw.stream.write_u32(frame.len() as u32).await.unwrap();
    raw.stream.write_all(&frame).await.unwrap();
    let (id, response) = raw.receive::<ApiVersionsRequest>(0).await;
    assert_eq!((id, response.error_code), (5, Code::UnsupportedVersion.code()));
    let ours = response.api_keys.iter().find(|api| api.api_key == ApiKey::ApiVersions.code());
    assert_eq!(ours.map(|api| (api.min_version, api.max_version)), Some((0, 4)));
    let named = ApiVersionsRequest {
        client_software_name: Text::from("test"),
        client_software_version: Text::from("1"),
    };
    assert_eq!(raw.ask(3, &named).await.error_code, Code::None.code());
    let unnamed = raw.ask(3, &ApiVersionsRequest::default()).await;
    assert_eq!(unnamed.error_code, Code::InvalidRequest.code());
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_too_many_is_closed_and_room_is_made_again() {
    let node = in_memory(&[("network.connections_max", "3")]).await;
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut raw = Raw::connect(&node).await;
        raw.ask(9, &metadata("t")).await;
        open.push(raw);
    }
    assert!(Raw::connect(&node).await.is_closed().await);
    assert_eq!(node.metrics().connections_refused.value(), 1);
    drop(open.pop());
    until(|| node.metrics().connections_open.value() < 3).await;
    Raw::connect(&node).await.ask(9, &metadata("t")).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_and_half_written_connections_end_in_time() {
    let settings = [("network.idle_timeout", "1s"), ("network.receive_timeout", "200ms")];
    let node = in_memory(&settings).await;
    // Enough in each window, and too slow for a frame of this length all the same.
    let mut trickling = Raw::connect(&node).await;
    let trickle = async {
        trickling.stream.write_u32(1 << 20).await?;
        for _ in 0..1000 {
            trickling.stream.write_all(&[0; 2048]).await?;
            pause(10).await;
        }
        std::io::Result::Ok(())
    };
    assert!(soon(trickle).await.is_err());
    let mut half = Raw::connect(&node).await;
    half.stream.write_all(&[0, 0, 1, 0, 0, 3]).await.unwrap();
    let mut dripping = Raw::connect(&node).await;
    let mut idle = Raw::connect(&node).await;
    idle.ask(9, &metadata("t")).await;
    let drip = async {
        dripping.stream.write_all(&[0, 0, 100, 0]).await?;
        for _ in 0..1000 {
            dripping.stream.write_all(&[0]).await?;
            pause(20).await;
        }
        std::io::Result::Ok(())
    };
    // A byte now and then does not keep a connection: the writes fail once it is closed.
    assert!(soon(drip).await.is_err());
    assert!(half.is_closed().await);
    assert!(idle.is_closed().await);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_announced_bytes_hold_almost_no_memory() {
    let settings = [("request.bytes_max", "1MiB"), ("request.memory_max", "4MiB")];
    let node = in_memory(&settings).await;
    let mut halves = Vec::new();
    for _ in 0..200 {
        let mut half = Raw::connect(&node).await;
        half.stream.write_u32(1 << 20).await.unwrap();
        half.stream.write_all(&[0; 2000]).await.unwrap();
        halves.push(half);
    }
    let client = client(&node);
    produce(&client, "t", 0..2000).await;
    let large = produce_request("t", -1, &vec![b'x'; 900_000]);
    let response = Raw::connect(&node).await.ask(9, &large).await;
    assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
    assert!(node.memory_held().0 < 1 << 20, "{:?}", node.memory_held());
    drop(halves);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_is_given_up_and_others_are_served() {
    let settings = [("network.send_timeout", "300ms"), ("request.answer_memory_max", "4MiB")];
    let node = in_memory(&settings).await;
    let client = client(&node);
    let mut raw = Raw::connect(&node).await;
    raw.ask(9, &metadata("large")).await;
    for _ in 0..30 {
        raw.ask(9, &produce_request("large", -1, &vec![b'x'; 500_000])).await;
    }
    let mut slow = Vec::new();
    for number in 0..16 {
        let mut reader = Raw::connect(&node).await;
        let mut request = fetch_request("large", 0);
        if number % 2 == 1 {
            // A batch goes out even so, and its memory is counted.
            request.topics[0].partitions[0].partition_max_bytes = 1;
        }
        for id in 0..40 {
            reader.send(id, 11, &request).await;
        }
        slow.push(reader);
    }
    produce(&client, "small", 0..100).await;
    assert_values(&consume(&client, "small", 100).await);
    assert!(node.memory_held().1 <= 4 << 20, "{:?}", node.memory_held());
    until(|| node.metrics().connections_given_up.value() >= 16).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_answers_what_was_begun() {
    let node = in_memory(&[]).await;
    let mut raw = Raw::connect(&node).await;
    raw.ask(9, &metadata("t")).await;
    for id in 0..50 {
        raw.send(id, 9, &produce_request("t", -1, b"a")).await;
    }
    assert_eq!(raw.receive::<ProduceRequest>(9).await.0, 0);
    let mut waiting = Raw::connect(&node).await;
    waiting.send(1, 12, &fetch_request("t", 60_000)).await;
    waiting.receive::<FetchRequest>(12).await;
    let stopping = tokio::spawn(node.shutdown());
    let mut answered = 1;
    while let Ok(length) = soon(raw.stream.read_u32()).await {
        let mut frame = vec![0; length as usize];
        raw.stream.read_exact(&mut frame).await.unwrap();
        answered += 1;
    }
    assert!((1..=50).contains(&answered));
    soon(stopping).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_to_nobody_is_answered() {
    let node = in_memory(&[]).await;
    let mut raw = Raw::connect(&node).await;
    let beat = HeartbeatRequest { group_id: Text::from("g"), ..HeartbeatRequest::default() };
    assert_eq!(raw.ask(3, &beat).await.error_code, Code::NotCoordinator.code());
    node.shutdown().await.unwrap();
}
