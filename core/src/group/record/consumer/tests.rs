//! The bytes of Kafka 4.4's own classes (`ConsumerGroupMetadataKey` and its kin), and bytes that
//! are not.

use super::super::Entry;
use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|place| u8::from_str_radix(&hex[place..place + 2], 16).unwrap())
        .collect()
}

const TOPIC: TopicId = TopicId([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);

fn member(classic: Option<ClassicMember>) -> ConsumerMember {
    ConsumerMember {
        client_id: "c".to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        rebalance_timeout: Duration::from_secs(60),
        classic,
        ..ConsumerMember::default()
    }
}

fn cases() -> Vec<(ConsumerEntry, &'static str, &'static str)> {
    let topic = TopicInfo { id: TOPIC, partitions: 3 };
    let range = Protocol { name: "range".to_owned(), metadata: Bytes::from_static(&[1, 2]) };
    let m1 = || "m1".to_owned();
    let two: Assignment = [(TOPIC, 0), (TOPIC, 2)].into_iter().collect();
    vec![
        (ConsumerEntry::Epoch(Some(5)), "0003000167", "00000000000500"),
        (
            ConsumerEntry::Topics(Some([("orders".to_owned(), topic)].into())),
            "0004000167",
            "0000020102030405060708090a0b0c0d0e0f10076f726465727300000003010000",
        ),
        (
            ConsumerEntry::Member(
                m1(),
                Some(ConsumerMember {
                    rack: Some("r".to_owned()),
                    topics: vec!["orders".to_owned(), "bills".to_owned()],
                    regex: Some("a.*".to_owned()),
                    assignor: Some("uniform".to_owned()),
                    ..member(None)
                }),
            ),
            "000500016700026d31",
            "000000027202630b2f3132372e302e302e3103076f72646572730662696c6c7304612e2a0000ea60\
             08756e69666f726d00",
        ),
        (
            ConsumerEntry::Member(
                m1(),
                Some(ConsumerMember {
                    instance: Some("i".to_owned()),
                    topics: vec!["orders".to_owned()],
                    ..member(Some(ClassicMember {
                        session_timeout: Duration::from_secs(10),
                        protocols: vec![range],
                    }))
                }),
            ),
            "000500016700026d31",
            "000002690002630b2f3132372e302e302e3102076f7264657273000000ea60000100110100002710\
             020672616e67650301020000",
        ),
        (ConsumerEntry::TargetEpoch(Some(5)), "0006000167", "00000000000500"),
        (
            ConsumerEntry::Target(m1(), Some(two.clone())),
            "000700016700026d31",
            "0000020102030405060708090a0b0c0d0e0f100300000000000000020000",
        ),
        (
            ConsumerEntry::Current(
                m1(),
                Some(Current {
                    epoch: 5,
                    previous_epoch: 4,
                    progress: Progress::Unrevoked,
                    assigned: two,
                    revoking: [(TOPIC, 1)].into_iter().collect(),
                }),
            ),
            "000800016700026d31",
            "0000000000050000000402020102030405060708090a0b0c0d0e0f1003000000000000000200\
             020102030405060708090a0b0c0d0e0f1002000000010000",
        ),
    ]
}

#[test]
fn records_have_the_bytes_of_kafkas() {
    for (entry, key, value) in cases() {
        let entry = Entry::Consumer { group: "g".to_owned(), entry };
        assert_eq!(entry.key(), bytes(key));
        assert_eq!(entry.value(), Some(bytes(value)), "{entry:?}");
        assert_eq!(Entry::decode(&bytes(key), Some(&bytes(value))), Ok(entry));
    }
}

#[test]
fn tags_of_a_later_build_are_skipped() {
    // With Kafka's hash of the topics.
    let value = bytes("000000000005010008000000000000004d");
    let entry = ConsumerEntry::Epoch(Some(5));
    let read = Entry::decode(&bytes("0003000167"), Some(&value));
    assert_eq!(read, Ok(Entry::Consumer { group: "g".to_owned(), entry }));
}

#[test]
fn bytes_cut_short_or_too_many_are_malformed() {
    for (_, key, value) in cases() {
        let (key, value) = (bytes(key), bytes(value));
        assert!(Entry::decode(&key, None).is_ok(), "a record without value forgets");
        for end in 0..value.len() {
            let cut = Entry::decode(&key, Some(&value[..end]));
            assert_eq!(cut, Err(RecordFlaw::Malformed), "{end}");
        }
        let longer = [&value[..], &[0]].concat();
        assert_eq!(Entry::decode(&key, Some(&longer)), Err(RecordFlaw::Malformed));
        for place in 0..value.len() {
            let mut changed = value.clone();
            changed[place] ^= 0xff;
            let _ = Entry::decode(&key, Some(&changed));
        }
    }
}
