//! Fetch sessions against the rules of KIP-227.

use quorate_net::kafka::messages::fetch::{ForgottenTopic, PartitionData};
use quorate_net::wire::{Records, Text};

use super::*;

const IDLE: Duration = Duration::from_secs(120);

fn sessions(sessions_max: usize, partitions_max: usize) -> FetchSessions {
    FetchSessions::new(sessions_max, partitions_max, IDLE, 7)
}

fn request(session_id: i32, session_epoch: i32, indexes: &[i32]) -> FetchRequest {
    let partitions = indexes.iter().map(|&partition| FetchPartition {
        partition,
        fetch_offset: 10,
        partition_max_bytes: 1000,
        ..FetchPartition::default()
    });
    let topics = if indexes.is_empty() {
        Vec::new()
    } else {
        vec![FetchTopic {
            topic: Text::from("t"),
            partitions: partitions.collect(),
            ..FetchTopic::default()
        }]
    };
    FetchRequest { session_id, session_epoch, topics, ..FetchRequest::default() }
}

fn read(index: i32, high_watermark: i64, records: &'static [u8]) -> Read {
    Read {
        topic: TopicKey { name: Text::from("t"), ..TopicKey::default() },
        data: PartitionData {
            partition_index: index,
            high_watermark,
            log_start_offset: 0,
            records: Some(Records::from(bytes::Bytes::from_static(records))),
            ..PartitionData::default()
        },
        source: None,
        log: None,
        next: Offset(10),
    }
}

fn indexes(rows: &[Read]) -> Vec<i32> {
    rows.iter().map(|read| read.data.partition_index).collect()
}

fn wanted_indexes(context: &Context) -> Vec<i32> {
    context.wanted().iter().map(|wanted| wanted.index).collect()
}

#[test]
fn only_news_are_told_and_who_had_records_goes_last() {
    let sessions = sessions(10, 100);
    let first = sessions.open(Instant::ZERO, 12, &request(0, INITIAL, &[0, 1, 2])).unwrap();
    assert_ne!(first.session_id(), 0);
    let rows = vec![read(0, 5, b""), read(1, 5, b"x"), read(2, 5, b"")];
    assert_eq!(indexes(&sessions.close(&first, rows)), [0, 1, 2], "the first answer has all");

    let next = sessions.open(Instant::ZERO, 12, &request(first.session_id(), 1, &[])).unwrap();
    assert_eq!(wanted_indexes(&next), [0, 2, 1]);
    let rows = vec![read(0, 5, b""), read(2, 6, b""), read(1, 5, b"")];
    assert_eq!(indexes(&sessions.close(&next, rows)), [2], "its high watermark moved");
}

#[test]
fn partitions_are_added_changed_and_forgotten() {
    let sessions = sessions(10, 100);
    let first = sessions.open(Instant::ZERO, 12, &request(0, INITIAL, &[0, 1])).unwrap();
    let mut second = request(first.session_id(), 1, &[1, 2]);
    second.topics[0].partitions[0].fetch_offset = 77;
    second.forgotten_topics_data =
        vec![ForgottenTopic { topic: Text::from("t"), partitions: vec![0], ..Default::default() }];
    let context = sessions.open(Instant::ZERO, 12, &second).unwrap();
    assert_eq!(wanted_indexes(&context), [1, 2]);
    assert_eq!(context.wanted()[0].from, Offset(77));
}

#[test]
fn what_does_not_fit_the_session_is_refused() {
    let sessions = sessions(10, 100);
    let first = sessions.open(Instant::ZERO, 12, &request(0, INITIAL, &[0])).unwrap();
    let id = first.session_id();
    let code = |version, request| sessions.open(Instant::ZERO, version, &request).unwrap_err();
    assert_eq!(code(12, request(id + 1, 1, &[])), Code::FetchSessionIdNotFound);
    assert_eq!(code(12, request(id, 2, &[])), Code::InvalidFetchSessionEpoch);
    assert_eq!(code(13, request(id, 1, &[])), Code::FetchSessionTopicIdError);
    // The last word closes it.
    let last = sessions.open(Instant::ZERO, 12, &request(id, FINAL, &[0])).unwrap();
    assert_eq!((last.session_id(), wanted_indexes(&last)), (0, vec![0]));
    assert_eq!(code(12, request(id, 1, &[])), Code::FetchSessionIdNotFound);
}

#[test]
fn a_full_table_makes_room_only_for_who_waited() {
    let sessions = sessions(1, 3);
    let first = sessions.open(Instant::ZERO, 12, &request(0, INITIAL, &[0])).unwrap();
    let early = Instant::ZERO + IDLE - Duration::from_millis(1);
    let without = sessions.open(early, 12, &request(0, INITIAL, &[0])).unwrap();
    assert_eq!(without.session_id(), 0, "nobody is idle long enough");
    let second = sessions.open(Instant::ZERO + IDLE, 12, &request(0, INITIAL, &[0])).unwrap();
    assert_ne!(second.session_id(), 0);
    let gone = sessions.open(Instant::ZERO, 12, &request(first.session_id(), 1, &[]));
    assert_eq!(gone.unwrap_err(), Code::FetchSessionIdNotFound);
    // Too many partitions: neither a new session nor a growing one holds them.
    let now = Instant::ZERO + IDLE;
    let grown = sessions.open(now, 12, &request(second.session_id(), 1, &[1, 2, 3])).unwrap();
    assert_eq!((grown.session_id(), grown.wanted().len()), (0, 4));
    let large = sessions.open(now, 12, &request(0, INITIAL, &[0, 1, 2, 3])).unwrap();
    assert_eq!(large.session_id(), 0);
}
