//! Values drawn from bytes: whatever a test or a fuzzer feeds in becomes a message that its version
//! can carry. Only with the feature `sample`.

use bytes::Bytes;
use quorate_core::id::TopicId;

use super::{Form, Records, Text};

/// The bytes that are drawn from; zeros when they have run out, so that all draws end.
#[derive(Debug)]
pub struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Small numbers, edges and anything, each often enough.
    pub fn number(&mut self) -> i64 {
        match self.byte() {
            byte @ 0..128 => i64::from(byte) - 2,
            128..160 => i64::MAX,
            160..192 => i64::MIN,
            _ => i64::from_be_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    /// How long a list is: none more than 3.
    fn count(&mut self) -> usize {
        usize::from(self.byte() % 4)
    }
}

pub trait Sample {
    fn sample(source: &mut Source<'_>, form: Form) -> Self;
}

macro_rules! numbers {
    ($($name:ident)*) => {$(
        impl Sample for $name {
            #[allow(clippy::cast_possible_truncation, clippy::unnecessary_cast)]
            fn sample(source: &mut Source<'_>, _: Form) -> Self {
                source.number() as $name
            }
        }
    )*};
}

numbers!(i8 i16 u16 i32 i64);

impl Sample for bool {
    fn sample(source: &mut Source<'_>, _: Form) -> Self {
        source.byte() % 2 == 1
    }
}

impl Sample for [u8; 16] {
    fn sample(source: &mut Source<'_>, _: Form) -> Self {
        std::array::from_fn(|_| source.byte())
    }
}

impl Sample for TopicId {
    fn sample(source: &mut Source<'_>, form: Form) -> Self {
        Self(Sample::sample(source, form))
    }
}

impl Sample for Text {
    fn sample(source: &mut Source<'_>, _: Form) -> Self {
        const LETTERS: [&str; 8] = ["a", "topic", "-", "0", "ß", "日本", "🦀", "name"];
        let text: String =
            (0..source.count()).map(|_| LETTERS[usize::from(source.byte() % 8)]).collect();
        // Now and then long enough for two bytes of compact length.
        if source.byte() == 255 { Self::from(text + &"x".repeat(200)) } else { Self::from(text) }
    }
}

impl Sample for Bytes {
    fn sample(source: &mut Source<'_>, _: Form) -> Self {
        // Now and then long enough to become a chunk of its own.
        let times = if source.byte() == 255 { 1000 } else { 1 };
        (0..source.count()).map(|_| source.byte()).collect::<Vec<_>>().repeat(times).into()
    }
}

impl Sample for Records {
    fn sample(source: &mut Source<'_>, form: Form) -> Self {
        (0..source.count()).map(|_| Bytes::sample(source, form)).collect()
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(source: &mut Source<'_>, form: Form) -> Self {
        (0..source.count()).map(|_| T::sample(source, form)).collect()
    }
}

impl<T: Sample> Sample for Option<T> {
    fn sample(source: &mut Source<'_>, form: Form) -> Self {
        (!source.byte().is_multiple_of(4)).then(|| T::sample(source, form))
    }
}
