//! Requests and responses of every API and version.

use bytes::Bytes;
use quorate_net::kafka::frame::decode_request;
use quorate_net::kafka::{ApiKey, Request, Response};
use quorate_net::wire::sample::Source;
use quorate_net::wire::{Reader, WireError, Writer};

use super::Draw;

/// Key, version and mode, then a body to read, a source to sample from, or a whole frame.
pub fn messages(bytes: &[u8]) {
    let mut draw = Draw(bytes);
    let key = ApiKey::ALL[usize::from(draw.byte()) % ApiKey::ALL.len()];
    let versions: Vec<i16> = key.versions().collect();
    let version = versions[usize::from(draw.byte()) % versions.len()];
    match draw.byte() % 5 {
        0 => {
            let body = Bytes::copy_from_slice(draw.0);
            if let Ok(value) = Request::decode(key, &mut Reader::new(&body), version) {
                request_returns(&value, version);
            }
        }
        1 => {
            let body = Bytes::copy_from_slice(draw.0);
            if let Ok(value) = Response::decode(key, &mut Reader::new(&body), version) {
                response_returns(&value, version);
            }
        }
        2 => request_returns(&Request::sample(key, &mut Source::new(draw.0), version), version),
        3 => response_returns(&Response::sample(key, &mut Source::new(draw.0), version), version),
        _ => {
            let frame = Bytes::copy_from_slice(draw.0);
            if let Ok((header, request)) = decode_request(&frame) {
                request_returns(&request, header.version);
            }
        }
    }
}

/// A message that was read can be written, and is read as the same message with nothing left.
fn request_returns(value: &Request, version: i16) {
    let bytes = written(|writer| value.encode(writer, version));
    let read = |reader: &mut Reader<'_>| Request::decode(value.key(), reader, version);
    returns(value, &bytes, read);
}

fn response_returns(value: &Response, version: i16) {
    let bytes = written(|writer| value.encode(writer, version));
    let read = |reader: &mut Reader<'_>| Response::decode(value.key(), reader, version);
    returns(value, &bytes, read);
}

fn written(write: impl FnOnce(&mut Writer)) -> Bytes {
    let mut writer = Writer::new();
    write(&mut writer);
    let expected = writer.written();
    let bytes = writer.finish().expect("what came from a frame fits into one").concat();
    assert_eq!(bytes.len(), expected);
    bytes.into()
}

fn returns<V: PartialEq + std::fmt::Debug>(
    value: &V,
    bytes: &Bytes,
    read: impl FnOnce(&mut Reader<'_>) -> Result<V, WireError>,
) {
    let mut reader = Reader::new(bytes);
    assert_eq!(read(&mut reader).as_ref(), Ok(value));
    assert_eq!(reader.remaining(), 0);
}
