//! Durations in the format of Go's `time.ParseDuration`, such as `1h2m3.5s`, `15ms` or `-1.5µs`.
//!
//! This is the only parser for durations. The flags and files in Vegeta's format, the emulators' flags and the agent's
//! configuration use it. Each caller adds its own limits. Seawall prints durations in this format only in reports in Vegeta's
//! format.

use std::time::Duration;

/// The number of nanoseconds in one second.
const SECOND: u64 = 1_000_000_000;

/// Go's units in nanoseconds (time/format.go `unitMap`). The two spellings of micro are U+00B5 and U+03BC.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3600 * SECOND),
];

/// Parses a duration of at least zero. Returns `None` for any other text. A bare `0` needs no unit.
pub fn parse(text: &str) -> Option<Duration> {
    parse_signed_nanos(text).and_then(|nanos| u64::try_from(nanos).ok()).map(Duration::from_nanos)
}

/// Parses a signed duration into nanoseconds. The range equals the range of Go's `time.Duration`, about ±292 years.
pub fn parse_signed_nanos(text: &str) -> Option<i64> {
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let sum = i128::from(if text == "0" { 0 } else { sum(text)? });
    i64::try_from(if is_negative { -sum } else { sum }).ok()
}

/// Parses one or more numbers with units. Returns the sum in nanoseconds.
fn sum(text: &str) -> Option<u64> {
    let (mut sum, mut rest) = part(text)?;
    while !rest.is_empty() {
        let (more, after) = part(rest)?;
        (sum, rest) = (sum.checked_add(more)?, after);
    }
    Some(sum)
}

/// Parses the first number and its unit. Returns the nanoseconds and the remaining text.
fn part(text: &str) -> Option<(u64, &str)> {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let (number, rest) = text.split_at(text.find(|c| !is_number(c))?);
    let (unit, rest) = rest.split_at(rest.find(is_number).unwrap_or(rest.len()));
    let &(_, scale) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    // The eighteenth digit of a fraction of an hour is far below one nanosecond, so further digits do not matter.
    let fraction = &fraction[..fraction.len().min(18)];
    let below = u128::from(digits(fraction)?) * u128::from(scale) / 10_u128.pow(fraction.len() as u32);
    let nanos = u128::from(digits(whole)?) * u128::from(scale) + below;
    Some((u64::try_from(nanos).ok()?, rest))
}

fn digits(text: &str) -> Option<u64> {
    if text.is_empty() { Some(0) } else { text.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_in_go() {
        let second = SECOND as i64;
        for (text, nanos) in [
            ("0", 0),
            ("-0", 0),
            ("+5s", 5 * second),
            ("300ms", 300_000_000),
            ("1.5h", 5400 * second),
            (".5s", second / 2),
            ("5.s", 5 * second),
            ("1h30m", 5400 * second),
            ("1s1s", 2 * second),
            ("10us", 10_000),
            ("2µs", 2_000),
            ("2μs", 2_000),
            ("0.3333333333333333333h", 1_199_999_999_999),
            ("-.25ms", -250_000),
            ("9223372036854775807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
        ] {
            assert_eq!(parse_signed_nanos(text), Some(nanos), "{text}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused() {
        let long = "9223372036h".repeat(9_999);
        for text in [
            "",
            "+",
            "-",
            "5",
            "s",
            ".",
            ".s",
            "1x",
            "1d",
            "1s ",
            " 1s",
            "1e3s",
            "1..5s",
            "1.2.3s",
            "1.00000000000000000000.3s",
            "--1s",
            "1s-1s",
            "1s5",
            "99999999999h",
            "9223372036854775808ns",
            "99999999999999999999s",
            &long,
        ] {
            assert_eq!(parse_signed_nanos(text), None, "{text}");
        }
    }

    #[test]
    fn a_span_is_not_negative() {
        assert_eq!(parse("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(parse("-1s"), None);
        assert_eq!(parse("99999999999h"), None);
    }
}
