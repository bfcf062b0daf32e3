//! The records of `__consumer_offsets`, in Kafka's own formats: an offset of a group (key 1, value
//! 4, or 3 where the topic's id is not known), and a classic group with its members (key 2, value
//! 3). A record without value forgets what its key names. Those of consumer groups stand in
//! `record/consumer.rs`; other keys are skipped: newer kinds of groups have their own.

mod consumer;
pub(super) mod embedded;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

pub use self::consumer::{ClassicMember, ConsumerEntry, ConsumerMember};
use self::consumer::{Compact, put_compact, put_varint};
use super::interface::{CommittedOffset, TopicPartition};
use crate::id::{LeaderEpoch, Offset, TopicId};
use crate::segment::bytes::Fields;
use crate::time::Timestamp;

const OFFSET_KEY: i16 = 1;
const GROUP_KEY: i16 = 2;
const OFFSET_VALUE: i16 = 3;
/// The first flexible version, in which the topic's id is a tagged field. KAFKA-19141.
const OFFSET_VALUE_WITH_ID: i16 = 4;
const TOPIC_ID_TAG: u32 = 0;
const GROUP_VALUE: i16 = 3;

/// What one record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Offset { group: String, partition: TopicPartition, value: Option<StoredOffset> },
    Group { group: String, value: Option<StoredGroup> },
    Consumer { group: String, entry: ConsumerEntry },
}

/// An offset and when it was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOffset {
    pub committed: CommittedOffset,
    pub at: Timestamp,
}

/// A group as its last completed rebalance left it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredGroup {
    pub protocol_type: String,
    pub generation: i32,
    pub protocol: Option<String>,
    pub leader: Option<String>,
    /// When the group came into this state.
    pub since: Timestamp,
    pub members: Vec<StoredMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMember {
    pub member: String,
    pub instance: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub rebalance_timeout: Duration,
    pub session_timeout: Duration,
    /// The metadata of the chosen protocol.
    pub subscription: Bytes,
    pub assignment: Bytes,
}

/// A record that is none of `__consumer_offsets`, or not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFlaw {
    /// The key's version is one that this build skips.
    Unknown { key: i16 },
    /// The value's version is one that this build cannot read.
    Version { value: i16 },
    /// The bytes end too early, are too many, or are no text where text must stand.
    Malformed,
}

impl fmt::Display for RecordFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { key } => write!(f, "records with key version {key} are skipped"),
            Self::Version { value } => write!(f, "value version {value} is unknown"),
            Self::Malformed => f.write_str("the record's bytes are not those of its version"),
        }
    }
}

impl std::error::Error for RecordFlaw {}

impl Entry {
    pub fn group(&self) -> &str {
        match self {
            Self::Offset { group, .. }
            | Self::Group { group, .. }
            | Self::Consumer { group, .. } => group,
        }
    }

    pub fn key(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Offset { group, partition, .. } => {
                out.extend_from_slice(&OFFSET_KEY.to_be_bytes());
                put_text(&mut out, group);
                put_text(&mut out, &partition.topic);
                out.extend_from_slice(&partition.partition.to_be_bytes());
            }
            Self::Group { group, .. } => {
                out.extend_from_slice(&GROUP_KEY.to_be_bytes());
                put_text(&mut out, group);
            }
            Self::Consumer { group, entry } => entry.put_key(group, &mut out),
        }
        out
    }

    pub fn value(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match self {
            Self::Offset { value, .. } => put_offset(&mut out, value.as_ref()?),
            Self::Group { value, .. } => put_group(&mut out, value.as_ref()?),
            Self::Consumer { entry, .. } => return entry.value(),
        }
        Some(out)
    }

    /// # Errors
    ///
    /// `Unknown` for a record that is to be skipped, otherwise what is wrong with it.
    pub fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Self, RecordFlaw> {
        let mut fields = Text(Fields(key));
        let entry = match fields.i16()? {
            0 | OFFSET_KEY => Self::Offset {
                group: fields.text()?,
                partition: TopicPartition { topic: fields.text()?, partition: fields.i32()? },
                value: value.map(read_offset).transpose()?,
            },
            GROUP_KEY => {
                Self::Group { group: fields.text()?, value: value.map(read_group).transpose()? }
            }
            key => {
                let (group, entry) = ConsumerEntry::decode(key, &mut fields, value)?
                    .ok_or(RecordFlaw::Unknown { key })?;
                Self::Consumer { group, entry }
            }
        };
        fields.end()?;
        Ok(entry)
    }
}

fn put_offset(out: &mut Vec<u8>, value: &StoredOffset) {
    if value.committed.topic != TopicId::NONE {
        return put_offset_with_id(out, value);
    }
    out.extend_from_slice(&OFFSET_VALUE.to_be_bytes());
    out.extend_from_slice(&value.committed.offset.0.to_be_bytes());
    out.extend_from_slice(&value.committed.leader_epoch.0.to_be_bytes());
    put_text(out, &value.committed.metadata);
    out.extend_from_slice(&value.at.0.to_be_bytes());
}

fn put_offset_with_id(out: &mut Vec<u8>, value: &StoredOffset) {
    let CommittedOffset { offset, leader_epoch, metadata, topic } = &value.committed;
    out.extend_from_slice(&OFFSET_VALUE_WITH_ID.to_be_bytes());
    out.extend_from_slice(&offset.0.to_be_bytes());
    out.extend_from_slice(&leader_epoch.0.to_be_bytes());
    put_compact(out, metadata.as_bytes());
    out.extend_from_slice(&value.at.0.to_be_bytes());
    for number in [1, TOPIC_ID_TAG as usize, topic.0.len()] {
        put_varint(out, number);
    }
    out.extend_from_slice(&topic.0);
}

fn read_offset_with_id(mut fields: Text<'_>) -> Result<StoredOffset, RecordFlaw> {
    let (offset, leader_epoch) = (Offset(fields.i64()?), LeaderEpoch(fields.i32()?));
    let mut fields = Compact(fields);
    let metadata = fields.text()?;
    let at = Timestamp(fields.0.i64()?);
    let mut topic = TopicId::NONE;
    fields.tags(|tag, value| {
        if tag == TOPIC_ID_TAG {
            topic = value.topic()?;
            value.end()?;
        }
        Ok(())
    })?;
    fields.end()?;
    Ok(StoredOffset { committed: CommittedOffset { offset, leader_epoch, metadata, topic }, at })
}

fn read_offset(value: &[u8]) -> Result<StoredOffset, RecordFlaw> {
    let mut fields = Text(Fields(value));
    let version = fields.i16()?;
    if version == OFFSET_VALUE_WITH_ID {
        return read_offset_with_id(fields);
    }
    if !(0..=OFFSET_VALUE).contains(&version) {
        return Err(RecordFlaw::Version { value: version });
    }
    let offset = Offset(fields.i64()?);
    let leader_epoch = LeaderEpoch(if version >= 3 { fields.i32()? } else { -1 });
    let metadata = fields.text()?;
    let at = Timestamp(fields.i64()?);
    if version == 1 {
        // When it expires: a matter of configuration since KIP-211.
        fields.i64()?;
    }
    fields.end()?;
    let topic = TopicId::NONE;
    Ok(StoredOffset { committed: CommittedOffset { offset, leader_epoch, metadata, topic }, at })
}

fn put_group(out: &mut Vec<u8>, value: &StoredGroup) {
    out.extend_from_slice(&GROUP_VALUE.to_be_bytes());
    put_text(out, &value.protocol_type);
    out.extend_from_slice(&value.generation.to_be_bytes());
    put_nullable(out, value.protocol.as_deref());
    put_nullable(out, value.leader.as_deref());
    out.extend_from_slice(&value.since.0.to_be_bytes());
    put_count(out, value.members.len());
    for member in &value.members {
        put_text(out, &member.member);
        put_nullable(out, member.instance.as_deref());
        put_text(out, &member.client_id);
        put_text(out, &member.client_host);
        put_millis(out, member.rebalance_timeout);
        put_millis(out, member.session_timeout);
        put_bytes(out, &member.subscription);
        put_bytes(out, &member.assignment);
    }
}

fn read_group(value: &[u8]) -> Result<StoredGroup, RecordFlaw> {
    let mut fields = Text(Fields(value));
    let version = fields.i16()?;
    if !(0..=GROUP_VALUE).contains(&version) {
        return Err(RecordFlaw::Version { value: version });
    }
    let protocol_type = fields.text()?;
    let generation = fields.i32()?;
    let protocol = fields.nullable()?;
    let leader = fields.nullable()?;
    let since = if version >= 2 { Timestamp(fields.i64()?) } else { Timestamp::NONE };
    let count = fields.i32()?;
    let mut members = Vec::new();
    for _ in 0..count {
        let member = fields.text()?;
        let instance = if version >= 3 { fields.nullable()? } else { None };
        let (client_id, client_host) = (fields.text()?, fields.text()?);
        let rebalance = if version >= 1 { Some(fields.millis()?) } else { None };
        let session_timeout = fields.millis()?;
        members.push(StoredMember {
            member,
            instance,
            client_id,
            client_host,
            rebalance_timeout: rebalance.unwrap_or(session_timeout),
            session_timeout,
            subscription: fields.bytes()?,
            assignment: fields.bytes()?,
        });
    }
    fields.end()?;
    Ok(StoredGroup { protocol_type, generation, protocol, leader, since, members })
}

/// Topics that the metadata of a consumer names. Kafka's `ConsumerProtocolSubscription`, whose
/// versions all begin alike. `None` if it is not one.
pub(super) fn subscribed_topics(metadata: &[u8]) -> Option<Vec<String>> {
    let mut fields = Text(Fields(metadata));
    if fields.i16().ok()? < 0 {
        return None;
    }
    let count = fields.i32().ok()?;
    let mut topics = Vec::new();
    for _ in 0..count {
        topics.push(fields.text().ok()?);
    }
    Some(topics)
}

/// Longer than any text that reaches the coordinator, whose requests have 16-bit lengths; a
/// generated member id is bounded by the client id it begins with.
fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&i16::try_from(text.len()).expect("texts are short").to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_nullable(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        None => out.extend_from_slice(&(-1_i16).to_be_bytes()),
        Some(text) => put_text(out, text),
    }
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&i32::try_from(count).expect("counts are bounded").to_be_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_millis(out: &mut Vec<u8>, duration: Duration) {
    let millis = i32::try_from(duration.as_millis()).unwrap_or(i32::MAX);
    out.extend_from_slice(&millis.to_be_bytes());
}

/// Kafka's classic strings and arrays: lengths of 16 and 32 bits, -1 for null.
struct Text<'a>(Fields<'a>);

impl<'a> Text<'a> {
    fn i16(&mut self) -> Result<i16, RecordFlaw> {
        self.0.i16().ok_or(RecordFlaw::Malformed)
    }

    fn i32(&mut self) -> Result<i32, RecordFlaw> {
        self.0.i32().ok_or(RecordFlaw::Malformed)
    }

    fn i64(&mut self) -> Result<i64, RecordFlaw> {
        self.0.i64().ok_or(RecordFlaw::Malformed)
    }

    fn take(&mut self, length: i32) -> Result<&'a [u8], RecordFlaw> {
        let length = usize::try_from(length).map_err(|_| RecordFlaw::Malformed)?;
        self.0.take(length).ok_or(RecordFlaw::Malformed)
    }

    fn nullable(&mut self) -> Result<Option<String>, RecordFlaw> {
        match self.i16()? {
            -1 => Ok(None),
            length => {
                let text = self.take(i32::from(length))?.to_vec();
                String::from_utf8(text).map(Some).map_err(|_| RecordFlaw::Malformed)
            }
        }
    }

    fn text(&mut self) -> Result<String, RecordFlaw> {
        self.nullable()?.ok_or(RecordFlaw::Malformed)
    }

    fn bytes(&mut self) -> Result<Bytes, RecordFlaw> {
        let length = self.i32()?;
        self.take(length).map(Bytes::copy_from_slice)
    }

    fn millis(&mut self) -> Result<Duration, RecordFlaw> {
        let millis = u64::try_from(self.i32()?).map_err(|_| RecordFlaw::Malformed)?;
        Ok(Duration::from_millis(millis))
    }

    fn end(&self) -> Result<(), RecordFlaw> {
        if self.0.0.is_empty() { Ok(()) } else { Err(RecordFlaw::Malformed) }
    }
}

#[cfg(test)]
mod tests;
