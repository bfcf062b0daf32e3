//! What classic consumers tell one another, as their clients write and read it: not by the code
//! that is tested.

use std::collections::BTreeMap;

use bytes::Bytes;

/// A subscription, version 1. `owned` is a list of partitions, `-` for none; without it the bytes
/// end too early, as those of no consumer's.
pub(crate) fn subscription(topics: &str, owned: Option<&str>) -> Bytes {
    let topics: Vec<_> = topics.split(',').filter(|topic| !topic.is_empty()).collect();
    let mut out = vec![0, 1];
    put_count(&mut out, topics.len());
    for topic in topics {
        put_text(&mut out, topic);
    }
    if let Some(owned) = owned {
        out.extend_from_slice(&(-1_i32).to_be_bytes());
        put_places(&mut out, owned);
    }
    Bytes::from(out)
}

/// `@orders-0,orders-1` for an assignment, version 0; everything else stands for itself.
pub(crate) fn assignment(text: &str) -> Bytes {
    let Some(places) = text.strip_prefix('@') else {
        return Bytes::copy_from_slice(text.as_bytes());
    };
    let mut out = vec![0, 0];
    put_places(&mut out, places);
    out.extend_from_slice(&(-1_i32).to_be_bytes());
    Bytes::from(out)
}

/// As a client reads it, if it is one.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let places = (bytes.len() > 2).then(|| places(&mut &bytes[2..])).flatten();
    match places {
        Some(places) => format!("{{{}}}", places.join(" ")),
        None => String::from_utf8_lossy(bytes).into_owned(),
    }
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&i32::try_from(count).unwrap().to_be_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&i16::try_from(text.len()).unwrap().to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_places(out: &mut Vec<u8>, places: &str) {
    let mut topics = BTreeMap::<&str, Vec<i32>>::new();
    for place in places.split(',').filter(|place| *place != "-" && !place.is_empty()) {
        let (topic, partition) = place.rsplit_once('-').expect("topic-partition");
        topics.entry(topic).or_default().push(partition.parse().expect("a number"));
    }
    put_count(out, topics.len());
    for (topic, partitions) in topics {
        put_text(out, topic);
        put_count(out, partitions.len());
        for partition in partitions {
            out.extend_from_slice(&partition.to_be_bytes());
        }
    }
}

fn places(bytes: &mut &[u8]) -> Option<Vec<String>> {
    let mut places = Vec::new();
    for _ in 0..number(bytes)? {
        let length = usize::from(u16::from_be_bytes(take(bytes, 2)?.try_into().ok()?));
        let topic = std::str::from_utf8(take(bytes, length)?).ok()?.to_owned();
        for _ in 0..number(bytes)? {
            places.push(format!("{topic}-{}", number(bytes)?));
        }
    }
    Some(places)
}

fn number(bytes: &mut &[u8]) -> Option<i32> {
    Some(i32::from_be_bytes(take(bytes, 4)?.try_into().ok()?))
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(head)
}
