//! The records inside a batch, uncompressed: read without copying, written one by one.

use std::fmt;

/// The length that says: there is nothing, not even an empty thing.
const NULL: i32 = -1;

/// One record, borrowed from its batch. Null and empty are different things: `None`, `Some(&[])`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Counted from the batch's base offset.
    pub offset_delta: i32,
    /// Milliseconds, counted from the batch's base timestamp; may be negative.
    pub timestamp_delta: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    /// In the order of the producer, duplicates kept.
    pub headers: Headers<'a>,
}

/// One header of a record. Keys are UTF-8 by Kafka's rule, which its broker does not check either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader<'a> {
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

/// The headers of one record; already walked once, so that they hold together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers<'a> {
    cursor: Cursor<'a>,
    left: i32,
}

impl<'a> Iterator for Headers<'a> {
    type Item = RecordHeader<'a>;

    #[inline]
    fn next(&mut self) -> Option<RecordHeader<'a>> {
        if self.left <= 0 {
            return None;
        }
        self.left -= 1;
        self.cursor.header().ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left).unwrap_or(0);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Headers<'_> {}

/// Iterates over `count` records, which must fill `bytes` to the last byte. The count is checked,
/// never trusted: nothing is allocated, and the first error ends the iteration.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    cursor: Cursor<'a>,
    index: i32,
    count: i32,
    failed: bool,
}

impl<'a> Records<'a> {
    /// `bytes` as `Batch::uncompressed` gives them, `count` as the header claims.
    pub fn new(bytes: &'a [u8], count: i32) -> Self {
        Self { cursor: Cursor { rest: bytes }, index: 0, count, failed: false }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let index = self.index;
        if index >= self.count {
            if self.cursor.rest.is_empty() {
                return None;
            }
            self.failed = true;
            return Some(Err(RecordError { index, flaw: Flaw::Trailing }));
        }
        self.index += 1;
        Some(self.cursor.record().map_err(|flaw| {
            self.failed = true;
            RecordError { index, flaw }
        }))
    }
}

/// Why the bytes of a batch are not its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordError {
    /// Place of the record in the batch, from 0.
    pub index: i32,
    pub flaw: Flaw,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The bytes end inside the record.
    Truncated,
    /// A varint is longer than its type allows.
    Varint,
    /// A length is negative where it may not be, or reaches beyond the record.
    Length,
    /// The record's length counts more bytes than its fields have.
    Slack,
    /// Bytes follow the last record.
    Trailing,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flaw = match self.flaw {
            Flaw::Truncated => "the batch ends inside it",
            Flaw::Varint => "a number in it is longer than its type allows",
            Flaw::Length => "a length in it is negative or reaches beyond it",
            Flaw::Slack => "its length counts bytes that no field has",
            Flaw::Trailing => "the batch has bytes after its last record",
        };
        write!(f, "record {}: {flaw}", self.index)
    }
}

impl std::error::Error for RecordError {}

/// What remains to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    #[inline]
    fn record(&mut self) -> Result<Record<'a>, Flaw> {
        let length = usize::try_from(self.varint()?).map_err(|_| Flaw::Length)?;
        let mut body = Cursor { rest: self.take(length).ok_or(Flaw::Truncated)? };
        // The record's own attributes are unused in version 2.
        body.take(1).ok_or(Flaw::Length)?;
        let timestamp_delta = body.varlong()?;
        let offset_delta = body.varint()?;
        let key = body.nullable()?;
        let value = body.nullable()?;
        let left = body.varint()?;
        if left < 0 {
            return Err(Flaw::Length);
        }
        let headers = Headers { cursor: body.clone(), left };
        for _ in 0..left {
            body.header()?;
        }
        if !body.rest.is_empty() {
            return Err(Flaw::Slack);
        }
        Ok(Record { offset_delta, timestamp_delta, key, value, headers })
    }

    #[inline]
    fn header(&mut self) -> Result<RecordHeader<'a>, Flaw> {
        let key = self.nullable()?.ok_or(Flaw::Length)?;
        Ok(RecordHeader { key, value: self.nullable()? })
    }

    /// Length and bytes; -1 is null.
    #[inline]
    fn nullable(&mut self) -> Result<Option<&'a [u8]>, Flaw> {
        match self.varint()? {
            NULL => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| Flaw::Length)?;
                self.take(length).map(Some).ok_or(Flaw::Length)
            }
        }
    }

    #[inline]
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    /// A zigzag varint of at most 5 bytes.
    #[inline]
    fn varint(&mut self) -> Result<i32, Flaw> {
        let zigzag = u32::try_from(self.unsigned(5)?).map_err(|_| Flaw::Varint)?;
        Ok((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
    }

    /// A zigzag varint of at most 10 bytes.
    #[inline]
    fn varlong(&mut self) -> Result<i64, Flaw> {
        let zigzag = self.unsigned(10)?;
        Ok((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
    }

    /// Most numbers in a record have one or two bytes.
    #[inline]
    fn unsigned(&mut self, bytes_max: usize) -> Result<u64, Flaw> {
        match *self.rest {
            [first @ 0..0x80, ref rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(first))
            }
            [first, second @ 0..0x80, ref rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(first & 0x7f) | u64::from(second) << 7)
            }
            _ => self.long_unsigned(bytes_max),
        }
    }

    fn long_unsigned(&mut self, bytes_max: usize) -> Result<u64, Flaw> {
        let mut number = 0_u64;
        for (place, &byte) in self.rest.iter().take(bytes_max).enumerate() {
            let part = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit only.
            if place == 9 && part > 1 {
                return Err(Flaw::Varint);
            }
            number |= part << (7 * place);
            if byte < 0x80 {
                self.rest = &self.rest[place + 1..];
                return Ok(number);
            }
        }
        Err(if self.rest.len() < bytes_max { Flaw::Length } else { Flaw::Varint })
    }
}

/// Appends one record to `out`. Lengths stay below 2 GiB, or it panics: a builder's caller has
/// bounded them long before.
pub(super) fn put_record<'h>(
    out: &mut Vec<u8>,
    offset_delta: i32,
    timestamp_delta: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: impl ExactSizeIterator<Item = RecordHeader<'h>> + Clone,
) {
    let mut length = 1 + varlong_bytes(timestamp_delta) + varlong_bytes(i64::from(offset_delta));
    length += nullable_bytes(key) + nullable_bytes(value) + length_bytes(headers.len());
    for header in headers.clone() {
        length += nullable_bytes(Some(header.key)) + nullable_bytes(header.value);
    }
    put_length(out, length);
    out.push(0);
    put_varlong(out, timestamp_delta);
    put_varlong(out, i64::from(offset_delta));
    put_nullable(out, key);
    put_nullable(out, value);
    put_length(out, headers.len());
    for header in headers {
        put_nullable(out, Some(header.key));
        put_nullable(out, header.value);
    }
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => put_varlong(out, i64::from(NULL)),
        Some(bytes) => {
            put_length(out, bytes.len());
            out.extend_from_slice(bytes);
        }
    }
}

fn nullable_bytes(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| length_bytes(bytes.len()) + bytes.len())
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    put_varlong(out, i64::from(i32::try_from(length).expect("a length below 2 GiB")));
}

fn length_bytes(length: usize) -> usize {
    varlong_bytes(i64::try_from(length).expect("a length below 2 GiB"))
}

/// Zigzag varints of 32 and 64 bits agree wherever the number fits both.
fn put_varlong(out: &mut Vec<u8>, number: i64) {
    let mut zigzag = zigzag(number);
    while zigzag >= 0x80 {
        out.push((zigzag & 0x7f) as u8 | 0x80);
        zigzag >>= 7;
    }
    out.push(zigzag as u8);
}

fn varlong_bytes(number: i64) -> usize {
    let bits = (64 - zigzag(number).leading_zeros()).max(1);
    bits.div_ceil(7) as usize
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varlong(bytes: &[u8]) -> Result<i64, Flaw> {
        Cursor { rest: bytes }.varlong()
    }

    #[test]
    fn numbers_at_the_edges_of_their_types_survive() {
        for number in [0, -1, 1, 63, -64, 64, i64::from(i32::MAX), i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            put_varlong(&mut out, number);
            assert_eq!(out.len(), varlong_bytes(number), "{number}");
            assert_eq!(varlong(&out), Ok(number));
            if let Ok(short) = i32::try_from(number) {
                assert_eq!(Cursor { rest: &out }.varint(), Ok(short));
            }
        }
    }

    #[test]
    fn a_number_longer_than_its_type_is_refused() {
        assert_eq!(varlong(&[0xff; 10]), Err(Flaw::Varint));
        assert_eq!(varlong(&[0xff; 9]), Err(Flaw::Length));
        assert_eq!(
            Cursor { rest: &[0xff, 0xff, 0xff, 0xff, 0x1f] }.varint(),
            Err(Flaw::Varint),
            "33 bits"
        );
        assert_eq!(Cursor { rest: &[0xff; 6] }.varint(), Err(Flaw::Varint));
    }

    #[test]
    fn a_claimed_count_is_not_believed() {
        let mut records = Records::new(&[], i32::MAX);
        assert_eq!(
            records.next(),
            Some(Err(RecordError { index: 0, flaw: Flaw::Length })),
            "nothing is there to be read"
        );
        assert_eq!(records.next(), None);
    }

    #[test]
    fn bytes_after_the_last_record_are_an_error() {
        let mut out = Vec::new();
        put_record(&mut out, 0, 0, None, Some(b""), [].into_iter());
        let mut records = Records::new(&out, 1);
        assert!(matches!(records.next(), Some(Ok(Record { key: None, value: Some(b""), .. }))));
        assert_eq!(records.next(), None);
        out.push(0);
        let error = RecordError { index: 1, flaw: Flaw::Trailing };
        assert_eq!(Records::new(&out, 1).nth(1), Some(Err(error)));
    }
}
