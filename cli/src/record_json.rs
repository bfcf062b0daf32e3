//! Records as lines of JSON, with kcat's names; bytes that are not UTF-8 stand in a field of their
//! own, in base64, so that every record comes back as it was.

use bytes::Bytes;
use quorate_core::time::Timestamp;
use quorate_net::client::{ConsumedRecord, Message, RecordHeader};
use serde::{Deserialize, Serialize};

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct JsonRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<i64>,
    /// Names and values in turn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headers: Vec<Option<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headers_base64: Vec<Option<String>>,
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    payload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

/// As text if it is, else in base64.
fn split(bytes: Option<&Bytes>) -> (Option<String>, Option<String>) {
    match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => (None, None),
        Some((_, Ok(text))) => (Some(text.to_owned()), None),
        Some((bytes, Err(_))) => (None, Some(encode(bytes))),
    }
}

fn joined(text: Option<String>, base64: Option<String>) -> Result<Option<Bytes>, String> {
    match (text, base64) {
        (_, Some(base64)) => decode(&base64)
            .map(|bytes| Some(bytes.into()))
            .ok_or_else(|| format!("`{base64}` is not base64")),
        (text, None) => Ok(text.map(Bytes::from)),
    }
}

impl JsonRecord {
    pub(crate) fn new(topic: &str, partition: i32, record: &ConsumedRecord) -> Self {
        let (key, key_base64) = split(record.key.as_ref());
        let (payload, payload_base64) = split(record.value.as_ref());
        let parts = || {
            let pairs = record.headers.iter();
            pairs.flat_map(|header| [Some(&header.key), header.value.as_ref()])
        };
        let readable = parts().flatten().all(|part| std::str::from_utf8(part).is_ok());
        let (mut headers, mut headers_base64) = (Vec::new(), Vec::new());
        if readable {
            headers = parts().map(|part| split(part).0).collect();
        } else {
            headers_base64 = parts().map(|part| part.map(|bytes| encode(bytes))).collect();
        }
        Self {
            topic: Some(topic.to_owned()),
            partition: Some(partition),
            offset: Some(record.offset.0),
            ts: Some(record.timestamp.0),
            headers,
            headers_base64,
            key,
            key_base64,
            payload,
            payload_base64,
        }
    }

    /// The record to be produced. Topic, partition and offset say where it came from, not where
    /// it goes.
    pub(crate) fn into_message(self) -> Result<Message, String> {
        let mut headers = Vec::new();
        let text = self.headers.chunks(2).map(|pair| (pair, false));
        let coded = self.headers_base64.chunks(2).map(|pair| (pair, true));
        for (pair, coded) in text.chain(coded) {
            let [Some(key), value] = pair else {
                return Err("headers are names and values in turn".to_owned());
            };
            let part = |part: &String| match coded {
                true => joined(None, Some(part.clone())),
                false => joined(Some(part.clone()), None),
            };
            let key = part(key)?.unwrap_or_default();
            let value = value.as_ref().map(part).transpose()?.flatten();
            headers.push(RecordHeader { key, value });
        }
        Ok(Message {
            key: joined(self.key, self.key_base64)?,
            value: joined(self.payload, self.payload_base64)?,
            headers,
            timestamp: self.ts.map(Timestamp),
            ..Message::default()
        })
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// RFC 4648, with padding.
fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut group = [0; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for place in 0..4 {
            let digit = (bits >> (18 - 6 * place)) & 63;
            text.push(if place <= chunk.len() {
                char::from(ALPHABET[digit as usize])
            } else {
                '='
            });
        }
    }
    text
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for chunk in digits.chunks(4) {
        let mut bits = 0;
        for &digit in chunk {
            let value = ALPHABET.iter().position(|&known| known == digit)?;
            bits = bits << 6 | u32::try_from(value).ok()?;
        }
        bits <<= 6 * (4 - chunk.len());
        let group = bits.to_be_bytes();
        bytes.extend(&group[1..chunk.len().max(1)]);
    }
    (digits.len() % 4 != 1).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use quorate_core::id::Offset;

    use super::*;

    #[test]
    fn base64_is_rfc_4648() {
        let vectors =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (bytes, text) in vectors {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!((decode("Z"), decode("Zm9v!")), (None, None));
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        let header = |key: &'static [u8], value: Option<&'static [u8]>| RecordHeader {
            key: Bytes::from_static(key),
            value: value.map(Bytes::from_static),
        };
        for headers in [
            vec![],
            vec![header(b"a", Some(b"1")), header(b"a", None), header(b"b", Some(b""))],
            vec![header(b"a", Some(b"\xff")), header(b"b", None)],
        ] {
            for value in [None, Some(Bytes::new()), Some(Bytes::from_static(b"\xfe\xff"))] {
                let record = ConsumedRecord {
                    offset: Offset(3),
                    timestamp: Timestamp(9),
                    key: Some(Bytes::from_static("schlüssel".as_bytes())),
                    value,
                    headers: headers.clone(),
                };
                let line = serde_json::to_string(&JsonRecord::new("t", 0, &record)).unwrap();
                let read: JsonRecord = serde_json::from_str(&line).unwrap();
                let message = read.into_message().unwrap();
                assert_eq!((message.key, message.value), (record.key, record.value));
                assert_eq!(message.headers, record.headers);
                assert_eq!(message.timestamp, Some(record.timestamp));
            }
        }
    }
}
