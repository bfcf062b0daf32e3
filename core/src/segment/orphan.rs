//! A file of records that were cut off a log because its leader's log parts from it there: a head
//! that says where they stood, and then their frames as they were.
//!
//! The file's name holds the place of its last record, offset and leader epoch. Two records that
//! agree in these are one, and so is all that stands before them: so a name tells the content, and
//! setting the same records aside twice gives one file.

use std::fmt;

use bytes::Bytes;

use super::bytes::{Fields, PARTITION_BYTES, put_partition};
use super::checkpoint::{self, ENVELOPE_BYTES, EnvelopeError};
use super::{directory_name, parse_directory_name};
use crate::id::{LeaderEpoch, NodeId, Offset, PartitionId};
use crate::time::Timestamp;

/// The head in its envelope; frames follow.
pub const HEAD_BYTES: usize = ENVELOPE_BYTES + PARTITION_BYTES + 52;

const KIND: [u8; 4] = *b"QORP";
const VERSION: u16 = 1;
const EXTENSION: &str = ".orphan";

/// Which records of which log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrphanName {
    pub partition: PartitionId,
    /// The first record's offset.
    pub first: Offset,
    /// Behind the last record.
    pub end: Offset,
    /// Under which the last record was written.
    pub epoch: LeaderEpoch,
}

impl fmt::Display for OrphanName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { partition, first, end, epoch } = self;
        let log = directory_name(*partition);
        write!(f, "{log}.{:020}-{:020}-{:010}{EXTENSION}", first.0, end.0, epoch.0)
    }
}

impl OrphanName {
    /// `None` for a file that is not one of ours.
    pub fn parse(name: &str) -> Option<Self> {
        let (log, place) = name.strip_suffix(EXTENSION)?.split_once('.')?;
        let mut numbers = place.split('-').map(|digits| digits.parse::<i64>().ok());
        let found = Self {
            partition: parse_directory_name(log)?,
            first: Offset(numbers.next()??),
            end: Offset(numbers.next()??),
            epoch: LeaderEpoch(numbers.next()??.try_into().ok()?),
        };
        (found.to_string() == name).then_some(found)
    }
}

/// The head of an orphan file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphan {
    pub name: OrphanName,
    /// Whose log has something else there, and since which leader epoch it leads.
    pub leader: NodeId,
    pub leader_epoch: LeaderEpoch,
    pub records: u64,
    /// Of the frames.
    pub bytes: u64,
    /// When they were set aside, as far as the node knew the time; `Timestamp::NONE` if it did not.
    pub at: Timestamp,
}

impl Orphan {
    pub fn encode(&self) -> Bytes {
        let mut body = Vec::with_capacity(HEAD_BYTES);
        put_partition(&mut body, self.name.partition);
        body.extend_from_slice(&self.name.first.0.to_be_bytes());
        body.extend_from_slice(&self.name.end.0.to_be_bytes());
        body.extend_from_slice(&self.name.epoch.0.to_be_bytes());
        body.extend_from_slice(&self.leader.0.to_be_bytes());
        body.extend_from_slice(&self.leader_epoch.0.to_be_bytes());
        body.extend_from_slice(&self.records.to_be_bytes());
        body.extend_from_slice(&self.bytes.to_be_bytes());
        body.extend_from_slice(&self.at.0.to_be_bytes());
        checkpoint::seal(KIND, VERSION, &body)
    }

    /// Reads the head at the front of a file.
    ///
    /// # Errors
    ///
    /// As `checkpoint::open`.
    pub fn decode(bytes: &Bytes) -> Result<Self, EnvelopeError> {
        let (_, body) = checkpoint::open(KIND, VERSION, bytes)?;
        Self::read(&body).ok_or(EnvelopeError::Body)
    }

    fn read(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let name = OrphanName {
            partition: fields.partition()?,
            first: Offset(fields.i64()?),
            end: Offset(fields.i64()?),
            epoch: LeaderEpoch(fields.i32()?),
        };
        let found = Self {
            name,
            leader: NodeId(fields.i32()?),
            leader_epoch: LeaderEpoch(fields.i32()?),
            records: fields.u64()?,
            bytes: fields.u64()?,
            at: Timestamp(fields.i64()?),
        };
        let possible = Offset::ZERO <= name.first && name.first <= name.end;
        (possible && fields.0.is_empty()).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::TopicId;

    #[test]
    fn a_head_and_a_name_survive() {
        let partition = PartitionId { topic: TopicId([0xab; 16]), index: 7 };
        let (first, end, epoch) = (Offset(5), Offset(9), LeaderEpoch(3));
        let name = OrphanName { partition, first, end, epoch };
        let text = "abababab-abab-abab-abab-abababababab-7\
                    .00000000000000000005-00000000000000000009-0000000003.orphan";
        assert_eq!(name.to_string(), text);
        assert_eq!(OrphanName::parse(text), Some(name));
        for stranger in ["", "x.orphan", &text[1..], &text[..80], &text.replace("0005", "-005")] {
            assert_eq!(OrphanName::parse(stranger), None, "{stranger}");
        }
        let (leader, leader_epoch, at) = (NodeId(2), LeaderEpoch(4), Timestamp(1_767_225_600_000));
        let orphan = Orphan { name, leader, leader_epoch, records: 4, bytes: 321, at };
        let bytes = orphan.encode();
        assert_eq!(bytes.len(), HEAD_BYTES);
        assert_eq!(Orphan::decode(&bytes), Ok(orphan));
        for cut in 0..bytes.len() {
            assert!(Orphan::decode(&bytes.slice(..cut)).is_err());
        }
        let hex: String =
            bytes[..ENVELOPE_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "514f5250000100000000004880f7aad2");
    }
}
