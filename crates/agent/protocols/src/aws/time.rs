//! Converts times to the format that AWS's clients parse: whole seconds in UTC. This module does not read a clock.
//!
//! Session tokens survive a restart of the agent, so the tokens contain wall-clock times and not monotonic times.

use std::time::{Duration, SystemTime};

/// Whole seconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixTime(pub u64);

impl UnixTime {
    /// Returns the time that is `span` later. A fraction of a second in `span` is dropped.
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span.as_secs()))
    }

    /// Returns the exact time from `now` until this time, or zero if `now` is later.
    pub fn time_left(self, now: SystemTime) -> Duration {
        let gone = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Duration::from_secs(self.0).saturating_sub(gone)
    }

    /// Returns the time from `earlier` until this time, or zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_secs(self.0.saturating_sub(earlier.0))
    }
}

impl From<SystemTime> for UnixTime {
    /// Rounds down, because the stated lifetime of a credential must not exceed its real lifetime. Times before 1970 become 1970.
    fn from(time: SystemTime) -> Self {
        Self(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs())
    }
}

/// A time in the format `YYYY-MM-DDThh:mm:ssZ`. It has no fraction and ends with `Z`, because aws-config parses no UTC offset.
///
/// Nearly every response contains such a time. So the formatting must be fast. It takes about two hundred instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iso8601Time([u8; 20]);

/// 9999-12-31T23:59:59Z, the last time that this format can express.
const LAST: u64 = 253_402_300_799;

impl Iso8601Time {
    /// Formats a time.
    pub fn from_unix_time(time: UnixTime) -> Self {
        let seconds = time.0.min(LAST);
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = date(days);
        let mut text = *b"0000-00-00T00:00:00Z";
        let parts = [year / 100, year % 100, month, day, second / 3600, second / 60 % 60, second % 60];
        for (at, part) in [0, 2, 5, 8, 11, 14, 17].into_iter().zip(parts) {
            text[at] = digit(part / 10);
            text[at + 1] = digit(part);
        }
        Self(text)
    }

    /// Returns the twenty characters of the text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

fn digit(number: u64) -> u8 {
    b"0123456789"[(number % 10) as usize]
}

/// Converts a day number since 1970 to year, month and day in the proleptic Gregorian calendar.
///
/// The method is Howard Hinnant's ("chrono-Compatible Low-Level Date Algorithms", `civil_from_days`). Its years begin in March,
/// so the leap day is the last day of a year. The calendar repeats every 146,097 days.
fn date(days: u64) -> (u64, u64, u64) {
    const CYCLE: u64 = 146_097;
    // The days since 0000-03-01.
    let days = days + 719_468;
    let (cycle, day) = (days / CYCLE, days % CYCLE);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = year + 400 * cycle;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(seconds: u64) -> String {
        String::from_utf8_lossy(Iso8601Time::from_unix_time(UnixTime(seconds)).as_bytes()).into_owned()
    }

    #[test]
    fn known_times_have_their_known_form() {
        for (seconds, form) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (LAST, "9999-12-31T23:59:59Z"),
            (u64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(text(seconds), form);
        }
    }

    #[test]
    fn a_fraction_is_dropped_and_never_rounded_up() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_999);
        assert_eq!(UnixTime::from(time), UnixTime(1));
        assert_eq!(UnixTime::from(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), UnixTime(0));
    }

    #[test]
    fn what_is_left_is_no_second_too_long() {
        let end = UnixTime(2);
        for (now, left) in [(0, 2000), (1_999, 1), (2_000, 0), (2_001, 0)] {
            assert_eq!(
                end.time_left(SystemTime::UNIX_EPOCH + Duration::from_millis(now)),
                Duration::from_millis(left)
            );
        }
    }

    proptest! {
        #[test]
        fn every_time_is_written_as_another_library_writes_it(seconds in 0..=253_370_764_800_i64) {
            let other = jiff::Timestamp::from_second(seconds).unwrap().to_string();
            prop_assert_eq!(text(seconds.unsigned_abs()), other);
        }
    }
}
