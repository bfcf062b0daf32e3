//! The records of consumer groups, KIP-848, in Kafka's formats: the group's epoch (key 3), the
//! topics it was computed for (4), its members (5), the epoch of its target (6), each member's
//! target (7), and what each has (8). Regular expressions (16) are resolved anew by each
//! coordinator and are not written.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::super::assignment::Assignment;
use super::super::consumer::reconcile::{Current, Progress};
use super::super::interface::{Protocol, TopicInfo};
use super::{RecordFlaw, Text, put_text};
use crate::id::TopicId;
use crate::segment::bytes::Fields;

const GROUP_KEY: i16 = 3;
const TOPICS_KEY: i16 = 4;
const MEMBER_KEY: i16 = 5;
const TARGET_EPOCH_KEY: i16 = 6;
const TARGET_KEY: i16 = 7;
const CURRENT_KEY: i16 = 8;
/// The version of all values.
const VALUE: i16 = 0;

/// What one record says of a consumer group. `None` forgets what the key names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsumerEntry {
    Epoch(Option<i32>),
    Topics(Option<BTreeMap<String, TopicInfo>>),
    Member(String, Option<ConsumerMember>),
    TargetEpoch(Option<i32>),
    Target(String, Option<Assignment>),
    Current(String, Option<Current>),
}

/// What a member said of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerMember {
    /// Static membership, KIP-345.
    pub instance: Option<String>,
    pub rack: Option<String>,
    pub client_id: String,
    pub client_host: String,
    /// Ascending, each once.
    pub topics: Vec<String>,
    pub regex: Option<String>,
    /// How long it may take to give up what it is told to.
    pub rebalance_timeout: Duration,
    pub assignor: Option<String>,
    /// Where it speaks the classic protocol.
    pub classic: Option<ClassicMember>,
}

/// What is kept of a member of the classic protocol in a consumer group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassicMember {
    pub session_timeout: Duration,
    pub protocols: Vec<Protocol>,
}

impl ConsumerEntry {
    /// Appends the key of this entry, for `group`.
    pub(super) fn put_key(&self, group: &str, out: &mut Vec<u8>) {
        let (key, member) = match self {
            Self::Epoch(_) => (GROUP_KEY, None),
            Self::Topics(_) => (TOPICS_KEY, None),
            Self::Member(member, _) => (MEMBER_KEY, Some(member)),
            Self::TargetEpoch(_) => (TARGET_EPOCH_KEY, None),
            Self::Target(member, _) => (TARGET_KEY, Some(member)),
            Self::Current(member, _) => (CURRENT_KEY, Some(member)),
        };
        out.extend_from_slice(&key.to_be_bytes());
        put_text(out, group);
        if let Some(member) = member {
            put_text(out, member);
        }
    }

    pub(super) fn value(&self) -> Option<Vec<u8>> {
        let mut out = VALUE.to_be_bytes().to_vec();
        match self {
            Self::Epoch(epoch) | Self::TargetEpoch(epoch) => {
                out.extend_from_slice(&(*epoch)?.to_be_bytes());
            }
            Self::Topics(topics) => put_topics(&mut out, topics.as_ref()?),
            Self::Member(_, member) => return put_member(out, member.as_ref()?),
            Self::Target(_, target) => put_assignment(&mut out, target.as_ref()?),
            Self::Current(_, current) => put_current(&mut out, current.as_ref()?),
        }
        no_tags(&mut out);
        Some(out)
    }

    /// `None` for a key that is not one of a consumer group's.
    pub(super) fn decode(
        key: i16,
        fields: &mut Text<'_>,
        value: Option<&[u8]>,
    ) -> Result<Option<(String, Self)>, RecordFlaw> {
        if !(GROUP_KEY..=CURRENT_KEY).contains(&key) {
            return Ok(None);
        }
        let group = fields.text()?;
        let mut value = value.map(Compact::value).transpose()?;
        let entry = match key {
            GROUP_KEY => Self::Epoch(value.as_mut().map(Compact::i32).transpose()?),
            TOPICS_KEY => Self::Topics(value.as_mut().map(read_topics).transpose()?),
            MEMBER_KEY => {
                Self::Member(fields.text()?, value.as_mut().map(read_member).transpose()?)
            }
            TARGET_EPOCH_KEY => Self::TargetEpoch(value.as_mut().map(Compact::i32).transpose()?),
            TARGET_KEY => {
                Self::Target(fields.text()?, value.as_mut().map(read_assignment).transpose()?)
            }
            _ => Self::Current(fields.text()?, value.as_mut().map(read_current).transpose()?),
        };
        if let Some(mut value) = value
            && key != MEMBER_KEY
        {
            value.tags(|_, _| Ok(()))?;
            value.end()?;
        }
        Ok(Some((group, entry)))
    }
}

fn put_topics(out: &mut Vec<u8>, topics: &BTreeMap<String, TopicInfo>) {
    put_count(out, topics.len());
    for (name, topic) in topics {
        out.extend_from_slice(&topic.id.0);
        put_compact(out, name.as_bytes());
        out.extend_from_slice(&topic.partitions.to_be_bytes());
        // Racks of partitions play no part.
        put_count(out, 0);
        no_tags(out);
    }
}

fn read_topics(value: &mut Compact<'_>) -> Result<BTreeMap<String, TopicInfo>, RecordFlaw> {
    let mut topics = BTreeMap::new();
    for _ in 0..value.count()? {
        let id = value.topic()?;
        let name = value.text()?;
        let partitions = value.i32()?;
        for _ in 0..value.count()? {
            value.i32()?;
            for _ in 0..value.count()? {
                value.text()?;
            }
            value.tags(|_, _| Ok(()))?;
        }
        value.tags(|_, _| Ok(()))?;
        topics.insert(name, TopicInfo { id, partitions });
    }
    Ok(topics)
}

fn put_member(mut out: Vec<u8>, member: &ConsumerMember) -> Option<Vec<u8>> {
    put_nullable(&mut out, member.instance.as_deref());
    put_nullable(&mut out, member.rack.as_deref());
    put_compact(&mut out, member.client_id.as_bytes());
    put_compact(&mut out, member.client_host.as_bytes());
    put_count(&mut out, member.topics.len());
    for topic in &member.topics {
        put_compact(&mut out, topic.as_bytes());
    }
    put_nullable(&mut out, member.regex.as_deref());
    super::put_millis(&mut out, member.rebalance_timeout);
    put_nullable(&mut out, member.assignor.as_deref());
    let Some(classic) = &member.classic else {
        no_tags(&mut out);
        return Some(out);
    };
    // A nullable struct: a byte that says that it is there, its fields, its tags.
    let mut tagged = vec![1];
    super::put_millis(&mut tagged, classic.session_timeout);
    put_count(&mut tagged, classic.protocols.len());
    for protocol in &classic.protocols {
        put_compact(&mut tagged, protocol.name.as_bytes());
        put_compact(&mut tagged, &protocol.metadata);
        no_tags(&mut tagged);
    }
    no_tags(&mut tagged);
    put_varint(&mut out, 1);
    put_varint(&mut out, 0);
    put_varint(&mut out, tagged.len());
    out.extend_from_slice(&tagged);
    Some(out)
}

fn read_member(value: &mut Compact<'_>) -> Result<ConsumerMember, RecordFlaw> {
    let mut member = ConsumerMember {
        instance: value.nullable()?,
        rack: value.nullable()?,
        client_id: value.text()?,
        client_host: value.text()?,
        ..ConsumerMember::default()
    };
    for _ in 0..value.count()? {
        member.topics.push(value.text()?);
    }
    member.regex = value.nullable()?;
    member.rebalance_timeout = value.millis()?;
    member.assignor = value.nullable()?;
    value.tags(|tag, fields| {
        if tag == 0 {
            member.classic = read_classic(fields)?;
        }
        Ok(())
    })?;
    value.end()?;
    Ok(member)
}

fn read_classic(fields: &mut Compact<'_>) -> Result<Option<ClassicMember>, RecordFlaw> {
    if fields.0.0.u8().ok_or(RecordFlaw::Malformed)? != 1 {
        return Ok(None);
    }
    let session_timeout = fields.millis()?;
    let mut protocols = Vec::new();
    for _ in 0..fields.count()? {
        let name = fields.text()?;
        let metadata = Bytes::copy_from_slice(fields.compact()?.ok_or(RecordFlaw::Malformed)?);
        fields.tags(|_, _| Ok(()))?;
        protocols.push(Protocol { name, metadata });
    }
    fields.tags(|_, _| Ok(()))?;
    Ok(Some(ClassicMember { session_timeout, protocols }))
}

fn put_assignment(out: &mut Vec<u8>, assignment: &Assignment) {
    put_count(out, assignment.topics().len());
    for (topic, partitions) in assignment.topics() {
        out.extend_from_slice(&topic.0);
        put_count(out, partitions.len());
        for partition in partitions {
            out.extend_from_slice(&partition.to_be_bytes());
        }
        no_tags(out);
    }
}

fn read_assignment(value: &mut Compact<'_>) -> Result<Assignment, RecordFlaw> {
    let mut assignment = Assignment::default();
    for _ in 0..value.count()? {
        let topic = value.topic()?;
        for _ in 0..value.count()? {
            assignment.insert(topic, value.i32()?);
        }
        value.tags(|_, _| Ok(()))?;
    }
    Ok(assignment)
}

fn put_current(out: &mut Vec<u8>, current: &Current) {
    out.extend_from_slice(&current.epoch.to_be_bytes());
    out.extend_from_slice(&current.previous_epoch.to_be_bytes());
    out.push(match current.progress {
        Progress::Stable => 1,
        Progress::Unrevoked => 2,
        Progress::Unreleased => 3,
    });
    put_assignment(out, &current.assigned);
    put_assignment(out, &current.revoking);
}

fn read_current(value: &mut Compact<'_>) -> Result<Current, RecordFlaw> {
    Ok(Current {
        epoch: value.i32()?,
        previous_epoch: value.i32()?,
        progress: match value.0.0.u8() {
            Some(1) => Progress::Stable,
            Some(2) => Progress::Unrevoked,
            Some(3) => Progress::Unreleased,
            _ => return Err(RecordFlaw::Malformed),
        },
        assigned: read_assignment(value)?,
        revoking: read_assignment(value)?,
    })
}

pub(super) fn put_varint(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    put_varint(out, count + 1);
}

pub(super) fn put_compact(out: &mut Vec<u8>, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_nullable(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        None => put_varint(out, 0),
        Some(text) => put_compact(out, text.as_bytes()),
    }
}

fn no_tags(out: &mut Vec<u8>) {
    out.push(0);
}

/// Kafka's compact forms: lengths are varints, one more than they say, 0 for null.
pub(super) struct Compact<'a>(pub(super) Text<'a>);

impl<'a> Compact<'a> {
    fn value(value: &'a [u8]) -> Result<Self, RecordFlaw> {
        let mut fields = Text(Fields(value));
        match fields.i16()? {
            VALUE => Ok(Self(fields)),
            value => Err(RecordFlaw::Version { value }),
        }
    }

    fn i32(&mut self) -> Result<i32, RecordFlaw> {
        self.0.i32()
    }

    fn varint(&mut self) -> Result<u32, RecordFlaw> {
        let mut number = 0_u32;
        for place in 0..5 {
            let byte = self.0.0.u8().ok_or(RecordFlaw::Malformed)?;
            number |= u32::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(RecordFlaw::Malformed)
    }

    /// Nothing is allocated for it: whoever reads so many meets the end of the bytes.
    fn count(&mut self) -> Result<u32, RecordFlaw> {
        self.varint()?.checked_sub(1).ok_or(RecordFlaw::Malformed)
    }

    fn compact(&mut self) -> Result<Option<&'a [u8]>, RecordFlaw> {
        let Some(length) = self.varint()?.checked_sub(1) else { return Ok(None) };
        let length = usize::try_from(length).map_err(|_| RecordFlaw::Malformed)?;
        self.0.0.take(length).map(Some).ok_or(RecordFlaw::Malformed)
    }

    fn nullable(&mut self) -> Result<Option<String>, RecordFlaw> {
        let bytes = self.compact()?.map(<[u8]>::to_vec);
        bytes.map(String::from_utf8).transpose().map_err(|_| RecordFlaw::Malformed)
    }

    pub(super) fn text(&mut self) -> Result<String, RecordFlaw> {
        self.nullable()?.ok_or(RecordFlaw::Malformed)
    }

    pub(super) fn topic(&mut self) -> Result<TopicId, RecordFlaw> {
        self.0.0.array().map(TopicId).ok_or(RecordFlaw::Malformed)
    }

    fn millis(&mut self) -> Result<Duration, RecordFlaw> {
        self.0.millis()
    }

    pub(super) fn tags(
        &mut self,
        mut read: impl FnMut(u32, &mut Compact<'_>) -> Result<(), RecordFlaw>,
    ) -> Result<(), RecordFlaw> {
        for _ in 0..self.varint()? {
            let tag = self.varint()?;
            let length = usize::try_from(self.varint()?).map_err(|_| RecordFlaw::Malformed)?;
            let bytes = self.0.0.take(length).ok_or(RecordFlaw::Malformed)?;
            read(tag, &mut Compact(Text(Fields(bytes))))?;
        }
        Ok(())
    }

    pub(super) fn end(&self) -> Result<(), RecordFlaw> {
        self.0.end()
    }
}

#[cfg(test)]
mod tests;
