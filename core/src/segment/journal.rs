//! The node's journal: groups of changes to many logs, each group made durable by one sync.
//!
//! A journal file is a page with the file's header, then groups, each from a page's start. Groups
//! are numbered without gaps over all files of a node's life. A group is written only after the
//! sync of the one before, so a whole header of a later group *proves* that an earlier one was
//! durable: if that earlier one cannot be read, it is rot. Without such proof it is a torn tail,
//! and whatever it held was never acknowledged. Files are used again; the groups of their earlier
//! life have smaller numbers.
//!
//! Checksums of headers begin with the journal's identity, so that a record whose value imitates a
//! group's header proves nothing.

mod entry;

use std::fmt;

use bytes::Bytes;

pub use self::entry::{Entry, EntryFlaw};
use super::bytes::Fields;
use super::frame::{FRAME_FRONT_BYTES, FRAME_HEADER_BYTES, FrameFlaw, frame_chunks};
use crate::batch::checksum::{checksum, extend};
use crate::batch::{Batch, Levels};
use crate::id::PartitionId;

/// Groups begin at multiples of this: a page of the operating system, so that writing a group
/// never touches a page that holds an acknowledged one.
pub const PAGE_BYTES: usize = 4096;

/// Magic 4, version 1, reserved 3, sequence 8, body bytes 4, entries 4, checksum of the entries'
/// heads 4, checksum of identity and header 4.
pub const GROUP_HEADER_BYTES: usize = 32;

const GROUP_MAGIC: [u8; 4] = *b"QGRP";
const FILE_MAGIC: [u8; 4] = *b"QJNL";
const VERSION: u8 = 1;
const GROUP_CHECKSUM_AT: usize = GROUP_HEADER_BYTES - 4;
const FILE_HEADER_BYTES: usize = 36;

static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// Which journal this is: random bytes, drawn when the data directory was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalId(pub [u8; 16]);

/// The first page of a journal file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// Number of the first group that this file was taken into use for.
    pub first_sequence: u64,
}

impl FileHeader {
    /// A whole page.
    pub fn encode(self, journal: JournalId) -> Bytes {
        let mut out = Vec::with_capacity(PAGE_BYTES);
        out.extend_from_slice(&FILE_MAGIC);
        out.extend_from_slice(&[VERSION, 0, 0, 0]);
        out.extend_from_slice(&journal.0);
        out.extend_from_slice(&self.first_sequence.to_be_bytes());
        let checksum = checksum(&out);
        out.extend_from_slice(&checksum.to_be_bytes());
        out.resize(PAGE_BYTES, 0);
        Bytes::from(out)
    }

    /// # Errors
    ///
    /// `Magic` or `HeaderChecksum` where the page was never written whole (which rot may be too:
    /// look for `later_group` behind it), `Version` of a newer build, `Stranger` for the file of
    /// another data directory.
    pub fn decode(journal: JournalId, page: &[u8]) -> Result<Self, GroupFlaw> {
        let front = page.get(..FILE_HEADER_BYTES).ok_or(GroupFlaw::Short)?;
        let mut fields = Fields(front);
        if fields.array() != Some(FILE_MAGIC) {
            return Err(GroupFlaw::Magic);
        }
        let claimed = Fields(&front[FILE_HEADER_BYTES - 4..]).u32();
        if claimed != Some(checksum(&front[..FILE_HEADER_BYTES - 4])) {
            return Err(GroupFlaw::HeaderChecksum);
        }
        let [version, ..] = fields.array::<4>().ok_or(GroupFlaw::Short)?;
        if version != VERSION {
            return Err(GroupFlaw::Version { found: version });
        }
        if fields.array() != Some(journal.0) {
            return Err(GroupFlaw::Stranger);
        }
        Ok(Self { first_sequence: fields.u64().ok_or(GroupFlaw::Short)? })
    }
}

/// A group being gathered.
#[derive(Clone, Debug)]
pub struct GroupBuilder {
    journal: JournalId,
    sequence: u64,
    heads: u32,
    entries: u32,
    body_bytes: usize,
    chunks: Vec<Bytes>,
}

impl GroupBuilder {
    pub fn new(journal: JournalId, sequence: u64) -> Self {
        let chunks = vec![Bytes::new()];
        Self { journal, sequence, heads: 0, entries: 0, body_bytes: 0, chunks }
    }

    /// Adds a batch that carries its final offset and leader epoch. Gives back the frame, whose
    /// bytes go into the segment as well: both share them.
    pub fn append(&mut self, partition: PartitionId, batch: &Batch, levels: Levels) -> [Bytes; 2] {
        let [front, records] = frame_chunks(partition, batch, levels);
        let head = entry::append_head(&front, records.len());
        let front = head.slice(entry::ENTRY_HEADER_BYTES..);
        self.push(head);
        self.body_bytes += records.len();
        self.chunks.push(records.clone());
        [front, records]
    }

    /// Adds a change that is not an append.
    pub fn note(&mut self, change: &Entry) {
        self.push(entry::encode(change));
    }

    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Bytes of the group as it would be written, a multiple of `PAGE_BYTES`.
    pub fn bytes(&self) -> usize {
        (GROUP_HEADER_BYTES + self.body_bytes).next_multiple_of(PAGE_BYTES)
    }

    /// An upper bound of what `append` adds to the body.
    pub fn append_bytes(batch: &Batch) -> usize {
        entry::ENTRY_HEADER_BYTES + FRAME_HEADER_BYTES + batch.len()
    }

    /// The chunks to write, one after another, at a page's start.
    pub fn finish(mut self) -> Vec<Bytes> {
        let body = u32::try_from(self.body_bytes).expect("a group fits a journal file");
        let mut out = Vec::with_capacity(GROUP_HEADER_BYTES);
        out.extend_from_slice(&GROUP_MAGIC);
        out.extend_from_slice(&[VERSION, 0, 0, 0]);
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.extend_from_slice(&body.to_be_bytes());
        out.extend_from_slice(&self.entries.to_be_bytes());
        out.extend_from_slice(&self.heads.to_be_bytes());
        out.extend_from_slice(&header_checksum(self.journal, &out).to_be_bytes());
        let padding = self.bytes() - GROUP_HEADER_BYTES - self.body_bytes;
        self.chunks[0] = Bytes::from(out);
        if padding > 0 {
            self.chunks.push(Bytes::from_static(&ZEROS[..padding]));
        }
        self.chunks
    }

    fn push(&mut self, head: Bytes) {
        // The records have a checksum in their batch; a second pass over them would buy nothing.
        self.heads = extend(self.heads, &head);
        self.entries += 1;
        self.body_bytes += head.len();
        self.chunks.push(head);
    }
}

/// A whole group, every entry of it checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub sequence: u64,
    pub entries: Vec<Entry>,
    /// To the start of the next group, a multiple of `PAGE_BYTES`.
    pub bytes: usize,
}

/// What stands at a page's start where group `expected` is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Group(Group),
    /// The group is there if so many bytes are; fewer were given.
    More {
        bytes: usize,
    },
    /// Not this group. `later_group` over all that follows, to the end of the newest file, says
    /// whether it once was: then it is rot; otherwise the journal ends here.
    Nothing(GroupFlaw),
}

/// Reads group `expected` at the front of `bytes`, of which the file has `left` from there on.
pub fn find_group(journal: JournalId, expected: u64, bytes: &Bytes, left: u64) -> Found {
    let header = match GroupHeader::decode(journal, bytes) {
        Ok(header) if header.sequence == expected => header,
        Ok(header) => {
            return Found::Nothing(GroupFlaw::Sequence { expected, found: header.sequence });
        }
        Err(GroupFlaw::Short) if left >= GROUP_HEADER_BYTES as u64 => {
            return Found::More { bytes: GROUP_HEADER_BYTES };
        }
        Err(flaw) => return Found::Nothing(flaw),
    };
    let end = GROUP_HEADER_BYTES + header.body_bytes as usize;
    if left < end as u64 {
        return Found::Nothing(GroupFlaw::Short);
    }
    if bytes.len() < end {
        return Found::More { bytes: end };
    }
    let body = bytes.slice(GROUP_HEADER_BYTES..end);
    match entry::decode_all(body, header.entries, header.heads) {
        Ok(entries) => Found::Group(Group {
            sequence: expected,
            entries,
            bytes: end.next_multiple_of(PAGE_BYTES),
        }),
        Err(flaw) => Found::Nothing(flaw),
    }
}

/// The number of a group beyond `sequence` whose header stands whole at a page's start in `bytes`
/// (which begin at a page's start themselves): the proof that group `sequence` was durable.
pub fn later_group(journal: JournalId, sequence: u64, bytes: &[u8]) -> Option<u64> {
    bytes
        .chunks(PAGE_BYTES)
        .filter_map(|page| GroupHeader::decode(journal, page).ok())
        .map(|header| header.sequence)
        .find(|&found| found > sequence)
}

struct GroupHeader {
    sequence: u64,
    body_bytes: u32,
    entries: u32,
    heads: u32,
}

impl GroupHeader {
    fn decode(journal: JournalId, bytes: &[u8]) -> Result<Self, GroupFlaw> {
        let front = bytes.get(..GROUP_HEADER_BYTES).ok_or(GroupFlaw::Short)?;
        let mut fields = Fields(front);
        if fields.array() != Some(GROUP_MAGIC) {
            return Err(GroupFlaw::Magic);
        }
        let claimed = Fields(&front[GROUP_CHECKSUM_AT..]).u32();
        if claimed != Some(header_checksum(journal, &front[..GROUP_CHECKSUM_AT])) {
            return Err(GroupFlaw::HeaderChecksum);
        }
        let [version, ..] = fields.array::<4>().ok_or(GroupFlaw::Short)?;
        if version != VERSION {
            return Err(GroupFlaw::Version { found: version });
        }
        Ok(Self {
            sequence: fields.u64().ok_or(GroupFlaw::Short)?,
            body_bytes: fields.u32().ok_or(GroupFlaw::Short)?,
            entries: fields.u32().ok_or(GroupFlaw::Short)?,
            heads: fields.u32().ok_or(GroupFlaw::Short)?,
        })
    }
}

fn header_checksum(journal: JournalId, header: &[u8]) -> u32 {
    extend(checksum(&journal.0), header)
}

const _: () = assert!(FRAME_FRONT_BYTES < PAGE_BYTES);

/// Why no group stands where one is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupFlaw {
    /// The bytes end too early.
    Short,
    /// Nothing of the kind begins here: untouched space, or the middle of something older.
    Magic,
    /// The header does not have its checksum.
    HeaderChecksum,
    /// A newer build wrote this.
    Version { found: u8 },
    /// The file belongs to another data directory.
    Stranger,
    /// A group of the file's earlier life, or one out of order.
    Sequence { expected: u64, found: u64 },
    /// The entries do not have their checksum, or are fewer or more than announced.
    Body,
    /// One of the entries is not whole.
    Entry { index: u32, flaw: EntryFlaw },
}

impl GroupFlaw {
    /// A newer build wrote this: refuse to start, rather than take it for the journal's end.
    pub fn is_newer(&self) -> bool {
        matches!(
            self,
            Self::Version { .. }
                | Self::Entry {
                    flaw: EntryFlaw::Tag { .. } | EntryFlaw::Frame(FrameFlaw::Version { .. }),
                    ..
                }
        )
    }
}

impl fmt::Display for GroupFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the journal file ends inside a group"),
            Self::Magic => f.write_str("no group begins here"),
            Self::HeaderChecksum => f.write_str("the header fails its checksum"),
            Self::Version { found } => {
                write!(f, "the journal has format {found}; this build knows {VERSION}")
            }
            Self::Stranger => f.write_str("the journal file belongs to another data directory"),
            Self::Sequence { expected, found } => {
                write!(f, "group {found} stands where group {expected} is due")
            }
            Self::Body => f.write_str("the group's entries fail their checksum"),
            Self::Entry { index, flaw } => write!(f, "entry {index} of the group: {flaw}"),
        }
    }
}

impl std::error::Error for GroupFlaw {}
