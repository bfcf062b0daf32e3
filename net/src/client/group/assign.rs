//! What the members of a classic group tell one another, in bytes the coordinator does not read,
//! and who gets what: Kafka's `ConsumerProtocol` and its range assignor.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};

use crate::wire::{Form, Reader, Text, Value, WireError, Writer};

/// The newest version that is the same for everybody: no owned partitions, no rack.
const VERSION: i16 = 0;
const OLD: Form = Form { version: VERSION, flexible: false };

/// The topics of each member, by member id.
pub(super) type Subscriptions = BTreeMap<String, Vec<String>>;
/// Partitions by topic.
pub(in crate::client) type Partitions = BTreeMap<String, Vec<i32>>;

fn joined(writer: Writer) -> Result<Bytes, WireError> {
    let mut bytes = BytesMut::new();
    for chunk in writer.finish()? {
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

pub(super) fn encode_subscription(topics: &[String]) -> Result<Bytes, WireError> {
    let mut writer = Writer::new();
    writer.i16(VERSION);
    let topics: Vec<Text> = topics.iter().map(|topic| Text::from(topic.as_str())).collect();
    topics.write(&mut writer, OLD);
    None::<Bytes>.write(&mut writer, OLD);
    joined(writer)
}

/// Newer versions add fields at the end, which are not needed.
pub(in crate::client) fn decode_subscription(bytes: &Bytes) -> Result<Vec<String>, WireError> {
    let mut reader = Reader::new(bytes);
    reader.i16()?;
    let topics = Vec::<Text>::read(&mut reader, OLD)?;
    Ok(topics.iter().map(|topic| topic.to_string()).collect())
}

pub(super) fn encode_assignment(partitions: &Partitions) -> Result<Bytes, WireError> {
    let mut writer = Writer::new();
    writer.i16(VERSION);
    writer.long_length(Some(partitions.len()));
    for (topic, indexes) in partitions {
        Text::from(topic.as_str()).write(&mut writer, OLD);
        indexes.write(&mut writer, OLD);
    }
    None::<Bytes>.write(&mut writer, OLD);
    joined(writer)
}

/// An empty assignment may come as no bytes at all.
pub(in crate::client) fn decode_assignment(bytes: &Bytes) -> Result<Partitions, WireError> {
    let mut partitions = Partitions::new();
    if bytes.is_empty() {
        return Ok(partitions);
    }
    let mut reader = Reader::new(bytes);
    reader.i16()?;
    // Each topic takes bytes, so the loop ends with them whatever the count claims.
    for _ in 0..reader.long_length()?.unwrap_or_default() {
        let topic = Text::read(&mut reader, OLD)?;
        let indexes = Vec::<i32>::read(&mut reader, OLD)?;
        partitions.insert(topic.to_string(), indexes);
    }
    Ok(partitions)
}

/// Kafka's `RangeAssignor`: each topic's partitions in consecutive ranges over its members in the
/// order of their ids, the first ones getting one more where it does not divide.
pub(super) fn range(
    subscriptions: &Subscriptions,
    counts: &BTreeMap<String, i32>,
) -> BTreeMap<String, Partitions> {
    let mut assigned: BTreeMap<String, Partitions> =
        subscriptions.keys().map(|member| (member.clone(), Partitions::new())).collect();
    for (topic, &count) in counts {
        let members: Vec<&String> = subscriptions
            .iter()
            .filter(|(_, topics)| topics.contains(topic))
            .map(|(member, _)| member)
            .collect();
        let mut left = i32::try_from(members.len()).unwrap_or(i32::MAX);
        let mut next = 0;
        for member in members {
            // What is left, shared among those who are left, rounded up.
            let share = (count - next + left - 1) / left;
            left -= 1;
            if share > 0
                && let Some(partitions) = assigned.get_mut(member)
            {
                partitions.insert(topic.clone(), (next..next + share).collect());
            }
            next += share;
        }
    }
    assigned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscriptions(members: &[(&str, &[&str])]) -> Subscriptions {
        let topics = |topics: &[&str]| topics.iter().map(|&topic| topic.to_owned()).collect();
        members.iter().map(|&(member, names)| (member.to_owned(), topics(names))).collect()
    }

    #[test]
    fn ranges_are_consecutive_and_the_first_get_more() {
        let members = subscriptions(&[("a", &["t", "u"]), ("b", &["t"]), ("c", &["t"])]);
        let counts = BTreeMap::from([("t".to_owned(), 7), ("u".to_owned(), 2)]);
        let assigned = range(&members, &counts);
        assert_eq!(assigned["a"]["t"], [0, 1, 2]);
        assert_eq!(assigned["b"]["t"], [3, 4]);
        assert_eq!(assigned["c"]["t"], [5, 6]);
        assert_eq!(assigned["a"]["u"], [0, 1]);
        assert!(!assigned["b"].contains_key("u"));
    }

    #[test]
    fn more_members_than_partitions_leave_some_idle() {
        let members = subscriptions(&[("a", &["t"]), ("b", &["t"]), ("c", &["t"])]);
        let assigned = range(&members, &BTreeMap::from([("t".to_owned(), 2)]));
        assert_eq!((assigned["a"]["t"].len(), assigned["b"]["t"].len()), (1, 1));
        assert!(assigned["c"].is_empty());
        assert!(range(&members, &BTreeMap::new()).values().all(BTreeMap::is_empty));
    }

    #[test]
    fn bytes_are_kafkas() {
        let topics = vec!["orders".to_owned()];
        let bytes = encode_subscription(&topics).unwrap();
        assert_eq!(&bytes[..], b"\0\0\0\0\0\x01\0\x06orders\xff\xff\xff\xff");
        assert_eq!(decode_subscription(&bytes).unwrap(), topics);

        let partitions = Partitions::from([("orders".to_owned(), vec![0, 2])]);
        let bytes = encode_assignment(&partitions).unwrap();
        let expected = b"\0\0\0\0\0\x01\0\x06orders\0\0\0\x02\0\0\0\0\0\0\0\x02\xff\xff\xff\xff";
        assert_eq!(&bytes[..], expected);
        assert_eq!(decode_assignment(&bytes).unwrap(), partitions);
        assert_eq!(decode_assignment(&Bytes::new()).unwrap(), Partitions::new());
    }

    #[test]
    fn a_length_from_outside_is_not_trusted() {
        let bomb = Bytes::from_static(b"\0\0\x7f\xff\xff\xff\0\x01t\x7f\xff\xff\xff");
        assert!(decode_assignment(&bomb).is_err());
        assert!(decode_subscription(&bomb).is_err());
    }
}
