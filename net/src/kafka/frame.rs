//! Whole frames: header and body together. On a connection each is preceded by its length, which
//! `encode_*` writes and `net::connection` has taken off before `decode_*`.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;

use super::header::{self, Prefix, RequestHeader};
use super::messages::ApiVersionsResponse;
use super::{ApiKey, Call, Message, Request, Response, error};
use crate::wire::{Reader, WireError, Writer};

/// Why a frame is not a request that we answer. Kafka closes the connection on each of them,
/// except an unknown version of ApiVersions: [`unsupported_api_versions`] answers that one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// A key outside the table.
    UnknownApi(Prefix),
    /// A version outside the table's range for the key.
    UnsupportedVersion { key: ApiKey, prefix: Prefix },
    /// The key and version are spoken, the bytes are not such a request.
    Malformed { prefix: Option<Prefix>, error: WireError },
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownApi(prefix) => {
                write!(f, "no request has the key {} here", prefix.code)
            }
            Self::UnsupportedVersion { key, prefix } => {
                let versions = key.versions();
                write!(
                    f,
                    "version {} of {key} is not among {} to {}",
                    prefix.version,
                    versions.start(),
                    versions.end()
                )
            }
            Self::Malformed { prefix: Some(prefix), error } => {
                let Prefix { code, version, .. } = prefix;
                write!(f, "a request of key {code}, version {version} is malformed: {error}")
            }
            Self::Malformed { prefix: None, error } => {
                write!(f, "a request is too short for its header: {error}")
            }
        }
    }
}

impl std::error::Error for RequestError {}

/// A request taken apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    pub header: RequestHeader,
    pub request: Request,
    /// What its parts take beside the frame, in bytes; within [`crate::wire::Budget::of_frame`].
    pub memory: usize,
}

/// Decodes a request frame. Text, bytes and records in it are slices of `frame`.
pub fn decode_request(frame: &Bytes) -> Result<(RequestHeader, Request), RequestError> {
    decode_counted(frame).map(|decoded| (decoded.header, decoded.request))
}

/// As [`decode_request`], and says what it cost.
pub fn decode_counted(frame: &Bytes) -> Result<Decoded, RequestError> {
    let reader = &mut Reader::new(frame);
    let prefix =
        Prefix::decode(reader).map_err(|error| RequestError::Malformed { prefix: None, error })?;
    let key = ApiKey::from_code(prefix.code).ok_or(RequestError::UnknownApi(prefix))?;
    if !key.speaks(prefix.version) {
        return Err(RequestError::UnsupportedVersion { key, prefix });
    }
    let malformed = |error| RequestError::Malformed { prefix: Some(prefix), error };
    let header = RequestHeader::decode_rest(prefix, key, reader).map_err(malformed)?;
    let request = Request::decode(key, reader, prefix.version).map_err(malformed)?;
    Ok(Decoded { header, request, memory: reader.memory() })
}

/// The chunks of a request frame, its length first.
pub fn encode_request<R: Call>(header: &RequestHeader, body: &R) -> Result<Vec<Bytes>, WireError> {
    debug_assert_eq!(header.key, R::KEY, "the header is of another request");
    let mut writer = Writer::framed();
    header.encode(&mut writer);
    body.encode(&mut writer, header.version);
    writer.finish()
}

/// Decodes the response to a `R` of `version`: the correlation id and the body. An ApiVersions
/// response that refuses the version comes in version 0's form, whatever was asked.
pub fn decode_response<R: Call>(
    frame: &Bytes,
    version: i16,
) -> Result<(i32, R::Response), WireError> {
    let mut reader = Reader::new(frame);
    let correlation_id = header::decode_response_header(R::KEY, version, &mut reader)?;
    let refused = error::Code::UnsupportedVersion.code().to_be_bytes();
    let version = match R::KEY {
        ApiKey::ApiVersions if frame[4..].starts_with(&refused) => 0,
        _ => version,
    };
    Ok((correlation_id, R::Response::decode(&mut reader, version)?))
}

/// A response as it goes out.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// The frame, its length first.
    pub chunks: Vec<Bytes>,
    /// Where in it records stand: one range for each list of records that is not empty.
    pub records: Vec<Range<usize>>,
}

/// The response frame to a request of `version`.
pub fn encode_response(
    correlation_id: i32,
    version: i16,
    body: &Response,
) -> Result<Encoded, WireError> {
    let mut writer = Writer::framed();
    header::encode_response_header(body.key(), version, correlation_id, &mut writer);
    body.encode(&mut writer, version);
    let records = writer.take_records();
    Ok(Encoded { chunks: writer.finish()?, records })
}

/// The answer to an ApiVersions request of a version beyond ours: the error and our versions in
/// the form of version 0, from which every client learns what to ask instead. KIP-511.
pub fn unsupported_api_versions(
    correlation_id: i32,
    mut body: ApiVersionsResponse,
) -> Result<Vec<Bytes>, WireError> {
    body.error_code = error::Code::UnsupportedVersion.code();
    Ok(encode_response(correlation_id, 0, &body.into())?.chunks)
}

/// The bytes of one value, for tests and tools that look at bodies alone.
pub fn encode_body<M: Message>(body: &M, version: i16) -> Result<Vec<Bytes>, WireError> {
    let mut writer = Writer::new();
    body.encode(&mut writer, version);
    writer.finish()
}
