//! Rates and clocks as the view and the lines show them.

use seawall_load::clock::{Nanos, SECOND};

/// A rate, with a fraction only where that says something.
pub(super) fn format_rate(per_second: f64) -> String {
    if per_second < 100.0 && per_second.fract() != 0.0 {
        format!("{per_second:.1}")
    } else {
        format!("{per_second:.0}")
    }
}

/// A whole number of seconds as a clock shows it.
pub(super) fn format_clock(ns: Nanos) -> String {
    let seconds = ns / SECOND;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_shows_hours_only_once_there_are_any() {
        assert_eq!([59 * SECOND, 61 * SECOND, 3_661 * SECOND].map(format_clock), ["0:59", "1:01", "1:01:01"]);
    }
}
