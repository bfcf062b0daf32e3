//! The records' bytes: as Kafka's schemas lay them out, and never trusted.

use super::*;

fn state(phase: Phase) -> State {
    let partitions = [("bills", 4), ("orders", 0), ("orders", 7)];
    let partition =
        |(topic, partition): (&str, i32)| TopicPartition { topic: topic.to_owned(), partition };
    let partitions = partitions.into_iter().map(partition);
    State {
        producer: ProducerId(4242),
        epoch: ProducerEpoch(3),
        previous_producer: ProducerId::NONE,
        next_producer: ProducerId::NONE,
        last_epoch: None,
        timeout: Duration::from_millis(60_000),
        phase,
        partitions: if phase.is_idle() { BTreeSet::new() } else { partitions.collect() },
        updated: Timestamp(1_000),
        started: Timestamp(900),
        version: TransactionVersion::V0,
    }
}

#[test]
fn bytes_are_those_of_kafkas_schemas() {
    // Written down by hand from the schemas.
    assert_eq!(key("tx"), [0, 0, 0, 2, b't', b'x']);
    let mut expected = vec![0, 1];
    expected.extend(4242_i64.to_be_bytes());
    expected.extend([0, 3, 0, 0, 0xea, 0x60, 1]);
    expected.extend([3, 6]);
    expected.extend(b"bills");
    expected.extend([2, 0, 0, 0, 4, 0, 7]);
    expected.extend(b"orders");
    expected.extend([3, 0, 0, 0, 0, 0, 0, 0, 7, 0]);
    expected.extend(1_000_i64.to_be_bytes());
    expected.extend(900_i64.to_be_bytes());
    expected.push(0);
    assert_eq!(value(&state(Phase::Ongoing)), expected);
    // With tags, and null for no transaction.
    let mut tagged = state(Phase::Empty);
    tagged.previous_producer = ProducerId(1);
    tagged.next_producer = ProducerId(2);
    tagged.version = TransactionVersion::V2;
    tagged.last_epoch = Some(ProducerEpoch(9));
    let mut expected = vec![0, 1];
    expected.extend(4242_i64.to_be_bytes());
    expected.extend([0, 3, 0, 0, 0xea, 0x60, 0, 0]);
    expected.extend(1_000_i64.to_be_bytes());
    expected.extend(900_i64.to_be_bytes());
    expected.extend([4, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 1, 8, 0, 0, 0, 0, 0, 0, 0, 2]);
    expected.extend([2, 2, 0, 2, 0xe8, 7, 2, 0, 9]);
    assert_eq!(value(&tagged), expected);
    assert_eq!(read_value(&expected), Ok(tagged));
}

#[test]
fn the_first_version_is_read() {
    let mut bytes = vec![0, 0];
    bytes.extend(4242_i64.to_be_bytes());
    bytes.extend([0, 3, 0, 0, 0xea, 0x60, 2]);
    bytes.extend([0, 0, 0, 2, 0, 5]);
    bytes.extend(b"bills");
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 4, 0, 6]);
    bytes.extend(b"orders");
    bytes.extend([0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 7]);
    bytes.extend(1_000_i64.to_be_bytes());
    bytes.extend(900_i64.to_be_bytes());
    assert_eq!(read_value(&bytes), Ok(state(Phase::PrepareCommit)));
}

#[test]
fn states_survive_their_bytes_and_nothing_else_passes() {
    for phase in Phase::ALL {
        let mut state = state(phase);
        state.last_epoch = Some(ProducerEpoch(2));
        let bytes = value(&state);
        assert_eq!(read_value(&bytes), Ok(state));
        for cut in 0..bytes.len() {
            assert!(read_value(&bytes[..cut]).is_err(), "{phase:?} {cut}");
        }
        assert_eq!(read_value(&[&bytes[..], &[0]].concat()), Err(RecordFlaw::Malformed));
    }
    assert_eq!(read_key(&key("grüße")), Ok("grüße".to_owned()));
    assert_eq!(read_key(&[0, 1, 0, 0]), Err(RecordFlaw::Unknown { key: 1 }));
    assert_eq!(read_value(&[0, 2]), Err(RecordFlaw::Version { value: 2 }));
    let mut dead = value(&state(Phase::Empty));
    dead[16] = 6;
    assert_eq!(read_value(&dead), Err(RecordFlaw::Status { status: 6 }));
    // Four thousand million topics are claimed, and none is there.
    let mut lie = value(&state(Phase::Ongoing));
    lie.splice(17.., [0xff, 0xff, 0xff, 0xff, 0xf]);
    assert_eq!(read_value(&lie), Err(RecordFlaw::Malformed));
}
