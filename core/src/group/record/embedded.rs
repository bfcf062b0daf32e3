//! What consumers of the classic protocol tell one another through the coordinator. It reads it
//! only where they share a group with members of the other protocol: Kafka's
//! `ConsumerProtocolSubscription` and `ConsumerProtocolAssignment`. Newer versions only add fields,
//! which are read past.

use super::super::assignment::Assignment;
use super::super::topics::Topics;
use super::{RecordFlaw, Text, put_count, put_text};
use crate::segment::bytes::Fields;

/// The newest version that is known, and written: members say theirs, and get no newer one.
const VERSION_MAX: i16 = 3;

/// Partitions by topic, as members write them.
type Named = Vec<(String, Vec<i32>)>;

/// What a member says when it joins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Subscription {
    pub(in super::super) version: i16,
    pub(in super::super) topics: Vec<String>,
    /// What it still has: nothing, if it gives everything up before it joins.
    pub(in super::super) owned: Named,
    pub(in super::super) rack: Option<String>,
}

impl Subscription {
    /// # Errors
    ///
    /// If the bytes are no subscription.
    pub(in super::super) fn decode(bytes: &[u8]) -> Result<Self, RecordFlaw> {
        let mut fields = Text(Fields(bytes));
        let version = known_version(&mut fields)?;
        let mut subscription = Self { version, ..Self::default() };
        for _ in 0..fields.i32()? {
            subscription.topics.push(fields.text()?);
        }
        skip_user_data(&mut fields)?;
        if version >= 1 {
            subscription.owned = named(&mut fields)?;
        }
        if version >= 2 {
            // The generation in which it had them.
            fields.i32()?;
        }
        if version >= 3 {
            subscription.rack = fields.nullable()?;
        }
        Ok(subscription)
    }

    /// Whether both subscribe to the same topics, whatever else they say; unknown bytes want what
    /// they wanted before.
    pub(in super::super) fn wants_the_same(before: &[u8], after: &[u8]) -> bool {
        let topics = |bytes| {
            let mut topics = Self::decode(bytes).ok()?.topics;
            topics.sort_unstable();
            Some(topics)
        };
        before == after || topics(before).zip(topics(after)).is_none_or(|(was, is)| was == is)
    }
}

/// What a leader gave a member, as far as there are such partitions.
///
/// # Errors
///
/// If the bytes are no assignment. None at all are an empty one.
pub(in super::super) fn decode_assignment(
    bytes: &[u8],
    topics: &Topics,
) -> Result<Assignment, RecordFlaw> {
    if bytes.is_empty() {
        return Ok(Assignment::default());
    }
    let mut fields = Text(Fields(bytes));
    known_version(&mut fields)?;
    Ok(resolve(&named(&mut fields)?, topics))
}

/// The partitions of these names that there are.
pub(in super::super) fn resolve(named: &[(String, Vec<i32>)], topics: &Topics) -> Assignment {
    let mut assignment = Assignment::default();
    for (name, partitions) in named {
        if let Some(topic) = topics.get(name) {
            let there = partitions.iter().filter(|at| (0..topic.partitions).contains(*at));
            assignment.extend(there.map(|&at| (topic.id, at)));
        }
    }
    assignment
}

/// For a member whose subscription has this `version`. Topics that are gone are left out.
pub(in super::super) fn encode_assignment(
    assignment: &Assignment,
    version: i16,
    topics: &Topics,
) -> Vec<u8> {
    let mut out = version.clamp(0, VERSION_MAX).to_be_bytes().to_vec();
    let named = assignment
        .topics()
        .filter_map(|(topic, partitions)| Some((topics.name(topic)?, partitions)))
        .collect::<Vec<_>>();
    put_count(&mut out, named.len());
    for (name, partitions) in named {
        put_text(&mut out, name);
        put_count(&mut out, partitions.len());
        for partition in partitions {
            out.extend_from_slice(&partition.to_be_bytes());
        }
    }
    // No data of the user's.
    out.extend_from_slice(&(-1_i32).to_be_bytes());
    out
}

fn known_version(fields: &mut Text<'_>) -> Result<i16, RecordFlaw> {
    let version = fields.i16()?;
    if version < 0 { Err(RecordFlaw::Malformed) } else { Ok(version.min(VERSION_MAX)) }
}

fn skip_user_data(fields: &mut Text<'_>) -> Result<(), RecordFlaw> {
    match fields.i32()? {
        -1 => Ok(()),
        length => fields.take(length).map(drop),
    }
}

/// A name stands once, however many partitions: it may be long.
fn named(fields: &mut Text<'_>) -> Result<Named, RecordFlaw> {
    let mut named = Vec::new();
    for _ in 0..fields.i32()? {
        let topic = fields.text()?;
        let mut partitions = Vec::new();
        for _ in 0..fields.i32()? {
            partitions.push(fields.i32()?);
        }
        named.push((topic, partitions));
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::super::super::interface::{TopicInfo, TopicsNews};
    use super::*;
    use crate::id::TopicId;

    fn topics() -> Topics {
        let mut topics = Topics::default();
        let info = TopicInfo { id: TopicId([1; 16]), partitions: 3 };
        topics.take(TopicsNews { is_all: true, topics: vec![("orders".to_owned(), Some(info))] });
        topics
    }

    /// As Java's client 4.4 writes it, with a rack.
    const SUBSCRIPTION: &[u8] =
        b"\0\x03\0\0\0\x01\0\x06orders\xff\xff\xff\xff\0\0\0\x01\0\x06orders\
        \0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\x07\0\x01r";

    #[test]
    fn a_subscription_is_read_in_each_version() {
        let mut bytes = SUBSCRIPTION.to_vec();
        let whole = Subscription::decode(&bytes).unwrap();
        let owned = vec![("orders".to_owned(), vec![0, 1])];
        let topics = vec!["orders".to_owned()];
        let rack = Some("r".to_owned());
        assert_eq!(whole, Subscription { version: 3, topics: topics.clone(), owned, rack });
        bytes[1] = 0;
        let first = Subscription::decode(&bytes).unwrap();
        assert_eq!(first, Subscription { topics, ..Subscription::default() });
        bytes[1] = 9;
        assert_eq!(Subscription::decode(&bytes), Ok(whole), "what is newer begins alike");
        for cut in 0..SUBSCRIPTION.len() {
            assert!(Subscription::decode(&SUBSCRIPTION[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn an_assignment_comes_back_as_far_as_it_is_there() {
        let topics = topics();
        let some: Assignment =
            [(TopicId([1; 16]), 0), (TopicId([1; 16]), 2), (TopicId([9; 16]), 0)]
                .into_iter()
                .collect();
        let bytes = encode_assignment(&some, 1, &topics);
        let back = decode_assignment(&bytes, &topics).unwrap();
        assert!(back.iter().eq([(TopicId([1; 16]), 0), (TopicId([1; 16]), 2)]));
        assert_eq!(decode_assignment(b"", &topics), Ok(Assignment::default()));
        assert_eq!(decode_assignment(b"0", &topics), Err(RecordFlaw::Malformed));
        let beyond = [("orders".to_owned(), vec![-1, 1, 3])];
        assert!(resolve(&beyond, &topics).iter().eq([(TopicId([1; 16]), 1)]));
    }
}
