//! How the parts of a plan are written: one line an item, `keyword key=value key=value`.
//! What the items are, `plan.rs` and `fault.rs` say.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::chance::{Between, Ratio};

/// What is wrong with a plan's text: a sentence that names the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError(pub String);

impl std::fmt::Display for TextError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TextError {}

/// A value in the text. `parse` of `print` is the identity.
pub trait Value: Sized {
    fn print(&self) -> String;
    fn parse(text: &str) -> Result<Self, String>;
}

/// A group of values that is written on one line.
pub trait Item: Sized {
    fn print(&self, line: &mut Line);
    fn parse(fields: &mut Fields) -> Result<Self, String>;
}

/// A line under construction.
#[derive(Debug, Default)]
pub struct Line(String);

impl Line {
    pub fn new(keyword: &str) -> Self {
        Self(keyword.to_owned())
    }

    pub fn word(&mut self, word: &str) {
        self.0.push(' ');
        self.0.push_str(word);
    }

    pub fn put(&mut self, key: &str, value: &impl Value) {
        let _ = write!(self.0, " {key}={}", value.print());
    }

    /// Writes a value, unless it is the default.
    pub fn put_unless<T: Value + PartialEq>(&mut self, key: &str, value: &T, default: Option<T>) {
        if default.as_ref() != Some(value) {
            self.put(key, value);
        }
    }

    pub fn finish(self) -> String {
        self.0
    }
}

/// The words and `key=value` pairs of a line; each is taken once, and none may be left over.
#[derive(Debug)]
pub struct Fields {
    words: Vec<String>,
    values: BTreeMap<String, String>,
}

impl Fields {
    pub fn new(text: &str) -> Result<Self, String> {
        let mut fields = Self { words: Vec::new(), values: BTreeMap::new() };
        for part in text.split_whitespace() {
            match part.split_once('=') {
                None => fields.words.push(part.to_owned()),
                Some((key, value)) => {
                    if fields.values.insert(key.to_owned(), value.to_owned()).is_some() {
                        return Err(format!("{key} is given twice"));
                    }
                }
            }
        }
        fields.words.reverse();
        Ok(fields)
    }

    pub fn word(&mut self) -> Result<String, String> {
        self.words.pop().ok_or_else(|| "a word is missing".to_owned())
    }

    pub fn words(&mut self) -> Vec<String> {
        let mut words = std::mem::take(&mut self.words);
        words.reverse();
        words
    }

    pub fn take<T: Value>(&mut self, key: &str) -> Result<T, String> {
        let text = self.values.remove(key).ok_or_else(|| format!("{key}= is missing"))?;
        T::parse(&text).map_err(|error| format!("{key}: {error}"))
    }

    /// The value of `key`, or else the default, if there is one.
    pub fn take_or<T: Value>(&mut self, key: &str, default: Option<T>) -> Result<T, String> {
        match default {
            Some(default) if !self.values.contains_key(key) => Ok(default),
            _ => self.take(key),
        }
    }

    pub fn finish(self) -> Result<(), String> {
        let left = self.words.into_iter().chain(self.values.into_keys()).next();
        left.map_or(Ok(()), |left| Err(format!("{left:?} is not known here")))
    }
}

/// Declares a struct whose fields are written under their own names. One with a default is left
/// out where it has that value, so that older plans stay what they are.
#[macro_export]
macro_rules! plan_item {
    ($(#[$meta:meta])* $name:ident {
        $( $(#[$field_meta:meta])* $field:ident: $type:ty $(= $default:expr)? ),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name { $( $(#[$field_meta])* pub $field: $type ),* }

        impl $crate::plan::text::Item for $name {
            #[allow(unused_variables)]
            fn print(&self, line: &mut $crate::plan::text::Line) {
                $( line.put_unless(
                    stringify!($field), &self.$field, None$(.or(Some($default)))?
                ); )*
            }

            #[allow(unused_variables)]
            fn parse(fields: &mut $crate::plan::text::Fields) -> Result<Self, String> {
                Ok(Self { $( $field: fields.take_or(
                    stringify!($field), None$(.or(Some($default)))?
                )? ),* })
            }
        }
    };
}

/// Declares an enum whose values are written as words.
#[macro_export]
macro_rules! plan_words {
    ($(#[$meta:meta])* $name:ident {
        $( $(#[$variant_meta:meta])* $variant:ident = $word:literal ),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $( $(#[$variant_meta])* $variant ),* }

        impl $name {
            pub const ALL: &[Self] = &[$( Self::$variant ),*];

            pub const fn word(self) -> &'static str {
                match self { $( Self::$variant => $word ),* }
            }
        }

        impl $crate::plan::text::Value for $name {
            fn print(&self) -> String {
                self.word().to_owned()
            }

            fn parse(text: &str) -> Result<Self, String> {
                let found = Self::ALL.iter().copied().find(|value| value.word() == text);
                found.ok_or_else(|| {
                    let known: Vec<_> = Self::ALL.iter().map(|value| value.word()).collect();
                    format!("{text:?} is none of {}", known.join(", "))
                })
            }
        }
    };
}

macro_rules! numbers {
    ($($type:ty),*) => { $(
        impl Value for $type {
            fn print(&self) -> String {
                self.to_string()
            }

            fn parse(text: &str) -> Result<Self, String> {
                text.parse().map_err(|error| format!("{text:?}: {error}"))
            }
        }
    )* };
}

numbers!(u16, u32, u64, usize, i32, i64);

impl Value for Ratio {
    fn print(&self) -> String {
        self.to_string()
    }

    fn parse(text: &str) -> Result<Self, String> {
        text.parse()
    }
}

impl Value for String {
    fn print(&self) -> String {
        self.clone()
    }

    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl Value for bool {
    fn print(&self) -> String {
        if *self { "yes" } else { "no" }.to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err(format!("{text:?} is neither yes nor no")),
        }
    }
}

/// Written in the largest unit that holds it whole: `2s`, `1200ms`, `50us`, `7ns`.
impl Value for Duration {
    fn print(&self) -> String {
        let nanos = self.as_nanos();
        for (unit, name) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")] {
            if nanos.is_multiple_of(unit) {
                return format!("{}{name}", nanos / unit);
            }
        }
        format!("{nanos}ns")
    }

    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a duration such as 1200ms");
        let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        let nanos = match &text[digits.len()..] {
            "s" => number.checked_mul(1_000_000_000),
            "ms" => number.checked_mul(1_000_000),
            "us" => number.checked_mul(1000),
            "ns" => Some(number),
            _ => None,
        };
        nanos.map(Self::from_nanos).ok_or_else(wrong)
    }
}

impl<T: Value + PartialOrd> Value for Between<T> {
    fn print(&self) -> String {
        format!("{}..{}", self.low.print(), self.high.print())
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (low, high) = text.split_once("..").ok_or("a range such as 1..5 is wanted")?;
        let range = Self { low: T::parse(low)?, high: T::parse(high)? };
        if range.low > range.high {
            Err(format!("{text:?} ends before it begins"))
        } else {
            Ok(range)
        }
    }
}

/// `2+3+1`; `-` for none of them.
impl Value for Vec<u32> {
    fn print(&self) -> String {
        let words: Vec<String> = self.iter().map(Value::print).collect();
        if words.is_empty() { "-".to_owned() } else { words.join("+") }
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text == "-" { Ok(Self::new()) } else { text.split('+').map(Value::parse).collect() }
    }
}

/// `none` for nothing.
impl<T: Value> Value for Option<T> {
    fn print(&self) -> String {
        self.as_ref().map_or_else(|| "none".to_owned(), Value::print)
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text == "none" { Ok(None) } else { T::parse(text).map(Some) }
    }
}
