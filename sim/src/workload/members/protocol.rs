//! What classic members tell one another, as Kafka's `ConsumerProtocol` has it in version 2, and
//! how the member that leads shares out. Pure.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use crate::history::Partition;

const VERSION: i16 = 2;

pub(crate) type Partitions = BTreeSet<Partition>;

/// What a member says when it joins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Subscription {
    pub(super) topics: Vec<u32>,
    /// What it has, from the generation it names.
    pub(super) owned: Partitions,
    pub(super) generation: i32,
}

fn put_text(bytes: &mut BytesMut, text: &str) {
    bytes.put_i16(text.len() as i16);
    bytes.put_slice(text.as_bytes());
}

fn put_partitions(bytes: &mut BytesMut, partitions: &Partitions) {
    let mut topics: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for partition in partitions {
        topics.entry(partition.topic).or_default().push(partition.index);
    }
    bytes.put_i32(topics.len() as i32);
    for (topic, indexes) in topics {
        put_text(bytes, &format!("t{topic}"));
        bytes.put_i32(indexes.len() as i32);
        indexes.iter().for_each(|index| bytes.put_i32(*index as i32));
    }
}

fn take_topic(bytes: &mut Bytes) -> Option<u32> {
    let length = bytes.try_get_i16().ok()? as usize;
    if bytes.remaining() < length {
        return None;
    }
    let text = bytes.split_to(length);
    std::str::from_utf8(&text).ok()?.strip_prefix('t')?.parse().ok()
}

fn take_partitions(bytes: &mut Bytes) -> Option<Partitions> {
    let mut partitions = Partitions::new();
    for _ in 0..bytes.try_get_i32().ok()? {
        let topic = take_topic(bytes)?;
        for _ in 0..bytes.try_get_i32().ok()? {
            partitions.insert(Partition { topic, index: bytes.try_get_i32().ok()? as u32 });
        }
    }
    Some(partitions)
}

impl Subscription {
    pub(super) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_i16(VERSION);
        bytes.put_i32(self.topics.len() as i32);
        self.topics.iter().for_each(|topic| put_text(&mut bytes, &format!("t{topic}")));
        bytes.put_i32(-1);
        put_partitions(&mut bytes, &self.owned);
        bytes.put_i32(self.generation);
        bytes.freeze()
    }

    /// `None`: no member wrote this.
    pub(super) fn decode(mut bytes: Bytes) -> Option<Self> {
        if bytes.try_get_i16().ok()? != VERSION {
            return None;
        }
        let count = bytes.try_get_i32().ok()?;
        let topics = (0..count).map(|_| take_topic(&mut bytes)).collect::<Option<Vec<u32>>>()?;
        if bytes.try_get_i32().ok()? != -1 {
            return None;
        }
        let owned = take_partitions(&mut bytes)?;
        let generation = bytes.try_get_i32().ok()?;
        bytes.is_empty().then_some(Self { topics, owned, generation })
    }
}

pub(super) fn encode_assignment(partitions: &Partitions) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_i16(VERSION);
    put_partitions(&mut bytes, partitions);
    bytes.put_i32(-1);
    bytes.freeze()
}

/// No bytes at all are no partitions. `None`: no member wrote this.
pub(super) fn decode_assignment(mut bytes: Bytes) -> Option<Partitions> {
    if bytes.is_empty() {
        return Some(Partitions::new());
    }
    if bytes.try_get_i16().ok()? != VERSION {
        return None;
    }
    let partitions = take_partitions(&mut bytes)?;
    (bytes.try_get_i32().ok()? == -1 && bytes.is_empty()).then_some(partitions)
}

/// Members in turn, whatever they had.
pub(super) fn in_turn(
    members: &BTreeMap<String, Subscription>,
    partitions: &Partitions,
) -> BTreeMap<String, Partitions> {
    let mut shares: BTreeMap<String, Partitions> =
        members.keys().map(|member| (member.clone(), Partitions::new())).collect();
    let turns = members.keys().cycle();
    for (partition, member) in partitions.iter().zip(turns) {
        shares.get_mut(member).expect("a member").insert(*partition);
    }
    shares
}

/// Who has a partition keeps it, up to a fair share; what another still has is nobody's until it
/// has given it up. Claims of an older generation than the newest do not count: others may have
/// those partitions by now (KAFKA-12984).
pub(super) fn cooperative(
    members: &BTreeMap<String, Subscription>,
    partitions: &Partitions,
) -> BTreeMap<String, Partitions> {
    let newest = members.values().map(|member| member.generation).max().unwrap_or(-1);
    let has = |member: &Subscription| -> Partitions {
        let counts = member.generation == newest;
        member.owned.iter().copied().filter(|owned| counts && partitions.contains(owned)).collect()
    };
    let most = partitions.len().div_ceil(members.len().max(1));
    let mut shares: BTreeMap<String, Partitions> = BTreeMap::new();
    let mut free: Vec<Partition> = partitions.iter().copied().collect();
    for (id, member) in members {
        let owned = has(member);
        free.retain(|partition| !owned.contains(partition));
        shares.insert(id.clone(), owned.into_iter().take(most).collect());
    }
    for partition in free {
        let least = shares.iter_mut().min_by_key(|(_, share)| share.len());
        if let Some((_, share)) = least {
            share.insert(partition);
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partitions(indexes: &[u32]) -> Partitions {
        indexes.iter().map(|&index| Partition { topic: 1, index }).collect()
    }

    fn members(of: &[(&str, &[u32], i32)]) -> BTreeMap<String, Subscription> {
        of.iter()
            .map(|&(id, owned, generation)| {
                let owned = partitions(owned);
                (id.to_owned(), Subscription { topics: vec![1], owned, generation })
            })
            .collect()
    }

    #[test]
    fn bytes_are_read_back_and_others_refused() {
        let said = Subscription { topics: vec![0, 2], owned: partitions(&[0, 3]), generation: 7 };
        assert_eq!(Subscription::decode(said.encode()), Some(said.clone()));
        let bytes = said.encode();
        for length in 0..bytes.len() {
            assert_eq!(Subscription::decode(bytes.slice(..length)), None, "{length}");
        }
        let share = encode_assignment(&partitions(&[1, 2]));
        assert_eq!(decode_assignment(share), Some(partitions(&[1, 2])));
        assert_eq!(decode_assignment(Bytes::new()), Some(Partitions::new()));
        assert_eq!(decode_assignment(Bytes::from_static(b"\0\x02\0\0\0\x01")), None);
    }

    #[test]
    fn what_another_has_waits_for_it() {
        let shares =
            cooperative(&members(&[("a", &[0, 1, 2], 3), ("b", &[], -1)]), &partitions(&[0, 1, 2]));
        assert_eq!(shares["a"], partitions(&[0, 1]));
        assert_eq!(shares["b"], partitions(&[]), "2 is given up first");
        let shares =
            cooperative(&members(&[("a", &[0, 1], 4), ("b", &[], 4)]), &partitions(&[0, 1, 2]));
        assert_eq!(shares["b"], partitions(&[2]));
    }

    #[test]
    fn claims_of_an_older_generation_do_not_count() {
        let shares =
            cooperative(&members(&[("a", &[0, 1], 4), ("b", &[0, 1], 5)]), &partitions(&[0, 1]));
        assert_eq!((&shares["a"], &shares["b"]), (&partitions(&[]), &partitions(&[0])));
    }

    #[test]
    fn turns_are_fair() {
        let shares = in_turn(&members(&[("a", &[], 1), ("b", &[], 1)]), &partitions(&[0, 1, 2]));
        assert_eq!((&shares["a"], &shares["b"]), (&partitions(&[0, 2]), &partitions(&[1])));
    }
}
