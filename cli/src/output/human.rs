//! Sizes, times and counts as people write and read them: `7d`, `1GiB`, `12.3 k`.

use std::time::Duration;

const BYTE_UNITS: [(&str, u64); 14] = [
    ("b", 1),
    ("kb", 1000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
    ("", 1),
];

const TIME_UNITS: [(&str, u64); 9] = [
    ("us", 1),
    ("ms", 1000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("min", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
    ("w", 604_800_000_000),
    ("y", 31_536_000_000_000),
];

/// `1GiB`, `10 MB`, `512k` (binary), `1.5G`, or bare bytes.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = number_and_unit(text);
    let unit = unit.trim().to_lowercase();
    let found = BYTE_UNITS.iter().find(|(name, _)| *name == unit);
    let Some((_, factor)) = found else {
        return Err(format!("`{text}` is not a size: write 4096, 64k, 10MB or 1GiB"));
    };
    scaled(number, *factor).ok_or_else(|| format!("`{text}` is not a size that fits"))
}

/// `250ms`, `5s`, `1h30m`, `7d`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time: write 250ms, 5s, 1h30m or 7d");
    let mut micros = 0_u64;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let (number, after) = number_and_unit(rest);
        let digit = |c: char| c.is_ascii_digit();
        let end = after.find(digit).unwrap_or(after.len());
        let unit = after[..end].trim().to_lowercase();
        let (_, factor) = TIME_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let part = scaled(number, *factor).ok_or_else(wrong)?;
        micros = micros.checked_add(part).ok_or_else(wrong)?;
        rest = &after[end..];
    }
    Ok(Duration::from_micros(micros))
}

/// `10k`, `1M`, `1_000`, or a bare number; decimal.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let plain = text.replace('_', "");
    let (number, unit) = number_and_unit(&plain);
    let factor = match unit.trim() {
        "" => 1,
        "k" | "K" => 1000,
        "m" | "M" => 1_000_000,
        "g" | "G" => 1_000_000_000,
        _ => return Err(format!("`{text}` is not a number: write 5000, 10k or 1M")),
    };
    scaled(number, factor).ok_or_else(|| format!("`{text}` is not a number that fits"))
}

fn number_and_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.split_at(end)
}

/// `number` times `factor`, exactly, to nine decimal places.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 9 {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let mut value = u128::from(whole) * u128::from(factor);
    if !fraction.is_empty() {
        let digits = u32::try_from(fraction.len()).ok()?;
        let fraction: u64 = fraction.parse().ok()?;
        value += u128::from(fraction) * u128::from(factor) / 10_u128.pow(digits);
    }
    u64::try_from(value).ok()
}

/// `1.5 GiB`; three digits suffice.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    stepped(bytes, 1024, &units)
}

/// `12.3 k`, `4.56 M`.
pub(crate) fn count(count: u64) -> String {
    stepped(count, 1000, &["", "k", "M", "G", "T", "P", "E"])
}

fn stepped(value: u64, step: u32, units: &[&str]) -> String {
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= f64::from(step) - 0.5 && unit + 1 < units.len() {
        scaled /= f64::from(step);
        unit += 1;
    }
    let number = if unit == 0 { value.to_string() } else { three_digits(scaled) };
    format!("{number} {}", units[unit]).trim_end().to_owned()
}

fn three_digits(value: f64) -> String {
    match value {
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

/// `1.23 ms`, `45 s`, `1h30m`, `7d`: three digits below a minute, whole units above.
pub(crate) fn duration(duration: Duration) -> String {
    let micros = duration.as_micros();
    if micros < 1000 {
        return format!("{micros} us");
    }
    if duration < Duration::from_secs(1) {
        return format!("{} ms", three_digits(micros as f64 / 1000.0));
    }
    if duration < Duration::from_secs(60) {
        let seconds = duration.as_secs_f64();
        return match duration.subsec_nanos() {
            0 => format!("{} s", duration.as_secs()),
            _ => format!("{} s", three_digits(seconds)),
        };
    }
    let mut left = duration.as_secs();
    let mut parts = Vec::new();
    for (unit, seconds) in [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)] {
        if left >= seconds {
            parts.push(format!("{}{unit}", left / seconds));
            left %= seconds;
        }
    }
    parts.truncate(2);
    parts.concat()
}

/// A configuration value with its unit, by Kafka's habit of naming keys: `retention.ms=604800000`
/// reads `7d`. `None` if the value says it best itself.
pub(crate) fn config_value(key: &str, value: &str) -> Option<String> {
    let number: i64 = value.parse().ok()?;
    let timed = key.ends_with(".ms");
    let sized = key.ends_with(".bytes") || key.ends_with("bytes");
    match number {
        -1 if timed || sized => Some("no limit".to_owned()),
        i64::MAX if timed || sized => Some("no limit".to_owned()),
        1000.. if timed => Some(duration(Duration::from_millis(number.unsigned_abs()))),
        1024.. if sized => Some(bytes(number.unsigned_abs())),
        _ => None,
    }
}

/// The other way: what a person wrote for a key, as Kafka wants it.
pub(crate) fn config_from_human(key: &str, value: &str) -> String {
    let written_out = value.parse::<f64>().is_ok();
    if !written_out && key.ends_with(".ms") {
        if let Ok(duration) = parse_duration(value) {
            return duration.as_millis().to_string();
        }
    } else if !written_out
        && key.ends_with("bytes")
        && let Ok(bytes) = parse_bytes(value)
    {
        return bytes.to_string();
    }
    value.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in
            [("0", 0), ("1GiB", 1 << 30), ("10 MB", 10_000_000), ("64k", 65_536), ("1.5KiB", 1536)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "GiB", "1 furlong", "-1", "1e9", "99999999999TiB", "1.2.3k"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
        let written: Vec<String> = [0, 1023, 1024, 1536, 1 << 30, u64::MAX].map(bytes).into();
        assert_eq!(written, ["0 B", "1023 B", "1.00 KiB", "1.50 KiB", "1.00 GiB", "16.0 EiB"]);
    }

    #[test]
    fn times_are_read_and_written() {
        for (text, millis) in [("250ms", 250), ("5s", 5000), ("1h30m", 5_400_000), ("0.5s", 500)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for wrong in ["", "5", "s", "7 lightyears", "1h30", "99999999999999y"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
        for (millis, text) in [
            (0, "0 us"),
            (1, "1.00 ms"),
            (45_000, "45 s"),
            (1500, "1.50 s"),
            (5_400_000, "1h30m"),
            (604_800_000, "7d"),
            (90_061_000, "1d1h"),
        ] {
            assert_eq!(duration(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn counts_are_read_and_written() {
        assert_eq!(parse_count("10k"), Ok(10_000));
        assert_eq!(parse_count("1_000"), Ok(1000));
        assert!(parse_count("many").is_err());
        assert_eq!((count(999), count(12_345)), ("999".to_owned(), "12.3 k".to_owned()));
    }

    #[test]
    fn configuration_has_units() {
        assert_eq!(config_value("retention.ms", "604800000").as_deref(), Some("7d"));
        assert_eq!(config_value("retention.bytes", "-1").as_deref(), Some("no limit"));
        assert_eq!(config_value("segment.bytes", "1073741824").as_deref(), Some("1.00 GiB"));
        assert_eq!(config_value("cleanup.policy", "delete"), None);
        assert_eq!(config_from_human("retention.ms", "7d"), "604800000");
        assert_eq!(config_from_human("retention.ms", "1000"), "1000");
        assert_eq!(config_from_human("segment.bytes", "1GiB"), "1073741824");
        assert_eq!(config_from_human("cleanup.policy", "7d"), "7d");
    }
}
