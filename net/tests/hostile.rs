//! Bytes that mean harm: no panic, no hang, and no more memory than a frame may cost.

use bytes::Bytes;
use quorate_net::kafka::frame::{RequestError, decode_request};
use quorate_net::kafka::messages::{MetadataRequest, OffsetFetchRequest};
use quorate_net::kafka::{ApiKey, Message, Request, Response};
use quorate_net::wire::sample::Source;
use quorate_net::wire::{Budget, Reader, WireError, WireErrorKind, Writer};

fn kinds() -> impl Iterator<Item = (ApiKey, i16)> {
    ApiKey::ALL.iter().flat_map(|key| key.versions().map(|version| (*key, version)))
}

/// A body that uses most of what the version has, in both directions.
fn bodies(key: ApiKey, version: i16) -> [Bytes; 2] {
    let source: Vec<u8> = (0..150u32).map(|place| (place * 7 % 125) as u8 | 1).collect();
    let mut request = Writer::new();
    Request::sample(key, &mut Source::new(&source), version).encode(&mut request, version);
    let mut response = Writer::new();
    Response::sample(key, &mut Source::new(&source), version).encode(&mut response, version);
    [request, response].map(|writer| writer.finish().expect("samples are short").concat().into())
}

fn decode_both(key: ApiKey, body: &Bytes, version: i16) -> [Option<WireError>; 2] {
    [
        Request::decode(key, &mut Reader::new(body), version).err(),
        Response::decode(key, &mut Reader::new(body), version).err(),
    ]
}

#[test]
fn every_message_cut_at_every_byte_is_an_error() {
    for (key, version) in kinds() {
        let [request, response] = bodies(key, version);
        for cut in 0..request.len() {
            let error = decode_both(key, &request.slice(..cut), version)[0];
            let error = error.unwrap_or_else(|| panic!("{key} {version}, {cut} bytes: no error"));
            assert!(error.field.is_some(), "{key} {version}: {error}");
        }
        for cut in 0..response.len() {
            let error = decode_both(key, &response.slice(..cut), version)[1];
            assert!(error.is_some(), "{key} {version}, {cut} bytes: no error");
        }
    }
}

#[test]
fn every_length_may_lie() {
    for (key, version) in kinds() {
        for body in bodies(key, version) {
            for place in 0..body.len() {
                for lie in [[0x7f, 0xff, 0xff, 0xff], [0x80, 0, 0, 0], [0xff; 4], [0; 4]] {
                    let mut bytes = body.to_vec();
                    let end = bytes.len().min(place + 4);
                    bytes[place..end].copy_from_slice(&lie[..end - place]);
                    decode_both(key, &bytes.into(), version);
                }
            }
        }
    }
    assert!(memory_peak() < 512 << 20, "{} bytes", memory_peak());
}

/// The most memory that this process has had, in bytes; 0 where the system does not say.
fn memory_peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kilobytes.unwrap_or_default() * 1024
}

fn decode<M: Message>(bytes: &[u8], version: i16) -> Result<M, WireErrorKind> {
    let bytes = Bytes::copy_from_slice(bytes);
    M::decode(&mut Reader::new(&bytes), version).map_err(|error| error.kind)
}

#[test]
fn claimed_array_lengths_cost_nothing() {
    // Four and five bytes that ask for 2 and 4 billion topics.
    let many = decode::<MetadataRequest>(&[0x7f, 0xff, 0xff, 0xff], 1);
    assert_eq!(many, Err(WireErrorKind::Truncated { wanted: 0x7fff_ffff }));
    let many = decode::<MetadataRequest>(&[0xff, 0xff, 0xff, 0xff, 0x0f], 9);
    assert_eq!(many, Err(WireErrorKind::Truncated { wanted: 0xffff_fffe }));
    let negative = decode::<MetadataRequest>(&[0x80, 0, 0, 0], 1);
    assert_eq!(negative, Err(WireErrorKind::NegativeLength { length: i32::MIN }));
    let below_null = decode::<MetadataRequest>(&[0xff, 0xff, 0xff, 0xfe], 1);
    assert_eq!(below_null, Err(WireErrorKind::NegativeLength { length: -2 }));
    let unending = decode::<MetadataRequest>(&[0xff; 9], 9);
    assert_eq!(unending, Err(WireErrorKind::Varint));
}

#[test]
fn null_only_where_the_version_allows_it() {
    let null = [0xff, 0xff, 0xff, 0xff];
    assert_eq!(decode::<MetadataRequest>(&null, 0), Err(WireErrorKind::Null));
    assert_eq!(decode::<MetadataRequest>(&null, 1).expect("all topics").topics, None);
    assert_eq!(decode::<OffsetFetchRequest>(&[0, 0, 0xff, 0xff, 0xff, 0xff], 1), {
        Err(WireErrorKind::Null)
    });
}

#[test]
fn a_frame_full_of_tiny_elements_stays_within_its_budget() {
    // Each group of OffsetFetch 8 takes three bytes here, and a hundred when decoded.
    let groups = |count: usize| {
        let mut writer = Writer::new();
        writer.compact_length(Some(count));
        for _ in 0..count {
            writer.slice(&[1, 1, 0]);
        }
        writer.slice(&[0, 0]);
        Bytes::from(writer.finish().expect("short").concat())
    };
    let size = size_of::<quorate_net::kafka::messages::offset_fetch::OffsetFetchRequestGroup>();
    let bytes = groups(1000);
    let read = |budget| {
        OffsetFetchRequest::decode(&mut Reader::with_budget(&bytes, budget), 8)
            .map(|request| request.groups.len())
            .map_err(|error| error.kind)
    };
    assert_eq!(read(Budget(1000 * size)), Ok(1000));
    let short = Budget(1000 * size - 1);
    assert_eq!(read(short), Err(WireErrorKind::OverBudget { count: 1000 }));

    let zeros = Bytes::from(vec![0; 8 << 20]);
    assert_eq!(Budget::of_frame(zeros.len()), Budget(Budget::MAX));
    for (key, version) in kinds() {
        decode_both(key, &zeros, version);
        decode_both(key, &Bytes::from_static(&[1; 64 << 10]), version);
    }
}

#[test]
fn tags_inside_tags_are_skipped_whole() {
    // An unknown tagged field whose bytes look like tagged fields without end.
    let mut writer = Writer::new();
    writer.slice(&[0, 0, 0, 0]);
    writer.unsigned_varint(1);
    writer.tagged_field(9999, |writer| {
        writer.slice(&[1].repeat(100_000));
    });
    let bytes = Bytes::from(writer.finish().expect("short").concat());
    let mut reader = Reader::new(&bytes);
    let request = MetadataRequest::decode(&mut reader, 9).expect("unknown tags are skipped");
    assert_eq!((request.topics, reader.remaining()), (None, 0));

    // As many tagged fields as a varint can claim.
    let mut endless = vec![0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f];
    endless.extend([7, 0].repeat(1000));
    assert_eq!(decode::<MetadataRequest>(&endless, 9), Err(WireErrorKind::Varint));
}

#[test]
fn a_request_outside_the_table_is_named() {
    let frame = |code: i16, version: i16| {
        let mut bytes = [code.to_be_bytes(), version.to_be_bytes()].concat();
        bytes.extend([0, 0, 0, 7, 0xff, 0xff]);
        decode_request(&bytes.into())
    };
    let unknown = frame(999, 0).expect_err("no such key");
    assert_eq!(unknown.to_string(), "no request has the key 999 here");
    for version in [-1, 5, i16::MAX, i16::MIN] {
        match frame(18, version) {
            Err(RequestError::UnsupportedVersion { key: ApiKey::ApiVersions, prefix }) => {
                assert_eq!((prefix.version, prefix.correlation_id), (version, 7));
            }
            other => panic!("version {version}: {other:?}"),
        }
    }
    // Produce is advertised from 0 and spoken from 3.
    assert_eq!(ApiKey::Produce.advertised(), (0, 13));
    let old = frame(0, 2).expect_err("too old");
    assert_eq!(old.to_string(), "version 2 of Produce is not among 3 to 13");
}
