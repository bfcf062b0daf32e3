//! The bytes of Kafka 4.4's own classes (`OffsetCommitKey` and its kin), and bytes that are not.

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|place| u8::from_str_radix(&hex[place..place + 2], 16).unwrap())
        .collect()
}

const OFFSET_KEY_HEX: &str = "000100016700066f726465727300000002";
const OFFSET_VALUE_HEX: &str = "0003000000000000002a0000000500046e6f746500000000000003e8";
const OLD_OFFSET_VALUE_HEX: &str =
    "0001000000000000002a00046e6f746500000000000003e800000000000007d0";
const GROUP_KEY_HEX: &str = "0002000167";
const GROUP_VALUE_HEX: &str = "\
    00030008636f6e73756d657200000004000572616e676500026d3100000000000003e80000000200026d\
    31ffff000163000a2f3132372e302e302e310000ea6000002710000000020102000000010300026d3200\
    026932000163000a2f3132372e302e302e310000ea60000027100000000000000000";

fn offset() -> Entry {
    Entry::Offset {
        group: "g".to_owned(),
        partition: TopicPartition { topic: "orders".to_owned(), partition: 2 },
        value: Some(StoredOffset {
            committed: CommittedOffset {
                offset: Offset(42),
                leader_epoch: LeaderEpoch(5),
                metadata: "note".to_owned(),
                topic: TopicId::NONE,
            },
            at: Timestamp(1000),
        }),
    }
}

fn group() -> Entry {
    let member = |member: &str, instance: Option<&str>, subscription, assignment| StoredMember {
        member: member.to_owned(),
        instance: instance.map(str::to_owned),
        client_id: "c".to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        rebalance_timeout: Duration::from_secs(60),
        session_timeout: Duration::from_secs(10),
        subscription: Bytes::from_static(subscription),
        assignment: Bytes::from_static(assignment),
    };
    Entry::Group {
        group: "g".to_owned(),
        value: Some(StoredGroup {
            protocol_type: "consumer".to_owned(),
            generation: 4,
            protocol: Some("range".to_owned()),
            leader: Some("m1".to_owned()),
            since: Timestamp(1000),
            members: vec![member("m1", None, &[1, 2], &[3]), member("m2", Some("i2"), &[], &[])],
        }),
    }
}

#[test]
fn records_have_the_bytes_of_kafkas() {
    for (entry, key, value) in
        [(offset(), OFFSET_KEY_HEX, OFFSET_VALUE_HEX), (group(), GROUP_KEY_HEX, GROUP_VALUE_HEX)]
    {
        assert_eq!(entry.key(), bytes(key));
        assert_eq!(entry.value(), Some(bytes(value)));
        assert_eq!(Entry::decode(&bytes(key), Some(&bytes(value))), Ok(entry));
    }
}

#[test]
fn an_older_offset_is_read() {
    let Entry::Offset { value: Some(value), .. } =
        Entry::decode(&bytes(OFFSET_KEY_HEX), Some(&bytes(OLD_OFFSET_VALUE_HEX))).unwrap()
    else {
        panic!("an offset")
    };
    assert_eq!(value.committed.offset, Offset(42));
    assert_eq!(value.committed.leader_epoch, LeaderEpoch(-1));
    assert_eq!(value.at, Timestamp(1000));
}

#[test]
fn a_record_without_value_forgets() {
    for entry in [
        Entry::Group { group: "g".to_owned(), value: None },
        Entry::Offset {
            group: "g".to_owned(),
            partition: TopicPartition { topic: "orders".to_owned(), partition: 2 },
            value: None,
        },
    ] {
        assert_eq!(Entry::decode(&entry.key(), None), Ok(entry));
    }
}

#[test]
fn bytes_cut_short_or_too_many_are_malformed_and_strangers_skipped() {
    for (key, value) in [(OFFSET_KEY_HEX, OFFSET_VALUE_HEX), (GROUP_KEY_HEX, GROUP_VALUE_HEX)] {
        let (key, value) = (bytes(key), bytes(value));
        for end in 0..key.len() {
            assert_eq!(Entry::decode(&key[..end], None), Err(RecordFlaw::Malformed));
        }
        for end in 0..value.len() {
            let cut = Entry::decode(&key, Some(&value[..end]));
            assert_eq!(cut, Err(RecordFlaw::Malformed), "{end}");
        }
        let longer = [&value[..], &[0]].concat();
        assert_eq!(Entry::decode(&key, Some(&longer)), Err(RecordFlaw::Malformed));
        for place in 0..value.len() {
            let mut changed = value.clone();
            changed[place] ^= 0x80;
            let _ = Entry::decode(&key, Some(&changed));
        }
        assert_eq!(Entry::decode(&key, Some(&[0, 9])), Err(RecordFlaw::Version { value: 9 }));
    }
    assert_eq!(Entry::decode(&[0, 19], None), Err(RecordFlaw::Unknown { key: 19 }));
}

#[test]
fn topics_of_a_subscription_are_read() {
    let metadata = bytes("0003000000020001610002626300000000");
    assert_eq!(subscribed_topics(&metadata), Some(vec!["a".to_owned(), "bc".to_owned()]));
    assert_eq!(subscribed_topics(&metadata[..8]), None);
    assert_eq!(subscribed_topics(b""), None);
}

/// By hand, from the schema: version 4, a compact text, and the topic's id under tag 0.
const OFFSET_VALUE_WITH_ID_HEX: &str = "\
    0004000000000000002a00000005056e6f746500000000000003e80100100102030405060708090a0b0c0d0e0f10";

#[test]
fn an_offset_says_of_which_topic_it_is() {
    let Entry::Offset { group, partition, value: Some(mut value) } = offset() else {
        panic!("an offset");
    };
    value.committed.topic = TopicId([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
    let entry = Entry::Offset { group, partition, value: Some(value) };
    let written = entry.value().expect("a value");
    assert_eq!(written, bytes(OFFSET_VALUE_WITH_ID_HEX));
    assert_eq!(Entry::decode(&entry.key(), Some(&written)), Ok(entry.clone()));
    for length in 0..written.len() {
        assert!(Entry::decode(&entry.key(), Some(&written[..length])).is_err(), "{length}");
    }
    // Tags that are not known are passed over, and one of another length is none.
    let without = bytes("0004000000000000002a00000005056e6f746500000000000003e800");
    assert!(matches!(
        Entry::decode(&entry.key(), Some(&without)),
        Ok(Entry::Offset { value: Some(value), .. }) if value.committed.topic == TopicId::NONE
    ));
    let short = bytes("0004000000000000002a00000005056e6f746500000000000003e80100020102");
    assert!(Entry::decode(&entry.key(), Some(&short)).is_err());
}
