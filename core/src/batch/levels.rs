//! Priority levels: which of them stand in a batch, and how a record names its own.

use super::record::Record;

/// The record header that names a level: ASCII digits, `0` to `9`; above 9 counts as 9.
pub const PRIORITY_HEADER: &[u8] = b"priority";

/// Which of the priority levels 0 to 9 stand in a batch, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels(pub u16);

impl Levels {
    /// The level of a record that names none.
    pub const DEFAULT_LEVEL: u8 = 4;
    pub const LEVEL_MAX: u8 = 9;
    /// A batch of records that name none.
    pub const DEFAULT: Self = Self(1 << Self::DEFAULT_LEVEL);

    /// These levels and `level`, which must be at most 9.
    #[must_use]
    pub const fn with(self, level: u8) -> Self {
        assert!(level <= Self::LEVEL_MAX, "there are ten levels");
        Self(self.0 | 1 << level)
    }

    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn contains(self, level: u8) -> bool {
        level <= Self::LEVEL_MAX && self.0 & (1 << level) != 0
    }
}

/// The level of a record. Its last `priority` header counts, as with Kafka's `lastHeader`; one
/// that is no number counts as none.
#[inline]
pub fn level_of(record: &Record<'_>) -> u8 {
    if record.headers.len() == 0 {
        return Levels::DEFAULT_LEVEL;
    }
    let mut named = None;
    for header in record.headers.clone() {
        if header.key == PRIORITY_HEADER {
            named = header.value.and_then(level);
        }
    }
    named.unwrap_or(Levels::DEFAULT_LEVEL)
}

/// `None` if `text` is not made of ASCII digits.
fn level(text: &[u8]) -> Option<u8> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let zeros = text.iter().take_while(|&&digit| digit == b'0').count();
    match text[zeros..] {
        [] => Some(0),
        [digit] => Some(digit - b'0'),
        _ => Some(Levels::LEVEL_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_digits_and_clamp_above_nine() {
        for (text, expected) in [
            ("0", Some(0)),
            ("7", Some(7)),
            ("9", Some(9)),
            ("10", Some(9)),
            ("007", Some(7)),
            ("000", Some(0)),
            ("99999999999999999999999", Some(9)),
            ("", None),
            ("-1", None),
            ("high", None),
            (" 3", None),
        ] {
            assert_eq!(level(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn a_mask_holds_what_was_put_in() {
        let levels = Levels::DEFAULT.with(9).union(Levels(1));
        let held = (0..=20).filter(|&level| levels.contains(level)).collect::<Vec<_>>();
        assert_eq!(held, [0, 4, 9]);
    }
}
