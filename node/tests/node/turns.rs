//! Who waits for whom, in a world whose time stands still: nobody waits for what is not his.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::batch::{BatchBuilder, Codec, split};
use quorate_core::time::Timestamp;
use quorate_net::kafka::messages::create_topics::CreatableTopic;
use quorate_net::kafka::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsTopic};
use quorate_net::kafka::messages::delete_topics::DeleteTopicState;
use quorate_net::kafka::messages::{
    CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest, FetchRequest,
};
use quorate_net::wire::Text;
use quorate_node::disk::memory::MemoryDisk;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::connections::{Raw, fetch_request, metadata, produce_request};
use crate::house::{MIB, soon};
use crate::still::{MemoryNetwork, settle, still, still_on};
use crate::watched::{Watched, hold};

async fn create(network: &MemoryNetwork, name: &str, num_partitions: i32) {
    let topic = CreatableTopic {
        name: Text::from(name),
        num_partitions,
        replication_factor: -1,
        ..CreatableTopic::default()
    };
    let request =
        CreateTopicsRequest { topics: vec![topic], timeout_ms: 10_000, ..Default::default() };
    let created = Raw::over(network.open()).ask(5, &request).await;
    assert_eq!(created.topics[0].error_code, 0);
}

/// One record to a partition.
async fn write(network: &MemoryNetwork, topic: &str, index: i32, value: &[u8]) {
    let mut request = produce_request(topic, -1, value);
    request.topic_data[0].partition_data[0].index = index;
    let written = Raw::over(network.open()).ask(9, &request).await;
    assert_eq!(written.responses[0].partition_responses[0].error_code, 0);
}

/// Each of two partitions has less than is missing, both together have enough.
#[tokio::test]
async fn a_fetch_that_waits_for_much_is_answered_when_all_together_have_it() {
    let (_node, network, _clock) = still(&[]).await;
    create(&network, "two", 2).await;
    let mut request = fetch_request("two", 60_000);
    request.min_bytes = 1000;
    let mut second = request.topics[0].partitions[0].clone();
    second.partition = 1;
    request.topics[0].partitions.push(second);
    let mut reader = Raw::over(network.open());
    reader.send(1, 11, &request).await;
    settle().await;
    write(&network, "two", 0, &[b'x'; 600]).await;
    write(&network, "two", 1, &[b'x'; 600]).await;
    let length = soon(reader.stream.read_u32()).await.unwrap() as usize;
    let (_, response) = reader.rest_of_frame::<FetchRequest>(length, 11).await;
    let partitions = &response.responses[0].partitions;
    let bytes = partitions.iter().map(|found| found.records.as_ref().map_or(0, |read| read.len()));
    assert!(bytes.sum::<usize>() >= 1000);
}

/// While not one file can be removed, a topic is deleted and the next one is shown.
#[tokio::test]
async fn the_next_topics_do_not_wait_until_the_files_of_the_last_are_gone() {
    let watched = Watched::new(MemoryDisk::ephemeral(512 * MIB));
    let seen = Arc::clone(&watched.seen);
    let disk = Arc::into_inner(watched).expect("the only handle");
    let (node, network, _clock) = still_on(disk, &[]).await;
    create(&network, "first", 1).await;
    write(&network, "first", 0, b"x").await;
    let held = hold(&seen.removals);
    let state = DeleteTopicState { name: Some(Text::from("first")), ..Default::default() };
    let delete =
        DeleteTopicsRequest { topics: vec![state], timeout_ms: 10_000, ..Default::default() };
    let deleted = Raw::over(network.open()).ask(6, &delete).await;
    assert_eq!(deleted.responses[0].error_code, 0);
    settle().await;
    create(&network, "second", 1).await;
    write(&network, "second", 0, b"x").await;
    seen.removals.add_permits(held);
    soon(node.shutdown()).await.unwrap();
}

/// A client asks, begins another frame, and ends its side. It is slow to take its answer, but not
/// too slow: that its frame stays half is nothing that the node waits for.
#[tokio::test]
async fn whoever_has_left_takes_its_answer_though_its_last_frame_is_half() {
    let settings = [("network.receive_timeout", "1s"), ("network.send_timeout", "60s")];
    let (_node, network, clock) = still(&settings).await;
    create(&network, "large", 1).await;
    write(&network, "large", 0, &[b'x'; 300_000]).await;
    let mut reader = Raw::over(network.open());
    reader.send(7, 11, &fetch_request("large", 0)).await;
    reader.stream.write_all(&[0, 0, 1, 0, 0, 3]).await.unwrap();
    reader.stream.shutdown().await.unwrap();
    settle().await;
    for _ in 0..5 {
        clock.advance(Duration::from_secs(1));
        settle().await;
    }
    let length = soon(reader.stream.read_u32()).await.unwrap() as usize;
    let (id, response) = reader.rest_of_frame::<FetchRequest>(length, 11).await;
    assert_eq!(id, 7);
    let records = response.responses[0].partitions[0].records.clone().unwrap();
    assert!(records.len() > 300_000);
}

/// Two large records in one batch.
fn pair_of_records() -> Bytes {
    let mut batch = BatchBuilder::new(Codec::None);
    for _ in 0..2 {
        batch.append(Timestamp(1), None, Some(&[b'x'; 250_000]), []);
    }
    batch.build().chunks().into_iter().flatten().collect()
}

/// An answer's records were given up for others; meanwhile the log's start moves into the midst of
/// their batch. The client goes on, and gets the whole batch.
#[tokio::test]
async fn a_batch_across_the_logs_start_is_read_again() {
    let settings = [("request.answer_memory_max", "4MiB"), ("fetch.bytes_max", "2MiB")];
    let (node, network, _clock) = still(&settings).await;
    create(&network, "large", 1).await;
    let mut request = produce_request("large", -1, b"");
    request.topic_data[0].partition_data[0].records =
        Some([pair_of_records()].into_iter().collect());
    let written = Raw::over(network.open()).ask(9, &request).await;
    assert_eq!(written.responses[0].partition_responses[0].error_code, 0);
    let mut readers = Vec::new();
    for id in 0..30 {
        let mut reader = Raw::over(network.open());
        reader.send(id, 11, &fetch_request("large", 0)).await;
        let length = soon(reader.stream.read_u32()).await.unwrap() as usize;
        assert!(length > 500_000);
        readers.push((reader, length));
    }
    let partition = DeleteRecordsPartition { partition_index: 0, offset: 1 };
    let topic = DeleteRecordsTopic { name: Text::from("large"), partitions: vec![partition] };
    let delete = DeleteRecordsRequest { topics: vec![topic], timeout_ms: 10_000 };
    let deleted = Raw::over(network.open()).ask(1, &delete).await;
    assert_eq!(deleted.topics[0].partitions[0].low_watermark, 1);
    for (number, (mut reader, length)) in readers.into_iter().enumerate() {
        let (id, response) = reader.rest_of_frame::<FetchRequest>(length, 11).await;
        assert_eq!(id, number as i32);
        let records = response.responses[0].partitions[0].records.clone().unwrap();
        for batch in split(records.into_bytes()) {
            batch.unwrap().verify().unwrap();
        }
    }
    assert_eq!(node.metrics().connections_given_up.value(), 0);
    Raw::over(network.open()).ask(9, &metadata("large")).await;
}

/// A full disk keeps the node from writing down what time it is, and from nothing else.
#[tokio::test]
async fn a_clock_that_cannot_be_written_down_stops_nobody() {
    let watched = Watched::new(MemoryDisk::tracked(512 * MIB));
    let seen = Arc::clone(&watched.seen);
    seen.clock_is_full.store(true, Ordering::SeqCst);
    let disk = Arc::into_inner(watched).expect("the only handle");
    let (node, network, clock) = still_on(disk, &[]).await;
    settle().await;
    create(&network, "first", 1).await;
    clock.advance(Duration::from_secs(301));
    settle().await;
    write(&network, "first", 0, b"x").await;
    soon(node.shutdown()).await.unwrap();
}
