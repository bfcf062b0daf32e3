//! What was written down about a log and about the cluster: snapshots under a right checksum, and
//! metadata records.

use bytes::Bytes;
use quorate_core::metadata::Record;
use quorate_core::partition::recovered::Recovered;
use quorate_core::segment::checkpoint::seal;

use super::Draw;

/// Snapshot or record, then its bytes behind the version.
pub fn state(bytes: &[u8]) {
    let mut draw = Draw(bytes);
    let steer = draw.byte();
    let body = [&[1], draw.0].concat();
    if steer % 2 == 0 {
        if let Ok(record) = Record::decode(&body) {
            assert_eq!(Record::decode(&record.encode()), Ok(record));
        }
        return;
    }
    let empty = Recovered::default().to_snapshot();
    let kind = [empty[0], empty[1], empty[2], empty[3]];
    let version = u16::from_be_bytes([empty[4], empty[5]]);
    if let Ok(state) = Recovered::from_snapshot(&seal(kind, version, &body)) {
        state.check();
        assert_eq!(Recovered::from_snapshot(&state.to_snapshot()).as_ref(), Ok(&state));
    }
    let _ = Recovered::from_snapshot(&Bytes::copy_from_slice(bytes));
}
