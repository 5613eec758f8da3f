//! Instants as Go prints them in JSON: RFC 3339, up to nine fraction digits, without trailing zeros.
//!
//! The module has its own arithmetic, because the formats carry instants (Go's zero time, year 9999 in any zone) that calendar
//! libraries refuse. It uses the proleptic Gregorian calendar in 400-year cycles from 1 March of year 0, so that the leap day is
//! the last day of a year.

use std::fmt;

use crate::record::{Zone, ZonedTimestamp};

const DAY: i64 = 86_400;
/// Days in 400 years.
const CYCLE: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const TO_EPOCH: i64 = 719_468;

/// Appends an instant such as `2025-01-02T03:04:05.6+02:00`; `None` if the year is not in 0..=9999.
pub(crate) fn append(out: &mut Vec<u8>, timestamp: ZonedTimestamp) -> Option<()> {
    let text = Rfc3339::new(timestamp)?;
    // Formatting into memory cannot fail.
    std::io::Write::write_fmt(out, format_args!("{text}")).ok()
}

/// An instant that RFC 3339 can express, ready to be printed.
#[derive(Debug, Clone, Copy)]
pub struct Rfc3339 {
    year: i64,
    month: i64,
    day: i64,
    second: i64,
    nanos: u32,
    offset_minutes: i64,
}

impl Rfc3339 {
    /// Prepares an instant; `None` if the year is not in 0..=9999 or the offset is a day or more.
    #[must_use]
    pub fn new(timestamp: ZonedTimestamp) -> Option<Self> {
        // Odd seconds of an offset cannot be written: the instant is kept, and the zone is cut to the minute.
        let offset_minutes = i64::from(timestamp.zone().seconds_east()) / 60;
        let local = timestamp.unix_seconds().checked_add(offset_minutes * 60)?;
        let (year, month, day) = civil(local.div_euclid(DAY));
        let text = Self {
            year,
            month,
            day,
            second: local.rem_euclid(DAY),
            nanos: timestamp.subsec_nanos(),
            offset_minutes,
        };
        ((0..=9999).contains(&year) && offset_minutes.abs() < 24 * 60).then_some(text)
    }
}

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, month, day, second, nanos, offset_minutes } = *self;
        write!(f, "{year:04}-{month:02}-{day:02}T")?;
        write!(f, "{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)?;
        if nanos != 0 {
            let digits = format!("{nanos:09}");
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        let minutes = offset_minutes.abs();
        match offset_minutes {
            0 => f.write_str("Z"),
            east if east > 0 => write!(f, "+{:02}:{:02}", minutes / 60, minutes % 60),
            _ => write!(f, "-{:02}:{:02}", minutes / 60, minutes % 60),
        }
    }
}

/// Returns year, month 1..=12 and day 1..=31 of a number of days since 1970-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + TO_EPOCH;
    let day_of_cycle = shifted.rem_euclid(CYCLE);
    // The three terms take out the leap days of 4, the missing ones of 100 and the last day of 400 years.
    let year_of_cycle =
        (day_of_cycle - day_of_cycle / 1460 + day_of_cycle / 36_524 - day_of_cycle / (CYCLE - 1)) / 365;
    let day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    // Months from March have 31, 30, 31, 30, 31 days, repeating: 153 days in five.
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (shifted.div_euclid(CYCLE) * 400 + year_of_cycle + i64::from(month <= 2), month, day)
}

/// Returns the days since 1970-01-01 of a date; the inverse of [`civil`].
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let year_of_cycle = year.rem_euclid(400);
    let from_march = (month + 9) % 12;
    let day_of_year = (153 * from_march + 2) / 5 + day - 1;
    let day_of_cycle = year_of_cycle * 365 + year_of_cycle / 4 - year_of_cycle / 100 + day_of_year;
    year.div_euclid(400) * CYCLE + day_of_cycle - TO_EPOCH
}

/// Parses the instants of Go's `Time.UnmarshalJSON` (without the quotes); digits beyond the ninth are cut off.
#[must_use]
pub fn parse(text: &str) -> Option<ZonedTimestamp> {
    let bytes = text.as_bytes();
    let date = *bytes.first_chunk::<19>()?;
    let marks = [date[4], date[7], date[10], date[13], date[16]];
    let [year, month, day, hour, minute, second] =
        [&date[..4], &date[5..7], &date[8..10], &date[11..13], &date[14..16], &date[17..]].map(number);
    let (nanos, zone) = fraction(&bytes[19..])?;
    let zone = offset(zone)?;
    let days = checked_days(year?, month?, day?)?;
    let clock_is_right = marks == *b"--T::" && hour? < 24 && minute? < 60 && second? < 60;
    let local = days * DAY + hour? * 3600 + minute? * 60 + second?;
    let seconds = local - i64::from(zone.seconds_east());
    clock_is_right.then(|| ZonedTimestamp::from_unix(seconds, nanos, zone)).flatten()
}

fn checked_days(year: i64, month: i64, day: i64) -> Option<i64> {
    let since_epoch = days(year, month, day);
    ((1..=12).contains(&month) && civil(since_epoch) == (year, month, day)).then_some(since_epoch)
}

fn number(digits: &[u8]) -> Option<i64> {
    let digit = |sum, &byte: &u8| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0'));
    digits.iter().try_fold(0, digit)
}

/// Parses a leading fraction such as `.123`. Returns its nanoseconds and the text after it.
fn fraction(rest: &[u8]) -> Option<(u32, &[u8])> {
    let Some((b'.', digits)) = rest.split_first() else {
        return Some((0, rest));
    };
    let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, zone) = digits.split_at(count);
    let shown = &digits[..count.min(9)];
    let scale = 10_i64.pow(9 - shown.len() as u32);
    let nanos = u32::try_from(number(shown)? * scale).ok()?;
    (count > 0).then_some((nanos, zone))
}

fn offset(zone: &[u8]) -> Option<Zone> {
    let (sign, rest) = match zone {
        b"Z" => return Some(Zone::Utc),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let [h1, h2, b':', m1, m2] = *rest else { return None };
    let (hours, minutes) = (number(&[h1, h2])?, number(&[m1, m2])?);
    let seconds = i32::try_from(sign * (hours * 3600 + minutes * 60)).ok()?;
    (hours < 24 && minutes < 60).then_some(if seconds == 0 { Zone::Utc } else { Zone::SecondsEast(seconds) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_and_reads_what_go_prints() {
        let cases = [
            "0001-01-01T00:00:00Z",
            "0000-02-29T12:30:00.000000001-23:59",
            "1969-12-31T23:59:59.999999999Z",
            "2024-02-29T00:00:00.1+05:45",
            "2025-01-02T03:04:05+02:00",
            "9999-12-31T23:59:59.12-00:01",
        ];
        for case in cases {
            let read = parse(case).unwrap();
            assert_eq!(Rfc3339::new(read).unwrap().to_string(), case);
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        let cases = [
            "",
            "2025-01-02",
            "2025-02-29T00:00:00Z",
            "2025-13-01T00:00:00Z",
            "2025-00-01T00:00:00Z",
            "2025-01-02T24:00:00Z",
            "2025-01-02T00:00:60Z",
            "2025-01-02T00:00:00",
            "2025-01-02T00:00:00.Z",
            "2025-01-02 00:00:00Z",
            "2025-01-02T00:00:00+24:00",
            "2025-01-02T00:00:00+1:00",
            "+025-01-02T00:00:00Z",
        ];
        for case in cases {
            assert_eq!(parse(case), None, "{case}");
        }
    }

    #[test]
    fn every_day_of_four_centuries_returns() {
        for day in -CYCLE..CYCLE {
            let (year, month, date) = civil(day);
            assert_eq!(days(year, month, date), day);
        }
    }
}
