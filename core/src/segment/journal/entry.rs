//! One change of one log, as it stands in a group of the journal.

use std::fmt;

use bytes::Bytes;

use super::GroupFlaw;
use crate::batch::checksum::extend;
use crate::id::{Offset, PartitionId};
use crate::segment::bytes::{Fields, PARTITION_BYTES, put_partition};
use crate::segment::frame::{FRAME_FRONT_BYTES, Frame, FrameFlaw};

/// Tag 1, reserved 3, bytes of what follows 4.
pub(super) const ENTRY_HEADER_BYTES: usize = 8;

const APPEND: u8 = 1;
const ROLL: u8 = 2;
const DELETE_BEFORE: u8 = 3;
const TRUNCATE_TO: u8 = 4;
const REMOVE: u8 = 5;
const SYNCED: u8 = 6;

/// One change of one log. Replayed in order; each may have reached its segment already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Append(Frame),
    /// The active segment is closed; the next one begins at `base`.
    Roll {
        partition: PartitionId,
        base: Offset,
    },
    /// The log now starts at `offset`.
    DeleteBefore {
        partition: PartitionId,
        offset: Offset,
    },
    /// The log now ends at `offset`.
    TruncateTo {
        partition: PartitionId,
        offset: Offset,
    },
    /// All below `offset` stands in the segments, synced without the journal.
    Synced {
        partition: PartitionId,
        offset: Offset,
    },
    /// The log is gone, with its topic.
    Remove {
        partition: PartitionId,
    },
}

/// Why an entry is not whole, in a group whose entries have their checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryFlaw {
    /// Its length is not that of its kind.
    Length,
    /// A newer build's kind.
    Tag {
        found: u8,
    },
    Frame(FrameFlaw),
}

impl fmt::Display for EntryFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => f.write_str("its length is not that of its kind"),
            Self::Tag { found } => write!(f, "this build knows no entry of kind {found}"),
            Self::Frame(flaw) => flaw.fmt(f),
        }
    }
}

/// The entry's header and the two headers of its frame; the records follow.
pub(super) fn append_head(front: &[u8], records_bytes: usize) -> Bytes {
    let mut out = Vec::with_capacity(ENTRY_HEADER_BYTES + front.len());
    put_header(&mut out, APPEND, front.len() + records_bytes);
    out.extend_from_slice(front);
    Bytes::from(out)
}

/// An entry that is not an append (whose records would have to be copied).
pub(super) fn encode(entry: &Entry) -> Bytes {
    let mut out = Vec::with_capacity(ENTRY_HEADER_BYTES + PARTITION_BYTES + 8);
    let mut put = |tag, partition: &PartitionId, offset: Option<&Offset>| {
        put_header(&mut out, tag, PARTITION_BYTES + if offset.is_some() { 8 } else { 0 });
        put_partition(&mut out, *partition);
        if let Some(offset) = offset {
            out.extend_from_slice(&offset.0.to_be_bytes());
        }
    };
    match entry {
        Entry::Append(_) => panic!("appends go through GroupBuilder::append"),
        Entry::Roll { partition, base } => put(ROLL, partition, Some(base)),
        Entry::DeleteBefore { partition, offset } => put(DELETE_BEFORE, partition, Some(offset)),
        Entry::TruncateTo { partition, offset } => put(TRUNCATE_TO, partition, Some(offset)),
        Entry::Remove { partition } => put(REMOVE, partition, None),
        Entry::Synced { partition, offset } => put(SYNCED, partition, Some(offset)),
    }
    Bytes::from(out)
}

fn put_header(out: &mut Vec<u8>, tag: u8, bytes: usize) {
    out.extend_from_slice(&[tag, 0, 0, 0]);
    out.extend_from_slice(&u32::try_from(bytes).expect("an entry is below 2 GiB").to_be_bytes());
}

/// Reads the `count` entries that fill `body`, whose heads have the checksum `heads`.
pub(super) fn decode_all(body: Bytes, count: u32, heads: u32) -> Result<Vec<Entry>, GroupFlaw> {
    let mut computed = 0;
    let mut rest = body.clone();
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let (tag, payload) = take_entry(&mut rest).ok_or(GroupFlaw::Body)?;
        let head = payload.len().min(if tag == APPEND { FRAME_FRONT_BYTES } else { usize::MAX });
        let start = body.len() - rest.len() - payload.len() - ENTRY_HEADER_BYTES;
        computed = extend(computed, &body[start..start + ENTRY_HEADER_BYTES + head]);
        parts.push((tag, payload));
    }
    if computed != heads || parts.len() != count as usize {
        return Err(GroupFlaw::Body);
    }
    (0..)
        .zip(parts)
        .map(|(index, (tag, payload))| {
            decode(tag, &payload).map_err(|flaw| GroupFlaw::Entry { index, flaw })
        })
        .collect()
}

fn take_entry(rest: &mut Bytes) -> Option<(u8, Bytes)> {
    let mut fields = Fields(rest);
    let [tag, ..] = fields.array::<4>()?;
    let end = ENTRY_HEADER_BYTES.checked_add(fields.u32()? as usize)?;
    if rest.len() < end {
        return None;
    }
    let mut entry = rest.split_to(end);
    Some((tag, entry.split_off(ENTRY_HEADER_BYTES)))
}

fn decode(tag: u8, payload: &Bytes) -> Result<Entry, EntryFlaw> {
    if tag == APPEND {
        let frame = Frame::decode(payload).map_err(EntryFlaw::Frame)?;
        let frame = frame.ok_or(EntryFlaw::Frame(FrameFlaw::Missing))?;
        let whole = frame.header.frame_bytes() == payload.len() as u64;
        return if whole { Ok(Entry::Append(frame)) } else { Err(EntryFlaw::Length) };
    }
    let mut fields = Fields(payload);
    let partition = fields.partition().ok_or(EntryFlaw::Length)?;
    let mut offset = || fields.i64().map(Offset).ok_or(EntryFlaw::Length);
    let entry = match tag {
        ROLL => Entry::Roll { partition, base: offset()? },
        DELETE_BEFORE => Entry::DeleteBefore { partition, offset: offset()? },
        TRUNCATE_TO => Entry::TruncateTo { partition, offset: offset()? },
        REMOVE => Entry::Remove { partition },
        SYNCED => Entry::Synced { partition, offset: offset()? },
        found => return Err(EntryFlaw::Tag { found }),
    };
    if fields.0.is_empty() { Ok(entry) } else { Err(EntryFlaw::Length) }
}
