//! What stands before each request and response. Kafka's `RequestHeader` and `ResponseHeader`.

use bytes::Bytes;

use super::ApiKey;
use crate::wire::{Form, Reader, Text, Value, WireError, Writer};

/// Strings in headers have the old form in every version: the client id is read before the
/// receiver can know more.
const OLD: Form = Form { version: 0, flexible: false };

/// The header of a request, once its key and version are known to be spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    pub key: ApiKey,
    pub version: i16,
    /// Chosen by the client, repeated in the response.
    pub correlation_id: i32,
    /// What the client calls itself; for logs and quotas, never trusted.
    pub client_id: Option<Text>,
}

/// The first eight bytes of every request, whatever follows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    pub code: i16,
    pub version: i16,
    pub correlation_id: i32,
}

impl Prefix {
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { code: reader.i16()?, version: reader.i16()?, correlation_id: reader.i32()? })
    }

    /// The prefix of a whole frame.
    pub fn of(frame: &Bytes) -> Result<Self, WireError> {
        Self::decode(&mut Reader::new(frame))
    }
}

impl RequestHeader {
    /// Reads what follows `prefix`. The caller has made sure that `key` speaks the version.
    pub(crate) fn decode_rest(
        prefix: Prefix,
        key: ApiKey,
        reader: &mut Reader<'_>,
    ) -> Result<Self, WireError> {
        let client_id = Option::<Text>::read(reader, OLD)
            .map_err(|error| error.in_field("RequestHeader.client_id"))?;
        if key.request_header_is_flexible(prefix.version) {
            reader.tagged_fields(|_, _| Ok(false))?;
        }
        Ok(Self { key, version: prefix.version, correlation_id: prefix.correlation_id, client_id })
    }

    pub fn encode(&self, writer: &mut Writer) {
        writer.i16(self.key.code());
        writer.i16(self.version);
        writer.i32(self.correlation_id);
        self.client_id.write(writer, OLD);
        if self.key.request_header_is_flexible(self.version) {
            writer.unsigned_varint(0);
        }
    }
}

/// Reads a response's header: the correlation id.
pub(crate) fn decode_response_header(
    key: ApiKey,
    version: i16,
    reader: &mut Reader<'_>,
) -> Result<i32, WireError> {
    let correlation_id = reader.i32()?;
    if key.response_header_is_flexible(version) {
        reader.tagged_fields(|_, _| Ok(false))?;
    }
    Ok(correlation_id)
}

pub(crate) fn encode_response_header(
    key: ApiKey,
    version: i16,
    correlation_id: i32,
    writer: &mut Writer,
) {
    writer.i32(correlation_id);
    if key.response_header_is_flexible(version) {
        writer.unsigned_varint(0);
    }
}
