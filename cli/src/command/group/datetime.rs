//! Points in time as people write them: `2026-11-30T08:00:00`, in UTC unless a zone follows.

use quorate_core::time::Timestamp;

/// `@MILLISECONDS` since 1970, or a date with or without a time and a zone.
pub(super) fn parse_datetime(text: &str) -> Result<Timestamp, String> {
    let wrong = || {
        format!(
            "`{text}` is no time: write 2026-11-30T08:00:00, with Z or +01:00, or @MILLISECONDS"
        )
    };
    if let Some(millis) = text.strip_prefix('@') {
        let millis = millis.parse().ok().filter(|&millis: &i64| millis >= 0);
        return millis.map(Timestamp).ok_or_else(wrong);
    }
    parse(text).map(Timestamp).ok_or_else(wrong)
}

fn parse(text: &str) -> Option<i64> {
    let (date, time) = match text.find(['T', ' ']) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, "00:00"),
    };
    let mut date = date.splitn(3, '-').map(|part| number(part, 1..=4));
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    if !(1..=days_of(year, month)).contains(&day) {
        return None;
    }
    let (time, zone) = match time.find(['Z', '+', '-']) {
        Some(at) => (&time[..at], zone_minutes(&time[at..])?),
        None => (time, 0),
    };
    let (time, millis) = match time.split_once('.') {
        Some((time, fraction)) => {
            let digits = number(fraction, 1..=3)?;
            (time, digits * 10_i64.pow(3 - u32::try_from(fraction.len()).ok()?))
        }
        None => (time, 0),
    };
    let mut time = time.splitn(3, ':').map(|part| number(part, 2..=2));
    let (hour, minute) = (time.next()??, time.next()??);
    let second = time.next().unwrap_or(Some(0))?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let minutes = (days_since_1970(year, month, day) * 24 + hour) * 60 + minute - zone;
    Some((minutes * 60 + second) * 1000 + millis).filter(|&millis| millis >= 0)
}

fn number(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<i64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    if plain && digits.contains(&text.len()) { text.parse().ok() } else { None }
}

/// `Z`, `+01:00`, `-0530`.
fn zone_minutes(text: &str) -> Option<i64> {
    let sign = match text.as_bytes().first()? {
        b'Z' => return (text.len() == 1).then_some(0),
        b'+' => 1,
        _ => -1,
    };
    let digits = text[1..].replace(':', "");
    let zone = number(&digits, 4..=4)?;
    let (hours, minutes) = (zone / 100, zone % 100);
    (hours <= 18 && minutes <= 59).then_some(sign * (hours * 60 + minutes))
}

const fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

const fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let years: i64 = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum();
    let months: i64 = (1..month).map(|month| days_of(year, month)).sum();
    years + months + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, millis) in [
            ("1970-01-01T00:00:00", 0),
            ("2026-11-30T08:43:18Z", 1_796_028_198_000),
            ("2026-11-30 08:43", 1_796_028_180_000),
            ("2024-02-29", 1_709_164_800_000),
            ("2026-11-30T09:43:18.5+01:00", 1_796_028_198_500),
            ("2026-11-30T03:13:18.001-0530", 1_796_028_198_001),
            ("@12", 12),
        ] {
            assert_eq!(parse_datetime(text), Ok(Timestamp(millis)), "{text}");
        }
        for wrong in [
            "",
            "@",
            "@-1",
            "now",
            "2026-02-29",
            "2026-13-01",
            "2026-11-30T24:00",
            "2026-11-30T1:00",
            "2026-11-30T08:00+9",
            "1969-12-31",
            "2026-11-30T08:00:00.1234",
            "2026-11-30T08:00Zz",
            "2026-11-31",
            "20261-01-01",
        ] {
            assert!(parse_datetime(wrong).is_err(), "{wrong}");
        }
    }
}
