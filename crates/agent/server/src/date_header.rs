//! Caches the text of the `Date` header, so that a thread formats the date once per second instead of once per request.

use std::time::Duration;

use seawall_core::{Clock, Moment};

/// A date in the format IMF-fixdate (RFC 9110 section 5.6.7), and the time until which the date is correct.
#[derive(Debug)]
pub(crate) struct DateHeader {
    text: [u8; 29],
    until: Moment,
}

impl Default for DateHeader {
    fn default() -> Self {
        Self { text: *b"Thu, 01 Jan 1970 00:00:00 GMT", until: Moment::from_nanos(0) }
    }
}

impl DateHeader {
    /// Returns the date at `now`. `now` must come from `clock`.
    pub(crate) fn at(&mut self, clock: &Clock, now: Moment) -> &[u8; 29] {
        if now >= self.until {
            self.renew(clock, now);
        }
        &self.text
    }

    fn renew(&mut self, clock: &Clock, now: Moment) {
        let wall = clock.wall_time();
        let text = httpdate::fmt_http_date(wall);
        // The formatter writes 29 bytes up to the year 9999. After that year, this value keeps its last valid text.
        if let Ok(text) = text.as_bytes().try_into() {
            self.text = text;
        }
        let into = wall.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
        self.until = now + Duration::from_nanos(1_000_000_000 - u64::from(into));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_with_the_second_and_not_before() {
        let (clock, hand) = Clock::manual();
        let mut date = DateHeader::default();
        assert_eq!(date.at(&clock, clock.now()), b"Thu, 01 Jan 2026 00:00:00 GMT");
        hand.advance(Duration::from_millis(999));
        assert_eq!(date.at(&clock, clock.now()), b"Thu, 01 Jan 2026 00:00:00 GMT");
        hand.advance(Duration::from_millis(1));
        assert_eq!(date.at(&clock, clock.now()), b"Thu, 01 Jan 2026 00:00:01 GMT");
    }
}
