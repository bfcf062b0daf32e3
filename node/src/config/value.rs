//! The values of settings as people write them: `64MiB`, `7d`, `true`, `127.0.0.1:9092`.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use quorate_core::group::interface::Migration;

/// A value that a setting may have.
pub(super) trait Value: Sized {
    /// Reads what a person wrote; the error completes the sentence "`text` is not ...".
    fn parse(text: &str) -> Result<Self, String>;

    /// Text that `parse` takes.
    fn show(&self) -> String;
}

macro_rules! whole_number {
    ($($type:ty)*) => {$(
        impl Value for $type {
            fn parse(text: &str) -> Result<Self, String> {
                let wide = size(text)?;
                Self::try_from(wide).map_err(|_| format!("a number up to {}", Self::MAX))
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

whole_number!(u16 u32 u64 usize i16 i32);

impl Value for bool {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err("true or false".to_owned()),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for Migration {
    fn parse(text: &str) -> Result<Self, String> {
        match text.to_lowercase().as_str() {
            "bidirectional" => Ok(Self::Bidirectional),
            "upgrade" => Ok(Self::Upgrade),
            "downgrade" => Ok(Self::Downgrade),
            "disabled" => Ok(Self::Disabled),
            _ => Err("bidirectional, upgrade, downgrade or disabled".to_owned()),
        }
    }

    fn show(&self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

impl Value for String {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn show(&self) -> String {
        self.clone()
    }
}

impl Value for PathBuf {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(Self::from(text))
    }

    fn show(&self) -> String {
        self.display().to_string()
    }
}

impl Value for SocketAddr {
    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "an address such as 127.0.0.1:9092 or [::1]:9092".to_owned())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// The empty text is "not set".
impl<T: Value> Value for Option<T> {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(None) } else { T::parse(text).map(Some) }
    }

    fn show(&self) -> String {
        self.as_ref().map(Value::show).unwrap_or_default()
    }
}

impl Value for Duration {
    fn parse(text: &str) -> Result<Self, String> {
        let why = || "a time such as 250ms, 30s, 10m, 12h or 7d".to_owned();
        let (number, unit) = split_unit(text).ok_or_else(why)?;
        let millis_each = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            // Zero is zero in any unit; other bare numbers would have to guess.
            "" if number == 0 => 0,
            _ => return Err(why()),
        };
        number.checked_mul(millis_each).map(Self::from_millis).ok_or_else(why)
    }

    fn show(&self) -> String {
        format!("{}ms", self.as_millis())
    }
}

/// A count or a number of bytes: `4096`, `64KiB`, `1GB`.
fn size(text: &str) -> Result<u64, String> {
    let why = || "a number such as 4096, 64KiB or 1GiB".to_owned();
    let (number, unit) = split_unit(text).ok_or_else(why)?;
    let each: u64 = match unit {
        "" | "B" => 1,
        "kB" | "KB" => 1000,
        "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "GiB" => 1 << 30,
        _ => return Err(why()),
    };
    number.checked_mul(each).ok_or_else(why)
}

/// `12 ms` or `12ms` as the number and its unit.
fn split_unit(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let number = text[..digits].replace('_', "").parse().ok()?;
    Some((number, text[digits..].trim()))
}

/// A bound that a value may break.
pub(super) fn within<T: PartialOrd + Display + Copy>(
    key: &str,
    value: T,
    min: T,
    max: T,
) -> Result<(), String> {
    if value < min || value > max {
        return Err(format!("{key} is {value}; it may be {min} to {max}"));
    }
    Ok(())
}

/// As `within`, for times.
pub(super) fn time_within(
    key: &str,
    value: Duration,
    min: Duration,
    max: Duration,
) -> Result<(), String> {
    if value < min || value > max {
        return Err(format!("{key} is {value:?}; it may be {min:?} to {max:?}"));
    }
    Ok(())
}

/// How many letters must change to make `a` into `b`; for suggestions.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (before + usize::from(x != y)).min(above + 1).min(row[j] + 1);
            before = above;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_write_sizes_and_times() {
        assert_eq!(usize::parse("64KiB"), Ok(65_536));
        assert_eq!(u64::parse("1_000"), Ok(1000));
        assert_eq!(u64::parse("2 GiB"), Ok(2 << 30));
        assert!(u64::parse("64XB").unwrap_err().contains("64KiB"));
        assert!(u64::parse("99999999999GiB").is_err());
        assert!(u16::parse("65536").unwrap_err().contains("65535"));
        assert_eq!(Duration::parse("7d"), Ok(Duration::from_secs(7 * 86_400)));
        assert_eq!(Duration::parse("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(Duration::parse("0"), Ok(Duration::ZERO));
        assert!(Duration::parse("10").is_err(), "a bare number has no unit");
        assert!(Duration::parse("").is_err());
    }

    #[test]
    fn near_words_are_near() {
        assert_eq!(distance("network.listen", "network.lisen"), 1);
        assert_eq!(distance("", "abc"), 3);
    }
}
