//! Clients that stand still in the middle of things, more of them than there is memory for, in a
//! world whose time stands still as well: no timeout helps, and others are served all the same.

use std::time::Duration;

use quorate_core::batch::split;
use quorate_net::kafka::messages::create_topics::CreatableTopic;
use quorate_net::kafka::messages::{
    CreateTopicsRequest, FetchRequest, MetadataRequest, ProduceRequest,
};
use quorate_net::wire::Text;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::connections::{Raw, encoded, fetch_request, metadata, produce_request};
use crate::house::soon;
use crate::still::{MemoryNetwork, settle, still};

const BATCH: usize = 500_000;

async fn fill(network: &MemoryNetwork, topic: &str, batches: usize) {
    let mut raw = Raw::over(network.open());
    raw.ask(9, &metadata(topic)).await;
    for _ in 0..batches {
        let filled = raw.ask(9, &produce_request(topic, -1, &vec![b'x'; BATCH])).await;
        assert_eq!(filled.responses[0].partition_responses[0].error_code, 0);
    }
}

/// A write and a read by a client that behaves.
async fn serve_others(network: &MemoryNetwork, value: &[u8]) {
    let mut raw = Raw::over(network.open());
    raw.ask(9, &metadata("small")).await;
    let written = raw.ask(9, &produce_request("small", -1, value)).await;
    assert_eq!(written.responses[0].partition_responses[0].error_code, 0);
    let mut request = fetch_request("small", 0);
    request.topics[0].partitions[0].fetch_offset =
        written.responses[0].partition_responses[0].base_offset;
    let read = raw.ask(11, &request).await;
    let records = read.responses[0].partitions[0].records.clone().unwrap();
    assert!(records.len() > value.len());
}

#[tokio::test]
async fn readers_that_do_not_read_hold_nothing_that_others_need() {
    let settings = [("request.answer_memory_max", "4MiB"), ("fetch.bytes_max", "2MiB")];
    let (node, network, _clock) = still(&settings).await;
    fill(&network, "large", 8).await;
    // Ten times what there is memory for. Each is answered: it has the beginning of its frame.
    let mut readers = Vec::new();
    for number in 0..40 {
        let mut reader = Raw::over(network.open());
        let mut request = fetch_request("large", 0);
        // Some ask for little, and get a whole batch all the same.
        let bytes = [1 << 20, 2 << 20, 1][number % 3];
        request.topics[0].partitions[0].partition_max_bytes = bytes;
        reader.send(number as i32, 11, &request).await;
        let length = soon(reader.stream.read_u32()).await.unwrap() as usize;
        assert!(length > BATCH);
        readers.push((reader, length));
        let (_, answers) = node.memory_held();
        assert!(answers <= 4 << 20, "{answers}");
    }
    soon(serve_others(&network, b"canary")).await;
    soon(serve_others(&network, &vec![b'y'; 400_000])).await;
    // Those who come back to their senses find everything in its place.
    for (number, (mut reader, length)) in readers.into_iter().enumerate() {
        let response = reader.rest_of_frame::<FetchRequest>(length, 11).await;
        assert_eq!(response.0, number as i32);
        let records = response.1.responses[0].partitions[0].records.clone().unwrap();
        let mut batches = 0;
        for batch in split(records.into_bytes()) {
            batch.unwrap().verify().unwrap();
            batches += 1;
        }
        assert!(batches >= 1);
    }
    assert_eq!(node.memory_held().1, 0);
    assert_eq!(node.metrics().connections_given_up.value(), 0);
}

/// A batch larger than its partition's share is lent memory for itself. What is read behind it once
/// went by the larger loan that it had given up, so an answer could hold 48 times what it was lent.
#[tokio::test]
async fn an_answer_holds_no_more_than_it_was_lent() {
    let settings = [("request.answer_memory_max", "64MiB"), ("fetch.bytes_max", "8MiB")];
    let (_node, network, _clock) = still(&settings).await;
    fill(&network, "large", 1).await;
    fill(&network, "more", 8).await;
    let mut request = fetch_request("large", 0);
    request.topics[0].partitions[0].partition_max_bytes = 1;
    request.topics.extend(fetch_request("more", 0).topics);
    request.topics[1].partitions[0].partition_max_bytes = 8 << 20;
    request.max_bytes = 8 << 20;
    let mut raw = Raw::over(network.open());
    let read = raw.ask(11, &request).await;
    let partitions = read.responses.iter().flat_map(|topic| &topic.partitions);
    let bytes: Vec<usize> =
        partitions.map(|found| found.records.as_ref().map_or(0, |records| records.len())).collect();
    let whole_batch = 1_048_588;
    assert!(bytes[0] > BATCH && bytes.iter().sum::<usize>() <= whole_batch, "{bytes:?}");
}

#[tokio::test]
async fn answers_that_cannot_be_read_again_are_bounded_too() {
    let (node, network, _clock) = still(&[("request.answer_memory_max", "1MiB")]).await;
    let topic = CreatableTopic {
        name: Text::from("many"),
        num_partitions: 500,
        replication_factor: -1,
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest {
        topics: vec![topic],
        timeout_ms: 10_000,
        ..CreateTopicsRequest::default()
    };
    let created = Raw::over(network.open()).ask(5, &request).await;
    assert_eq!(created.topics[0].error_code, 0);
    settle().await;
    // Some 15 kB each; 256 KiB may rest.
    let mut deaf = Vec::new();
    for id in 0..60 {
        let mut raw = Raw::over(network.open());
        raw.send(id, 9, &metadata("many")).await;
        let length = soon(raw.stream.read_u32()).await.unwrap() as usize;
        assert!(length > 8_000, "{length}");
        deaf.push((raw, length));
        settle().await;
    }
    let given_up = node.metrics().connections_given_up.value();
    assert!((10..60).contains(&given_up), "{given_up}");
    // Those that had rested longest are gone, the last ones go on.
    let (mut last, length) = deaf.pop().unwrap();
    assert_eq!(last.rest_of_frame::<MetadataRequest>(length, 9).await.0, 59);
    soon(serve_others(&network, b"canary")).await;
}

#[tokio::test]
async fn senders_that_stop_half_way_make_room_when_others_need_it() {
    let settings = [("request.bytes_max", "1MiB"), ("request.memory_max", "4MiB")];
    let (node, network, clock) = still(&settings).await;
    let mut halves = Vec::new();
    // Three frames fit the large pool; three more wait for it.
    for _ in 0..6 {
        let mut half = network.open();
        half.write_u32(1 << 20).await.unwrap();
        soon(half.write_all(&vec![0; 60_000])).await.unwrap();
        settle().await;
        // Three of them come this far.
        tokio::select! {
            biased;
            sent = half.write_all(&[0; 100_000]) => sent.unwrap(),
            () = settle() => {}
        }
        halves.push(half);
    }
    settle().await;
    let mut raw = Raw::over(network.open());
    raw.ask(9, &metadata("small")).await;
    let large = produce_request("small", -1, &vec![b'y'; 400_000]);
    let asked = async { raw.ask::<ProduceRequest>(9, &large).await };
    tokio::pin!(asked);
    let mut waited = Duration::ZERO;
    let written = loop {
        tokio::select! {
            biased;
            written = &mut asked => break written,
            () = settle() => {}
        }
        assert!(waited <= Duration::from_secs(2), "others wait for those who stand still");
        clock.advance(Duration::from_millis(50));
        waited += Duration::from_millis(50);
    };
    assert_eq!(written.responses[0].partition_responses[0].error_code, 0);
    assert!(node.metrics().connections_given_up.value() >= 3);
    // Those who hold the memory, and those who got it after them.
    assert!(waited <= Duration::from_millis(1300), "{waited:?}");
}

/// Two connections had read ahead under a permit of as much as their last frame had, found the next
/// larger, and kept what they held while they waited for more: both for ever, and with them
/// everybody else. No timeout helped, as neither client was to blame.
#[tokio::test]
async fn frames_larger_than_what_was_read_ahead_do_not_wait_for_one_another() {
    let settings = [("request.bytes_max", "128KiB"), ("request.memory_max", "256KiB")];
    let (node, network, _clock) = still(&settings).await;
    let (mut one, mut two) = (Raw::over(network.open()), Raw::over(network.open()));
    one.ask(9, &metadata("small")).await;
    for raw in [&mut one, &mut two] {
        // The next read is of so much and a little more: 24 KiB of the 64 there are.
        raw.ask(9, &produce_request("small", -1, &vec![b'a'; 20_000])).await;
    }
    let larger = encoded(1, &produce_request("small", -1, &vec![b'b'; 45_000]));
    let (begins, rest) = larger.split_at(1000);
    for raw in [&mut one, &mut two] {
        raw.stream.write_all(begins).await.unwrap();
        settle().await;
    }
    let finish = async |raw: &mut Raw| {
        raw.stream.write_all(rest).await.unwrap();
        let length = raw.stream.read_u32().await.unwrap() as usize;
        raw.rest_of_frame::<ProduceRequest>(length, 9).await.1
    };
    let both = async { tokio::join!(finish(&mut one), finish(&mut two)) };
    let (one, two) = soon(both).await;
    for written in [one, two] {
        assert_eq!(written.responses[0].partition_responses[0].error_code, 0);
    }
    settle().await;
    assert_eq!(node.memory_held().0, 0);
}
