//! Journal groups: a damaged group is either the group that was written or nothing.

use bytes::Bytes;
use quorate_core::batch::levels::Levels;
use quorate_core::id::Offset;
use quorate_core::segment::journal::{
    Entry, FileHeader, Found, GroupBuilder, JournalId, find_group, later_group,
};

use super::Draw;
use super::segment::{PARTITION, batch};

const JOURNAL: JournalId = JournalId([9; 16]);
const SEQUENCE: u64 = 42;

/// How many entries, how they are damaged, then what is in them; and the same bytes as a file.
pub fn journal(bytes: &[u8]) {
    let mut draw = Draw(bytes);
    let steer = draw.byte();
    let mut group = GroupBuilder::new(JOURNAL, SEQUENCE);
    for index in 0..i64::from(steer % 6) {
        let offset = Offset(index);
        match draw.byte() % 6 {
            0 => group.note(&Entry::Roll { partition: PARTITION, base: offset }),
            1 => group.note(&Entry::DeleteBefore { partition: PARTITION, offset }),
            2 => group.note(&Entry::TruncateTo { partition: PARTITION, offset }),
            3 => group.note(&Entry::Remove { partition: PARTITION }),
            _ => {
                group.append(PARTITION, &batch(&mut draw, index), Levels::DEFAULT);
            }
        }
    }
    let whole: Bytes = group.finish().concat().into();
    let left = whole.len() as u64;
    let written = find_group(JOURNAL, SEQUENCE, &whole, left);
    assert!(matches!(&written, Found::Group(found) if found.bytes == whole.len()));
    assert_eq!(later_group(JOURNAL, SEQUENCE - 1, &whole), Some(SEQUENCE));

    let mut damaged = whole.to_vec();
    for _ in 0..steer / 6 % 4 {
        let place = draw.place() % damaged.len();
        damaged[place] = draw.byte();
    }
    damaged.truncate(damaged.len() - draw.place() % (damaged.len() / 2));
    match find_group(JOURNAL, SEQUENCE, &damaged.into(), left) {
        found @ Found::Group(_) => assert_eq!(found, written),
        Found::More { bytes } => assert!(bytes <= whole.len()),
        Found::Nothing(_) => {}
    }

    let raw = Bytes::copy_from_slice(bytes);
    let _ = find_group(JOURNAL, SEQUENCE, &raw, draw.place() as u64);
    let _ = later_group(JOURNAL, SEQUENCE, &raw);
    let _ = FileHeader::decode(JOURNAL, &raw);
}
