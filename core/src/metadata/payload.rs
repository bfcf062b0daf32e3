//! Records of the metadata as bytes: in an entry of the quorum's log one batch of them, in a
//! snapshot as many as it takes, one behind the other.

use bytes::{Bytes, BytesMut};

use super::Record;
use crate::batch::{Batch, BatchBuilder, Codec, Records, split};
use crate::time::Timestamp;

/// A batch of records is never larger when decompressed: ours are not compressed.
const BATCH_BYTES_MAX: usize = 256 << 20;

/// Bytes of a batch in a snapshot; one record may exceed it.
const SNAPSHOT_BATCH_BYTES: usize = 1 << 20;

/// `batch` as the data of an entry.
pub fn entry_data(batch: &Batch) -> Bytes {
    let [header, records] = batch.chunks();
    let mut data = BytesMut::with_capacity(header.len() + records.len());
    data.extend_from_slice(&header);
    data.extend_from_slice(&records);
    data.freeze()
}

/// `records` in batches of bounded size. `at` is for humans who look at them.
pub fn to_batches(records: &[Record], at: Timestamp) -> Vec<Batch> {
    let mut batches = Vec::new();
    let mut builder = BatchBuilder::new(Codec::None);
    for record in records {
        let bytes = record.encode();
        if !builder.is_empty() && builder.bytes() + bytes.len() > SNAPSHOT_BATCH_BYTES {
            let full = std::mem::replace(&mut builder, BatchBuilder::new(Codec::None));
            batches.push(full.build());
        }
        builder.append(at, None, Some(&bytes), []);
    }
    if !builder.is_empty() {
        batches.push(builder.build());
    }
    batches
}

/// The data of a snapshot that holds `records`.
pub fn snapshot_data(records: &[Record], at: Timestamp) -> Bytes {
    let mut data = BytesMut::new();
    for batch in to_batches(records, at) {
        batch.chunks().iter().for_each(|chunk| data.extend_from_slice(chunk));
    }
    data.freeze()
}

/// The records in the data of an entry or of a snapshot.
///
/// # Errors
///
/// Why this build cannot read them.
pub fn records_in(data: &Bytes) -> Result<Vec<Record>, String> {
    let mut records = Vec::new();
    let mut batches = split(data.clone());
    for batch in &mut batches {
        let batch = batch.map_err(|error| error.to_string())?;
        batch.verify().map_err(|error| error.to_string())?;
        records.extend(records_of(&batch)?);
    }
    match batches.rest().len() {
        0 => Ok(records),
        bytes => Err(format!("the last batch of records is cut short after {bytes} bytes")),
    }
}

/// The records in a batch.
///
/// # Errors
///
/// Why this build cannot read them.
pub fn records_of(batch: &Batch) -> Result<Vec<Record>, String> {
    let bytes = batch.uncompressed(BATCH_BYTES_MAX).map_err(|error| error.to_string())?;
    let mut records = Vec::new();
    for found in Records::new(&bytes, batch.header().record_count()) {
        let found = found.map_err(|error| error.to_string())?;
        let offset = batch.offset_of(&found);
        let record = Record::decode(found.value.unwrap_or_default());
        let named = |error| format!("record {offset} of the metadata log: {error}");
        records.push(record.map_err(named)?);
    }
    Ok(records)
}
