//! What was written down about a log, about the cluster and about groups: snapshots under a right
//! checksum, metadata records, and the records of `__consumer_offsets`.

use bytes::Bytes;
use quorate_core::group::record::Entry;
use quorate_core::metadata::Record;
use quorate_core::partition::recovered::Recovered;
use quorate_core::segment::checkpoint::seal;

use super::Draw;

/// Which of the three, then its bytes; a record of a group begins with the length of its key.
pub fn state(bytes: &[u8]) {
    let mut draw = Draw(bytes);
    match draw.byte() % 4 {
        0 => metadata(draw.0),
        1 => snapshot(draw.0),
        steer => {
            let key = usize::from(draw.byte()).min(draw.0.len());
            let (key, value) = draw.0.split_at(key);
            group(key, (steer == 2).then_some(value));
        }
    }
}

fn metadata(body: &[u8]) {
    if let Ok(record) = Record::decode(&[&[1], body].concat()) {
        assert_eq!(Record::decode(&record.encode()), Ok(record));
    }
}

fn group(key: &[u8], value: Option<&[u8]>) {
    if let Ok(entry) = Entry::decode(key, value) {
        let value = entry.value();
        assert_eq!(Entry::decode(&entry.key(), value.as_deref()), Ok(entry));
    }
}

/// Behind the version.
fn snapshot(body: &[u8]) {
    let empty = Recovered::default().to_snapshot();
    let kind = [empty[0], empty[1], empty[2], empty[3]];
    let version = u16::from_be_bytes([empty[4], empty[5]]);
    if let Ok(state) = Recovered::from_snapshot(&seal(kind, version, &[&[1], body].concat())) {
        state.check();
        assert_eq!(Recovered::from_snapshot(&state.to_snapshot()).as_ref(), Ok(&state));
    }
    let _ = Recovered::from_snapshot(&Bytes::copy_from_slice(body));
}
