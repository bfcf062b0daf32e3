//! Producing, fetching, offsets and metadata.

use bytes::Bytes;
use quorate_core::batch::{BatchBuilder, Codec};
use quorate_core::id::{ProducerEpoch, ProducerId, TopicId};
use quorate_core::time::Timestamp;
use quorate_net::clock::Clock;
use quorate_net::kafka::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsTopic};
use quorate_net::kafka::messages::fetch::{FetchPartition, FetchTopic};
use quorate_net::kafka::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use quorate_net::kafka::messages::metadata::MetadataRequestTopic;
use quorate_net::kafka::messages::offset_for_leader_epoch::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use quorate_net::kafka::messages::produce::{PartitionProduceData, TopicProduceData};
use quorate_net::kafka::messages::{
    DeleteRecordsRequest, FetchRequest, ListOffsetsRequest, MetadataRequest,
    OffsetForLeaderEpochRequest, ProduceRequest,
};
use quorate_net::wire::Records;
use quorate_node::clock::OsClock;

use super::{Case, case, text};

const DAY: i64 = 24 * 3600 * 1000;

fn built(builder: BatchBuilder, times: &[i64], key: Option<&[u8]>) -> Bytes {
    let mut builder = builder;
    for time in times {
        builder.append(Timestamp(*time), key, Some(b"v"), []);
    }
    builder.build().chunks().concat().into()
}

fn plain(time: i64) -> Bytes {
    built(BatchBuilder::new(Codec::None), &[time, time], Some(b"k"))
}

/// One record of producer 88.
fn idempotent(time: i64, epoch: i16, sequence: i32) -> Bytes {
    let builder = BatchBuilder::new(Codec::None);
    let builder = builder.producer(ProducerId(88), ProducerEpoch(epoch), sequence);
    built(builder, &[time], Some(b"k"))
}

fn produce(topic: &str, index: i32, acks: i16, records: Bytes) -> ProduceRequest {
    let data = PartitionProduceData { index, records: Some(Records::from(records)) };
    let (name, partition_data) = (text(topic), vec![data]);
    let topic_data = vec![TopicProduceData { name, partition_data, ..Default::default() }];
    ProduceRequest { acks, timeout_ms: 5000, topic_data, ..Default::default() }
}

fn producing(now: i64) -> Vec<Case> {
    let good = plain(now);
    let mut wrong_checksum = good.to_vec();
    *wrong_checksum.last_mut().expect("there are bytes") ^= 1;
    let mut old_format = good.to_vec();
    old_format[16] = 1;
    let two = Bytes::from([&good[..], &good[..]].concat());
    let cut = good.slice(..good.len() - 3);
    let keyless = built(BatchBuilder::new(Codec::None), &[now], None);
    let late = plain(now + 2 * DAY);
    let changed = |bytes: Vec<u8>| produce("d", 0, -1, bytes.into());
    vec![
        case("produce", 9, produce("d", 0, -1, good.clone()), &[0]),
        case("produce with acks 1", 3, produce("d", 0, 1, good.clone()), &[0]),
        case("produce to no topic", 9, produce("nope", 0, -1, good.clone()), &[3]),
        case("produce to no partition", 9, produce("d", 9, -1, good.clone()), &[3]),
        case("produce to partition -1", 9, produce("d", -1, -1, good.clone()), &[3]),
        case("produce with acks -2", 9, produce("d", 0, -2, good), &[21]),
        case("produce nothing", 9, produce("d", 0, -1, Bytes::new()), &[87]),
        case("produce two batches", 9, produce("d", 0, -1, two), &[87]),
        case("produce half a batch", 9, produce("d", 0, -1, cut), &[87]),
        case("produce a wrong checksum", 9, changed(wrong_checksum), &[2]),
        case("produce an old format", 9, changed(old_format), &[87]),
        case("produce from the future", 9, produce("d", 0, -1, late), &[32]),
        case("produce from 1970", 9, produce("d", 0, -1, plain(1)), &[0]),
        case("produce without a key", 9, produce("c", 0, -1, keyless), &[87]),
        case("sequence 5 first", 9, produce("d", 1, -1, idempotent(now, 0, 5)), &[0]),
        case("sequence 9 next", 9, produce("d", 1, -1, idempotent(now, 0, 9)), &[45]),
        case("sequence 5 again", 9, produce("d", 1, -1, idempotent(now, 0, 5)), &[0]),
        case("epoch 2 at 3", 9, produce("d", 1, -1, idempotent(now, 2, 3)), &[45]),
        case("epoch 2 at 0", 9, produce("d", 1, -1, idempotent(now, 2, 0)), &[0]),
        case("epoch 1 after it", 9, produce("d", 1, -1, idempotent(now, 1, 1)), &[47]),
    ]
}

fn fetch(topic: &str, partition: i32, fetch_offset: i64) -> FetchRequest {
    let wanted = FetchPartition {
        partition,
        fetch_offset,
        partition_max_bytes: 1 << 20,
        ..Default::default()
    };
    let (topic, partitions) = (text(topic), vec![wanted]);
    FetchRequest {
        replica_id: -1,
        max_wait_ms: 100,
        min_bytes: 1,
        topics: vec![FetchTopic { topic, partitions, ..Default::default() }],
        ..Default::default()
    }
}

fn fetching() -> Vec<Case> {
    let mut future = fetch("d", 0, 0);
    future.topics[0].partitions[0].current_leader_epoch = 99;
    let session =
        |session_id, session_epoch| FetchRequest { session_id, session_epoch, ..fetch("d", 0, 0) };
    vec![
        case("fetch", 11, fetch("d", 0, 0), &[0, 0]),
        case("fetch inside a batch", 11, fetch("d", 0, 1), &[0, 0]),
        case("fetch in version 4", 4, fetch("d", 0, 0), &[0, 0]),
        case("fetch at the end", 11, fetch("d", 1, 2), &[0, 0]),
        case("fetch beyond the end", 11, fetch("d", 1, 99), &[0, 1]),
        case("fetch at -5", 11, fetch("d", 1, -5), &[0, 1]),
        case("fetch from no topic", 11, fetch("nope", 0, 0), &[0, 3]),
        case("fetch from no partition", 11, fetch("d", 7, 0), &[0, 3]),
        case("fetch from an unknown id", 13, fetch("d", 0, 0), &[0, 100]),
        case("fetch in a future epoch", 11, future, &[0, 75]),
        case("fetch in an unknown session", 11, session(12345, 3), &[70]),
        case("fetch on in no session", 11, session(0, 5), &[70]),
    ]
}

fn list(topic: &str, partition_index: i32, timestamp: i64) -> ListOffsetsRequest {
    let partition =
        ListOffsetsPartition { partition_index, timestamp, ..ListOffsetsPartition::default() };
    let topics = vec![ListOffsetsTopic { name: text(topic), partitions: vec![partition] }];
    ListOffsetsRequest { replica_id: -1, topics, ..Default::default() }
}

fn epoch(topic: &str, current_leader_epoch: i32, leader_epoch: i32) -> OffsetForLeaderEpochRequest {
    let partition = OffsetForLeaderPartition { partition: 0, current_leader_epoch, leader_epoch };
    let topics = vec![OffsetForLeaderTopic { topic: text(topic), partitions: vec![partition] }];
    OffsetForLeaderEpochRequest { replica_id: -1, topics }
}

fn cut(topic: &str, partition_index: i32, offset: i64) -> DeleteRecordsRequest {
    let partitions = vec![DeleteRecordsPartition { partition_index, offset }];
    let topics = vec![DeleteRecordsTopic { name: text(topic), partitions }];
    DeleteRecordsRequest { topics, timeout_ms: 5000 }
}

fn offsets(now: i64) -> Vec<Case> {
    vec![
        case("the latest", 7, list("d", 0, -1), &[0]),
        case("the earliest", 1, list("d", 0, -2), &[0]),
        case("the largest timestamp", 7, list("d", 0, -3), &[0]),
        case("the largest timestamp, too early", 1, list("d", 0, -3), &[35]),
        case("the earliest here", 10, list("d", 0, -4), &[0]),
        case("the latest elsewhere", 10, list("d", 0, -5), &[0]),
        case("an unknown special time", 10, list("d", 0, -7), &[35]),
        case("an hour from now", 7, list("d", 0, now + DAY), &[0]),
        case("the latest of no topic", 7, list("nope", 0, -1), &[3]),
        case("the latest of no partition", 7, list("d", 9, -1), &[3]),
        case("the end of an epoch", 4, epoch("d", -1, 0), &[0]),
        case("the end of a future epoch", 4, epoch("d", -1, 5), &[0]),
        case("the end, in a future epoch", 4, epoch("d", 7, 0), &[75]),
        case("the end in no topic", 4, epoch("nope", -1, 0), &[3]),
        case("delete records", 2, cut("d", 0, 1), &[0]),
        case("delete all records", 2, cut("d", 1, -1), &[0]),
        case("delete records beyond the end", 2, cut("d", 0, 99), &[1]),
        case("delete records below -1", 2, cut("d", 0, -2), &[1]),
        case("delete records of no topic", 2, cut("nope", 0, 0), &[3]),
        case("delete compacted records", 2, cut("c", 0, 0), &[44]),
        case("fetch what was deleted", 11, fetch("d", 0, 0), &[0, 1]),
    ]
}

fn metadata(name: Option<&str>, topic_id: TopicId) -> MetadataRequest {
    let topic = MetadataRequestTopic { topic_id, name: name.map(text) };
    let topics = Some(vec![topic]);
    MetadataRequest { topics, allow_auto_topic_creation: false, ..Default::default() }
}

pub(crate) fn cases() -> Vec<Case> {
    let now = OsClock::new().now().wall.0;
    let mut cases = vec![
        case("metadata", 12, metadata(Some("d"), TopicId::NONE), &[0, 0, 0, 0]),
        case("metadata of no topic", 12, metadata(Some("nope"), TopicId::NONE), &[3, 0]),
        case("metadata of no name", 12, metadata(Some("a b"), TopicId::NONE), &[17, 0]),
        case("metadata of an unknown id", 12, metadata(None, TopicId([9; 16])), &[100, 0]),
    ];
    cases.extend(producing(now));
    cases.extend(fetching());
    cases.extend(offsets(now));
    cases
}
