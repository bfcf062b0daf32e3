//! How fast messages are read and written, beside `kafka-protocol`: `cargo bench -p quorate-net`. A
//! line a case, the best of several rounds, so that a busy machine disturbs little.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as oracle;
use kafka_protocol::protocol::{Decodable, Encodable};
use quorate_net::kafka::frame::encode_body;
use quorate_net::kafka::messages::{
    FetchResponse, MetadataResponse, ProduceRequest, fetch, metadata, produce,
};
use quorate_net::kafka::{Message, messages};
use quorate_net::wire::{Reader, Records, Text};

const ROUNDS: u32 = 7;

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn time(work: &mut impl FnMut()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

#[expect(clippy::print_stdout, reason = "a bench reports")]
fn report(line: &str) {
    println!("{line}");
}

/// Nanoseconds that `work` takes once.
fn measure(mut work: impl FnMut()) -> u128 {
    let once = time(&mut work).max(Duration::from_nanos(50));
    let turns = (Duration::from_millis(40).as_nanos() / once.as_nanos()).clamp(1, 1_000_000);
    let mut round = || (0..turns).for_each(|_| work());
    let best = (0..ROUNDS).map(|_| time(&mut round)).min().expect("there are rounds");
    best.as_nanos() / turns
}

/// One message in both codecs, read and written.
fn compare<M: Message, O: Decodable + Encodable>(name: &str, message: &M, version: i16) {
    let bytes = Bytes::from(encode_body(message, version).expect("it is short").concat());
    let read = measure(|| {
        black_box(M::decode(&mut Reader::new(&bytes), version)).expect("it is whole");
    });
    let write = measure(|| {
        black_box(encode_body(message, version)).expect("it is short");
    });
    let theirs = O::decode(&mut bytes.clone(), version).expect("it is whole");
    let their_read = measure(|| {
        black_box(O::decode(&mut bytes.clone(), version)).expect("it is whole");
    });
    let their_write = measure(|| {
        let mut out = BytesMut::new();
        theirs.encode(&mut out, version).expect("it can be written");
        black_box(out);
    });
    report(&format!(
        "{name:<34} {:>7} bytes  read {read:>7} ns ({their_read:>7})  write {write:>7} ns \
         ({their_write:>7})",
        bytes.len()
    ));
}

fn produce(partitions: i32, record_bytes: usize) -> ProduceRequest {
    let data = |index| produce::PartitionProduceData {
        index,
        records: Some(Records::from(Bytes::from(vec![7; record_bytes]))),
    };
    ProduceRequest {
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![produce::TopicProduceData {
            name: Text::from_static("a-topic-of-usual-length"),
            partition_data: (0..partitions).map(data).collect(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn fetch(partitions: i32, record_bytes: usize) -> FetchResponse {
    let data = |index| fetch::PartitionData {
        partition_index: index,
        high_watermark: 1_000_000,
        last_stable_offset: 1_000_000,
        records: Some(Records::from(Bytes::from(vec![7; record_bytes]))),
        ..Default::default()
    };
    FetchResponse {
        responses: vec![fetch::FetchableTopicResponse {
            topic: Text::from_static("a-topic-of-usual-length"),
            partitions: (0..partitions).map(data).collect(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn metadata(topics: i32) -> MetadataResponse {
    let partition = |index| metadata::MetadataResponsePartition {
        partition_index: index,
        replica_nodes: vec![1, 2, 3],
        isr_nodes: vec![1, 2, 3],
        ..Default::default()
    };
    let topic = |number| metadata::MetadataResponseTopic {
        name: Some(Text::from(format!("topic-{number}"))),
        partitions: (0..10).map(partition).collect(),
        ..Default::default()
    };
    MetadataResponse { topics: (0..topics).map(topic).collect(), ..Default::default() }
}

fn main() {
    // `cargo test --benches` runs this too, and wants to know only that it compiles.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    report("in parentheses: kafka-protocol");
    type Produce = oracle::ProduceRequest;
    type Fetch = oracle::FetchResponse;
    compare::<_, Produce>("Produce 9, 1 partition of 1 KiB", &produce(1, 1024), 9);
    compare::<_, Produce>("Produce 9, 10 partitions of 16 KiB", &produce(10, 16 << 10), 9);
    compare::<_, Fetch>("Fetch 12, 1 partition of 1 KiB", &fetch(1, 1024), 12);
    compare::<_, Fetch>("Fetch 12, 50 partitions of 16 KiB", &fetch(50, 16 << 10), 12);
    compare::<_, oracle::MetadataResponse>("Metadata 12, 1000 partitions", &metadata(100), 12);
    let empty = messages::HeartbeatResponse::default();
    compare::<_, oracle::HeartbeatResponse>("Heartbeat 4 response", &empty, 4);
}
