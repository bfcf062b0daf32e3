//! Record batches: as they come, and with length and checksum put right so that what lies behind
//! them is reached.

use bytes::Bytes;
use quorate_core::batch::validate::{Rules, validate};
use quorate_core::batch::{self, Batch, checksum, record::Records};
use quorate_core::id::{LeaderEpoch, Offset};
use quorate_core::time::Timestamp;

use super::Draw;

const HEADER_BYTES: usize = batch::HEADER_BYTES;
const UNCOMPRESSED_MAX: usize = 1 << 20;

/// Whether to put right, and rules; then the batch.
pub fn batch(bytes: &[u8]) {
    let mut draw = Draw(bytes);
    let steer = draw.byte();
    let mut bytes = draw.0.to_vec();
    if steer & 1 == 1 {
        put_right(&mut bytes);
    }
    let bytes = Bytes::from(bytes);
    for found in batch::split(bytes.clone()) {
        let Ok(found) = found else { break };
        walk(&found);
    }
    let Ok(mut batch) = Batch::parse(bytes) else { return };
    walk(&batch);
    let rules = Rules {
        now: Timestamp(1_700_000_000_000),
        batch_bytes_max: 1 << 20,
        uncompressed_bytes_max: UNCOMPRESSED_MAX,
        compact: steer & 2 != 0,
        log_append_time: steer & 4 != 0,
        timestamp_before_max: None,
        timestamp_after_max: None,
        zstd: steer & 8 != 0,
    };
    if validate(&mut batch, &rules).is_ok() {
        accepted(&mut batch);
    }
}

/// Reads all records; allocates for decompression only.
fn walk(batch: &Batch) -> usize {
    let Ok(records) = batch.uncompressed(UNCOMPRESSED_MAX) else { return 0 };
    assert!(records.len() <= UNCOMPRESSED_MAX);
    let mut count = 0;
    for record in Records::new(&records, batch.header().record_count()) {
        let Ok(record) = record else { return 0 };
        let claimed = record.headers.len();
        assert_eq!(record.headers.count(), claimed, "headers were walked once already");
        count += 1;
    }
    count
}

/// What a leader does with a batch it accepted keeps it whole.
fn accepted(batch: &mut Batch) {
    batch.verify().expect("an accepted batch has its checksum");
    let header = *batch.header();
    assert_eq!(walk(batch), header.record_count() as usize);
    batch.stamp(Offset(1000), LeaderEpoch(7));
    batch.verify().expect("offset and leader epoch are outside the checksum");
    assert_eq!(batch.header().next_offset(), Offset(1001 + i64::from(header.last_offset_delta())));
    batch.set_log_append_time(Timestamp(5));
    batch.verify().expect("the time of the append is under the checksum");
    let bytes: Bytes = batch.chunks().concat().into();
    assert_eq!(Batch::parse(bytes).as_ref(), Ok(&*batch));
}

/// Length, magic and checksum as they should be.
fn put_right(bytes: &mut Vec<u8>) {
    if bytes.len() < HEADER_BYTES {
        bytes.resize(HEADER_BYTES, 0);
    }
    let length = (bytes.len() - 12) as u32;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[16] = 2;
    let checksum = checksum::checksum(&bytes[21..]);
    bytes[17..21].copy_from_slice(&checksum.to_be_bytes());
}
