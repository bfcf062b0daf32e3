//! Values that are written once in a run, and the records that carry them: key, value and headers
//! follow from the value alone, so that any other byte is seen.

use bytes::Bytes;
use quorate_core::batch::{Batch, BatchBuilder, Codec, Record, RecordHeader, Records};
use quorate_core::id::{ProducerEpoch, ProducerId};
use quorate_core::time::Timestamp;
use quorate_net::client::{self, Message};

use crate::history::{Producer, Seen, Value};
use crate::plan::Plan;

/// A reader refuses to decompress a batch to more than this.
const UNCOMPRESSED_MAX: usize = 64 << 20;
const FEWEST_BYTES: usize = 8;

/// The value of a writer's `count`-th record of so many bytes.
pub fn value(writer: u32, bytes: u64, count: u64) -> Value {
    assert!(writer < 256 && bytes < 1 << 16 && count < 1 << 40, "beyond what a value can name");
    u64::from(writer) << 56 | bytes << 40 | count
}

/// The noise that fills a record's value, and how many bytes the value has.
fn noise_of(value: Value) -> ([u8; FEWEST_BYTES], usize) {
    let bytes = usize::from((value >> 40) as u16).max(FEWEST_BYTES);
    (value.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), bytes)
}

/// Puts the bytes of a record's value.
fn put_bytes_of(value: Value, out: &mut Vec<u8>) {
    let (noise, bytes) = noise_of(value);
    out.extend_from_slice(&value.to_be_bytes());
    while out.len() + FEWEST_BYTES <= bytes {
        out.extend_from_slice(&noise);
    }
    out.extend_from_slice(&noise[..bytes - out.len()]);
}

/// Whether these are the bytes of a record's value.
fn are_bytes_of(value: Value, found: &[u8]) -> bool {
    let (noise, bytes) = noise_of(value);
    found.len() == bytes
        && found[..FEWEST_BYTES] == value.to_be_bytes()
        && found[FEWEST_BYTES..].chunks(FEWEST_BYTES).all(|part| *part == noise[..part.len()])
}

/// A writer's number with this bit writes into topics that are compacted.
const COMPACTED: u32 = 128;
/// Keys of such records.
const KEYS: u64 = 5;

/// The writer's number that its values tell.
pub fn writer(plan: &Plan, number: u32) -> u32 {
    let compacted = plan.topics.iter().any(|topic| topic.compact);
    if compacted { number | COMPACTED } else { number }
}

/// Which key a value has, of those that compaction tells apart.
pub fn compacted_key(value: Value) -> Option<u64> {
    (value >> 56 >= u64::from(COMPACTED)).then_some(value % KEYS)
}

/// Null, empty, and something; one of a few where that matters.
fn key_of(value: Value, bytes: &[u8; 8]) -> Option<&[u8]> {
    const NAMES: [&[u8]; KEYS as usize] = [b"", b"a", b"b", b"c", b"a key"];
    if let Some(key) = compacted_key(value) {
        return Some(NAMES[key as usize]);
    }
    match value % 3 {
        0 => None,
        1 => Some(&[]),
        _ => Some(&bytes[4..]),
    }
}

/// A header that stands twice, and one without a value, now and then.
fn headers_of(value: Value) -> &'static [RecordHeader<'static>] {
    const HEADERS: &[RecordHeader<'static>] = &[
        RecordHeader { key: b"h", value: Some(b"1") },
        RecordHeader { key: b"h", value: Some(b"") },
        RecordHeader { key: b"n", value: None },
    ];
    &HEADERS[..if value.is_multiple_of(5) { 3 } else { 0 }]
}

/// A batch of these values.
pub fn batch(
    values: &[Value],
    codec: Codec,
    producer: Option<Producer>,
    timestamp: Timestamp,
) -> Batch {
    let mut builder = BatchBuilder::new(codec);
    if let Some(producer) = producer {
        let (id, epoch) = (ProducerId(producer.id), ProducerEpoch(producer.epoch));
        builder = builder.producer(id, epoch, producer.sequence);
    }
    fill(builder, values, timestamp)
}

/// A batch of these values in a transaction.
pub fn transactional_batch(values: &[Value], producer: Producer, timestamp: Timestamp) -> Batch {
    let (id, epoch) = (ProducerId(producer.id), ProducerEpoch(producer.epoch));
    let builder = BatchBuilder::new(Codec::None).producer(id, epoch, producer.sequence);
    fill(builder.transactional(), values, timestamp)
}

fn fill(mut builder: BatchBuilder, values: &[Value], timestamp: Timestamp) -> Batch {
    let mut bytes = Vec::new();
    for value in values {
        bytes.clear();
        put_bytes_of(*value, &mut bytes);
        let name = value.to_be_bytes();
        let headers = headers_of(*value).iter().copied();
        builder.append(timestamp, key_of(*value, &name), Some(&bytes), headers);
    }
    builder.build()
}

/// The same record for a client that builds batches by itself; topic and time are left open.
pub fn message(value: Value) -> Message {
    let mut bytes = Vec::new();
    put_bytes_of(value, &mut bytes);
    let name = value.to_be_bytes();
    let headers = headers_of(value).iter().map(|header| client::RecordHeader {
        key: Bytes::copy_from_slice(header.key),
        value: header.value.map(Bytes::copy_from_slice),
    });
    Message {
        key: key_of(value, &name).map(Bytes::copy_from_slice),
        value: Some(Bytes::from(bytes)),
        headers: headers.collect(),
        ..Message::default()
    }
}

/// Which value a record carries, if it is one that `batch` writes.
fn read(record: &Record<'_>) -> Option<Value> {
    let bytes = record.value?;
    let value = Value::from_be_bytes(*bytes.first_chunk()?);
    let same = are_bytes_of(value, bytes)
        && record.key == key_of(value, &value.to_be_bytes())
        && record.headers.clone().eq(headers_of(value).iter().copied());
    same.then_some(value)
}

/// The records of a batch from offset `from` on, as a reader sees them. A batch that is damaged in
/// any way counts as one record that nobody wrote.
pub fn records(batch: &Batch, from: i64, seen: &mut Vec<Seen>) {
    let header = batch.header();
    let damaged = Seen { offset: header.base_offset().0, value: None, timestamp: 0 };
    if batch.verify().is_err() {
        seen.push(damaged);
        return;
    }
    let Ok(bytes) = batch.uncompressed(UNCOMPRESSED_MAX) else {
        seen.push(damaged);
        return;
    };
    for record in Records::new(&bytes, header.record_count()) {
        let Ok(record) = record else {
            seen.push(damaged);
            return;
        };
        let offset = batch.offset_of(&record).0;
        if offset >= from {
            let timestamp = batch.timestamp_of(&record).0;
            seen.push(Seen { offset, value: read(&record), timestamp });
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::id::{LeaderEpoch, Offset};

    use super::*;

    #[test]
    fn what_was_written_is_recognised_and_nothing_else() {
        let values: Vec<Value> = (0..9).map(|count| value(3, 8 + count * 7, count)).collect();
        for codec in Codec::ALL {
            let mut batch = batch(&values, codec, None, Timestamp(5));
            batch.stamp(Offset(100), LeaderEpoch(1));
            let mut seen = Vec::new();
            records(&batch, 102, &mut seen);
            let expected: Vec<Seen> = (102..)
                .zip(&values[2..])
                .map(|(offset, value)| Seen { offset, value: Some(*value), timestamp: 5 })
                .collect();
            assert_eq!(seen, expected);
        }
        let mut builder = BatchBuilder::new(Codec::None);
        builder.append(Timestamp(0), Some(b"k"), Some(b"not ours"), []);
        let mut seen = Vec::new();
        records(&builder.build(), 0, &mut seen);
        assert_eq!(seen, [Seen { offset: 0, value: None, timestamp: 0 }]);
    }
}
