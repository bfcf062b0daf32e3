//! Metadata records and replicas' snapshots: their bytes as the first build wrote them, and what a
//! reader says of bytes that are not such.

use std::fmt::Write as _;

use bytes::Bytes;
use quorate_core::batch::control::{Ending, Marker};
use quorate_core::batch::{Batch, BatchBuilder, Codec};
use quorate_core::codec::CodecError;
use quorate_core::id::{
    CoordinatorEpoch, DirectoryId, LeaderEpoch, NodeEpoch, NodeId, Offset, PartitionEpoch,
    ProducerEpoch, ProducerId, TopicId,
};
use quorate_core::metadata::{
    Address, ConfigResource, Duty, FeatureRange, Image, Placement, Record, Registration, Roles,
    Wish, payload,
};
use quorate_core::partition::Recovered;
use quorate_core::partition::interface::{Aborted, Limits};
use quorate_core::segment::checkpoint::EnvelopeError;
use quorate_core::time::Timestamp;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("two digits");
    (0..text.len()).step_by(2).map(byte).collect()
}

fn placement(replicas: &[i32]) -> Placement {
    let replicas = replicas.iter().map(|&id| NodeId(id)).collect::<Vec<_>>();
    Placement {
        leader_epoch: LeaderEpoch(3),
        leader: replicas.first().copied(),
        in_sync: replicas.clone(),
        replicas,
        ..Placement::default()
    }
}

/// The kinds of record of the first build, and their bytes then: readable for ever.
fn first_records() -> Vec<(Record, &'static str)> {
    let topic = TopicId([7; 16]);
    let text = str::to_owned;
    vec![
        (Record::ClusterNamed { cluster: text("abc") }, "010003616263"),
        (
            Record::NodeRegistered(Registration {
                node: NodeId(1),
                incarnation: 77,
                address: Address { host: text("n1"), port: 9092 },
                peer: Address { host: text("n1"), port: 9092 },
                rack: Some(text("eu")),
                ..Registration::default()
            }),
            "0101024d026e31fb842301026575",
        ),
        (
            Record::TopicCreated {
                topic,
                name: text("orders"),
                partitions: vec![placement(&[1]), placement(&[])],
                configs: vec![(text("retention.ms"), text("5"))],
            },
            "010207070707070707070707070707070707066f726465727302060102010201\
             0206000000010c726574656e74696f6e2e6d730135",
        ),
        (
            Record::PartitionsAdded { topic, first: 2, partitions: vec![placement(&[1, 2])] },
            "0103070707070707070707070707070707070201060102020204020204",
        ),
        (Record::TopicDeleted { topic }, "010407070707070707070707070707070707"),
        (
            Record::ConfigsSet {
                resource: ConfigResource::Topic(topic),
                changes: vec![(text("a"), Some(text("b"))), (text("c"), None)],
            },
            "01050007070707070707070707070707070707020161010162016300",
        ),
        (
            Record::ConfigsSet {
                resource: ConfigResource::Node(Some(NodeId(1))),
                changes: Vec::new(),
            },
            "010501010200",
        ),
        (Record::ProducerIdsAllocated { node: NodeId(1), next: ProducerId(2000) }, "010602fba00f"),
    ]
}

/// The same and those that came with format 2.
fn records() -> Vec<(Record, &'static str)> {
    let topic = TopicId([7; 16]);
    let text = str::to_owned;
    let (node, epoch) = (NodeId(2), NodeEpoch(300));
    let feature = FeatureRange { name: text("f"), min: 1, max: 3 };
    let registration = Registration {
        node,
        epoch,
        incarnation: 77,
        directory: DirectoryId([5; 16]),
        address: Address { host: text("n2"), port: 9092 },
        peer: Address { host: text("p2"), port: 9192 },
        rack: Some(text("eu")),
        roles: Roles { broker: true, controller: false },
        features: vec![feature],
        fenced: true,
    };
    let moving = Placement {
        partition_epoch: PartitionEpoch(9),
        in_sync: vec![NodeId(1)],
        eligible: vec![NodeId(2)],
        adding: vec![NodeId(3)],
        removing: vec![NodeId(2)],
        ..placement(&[1, 3, 2])
    };
    let mut records = first_records();
    let bytes = [
        "020003616263",
        "020104fb58024d05050505050505050505050505050505026e32fb8423027032fbe8230102657501\
         00010166020601",
        "020207070707070707070707070707070707066f7264657273020600010201020102000000060000\
         0000000000010c726574656e74696f6e2e6d730135",
        "020307070707070707070707070707070707020106000102020204020204000000",
        "020407070707070707070707070707070707",
        "02050007070707070707070707070707070707020161010162016300",
        "020501010200",
        "020602fba00f",
        "020707070707070707070707070707070707010106120102030206040102010401060104",
        "020804fb5802",
        "020904fb5802",
        "020a04fb580202",
        "020b0401",
        "020c04fb5802",
        "020d016604",
        "020efb5802",
    ];
    records[1].0 = Record::NodeRegistered(registration);
    records.extend([
        (Record::PartitionsChanged { topic, partitions: vec![(1, moving)] }, ""),
        (Record::NodeFenced { node, epoch }, ""),
        (Record::NodeUnfenced { node, epoch }, ""),
        (Record::NodeWished { node, epoch, wish: Wish::Stop }, ""),
        (Record::NodeDutySet { node, duty: Duty::Maintenance }, ""),
        (Record::NodeUnregistered { node, epoch }, ""),
        (Record::FeatureLevelSet { feature: text("f"), level: 2 }, ""),
        (Record::NodeEpochsGiven { next: epoch }, ""),
    ]);
    assert_eq!(records.len(), bytes.len());
    records.into_iter().map(|(record, _)| record).zip(bytes).collect()
}

#[test]
fn every_kind_of_record_has_the_bytes_it_always_had() {
    for (record, golden) in records() {
        assert_eq!(hex(&record.encode()), golden, "{record:?}");
        assert_eq!(Record::decode(&record.encode()), Ok(record));
    }
}

#[test]
fn records_of_the_first_build_are_read() {
    for (record, golden) in first_records() {
        assert_eq!(Record::decode(&unhex(golden)), Ok(record));
    }
}

#[test]
fn what_is_not_a_record_is_refused() {
    assert_eq!(Record::decode(&[]), Err(CodecError::Empty));
    assert_eq!(Record::decode(&[9, 0]), Err(CodecError::Version { found: 9, known: 2 }));
    for (record, _) in records() {
        let bytes = record.encode();
        for cut in 0..bytes.len() {
            assert!(Record::decode(&bytes[..cut]).is_err(), "{record:?} cut at {cut}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Record::decode(&longer), Err(CodecError::Trailing { bytes: 1 }));
    }
    // A kind that only a later build knows.
    for version in [1, 2] {
        let decoded = Record::decode(&[version, 200]);
        assert!(matches!(decoded, Err(CodecError::Malformed { .. })));
    }
}

#[test]
fn records_that_are_told_twice_change_nothing() {
    let mut once = Image::default();
    for (record, _) in records() {
        once.apply(&record);
    }
    let mut twice = Image::default();
    for (record, _) in records() {
        twice.apply(&record);
        twice.apply(&record);
    }
    assert_eq!(once, twice);
    assert_eq!(once.topics_count(), 0);
    assert_eq!((once.cluster(), once.next_producer_id()), (Some("abc"), ProducerId(2000)));
}

#[test]
fn an_image_is_what_its_records_add_up_to() {
    let mut image = Image::default();
    assert_eq!(image.to_records(), []);
    for (record, _) in records() {
        image.apply(&record);
        let told = image.to_records();
        let mut rebuilt = Image::default();
        told.iter().for_each(|record| rebuilt.apply(record));
        assert_eq!(rebuilt, image, "after {record:?}");
        let data = payload::snapshot_data(&told, Timestamp(1));
        assert_eq!(payload::records_in(&data), Ok(told));
    }
}

#[test]
fn data_that_are_no_records_are_refused() {
    let told = records().into_iter().map(|(record, _)| record).collect::<Vec<_>>();
    let data = payload::snapshot_data(&told, Timestamp(1));
    for cut in 1..data.len() {
        assert!(payload::records_in(&data.slice(..cut)).is_err(), "cut at {cut}");
    }
    let mut rotten = data.to_vec();
    *rotten.last_mut().expect("a byte") ^= 1;
    assert!(payload::records_in(&Bytes::from(rotten)).is_err());
}

#[test]
fn records_about_a_topic_that_is_gone_are_passed_over() {
    let mut image = Image::default();
    for (record, _) in records().into_iter().filter(|(record, _)| {
        matches!(record, Record::PartitionsAdded { .. } | Record::ConfigsSet { .. })
    }) {
        image.apply(&record);
    }
    assert_eq!(image.topics_count(), 0);
}

fn batch(producer: i64, sequence: i32, base: i64) -> Batch {
    let (id, epoch) = (ProducerId(producer), ProducerEpoch(2));
    let mut builder = BatchBuilder::new(Codec::None).producer(id, epoch, sequence);
    builder.append(Timestamp(1000 + base), None, Some(b"value"), []);
    let mut batch = builder.build();
    batch.stamp(Offset(base), LeaderEpoch(4));
    batch
}

fn state() -> Recovered {
    let mut state = Recovered::default();
    for base in 0..3 {
        let sequence = i32::try_from(base).expect("small");
        let batch = batch(7, sequence, base);
        state.apply(&batch, 100).expect("in order");
    }
    state.roll(Offset(3)).expect("in order");
    state.delete_before(Offset(1));
    state
}

#[test]
fn a_snapshot_has_the_bytes_it_always_had() {
    let snapshot = state().to_snapshot();
    assert_eq!(
        hex(&snapshot),
        "51524543000200000000002d0379cb6d020206fbd407010200fb2c01fbd40706\
             0001010802010e04030000000000020202020004040404000100010000"
    );
    assert_eq!(Recovered::from_snapshot(&snapshot), Ok(state()));
    let empty = Recovered::default().to_snapshot();
    assert_eq!(hex(&empty), "51524543000200000000000a5cb5023302000001010000000000");
    assert_eq!(Recovered::from_snapshot(&empty), Ok(Recovered::default()));
}

#[test]
fn a_snapshot_of_a_build_without_transactions_is_read() {
    let first = "515245430001000000000029f21b4543010206fbd407010200fb2c01fbd40706\
                 0001010802010e040300000000000202020200040404040001";
    assert_eq!(Recovered::from_snapshot(&Bytes::from(unhex(first))), Ok(state()));
    let empty = "515245430001000000000008d2142f300100000101000000";
    assert_eq!(Recovered::from_snapshot(&Bytes::from(unhex(empty))), Ok(Recovered::default()));
}

/// A producer with a transaction open, another with one aborted.
fn with_transactions() -> Recovered {
    let mut state = state();
    let written = |producer, base: i32| {
        let (id, epoch) = (ProducerId(producer), ProducerEpoch(2));
        let mut builder = BatchBuilder::new(Codec::None).producer(id, epoch, 0).transactional();
        builder.append(Timestamp(2000 + i64::from(base)), None, Some(b"value"), []);
        builder.build()
    };
    let marker = Marker { ending: Ending::Aborted, coordinator_epoch: CoordinatorEpoch(9) };
    let marker = marker.batch(ProducerId(8), ProducerEpoch(3), Timestamp(2005));
    for (base, mut batch) in (3..).zip([written(8, 3), written(9, 4), marker]) {
        batch.stamp(Offset(base), LeaderEpoch(4));
        state.apply(&batch, 100).expect("in order");
    }
    state
}

#[test]
fn a_snapshot_has_the_transactions() {
    let state = with_transactions();
    let aborted = Aborted { producer: ProducerId(8), first: Offset(3), last: Offset(5) };
    assert_eq!(state.aborted.ranges(), [aborted]);
    assert_eq!(state.open.iter().collect::<Vec<_>>(), [(Offset(4), ProducerId(9))]);
    let snapshot = state.to_snapshot();
    assert_eq!(
        hex(&snapshot),
        "51524543000200000000004889140efd02020cfbaa0f010200fb2c01fbd40706\
             fb2c01fbaa0f010802030e040300000000000202020200040404040001000110\
             060012010a0112040100000808000100010108120110060a"
    );
    assert_eq!(Recovered::from_snapshot(&snapshot), Ok(state));
    // One is open whose producer is not known.
    let mut impossible = with_transactions();
    impossible.open.begin(ProducerId(77), Offset(1));
    let read = Recovered::from_snapshot(&impossible.to_snapshot());
    assert_eq!(read, Err(EnvelopeError::Body));
}

#[test]
fn a_snapshot_that_lies_is_refused() {
    let snapshot = state().to_snapshot();
    for at in 0..snapshot.len() {
        let mut changed = snapshot.to_vec();
        changed[at] ^= 0x10;
        let read = Recovered::from_snapshot(&Bytes::from(changed));
        // The two reserved bytes are under the checksum as well.
        assert!(read.is_err(), "byte {at} may say anything");
    }
    for cut in 0..snapshot.len() {
        assert!(Recovered::from_snapshot(&snapshot.slice(..cut)).is_err());
    }
    // A checksum that is right around a state that cannot be.
    let mut impossible = state();
    impossible.log_start = Offset(9);
    let read = Recovered::from_snapshot(&impossible.to_snapshot());
    assert_eq!(read, Err(EnvelopeError::Body));
}

#[test]
fn the_largest_snapshot_can_be_read() {
    let producers = i64::try_from(Limits::default().producers_max).expect("small");
    let producers = if cfg!(debug_assertions) { producers / 10 } else { producers };
    let mut state = Recovered::default();
    for base in 0..producers * 5 {
        let sequence = i32::try_from(base / producers).expect("small") + 0x4000_0000;
        let batch = batch((1 << 40) + base % producers, sequence, (1 << 40) + base);
        state.apply(&batch, 100).expect("in order");
    }
    let snapshot = state.to_snapshot();
    assert_eq!(Recovered::from_snapshot(&snapshot), Ok(state));
}

#[test]
fn batches_behind_the_end_are_refused() {
    let mut state = state();
    let old = batch(7, 9, 2);
    let behind = state.apply(&old, 100).expect_err("it is behind");
    assert_eq!((behind.end, behind.found), (Offset(3), Offset(2)));
    assert!(state.roll(Offset(2)).is_err());
    assert!(state.roll(Offset(3)).is_err(), "there is a segment already");
}
