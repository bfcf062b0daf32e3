//! What real clients and a real broker said to one another: all of it is read, and written again
//! it is the same bytes. The recordings are in `tests/captured`, one file a client.

use std::collections::BTreeSet;
use std::path::Path;

use bytes::Bytes;
use quorate_core::batch;
use quorate_net::kafka::frame::{RequestError, decode_request, decode_response, encode_response};
use quorate_net::kafka::messages::FetchRequest;
use quorate_net::kafka::{ApiKey, Request, Response};
use quorate_net::wire::{Reader, Records, Writer};

struct Recorded {
    /// File and line, for complaints.
    place: String,
    is_request: bool,
    code: i16,
    version: i16,
    frame: Bytes,
}

fn recordings() -> Vec<Recorded> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captured");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the recordings are there")
        .map(|entry| entry.expect("a folder can be listed").path())
        .collect();
    files.sort();
    let mut recorded = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("recordings are text");
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
            let place = format!("{}:{}", path.display(), number + 1);
            recorded.push(parse(line, place));
        }
    }
    recorded
}

fn parse(line: &str, place: String) -> Recorded {
    let mut words = line.split(' ');
    let mut next = || words.next().unwrap_or_else(|| panic!("{place}: a word is missing"));
    let is_request = next() == ">";
    let code = next().parse().expect("a key");
    let version = next().parse().expect("a version");
    let digits = next();
    let bytes = (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("two hexadecimal digits"));
    let frame = bytes.collect::<Vec<_>>().into();
    Recorded { place, is_request, code, version, frame }
}

/// Reads a request and writes it again; `false` if we do not speak it.
fn request_returns(recorded: &Recorded) -> bool {
    let place = &recorded.place;
    let (header, request) = match decode_request(&recorded.frame) {
        Ok(decoded) => decoded,
        Err(RequestError::UnknownApi(_) | RequestError::UnsupportedVersion { .. }) => return false,
        Err(error) => panic!("{place}: {error}"),
    };
    assert_eq!((header.key.code(), header.version), (recorded.code, recorded.version));
    let mut writer = Writer::new();
    header.encode(&mut writer);
    request.encode(&mut writer, header.version);
    let again = writer.finish().expect("it was short enough before").concat();
    assert_eq!(again, recorded.frame, "{place}: {request:?}");
    true
}

fn response_returns(recorded: &Recorded) -> bool {
    let place = &recorded.place;
    let Some(key) = ApiKey::from_code(recorded.code) else { return false };
    if !key.speaks(recorded.version) {
        return false;
    }
    let mut reader = Reader::new(&recorded.frame);
    let correlation = reader.i32().expect("a correlation id");
    if key.response_header_is_flexible(recorded.version) {
        assert_eq!(reader.i8(), Ok(0), "{place}: no tagged fields in the header");
    }
    let response = Response::decode(key, &mut reader, recorded.version)
        .unwrap_or_else(|error| panic!("{place}: {error}"));
    assert_eq!(reader.remaining(), 0, "{place}: all of it is read");
    let again =
        encode_response(correlation, recorded.version, &response).expect("short enough").chunks;
    assert_eq!(again.concat()[4..], recorded.frame, "{place}: {response:?}");
    true
}

#[test]
fn all_that_was_said_is_read_and_written_again() {
    let mut understood = BTreeSet::new();
    let mut refused = BTreeSet::new();
    for recorded in recordings() {
        let returned = if recorded.is_request {
            request_returns(&recorded)
        } else {
            response_returns(&recorded)
        };
        let set = if returned { &mut understood } else { &mut refused };
        set.insert((recorded.code, recorded.version));
    }
    // ApiVersions 5 and DescribeLogDirs 5: the newest clients ask Kafka 4.4 for them.
    let expected = [(18, 5), (35, 5)];
    assert_eq!(refused, BTreeSet::from(expected));
    assert!(understood.len() > 50, "only {} kinds of messages", understood.len());
}

/// The records of a recorded Produce request or Fetch response.
fn records_of(recorded: &Recorded) -> Vec<Bytes> {
    let (code, version, frame) = (recorded.code, recorded.version, &recorded.frame);
    if recorded.is_request {
        let Ok((_, Request::Produce(request))) = decode_request(frame) else { return Vec::new() };
        let partitions = request.topic_data.into_iter().flat_map(|topic| topic.partition_data);
        return partitions.filter_map(|data| data.records).map(Records::into_bytes).collect();
    }
    let Some(ApiKey::Fetch) = ApiKey::from_code(code) else { return Vec::new() };
    let (_, response) = decode_response::<FetchRequest>(frame, version).expect("it was read above");
    let partitions = response.responses.into_iter().flat_map(|topic| topic.partitions);
    partitions.filter_map(|data| data.records).map(Records::into_bytes).collect()
}

#[test]
fn the_records_inside_are_read_to_the_last() {
    let mut codecs = BTreeSet::new();
    let mut records = 0;
    for recorded in recordings() {
        for bytes in records_of(&recorded) {
            for batch in batch::split(bytes) {
                let batch = batch.unwrap_or_else(|error| panic!("{}: {error}", recorded.place));
                batch.verify().unwrap_or_else(|error| panic!("{}: {error}", recorded.place));
                codecs.insert(batch.header().codec().name());
                let plain = batch.uncompressed(1 << 20).expect("clients compress well");
                for record in batch::Records::new(&plain, batch.header().record_count()) {
                    record.unwrap_or_else(|error| panic!("{}: {error}", recorded.place));
                    records += 1;
                }
            }
        }
    }
    assert_eq!(codecs, BTreeSet::from(["none", "gzip", "snappy", "lz4", "zstd"]));
    assert!(records > 50, "only {records} records");
}
