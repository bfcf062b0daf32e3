//! Records at the edges of what a record may be, and what a client must be able to do to send one.

use super::adapter::{Adapter, Record};

/// The first timestamp; a fixed past, so that create time and append time cannot be confused.
pub const FIRST_TIME: i64 = 1_700_000_000_000;

/// Standard base64 with padding.
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let six = (word >> (18 - 6 * digit)) & 63;
            text.push(if digit <= chunk.len() { DIGITS[six as usize] as char } else { '=' });
        }
    }
    text
}

/// Bytes that no codec can shrink much, the same for the same seed; printable, so that every
/// client can carry them.
#[must_use]
pub fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        b'0' + (state >> 33) as u8 % 64
    };
    (0..bytes).map(|_| draw()).collect()
}

type Part<'a> = Option<&'a [u8]>;

/// A record for partition `p`; its time follows from its place in the list.
fn record(p: i32, key: Part<'_>, value: Part<'_>, headers: &[(&str, Part<'_>)]) -> Record {
    let h = headers.iter().map(|(name, value)| ((*name).to_owned(), value.map(base64))).collect();
    Record { p, o: 0, k: key.map(base64), v: value.map(base64), h, t: 0, topic: String::new() }
}

/// Every edge that `writer` can send, in order of partitions, times in steps of a second.
#[must_use]
pub fn edges(writer: &Adapter) -> Vec<Record> {
    let binary: Vec<u8> = (0..=255).collect();
    let long = b"a line that repeats, as log lines do, and compresses well. ".repeat(1700);
    let many: Vec<(String, Vec<u8>)> =
        (0..20).map(|i| (format!("h{i:02}"), format!("{i}").into_bytes())).collect();
    let many: Vec<(&str, Part<'_>)> =
        many.iter().map(|(name, value)| (name.as_str(), Some(&value[..]))).collect();
    let all: Vec<(&[&str], Record)> = vec![
        (&[], record(0, Some(b"key"), Some(b"value"), &[])),
        (&[], record(0, None, Some(b"null key"), &[])),
        (&["write-empty-key"], record(0, Some(b""), Some(b"empty key"), &[])),
        (&[], record(0, Some(b"tombstone"), None, &[])),
        (&[], record(0, Some(b"empty value"), Some(b""), &[])),
        (&[], record(0, Some(b"one"), Some(b"header"), &[("name", Some(b"content"))])),
        (&[], record(1, Some(b"empty"), Some(b"header"), &[("name", Some(b""))])),
        (
            &["write-duplicate-header"],
            record(1, None, Some(b"duplicates"), &[("a", Some(b"1")), ("a", Some(b"2"))]),
        ),
        (
            &["write-duplicate-header", "write-header-order"],
            record(
                1,
                None,
                Some(b"order"),
                &[("b", Some(b"1")), ("a", Some(b"2")), ("b", Some(b"3"))],
            ),
        ),
        (&[], record(1, Some(b"many"), Some(b"headers"), &many)),
        (&[], record(2, Some("ключ 鍵 🔑".as_bytes()), Some("значение 値".as_bytes()), &[])),
        (&["write-binary"], record(2, Some(b"binary"), Some(&binary), &[])),
        (&[], record(2, Some(b"long"), Some(&long), &[])),
        (&[], record(2, Some(b"after"), Some(b"the long one"), &[])),
    ];
    number(all.into_iter().filter(|(needs, _)| needs.iter().all(|n| writer.can(n))).map(|(_, r)| r))
}

/// Headers without a value: a topic of their own, since some clients cannot even read them.
#[must_use]
pub fn null_headers() -> Vec<Record> {
    let lone = record(0, Some(b"k"), Some(b"null header"), &[("n", None)]);
    let mixed =
        record(0, None, Some(b"mixed"), &[("e", Some(b"")), ("n", None), ("v", Some(b"v"))]);
    number([lone, mixed].into_iter())
}

/// A few plain records, for scenarios in which the content does not matter.
#[must_use]
pub fn plain(count: usize, partitions: i32) -> Vec<Record> {
    let mut all: Vec<Record> = (0..count)
        .map(|i| {
            let p = i32::try_from(i).expect("few") % partitions;
            record(p, None, Some(format!("record {i}").as_bytes()), &[])
        })
        .collect();
    all.sort_by_key(|record| record.p);
    number(all.into_iter())
}

/// One record of `bytes` incompressible bytes.
#[must_use]
pub fn heavy(bytes: usize) -> Vec<Record> {
    number([record(0, Some(b"heavy"), Some(&noise(bytes, 7)), &[])].into_iter())
}

/// Records whose times are given, in partition 0.
#[must_use]
pub fn at_times(times: &[i64]) -> Vec<Record> {
    let stamped = |time: &i64| Record { t: *time, ..record(0, None, Some(b"timed"), &[]) };
    times.iter().map(stamped).collect()
}

fn number(records: impl Iterator<Item = Record>) -> Vec<Record> {
    let mut time = FIRST_TIME;
    records
        .map(|record| {
            time += 1000;
            Record { t: time, ..record }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_of_the_rfc() {
        let vectors = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (length, expected) in vectors.iter().enumerate() {
            assert_eq!(base64(&b"foobar"[..length]), *expected);
        }
    }
}
