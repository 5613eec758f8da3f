//! Times as people read them: three digits, which is more than a measurement repeats.

use seawall_load::clock::Nanos;

/// A time in at most seven characters.
pub(crate) fn format_brief_time(ns: Nanos) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns}ns"),
        1_000..999_500 => (ns as f64 / 1e3, "µs"),
        999_500..999_500_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let digits = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use seawall_load::clock::SECOND;

    use super::*;

    #[test]
    fn times_keep_three_digits() {
        let times =
            [0, 999, 1_000, 12_345, 999_499, 999_999, 9_996_000, 123_456_789, 59_999_000_000, 7_200 * SECOND];
        assert_eq!(
            times.map(format_brief_time),
            ["0ns", "999ns", "1.00µs", "12.3µs", "999µs", "1.00ms", "10.0ms", "123ms", "60.0s", "7200s"]
        );
    }
}
