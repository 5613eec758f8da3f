//! Figures as text, for the screen and the lines of progress.

use std::time::Duration;

use seawall_lab::find::find_report::ReportedEstimate;

/// Requests a second, with three digits that count, and thousands apart.
pub(crate) fn format_rate_without_unit(rate: f64) -> String {
    match rate {
        999.5.. => thousands(rate.round() as u64),
        99.95.. => format!("{rate:.0}"),
        _ if (rate - rate.round()).abs() < 0.05 => format!("{rate:.0}"),
        _ => format!("{rate:.1}"),
    }
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// So many clients.
pub(crate) fn format_clients(clients: u32) -> String {
    pluralize(clients.into(), "client")
}

/// So many of what a word names, in the singular of one.
pub(crate) fn pluralize(number: u64, word: &str) -> String {
    format!("{} {word}{}", thousands(number), if number == 1 { "" } else { "s" })
}

/// So many, as a whole number.
pub(crate) fn format_count(count: f64) -> String {
    thousands(count.round().max(0.0) as u64)
}

/// Seconds, with a digit behind the point where it matters.
pub(crate) fn format_seconds(seconds: f64) -> String {
    match seconds {
        100.0.. => format!("{}:{:02} min", seconds as u64 / 60, seconds as u64 % 60),
        10.0.. => format!("{seconds:.0} s"),
        1.0.. => format!("{seconds:.1} s"),
        0.01.. => format!("{:.0} ms", 1e3 * seconds),
        0.001.. => format!("{:.1} ms", 1e3 * seconds),
        _ if seconds > 0.0 => format!("{:.0} µs", 1e6 * seconds),
        _ => "0 s".to_owned(),
    }
}

/// Formats a duration as [`format_seconds`] does.
pub(crate) fn format_duration(time: Duration) -> String {
    format_seconds(time.as_secs_f64())
}

/// Formats a waiting time in whole seconds, minutes or hours, rounded up.
pub(crate) fn format_wait(seconds: f64) -> String {
    match seconds.max(0.0) as u64 {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h", seconds.div_ceil(3600)),
    }
}

/// A size of a cause with its name; none that is not known. Shares have two digits.
pub(crate) fn format_named_estimate(figure: &ReportedEstimate) -> Option<String> {
    let (name, value) = (&figure.name, figure.value?);
    Some(match figure.unit.as_str() {
        "s" => format!("{name} {}", format_seconds(value)),
        "" if value < 1.0 => format!("{name} {value:.2}"),
        "" => format!("{name} {}", format_rate_without_unit(value)),
        unit => format!("{name} {} {unit}", format_rate_without_unit(value)),
    })
}

/// Formats the confidence in a cause as a whole percentage of at most 99 %: no experiment proves a cause.
pub(super) fn format_confidence(confidence: f64) -> String {
    format!("{:.0} %", (100.0 * confidence).floor().clamp(0.0, 99.0))
}

/// A share as a percentage, with as many digits as it takes to tell it from nothing.
pub(crate) fn format_percent(share: f64) -> String {
    let percent = 100.0 * share;
    let digits = match percent {
        10.0.. => 0,
        0.1.. => 1,
        _ if percent > 0.0 => 3,
        _ => 0,
    };
    let text = format!("{percent:.digits$}");
    let text = if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_digits_that_count() {
        let of = |name: &str, value, unit: &str| {
            let (name, unit) = (name.to_owned(), unit.to_owned());
            format_named_estimate(&ReportedEstimate { name, value, unit })
        };
        assert_eq!(of("connect", Some(0.000_062), "s").as_deref(), Some("connect 62 µs"));
        assert_eq!(of("share of a core", Some(0.152), "").as_deref(), Some("share of a core 0.15"));
        assert_eq!(of("workers", Some(8.0), "").as_deref(), Some("workers 8"));
        assert_eq!(of("refill", Some(157.0), "requests/s").as_deref(), Some("refill 157 requests/s"));
        assert_eq!(of("every", None, "s"), None);
    }

    #[test]
    fn nobody_is_wholly_sure_of_a_cause() {
        assert_eq!(
            [0.0, 0.968, 0.9951, 0.9999, 1.0].map(format_confidence),
            ["0 %", "96 %", "99 %", "99 %", "99 %"]
        );
    }

    #[test]
    fn one_of_a_thing_is_no_more_than_one() {
        assert_eq!([0, 1, 1200].map(|number| pluralize(number, "way")), ["0 ways", "1 way", "1,200 ways"]);
    }

    #[test]
    fn figures_have_the_digits_that_count() {
        assert_eq!(
            [1_234_567.4, 999.6, 161.2, 20.0, 20.34].map(format_rate_without_unit),
            ["1,234,567", "1,000", "161", "20", "20.3"]
        );
        assert_eq!(
            [0.0, 0.000_3, 0.0025, 0.25, 1.23, 12.3, 125.0].map(format_seconds),
            ["0 s", "300 µs", "2.5 ms", "250 ms", "1.2 s", "12 s", "2:05 min"]
        );
        assert_eq!(
            [0.0, 0.001, 0.000_1, 0.25, 1.0].map(format_percent),
            ["0 %", "0.1 %", "0.01 %", "25 %", "100 %"]
        );
    }
}
