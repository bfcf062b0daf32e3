//! The records of `__transaction_state` in Kafka's own formats, so that its tools read them: a key
//! with the transactional id (`TransactionLogKey` 0), a value with its state
//! (`TransactionLogValue` 1; 0 is read). A record without value forgets what its key names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::state::{Phase, State, TopicPartition, TransactionVersion};
use crate::id::{ProducerEpoch, ProducerId};
use crate::segment::bytes::Fields;
use crate::time::Timestamp;

const KEY: i16 = 0;
const VALUE: i16 = 1;

/// Tags of the value's optional fields.
const PREVIOUS_PRODUCER: u32 = 0;
const NEXT_PRODUCER: u32 = 1;
const CLIENT_VERSION: u32 = 2;
/// Ours (docs/decisions/0132). Others pass it over, as they do with any tag that they do not know.
const LAST_EPOCH: u32 = 1000;

/// No transactional id is longer: the key has 16-bit lengths.
pub const ID_BYTES_MAX: usize = i16::MAX as usize;

/// Why a record is not folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFlaw {
    /// A kind of record that this build does not know.
    Unknown { key: i16 },
    /// A value of a version that this build does not know.
    Version { value: i16 },
    /// A state that this build does not know, or that has no value.
    Status { status: i8 },
    /// Bytes are missing, left over, or not what they should be.
    Malformed,
}

impl fmt::Display for RecordFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { key } => write!(f, "the record's key has the unknown version {key}"),
            Self::Version { value } => {
                write!(f, "the record's value has version {value}; this build knows 0 to {VALUE}")
            }
            Self::Status { status } => write!(f, "no transaction has the state {status}"),
            Self::Malformed => f.write_str("the record's bytes are not those of a transaction"),
        }
    }
}

impl std::error::Error for RecordFlaw {}

pub fn key(transactional_id: &str) -> Vec<u8> {
    let mut out = KEY.to_be_bytes().to_vec();
    // The coordinator takes no id that is longer.
    let length = i16::try_from(transactional_id.len()).expect("transactional ids are short");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(transactional_id.as_bytes());
    out
}

/// # Errors
///
/// `Unknown` for a record that is to be skipped, otherwise `Malformed`.
pub fn read_key(key: &[u8]) -> Result<String, RecordFlaw> {
    let mut fields = Reader(Fields(key));
    match fields.i16()? {
        KEY => {}
        key => return Err(RecordFlaw::Unknown { key }),
    }
    let length = fields.i16()?;
    let id = fields.text(usize::try_from(length).map_err(|_| RecordFlaw::Malformed)?)?;
    fields.end()?;
    Ok(id)
}

pub fn value(state: &State) -> Vec<u8> {
    let mut out = VALUE.to_be_bytes().to_vec();
    out.extend_from_slice(&state.producer.0.to_be_bytes());
    out.extend_from_slice(&state.epoch.0.to_be_bytes());
    let timeout = i32::try_from(state.timeout.as_millis()).unwrap_or(i32::MAX);
    out.extend_from_slice(&timeout.to_be_bytes());
    out.push(status(state.phase));
    put_partitions(&mut out, state);
    out.extend_from_slice(&state.updated.0.to_be_bytes());
    out.extend_from_slice(&state.started.0.to_be_bytes());
    put_tags(&mut out, state);
    out
}

/// # Errors
///
/// What is wrong with it.
pub fn read_value(value: &[u8]) -> Result<State, RecordFlaw> {
    let mut fields = Reader(Fields(value));
    let version = fields.i16()?;
    if !(0..=VALUE).contains(&version) {
        return Err(RecordFlaw::Version { value: version });
    }
    let flexible = version >= 1;
    let producer = ProducerId(fields.i64()?);
    let epoch = ProducerEpoch(fields.i16()?);
    if !producer.is_some() || epoch.0 < 0 {
        return Err(RecordFlaw::Malformed);
    }
    let timeout = u64::try_from(fields.i32()?).map_err(|_| RecordFlaw::Malformed)?;
    let phase = phase(fields.u8()?.cast_signed())?;
    let mut state = State {
        producer,
        epoch,
        previous_producer: ProducerId::NONE,
        next_producer: ProducerId::NONE,
        last_epoch: None,
        timeout: Duration::from_millis(timeout),
        phase,
        partitions: fields.partitions(flexible)?,
        updated: Timestamp(fields.i64()?),
        started: Timestamp(fields.i64()?),
        version: TransactionVersion::V0,
    };
    if flexible {
        fields.tags(|tag, value| match tag {
            PREVIOUS_PRODUCER => value.i64().map(|id| state.previous_producer = ProducerId(id)),
            NEXT_PRODUCER => value.i64().map(|id| state.next_producer = ProducerId(id)),
            CLIENT_VERSION => value.i16().map(|found| state.version = TransactionVersion(found)),
            LAST_EPOCH => value.i16().map(|epoch| state.last_epoch = Some(ProducerEpoch(epoch))),
            _ => Ok(()),
        })?;
    }
    fields.end()?;
    if phase.is_idle() {
        // Kafka's own first records of a phase may still name what is over.
        state.partitions.clear();
    }
    Ok(state)
}

const fn status(phase: Phase) -> u8 {
    match phase {
        Phase::Empty => 0,
        Phase::Ongoing => 1,
        Phase::PrepareCommit => 2,
        Phase::PrepareAbort => 3,
        Phase::CompleteCommit => 4,
        Phase::CompleteAbort => 5,
    }
}

fn phase(status: i8) -> Result<Phase, RecordFlaw> {
    Ok(match status {
        0 => Phase::Empty,
        1 => Phase::Ongoing,
        2 => Phase::PrepareCommit,
        3 => Phase::PrepareAbort,
        4 => Phase::CompleteCommit,
        5 => Phase::CompleteAbort,
        status => return Err(RecordFlaw::Status { status }),
    })
}

/// Null where there is no transaction at all, as Kafka writes it.
fn put_partitions(out: &mut Vec<u8>, state: &State) {
    if state.phase == Phase::Empty {
        put_varint(out, 0);
        return;
    }
    let mut topics = BTreeMap::<&str, Vec<i32>>::new();
    for TopicPartition { topic, partition } in &state.partitions {
        topics.entry(topic).or_default().push(*partition);
    }
    put_count(out, topics.len());
    for (topic, partitions) in topics {
        put_count(out, topic.len());
        out.extend_from_slice(topic.as_bytes());
        put_count(out, partitions.len());
        for partition in partitions {
            out.extend_from_slice(&partition.to_be_bytes());
        }
        put_varint(out, 0);
    }
}

/// Those that differ from their defaults, ascending.
fn put_tags(out: &mut Vec<u8>, state: &State) {
    let mut tags = Vec::<(u32, Vec<u8>)>::new();
    let ids = [(PREVIOUS_PRODUCER, state.previous_producer), (NEXT_PRODUCER, state.next_producer)];
    for (tag, id) in ids {
        if id.is_some() {
            tags.push((tag, id.0.to_be_bytes().to_vec()));
        }
    }
    if state.version != TransactionVersion::V0 {
        tags.push((CLIENT_VERSION, state.version.0.to_be_bytes().to_vec()));
    }
    if let Some(epoch) = state.last_epoch {
        tags.push((LAST_EPOCH, epoch.0.to_be_bytes().to_vec()));
    }
    put_varint(out, u32::try_from(tags.len()).expect("a handful"));
    for (tag, value) in tags {
        put_varint(out, tag);
        put_varint(out, u32::try_from(value.len()).expect("a number"));
        out.extend_from_slice(&value);
    }
}

/// A length in a compact form: one more than it is, 0 being null.
fn put_count(out: &mut Vec<u8>, count: usize) {
    put_varint(out, u32::try_from(count + 1).expect("counts are bounded"));
}

fn put_varint(out: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        out.push(u8::try_from(number & 0x7f).expect("seven bits") | 0x80);
        number >>= 7;
    }
    out.push(u8::try_from(number).expect("seven bits"));
}

struct Reader<'a>(Fields<'a>);

impl<'a> Reader<'a> {
    fn u8(&mut self) -> Result<u8, RecordFlaw> {
        self.0.u8().ok_or(RecordFlaw::Malformed)
    }

    fn i16(&mut self) -> Result<i16, RecordFlaw> {
        self.0.i16().ok_or(RecordFlaw::Malformed)
    }

    fn i32(&mut self) -> Result<i32, RecordFlaw> {
        self.0.i32().ok_or(RecordFlaw::Malformed)
    }

    fn i64(&mut self) -> Result<i64, RecordFlaw> {
        self.0.i64().ok_or(RecordFlaw::Malformed)
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], RecordFlaw> {
        self.0.take(bytes).ok_or(RecordFlaw::Malformed)
    }

    fn text(&mut self, bytes: usize) -> Result<String, RecordFlaw> {
        let text = self.take(bytes)?.to_vec();
        String::from_utf8(text).map_err(|_| RecordFlaw::Malformed)
    }

    fn varint(&mut self) -> Result<u32, RecordFlaw> {
        let mut number = 0_u32;
        for place in 0..5 {
            let byte = self.u8()?;
            let bits = u32::from(byte & 0x7f);
            if place == 4 && bits > 0xf {
                break;
            }
            number |= bits << (7 * place);
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(RecordFlaw::Malformed)
    }

    /// A length, compact or of 32 bits (16 for texts, which callers say); `None` for null.
    fn length(&mut self, flexible: bool, is_text: bool) -> Result<Option<usize>, RecordFlaw> {
        let length = match (flexible, is_text) {
            (true, _) => return Ok(self.varint()?.checked_sub(1).map(|length| length as usize)),
            (false, true) => i32::from(self.i16()?),
            (false, false) => self.i32()?,
        };
        match length {
            -1 => Ok(None),
            length => usize::try_from(length).map(Some).map_err(|_| RecordFlaw::Malformed),
        }
    }

    /// Counts from outside reserve nothing: each element that is not there ends the loop.
    fn partitions(&mut self, flexible: bool) -> Result<BTreeSet<TopicPartition>, RecordFlaw> {
        let mut partitions = BTreeSet::new();
        for _ in 0..self.length(flexible, false)?.unwrap_or(0) {
            let length = self.length(flexible, true)?.ok_or(RecordFlaw::Malformed)?;
            let topic = self.text(length)?;
            for _ in 0..self.length(flexible, false)?.ok_or(RecordFlaw::Malformed)? {
                partitions.insert(TopicPartition { topic: topic.clone(), partition: self.i32()? });
            }
            if flexible {
                self.tags(|_, _| Ok(()))?;
            }
        }
        Ok(partitions)
    }

    fn tags(
        &mut self,
        mut take: impl FnMut(u32, &mut Self) -> Result<(), RecordFlaw>,
    ) -> Result<(), RecordFlaw> {
        for _ in 0..self.varint()? {
            let tag = self.varint()?;
            let length = self.varint()? as usize;
            take(tag, &mut Reader(Fields(self.take(length)?)))?;
        }
        Ok(())
    }

    fn end(&self) -> Result<(), RecordFlaw> {
        if self.0.0.is_empty() { Ok(()) } else { Err(RecordFlaw::Malformed) }
    }
}

#[cfg(test)]
mod tests;
