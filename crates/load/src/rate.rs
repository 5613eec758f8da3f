//! Rates and durations in the syntax of vegeta: `50/1s`, `3/10s`, `1.5`, `700/m`; `1h2m3.5s`.
//!
//! A rate is kept as two whole numbers, so that its schedule has no rounding of its own. A computed rate, such as
//! 220.00000000000003, is rounded to twelve digits and becomes the nearest rate that these numbers can hold.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::clock::{Nanos, SECOND};

/// A rate: a number of requests in a number of nanoseconds; neither is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestRate {
    hits: u64,
    period: Nanos,
}

/// The reason why a text is not a rate or a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RateParseError {
    /// The text is not `N` or `N/unit`.
    #[error("{0:?} is not a rate: expected N or N/unit, such as 50, 0.5/s, 3/10s or 700/m")]
    Rate(String),
    /// The rate exceeds the range of the engine's arithmetic.
    #[error("{0:?} is too large: a rate has at most 2^40 requests and a period of at most 30 days")]
    RateTooLarge(String),
    /// The text is not a Go duration.
    #[error("{0:?} is not a duration: expected a number with a unit, such as 300ms, 1.5h or 1m30s")]
    Duration(String),
}

/// The maximum values of both parts. Their products fit 128 bits with room for a fraction, for runs of decades.
const MOST_HITS: u64 = 1 << 40;
const LONGEST_PERIOD: Nanos = 30 * 86_400 * SECOND;

impl RequestRate {
    /// Makes a rate of `hits` requests in every `period`; `None` if either is zero or out of range.
    #[must_use]
    pub fn new(hits: u64, period: Nanos) -> Option<Self> {
        let fits = (1..=MOST_HITS).contains(&hits) && (1..=LONGEST_PERIOD).contains(&period);
        fits.then_some(Self { hits, period })
    }

    /// Returns the number of requests in one [`RequestRate::period`].
    #[must_use]
    pub fn hits(self) -> u64 {
        self.hits
    }

    /// Returns the nanoseconds in which [`RequestRate::hits`] requests are due.
    #[must_use]
    pub fn period(self) -> Nanos {
        self.period
    }

    /// Returns the number of requests per second.
    #[must_use]
    pub fn requests_per_second(self) -> f64 {
        self.hits as f64 * SECOND as f64 / self.period as f64
    }

    /// Returns the rate that is nearest to this number of requests per second, to a thousandth of a request.
    #[must_use]
    pub fn from_per_second(hits: f64) -> Option<Self> {
        (hits.is_finite() && hits > 0.0)
            .then(|| Self::new((hits * 1e3).round() as u64, 1000 * SECOND))
            .flatten()
    }
}

impl RequestRate {
    /// Returns a text that [`FromStr`] parses to the same rate: requests, and the nanoseconds in which they are due.
    #[must_use]
    pub fn to_exact_string(self) -> String {
        format!("{}/{}ns", self.hits, self.period)
    }
}

impl fmt::Display for RequestRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", self.requests_per_second())
    }
}

/// The value of `-rate`: a number, or as fast as the in-flight bound allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateSetting {
    /// An open loop at this rate.
    Exact(RequestRate),
    /// `0` or `infinity`: a closed loop.
    Unlimited,
}

impl FromStr for RateSetting {
    type Err = RateParseError;

    /// Parses vegeta's `-rate` (flags.go `rateFlag`), with fractions, and with `infinity`.
    fn from_str(text: &str) -> Result<Self, RateParseError> {
        let malformed = || RateParseError::Rate(text.to_owned());
        if text == "infinity" {
            return Ok(Self::Unlimited);
        }
        let (number, unit) = text.split_once('/').unwrap_or((text, "1s"));
        let (digits, scale) = decimal(number).ok_or_else(malformed)?;
        let bare_unit = unit.starts_with(|c: char| c.is_ascii_alphabetic() || c == 'µ');
        let period = parse_duration(&if bare_unit { format!("1{unit}") } else { unit.to_owned() });
        let period = period.ok().filter(|period| !period.is_zero()).ok_or_else(malformed)?;
        if digits == 0 {
            return Ok(Self::Unlimited);
        }
        let is_too_large =
            digits / scale > u128::from(MOST_HITS) || period.as_nanos() > u128::from(LONGEST_PERIOD);
        let period = period.as_nanos().checked_mul(scale).filter(|_| !is_too_large);
        let rate = period.and_then(|period| nearest(digits, period));
        rate.map(Self::Exact).ok_or_else(|| RateParseError::RateTooLarge(text.to_owned()))
    }
}

impl FromStr for RequestRate {
    type Err = RateParseError;

    fn from_str(text: &str) -> Result<Self, RateParseError> {
        match text.parse()? {
            RateSetting::Exact(rate) => Ok(rate),
            RateSetting::Unlimited => Err(RateParseError::Rate(text.to_owned())),
        }
    }
}

/// The maximum numbers of digits before and after the point; together they fit 128 bits.
const MOST_DIGITS: (usize, usize) = (14, 24);

/// The number of significant digits. A double has between 15 and 17, of which the last can be errors of a computation:
/// 220.00000000000003/s would send one request more in a second than intended.
const SIGNIFICANT: usize = 12;

/// Parses a decimal: `1.50` becomes 150 and 100.
fn decimal(text: &str) -> Option<(u128, u128)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction}");
    let fits = whole.len() <= MOST_DIGITS.0 && fraction.len() <= MOST_DIGITS.1;
    let plain = fits && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then_some(())?;
    let surplus = digits.trim_start_matches('0').len().saturating_sub(SIGNIFICANT).min(fraction.len());
    let (value, unit) = (digits.parse::<u128>().ok()?, 10u128.pow(surplus as u32));
    Some(((value + unit / 2) / unit, 10u128.pow((fraction.len() - surplus) as u32)))
}

/// Returns the rate of `hits` in `period` if both fit; else the last convergent of its continued fraction whose parts fit. No
/// fraction with smaller parts is nearer.
fn nearest(hits: u128, period: u128) -> Option<RequestRate> {
    let rate = |hits, period| RequestRate::new(u64::try_from(hits).ok()?, u64::try_from(period).ok()?);
    if let Some(exact) = rate(hits, period) {
        return Some(exact);
    }
    let (mut rest, mut of) = (hits, period);
    let (mut before, mut last) = ((0, 1), (1, 0));
    let mut best = None;
    while of > 0 {
        let next = (convergent(rest / of, last.0, before.0)?, convergent(rest / of, last.1, before.1)?);
        if next.0 > u128::from(MOST_HITS) || next.1 > u128::from(LONGEST_PERIOD) {
            break;
        }
        best = rate(next.0, next.1);
        (before, last) = (last, next);
        (rest, of) = (of, rest % of);
    }
    best
}

fn convergent(times: u128, last: u128, before: u128) -> Option<u128> {
    times.checked_mul(last)?.checked_add(before)
}

/// Parses Go's duration syntax (`time.ParseDuration`), without negative values. A bare `0` needs no unit.
///
/// # Errors
/// [`RateParseError::Duration`].
pub fn parse_duration(text: &str) -> Result<Duration, RateParseError> {
    seawall_core::duration::parse(text).ok_or_else(|| RateParseError::Duration(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(text: &str) -> Option<(u64, Nanos)> {
        match text.parse() {
            Ok(RateSetting::Exact(rate)) => Some((rate.hits, rate.period)),
            _ => None,
        }
    }

    #[test]
    fn an_exact_rate_is_read_as_it_was() {
        for text in ["1/3s", "0.1/7s", "12345.678/s", "3/10s"] {
            let rate: RequestRate = text.parse().unwrap();
            assert_eq!(rate.to_exact_string().parse::<RequestRate>().unwrap(), rate, "{text}");
        }
    }

    #[test]
    fn rates_in_all_spellings() {
        assert_eq!(exact("50"), Some((50, SECOND)));
        assert_eq!(exact("50/1s"), Some((50, SECOND)));
        assert_eq!(exact("3/10s"), Some((3, 10 * SECOND)));
        assert_eq!(exact("700/m"), Some((700, 60 * SECOND)));
        assert_eq!(exact("1.5"), Some((15, 10 * SECOND)));
        assert_eq!(exact("0.5/ms"), Some((5, 10_000_000)));
        assert_eq!(exact("1/1m30s"), Some((1, 90 * SECOND)));
    }

    #[test]
    fn zero_and_infinity_are_unlimited_where_vegeta_runs_infinity_at_50() {
        for text in ["0", "0/1s", "0.0", "infinity"] {
            assert_eq!(text.parse(), Ok(RateSetting::Unlimited), "{text}");
        }
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in ["", "/s", "5/", "5/0s", "-1", "5/x", "1e3", "5/-1s", ".", "1.0000000000000000000000001"]
        {
            assert!(matches!(text.parse::<RateSetting>(), Err(RateParseError::Rate(_))), "{text}");
        }
        for text in ["99999999999999", "1/1000h", "0.000000000000001", "1.5/99999h"] {
            assert!(matches!(text.parse::<RateSetting>(), Err(RateParseError::RateTooLarge(_))), "{text}");
        }
    }

    #[test]
    fn what_a_program_computed_is_a_rate_whatever_its_digits() {
        for (text, meant) in
            [("220.00000000000003", 220), ("219.99999999999997", 220), ("0.99999999999999989", 1)]
        {
            let Ok(RateSetting::Exact(rate)) = text.parse() else { panic!("{text}") };
            assert_eq!(rate.hits * SECOND, meant * rate.period, "{text}");
        }
        assert_eq!(exact("1099511627776"), Some((1 << 40, SECOND)), "whole hits are never rounded");
        let texts = [
            "220.00000000000003",
            "1.0000000001",
            "0.1",
            "333.3333333333333",
            "0.30000000000000004",
            "1.000000001",
        ];
        for text in
            texts.into_iter().chain(["999999999999.999999", "142857.14285714287", "0.0000123456789012345"])
        {
            let Ok(RateSetting::Exact(rate)) = text.parse() else { panic!("{text}") };
            let wanted: f64 = text.parse().unwrap();
            assert!((rate.requests_per_second() - wanted).abs() <= wanted * 1e-11, "{text}: {rate:?}");
        }
    }

    #[test]
    fn a_refused_duration_is_named() {
        let ns = |text| parse_duration(text).map(|d| d.as_nanos());
        assert_eq!(ns("1m30s"), Ok(90_000_000_000));
        for text in ["", "5", "s", "-1s", "1x", "1s ", "1..5s", "99999999999h"] {
            assert!(ns(text).is_err(), "{text}");
        }
    }
}
