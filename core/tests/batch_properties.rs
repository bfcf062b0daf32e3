//! Record batches against Kafka's own, against a plain model, and against noise.

use std::time::Duration;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use quorate_core::batch::control::{Ending, Marker};
use quorate_core::batch::validate::InvalidKind;
use quorate_core::batch::{
    Batch, BatchBuilder, BatchError, Codec, HEADER_BYTES, Header, Levels, RecordHeader, Records,
    Rules, TimestampType, sequence_plus, split, validate,
};
use quorate_core::id::{CoordinatorEpoch, LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use quorate_core::time::Timestamp;

type Text = Option<Vec<u8>>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Plain {
    time: i64,
    key: Text,
    value: Text,
    headers: Vec<(Vec<u8>, Text)>,
}

fn record() -> impl Strategy<Value = Plain> {
    let text = || option::of(vec(any::<u8>(), 0..40));
    let headers = vec((vec(any::<u8>(), 0..9), text()), 0..4);
    (0..1_000_000_000_000_i64, text(), text(), headers)
        .prop_map(|(time, key, value, headers)| Plain { time, key, value, headers })
}

fn build(codec: Codec, records: &[Plain]) -> Batch {
    let mut builder = BatchBuilder::new(codec).producer(ProducerId(7), ProducerEpoch(1), 0);
    for record in records {
        let headers: Vec<_> = record
            .headers
            .iter()
            .map(|(key, value)| RecordHeader { key, value: value.as_deref() })
            .collect();
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        builder.append(Timestamp(record.time), key, value, headers);
    }
    let before = builder.bytes();
    let batch = builder.build();
    assert!(codec != Codec::None || before == batch.len());
    batch
}

fn read(batch: &Batch) -> Vec<Plain> {
    let bytes = batch.uncompressed(1 << 20).unwrap();
    Records::new(&bytes, batch.header().record_count())
        .map(|record| {
            let record = record.unwrap();
            Plain {
                time: batch.timestamp_of(&record).0,
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                headers: record
                    .headers
                    .map(|header| (header.key.to_vec(), header.value.map(<[u8]>::to_vec)))
                    .collect(),
            }
        })
        .collect()
}

fn whole(batch: &Batch) -> Bytes {
    Bytes::from(batch.chunks().concat())
}

fn rules() -> Rules {
    Rules {
        now: Timestamp(1_000_000),
        batch_bytes_max: 1 << 20,
        uncompressed_bytes_max: 1 << 20,
        compact: false,
        log_append_time: false,
        timestamp_before_max: None,
        timestamp_after_max: None,
        zstd: true,
    }
}

fn codec() -> impl Strategy<Value = Codec> {
    prop::sample::select(&Codec::ALL[..])
}

/// What failed once stands in `batch_properties.regressions`, and is tried first.
fn kept() -> ProptestConfig {
    let file = FileFailurePersistence::WithSource("regressions");
    ProptestConfig { failure_persistence: Some(Box::new(file)), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(kept())]

    #[test]
    fn what_is_built_is_read(codec in codec(), records in vec(record(), 1..20)) {
        let mut batch = build(codec, &records);
        prop_assert_eq!(read(&batch), records.clone());
        prop_assert_eq!(batch.verify(), Ok(()));
        prop_assert_eq!(Batch::parse(whole(&batch)), Ok(batch.clone()));
        let header = batch.header();
        prop_assert_eq!(header.max_timestamp().0, records.iter().map(|r| r.time).max().unwrap());
        prop_assert_eq!(header.record_count() as usize, records.len());
        prop_assert!(validate(&mut batch, &rules()).is_ok());
    }

    #[test]
    fn stamping_keeps_the_checksum_true(base in 0..i64::MAX / 2, epoch in 0..i32::MAX) {
        let mut batch = build(Codec::None, &simple(&[(5, None)]));
        batch.stamp(Offset(base), LeaderEpoch(epoch));
        prop_assert_eq!(batch.verify(), Ok(()));
        prop_assert_eq!(batch.header().base_offset(), Offset(base));
        prop_assert_eq!(batch.header().leader_epoch(), LeaderEpoch(epoch));
        prop_assert_eq!(batch.header().next_offset(), Offset(base + 1));
        batch.set_log_append_time(Timestamp(99));
        prop_assert_eq!(batch.verify(), Ok(()));
        prop_assert_eq!(batch.header().timestamp_type(), TimestampType::LogAppendTime);
        prop_assert_eq!(read(&batch)[0].time, 99);
    }

    #[test]
    fn concatenated_batches_come_apart_even_cut_short(
        batches in vec((codec(), vec(record(), 1..5)), 0..5),
        cut in any::<prop::sample::Index>(),
    ) {
        let build = |(codec, records): &(Codec, Vec<Plain>)| build(*codec, records);
        let batches: Vec<_> = batches.iter().map(build).collect();
        let bytes = Bytes::from(batches.iter().flat_map(whole).collect::<Vec<_>>());
        let found: Result<Vec<_>, _> = split(bytes.clone()).collect();
        prop_assert_eq!(found.as_ref(), Ok(&batches));
        let end = if bytes.is_empty() { 0 } else { cut.index(bytes.len()) };
        let mut parts = split(bytes.slice(..end));
        let found: Result<Vec<_>, _> = parts.by_ref().collect();
        let found = found.unwrap();
        prop_assert_eq!(&found[..], &batches[..found.len()]);
        let handed_out: usize = found.iter().map(Batch::len).sum();
        prop_assert_eq!(handed_out + parts.rest().len(), end);
        let next = batches.get(found.len());
        prop_assert!(next.is_none_or(|next| parts.rest().len() < next.len()));
    }

    #[test]
    fn noise_never_panics(bytes in vec(any::<u8>(), 0..300)) {
        let bytes = Bytes::from(bytes);
        let _ = Header::parse(&bytes);
        let _ = Batch::parse(bytes.clone());
        prop_assert!(split(bytes.clone()).count() <= 6);
        prop_assert!(Records::new(&bytes, i32::MAX).count() <= bytes.len() + 1);
        for codec in Codec::ALL {
            let _ = quorate_core::batch::compression::decompress(codec, &bytes, 10_000);
        }
    }

    /// A batch whose checksum is right, as a hostile producer's would be, and nothing else.
    #[test]
    fn hostile_batches_are_judged_without_panic(
        codec in codec(),
        records in vec(record(), 1..6),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        compact in any::<bool>(),
    ) {
        let mut bytes = whole(&build(codec, &records)).to_vec();
        for (place, byte) in changes {
            let place = 17 + place.index(bytes.len() - 17);
            bytes[place] = byte;
        }
        let checksum = quorate_core::batch::checksum::checksum(&bytes[21..]);
        bytes[17..21].copy_from_slice(&checksum.to_be_bytes());
        if let Ok(mut batch) = Batch::parse(Bytes::from(bytes)) {
            let rules = Rules { compact, timestamp_after_max: Some(Duration::ZERO), ..rules() };
            if validate(&mut batch, &rules).is_ok() {
                // What was accepted can be read again by anybody.
                let bytes = batch.uncompressed(1 << 20).unwrap();
                let read = Records::new(&bytes, batch.header().record_count());
                prop_assert_eq!(
                    read.filter(Result::is_ok).count() as i64,
                    batch.header().next_offset().0
                );
                prop_assert_eq!(batch.verify(), Ok(()));
            }
        }
    }

    #[test]
    fn sequence_numbers_wrap_at_31_bits(sequence in 0..=i32::MAX, records in 0..=i32::MAX) {
        let sum = (i64::from(sequence) + i64::from(records)) % (1 << 31);
        prop_assert_eq!(i64::from(sequence_plus(sequence, records)), sum);
    }
}

fn java(name: &str) -> Bytes {
    let hex = include_str!("vectors/java_batches.txt")
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .expect("a line of that name");
    (0..hex.len())
        .step_by(2)
        .map(|place| u8::from_str_radix(&hex[place..place + 2], 16).unwrap())
        .collect()
}

#[test]
fn batches_of_the_java_client_are_read_and_accepted() {
    let header = |key: &str, value: Text| (key.as_bytes().to_vec(), value);
    let expected = [
        Plain { time: 1000, key: None, value: None, headers: vec![] },
        Plain {
            time: 990,
            key: Some(vec![]),
            value: Some(vec![]),
            headers: vec![
                header("h", None),
                header("h", Some(vec![])),
                header("h", Some(b"1".to_vec())),
            ],
        },
        Plain {
            time: 1005,
            key: Some(b"key".to_vec()),
            value: Some(vec![b'x'; 300]),
            headers: vec![header("priority", Some(b"7".to_vec()))],
        },
    ];
    for codec in Codec::ALL {
        let mut batch = Batch::parse(java(codec.name())).unwrap();
        let before = batch.clone();
        assert_eq!(batch.header().codec(), codec);
        assert_eq!(read(&batch), expected, "{codec}");
        assert_eq!(batch.header().producer_id(), ProducerId(77));
        assert_eq!(batch.header().producer_epoch(), ProducerEpoch(3));
        assert_eq!(batch.header().base_sequence(), i32::MAX - 1);
        assert_eq!(batch.header().last_sequence(), 0, "after 2^31 - 1 comes 0");
        assert_eq!(validate(&mut batch, &rules()), Ok(Levels::DEFAULT.with(7)));
        assert_eq!(batch, before, "nothing had to be corrected");
    }
}

#[test]
fn our_batches_have_the_bytes_of_javas() {
    let batch = Batch::parse(java("none")).unwrap();
    let mut builder =
        BatchBuilder::new(Codec::None).producer(ProducerId(77), ProducerEpoch(3), i32::MAX - 1);
    for record in read(&batch) {
        let headers: Vec<_> = record
            .headers
            .iter()
            .map(|(key, value)| RecordHeader { key, value: value.as_deref() })
            .collect();
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        builder.append(Timestamp(record.time), key, value, headers);
    }
    assert_eq!(builder.build(), batch);
}

#[test]
fn our_markers_are_javas() {
    let theirs = Batch::parse(java("marker")).unwrap();
    let marker = Marker { ending: Ending::Committed, coordinator_epoch: CoordinatorEpoch(9) };
    let ours = marker.batch(ProducerId(77), ProducerEpoch(3), theirs.header().base_timestamp());
    assert_eq!(ours, theirs);
}

fn refused(batch: &Batch, rules: &Rules) -> (InvalidKind, Vec<i32>) {
    let invalid = validate(&mut batch.clone(), rules).expect_err("must be refused");
    assert!(!invalid.reason.is_empty());
    (invalid.kind, invalid.records.iter().map(|record| record.index).collect())
}

fn simple(records: &[(i64, Option<&str>)]) -> Vec<Plain> {
    let key = |key: &Option<&str>| key.map(|key| key.as_bytes().to_vec());
    records
        .iter()
        .map(|(time, k)| Plain { time: *time, key: key(k), value: None, headers: vec![] })
        .collect()
}

#[test]
fn records_without_a_key_are_named_on_a_compacted_topic() {
    let batch = build(Codec::Lz4, &simple(&[(5, None), (5, Some("")), (5, None)]));
    let compact = Rules { compact: true, ..rules() };
    assert_eq!(refused(&batch, &compact), (InvalidKind::Record, vec![0, 2]));
    assert!(validate(&mut batch.clone(), &rules()).is_ok());
}

#[test]
fn timestamps_are_judged_at_the_edge_of_their_bounds() {
    let rules = Rules {
        now: Timestamp(1000),
        timestamp_before_max: Some(Duration::from_millis(100)),
        timestamp_after_max: Some(Duration::from_millis(10)),
        ..rules()
    };
    let times = [(899, None), (900, None), (1010, None), (1011, None), (-1, None)];
    let batch = build(Codec::None, &simple(&times));
    assert_eq!(refused(&batch, &rules), (InvalidKind::Timestamp, vec![0, 3]));
    let own_time = Rules { log_append_time: true, ..rules };
    assert!(validate(&mut batch.clone(), &own_time).is_ok(), "the topic sets its own");
}

#[test]
fn a_wrong_largest_timestamp_is_corrected() {
    let mut bytes = whole(&build(Codec::None, &simple(&[(5, None), (7, None)]))).to_vec();
    bytes[35..43].copy_from_slice(&i64::MAX.to_be_bytes());
    let checksum = quorate_core::batch::checksum::checksum(&bytes[21..]);
    bytes[17..21].copy_from_slice(&checksum.to_be_bytes());
    let mut batch = Batch::parse(Bytes::from(bytes)).unwrap();
    assert!(validate(&mut batch, &rules()).is_ok());
    assert_eq!(batch.header().max_timestamp(), Timestamp(7));
    assert_eq!(batch.verify(), Ok(()));
}

#[test]
fn sizes_are_judged_at_the_edge() {
    let batch = build(
        Codec::Gzip,
        &[Plain { value: Some(vec![0; 9000]), ..simple(&[(5, None)]).remove(0) }],
    );
    let uncompressed = batch.uncompressed(1 << 20).unwrap().len();
    let exact =
        Rules { batch_bytes_max: batch.len(), uncompressed_bytes_max: uncompressed, ..rules() };
    assert!(validate(&mut batch.clone(), &exact).is_ok());
    let smaller = Rules { batch_bytes_max: batch.len() - 1, ..exact.clone() };
    assert_eq!(refused(&batch, &smaller), (InvalidKind::TooLarge, vec![]));
    let smaller = Rules { uncompressed_bytes_max: uncompressed - 1, ..exact };
    assert_eq!(refused(&batch, &smaller), (InvalidKind::TooLarge, vec![]));
}

/// `batch` with other bytes at `place` and a checksum that fits.
fn forged(batch: &Batch, place: usize, with: &[u8]) -> Batch {
    let mut bytes = whole(batch).to_vec();
    bytes[place..place + with.len()].copy_from_slice(with);
    let checksum = quorate_core::batch::checksum::checksum(&bytes[21..]);
    bytes[17..21].copy_from_slice(&checksum.to_be_bytes());
    Batch::parse(Bytes::from(bytes)).unwrap()
}

#[test]
fn headers_that_no_producer_may_send_are_refused() {
    let batch = build(Codec::None, &simple(&[(5, None), (6, None)]));
    let record = (InvalidKind::Record, vec![]);
    for (what, place, with) in [
        ("base offset", 0, &7_i64.to_be_bytes()[..]),
        ("a control batch", 21, &[0, 0b10_0000]),
        ("a count below the offsets", 57, &1_i32.to_be_bytes()),
        ("a count above the offsets", 57, &3_i32.to_be_bytes()),
        ("no record at all", 57, &0_i32.to_be_bytes()),
        ("no sequence number", 53, &(-1_i32).to_be_bytes()),
        ("no producer epoch", 51, &(-1_i16).to_be_bytes()),
    ] {
        assert_eq!(refused(&forged(&batch, place, with), &rules()), record, "{what}");
    }
    let own_time = forged(&batch, 21, &[0, 0b1000]);
    assert_eq!(refused(&own_time, &rules()), (InvalidKind::Timestamp, vec![]));
    let zstd = build(Codec::Zstd, &simple(&[(5, None)]));
    let old = Rules { zstd: false, ..rules() };
    assert_eq!(refused(&zstd, &old), (InvalidKind::Compression, vec![]));
    let pretended = forged(&batch, 21, &[0, 4]);
    assert_eq!(refused(&pretended, &rules()), record, "not zstd at all");

    let mut bytes = whole(&batch).to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    let corrupt = Batch::parse(Bytes::from(bytes)).unwrap();
    assert_eq!(refused(&corrupt, &rules()), (InvalidKind::Corrupt, vec![]));
}

#[test]
fn offset_deltas_must_count_up() {
    let batch = build(Codec::None, &simple(&[(5, None), (6, None)]));
    // Length 1, attributes 1, timestamp delta 1, offset delta: of the second record.
    let second = HEADER_BYTES + batch.records().len() / 2 + 3;
    let twice = forged(&batch, second, &[0]);
    assert_eq!(refused(&twice, &rules()), (InvalidKind::Record, vec![1]));
}

#[test]
fn what_is_no_batch_is_told_why() {
    let good = whole(&build(Codec::None, &simple(&[(5, None)])));
    let with = |place: usize, byte: u8| {
        let mut bytes = good.to_vec();
        bytes[place] = byte;
        Batch::parse(bytes.into()).unwrap_err()
    };
    for old in [0, 1] {
        let error = with(16, old);
        assert_eq!(error, BatchError::Magic { found: old.cast_signed() });
        assert!(error.to_string().contains("Kafka 0.11"), "{error}");
    }
    assert_eq!(with(16, 3), BatchError::Magic { found: 3 });
    assert_eq!(with(22, 5), BatchError::Codec { found: 5 });
    assert_eq!(with(57, 0x80), BatchError::Count { claimed: i32::MIN + 1 });
    assert!(matches!(with(0, 0x80), BatchError::Offsets { .. }));
    assert!(matches!(with(23, 0x80), BatchError::Offsets { .. }));
    assert_eq!(with(11, 48), BatchError::Length { claimed: 48 });
    assert_eq!(
        with(8, 0x7f),
        BatchError::Short { needed: 0x7f00_0000 + good.len(), found: good.len() }
    );
    let longer = [&good[..], b"x"].concat();
    assert_eq!(Batch::parse(longer.into()), Err(BatchError::Trailing { bytes: 1 }));
    let short = BatchError::Short { needed: good.len(), found: good.len() - 1 };
    assert_eq!(Batch::parse(good.slice(..good.len() - 1)), Err(short));
    let none = BatchError::Short { needed: HEADER_BYTES, found: 0 };
    assert_eq!(Batch::parse(Bytes::new()), Err(none));
    // A message of version 1 is shorter than our header; its sender is told the truth all the same.
    let old = [&[0; 16][..], &[1, 0, 0]].concat();
    assert_eq!(Batch::parse(old.into()), Err(BatchError::Magic { found: 1 }));
}
