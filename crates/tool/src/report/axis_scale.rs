//! Axes: from values to a share of the axis, with round labelled ticks.
//!
//! What a whole chart shows is laid out here, for the picture and for the page; the page lays out anew what a reader picks.

use serde::Serialize;

/// One axis.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AxisScale {
    kind: Kind,
    low: f64,
    high: f64,
    /// Values and labels.
    pub(crate) ticks: Vec<(f64, String)>,
}

/// The quantity on an axis, which decides its scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Times,
    Counts,
    Clock,
    Nines,
}

impl AxisScale {
    /// Nanoseconds, logarithmic, at least a decade, so that a flat line is not drawn as a storm.
    pub(crate) fn log_nanoseconds(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) =
            values.filter(|v| *v > 0.0).fold((f64::MAX, 0.0), |(low, high), v| (v.min(low), v.max(high)));
        let (mut low, mut high) = if high > 0.0 { (low / 1.15, high * 1.15) } else { (1e6, 1e7) };
        if high / low < 10.0 {
            let middle = (low * high).sqrt();
            (low, high) = (middle / 10_f64.sqrt(), middle * 10_f64.sqrt());
        }
        let decades = (high / low).log10();
        let steps: &[f64] = if decades < 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let all = powers.flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
        let ticks = all.filter(|v| (low..=high).contains(v)).map(|v| (v, time(v))).collect();
        Self { kind: Kind::Times, low, high, ticks }
    }

    /// Numbers from 0 on.
    pub(crate) fn linear_counts(values: impl Iterator<Item = f64>) -> Self {
        let most = values.fold(0.0, f64::max);
        let high = if most > 0.0 { most * 1.06 } else { 1.0 };
        let base = 10_f64.powf((high / 5.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|n| n * base)
            .into_iter()
            .find(|step| *step >= high / 5.0)
            .unwrap_or(high);
        Self { kind: Kind::Counts, low: 0.0, high, ticks: ticks(step, high, count) }
    }

    /// Seconds from 0 on.
    pub(crate) fn linear_seconds(most: f64) -> Self {
        const STEPS: [f64; 16] = [
            0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
            14_400.0,
        ];
        let high = if most > 0.0 { most } else { 1.0 };
        let step = STEPS
            .into_iter()
            .find(|step| *step >= high / 6.0)
            .unwrap_or((high / 6.0 / 86_400.0).ceil() * 86_400.0);
        Self { kind: Kind::Clock, low: 0.0, high, ticks: ticks(step, high, clock) }
    }

    /// Percentiles by the count of nines.
    pub(crate) fn percentile_nines(most: f64) -> Self {
        const NAMES: [&str; 10] =
            ["0", "50", "75", "90", "99", "99.9", "99.99", "99.999", "99.9999", "99.99999"];
        let nines = |name: &str| -(1.0 - name.parse().unwrap_or(0.0) / 100.0_f64).log10();
        let high = most.max(0.1);
        let ticks = NAMES.map(|name| (nines(name), format!("{name} %"))).into_iter();
        let ticks = ticks.filter(|(at, _)| *at <= high + 1e-9).collect();
        Self { kind: Kind::Nines, low: 0.0, high, ticks }
    }

    /// Returns the position of a value; from 0 to 1 if it is inside the axis.
    pub(crate) fn relative_position(&self, value: f64) -> f64 {
        if self.is_log() {
            (value / self.low).log10() / (self.high / self.low).log10()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    /// Returns false for values that a logarithmic axis cannot show.
    pub(crate) fn can_show(&self, value: f64) -> bool {
        !self.is_log() || value > 0.0
    }

    fn is_log(&self) -> bool {
        self.kind == Kind::Times
    }

    /// Returns the lower end.
    pub(crate) fn lower_end(&self) -> f64 {
        self.low
    }
}

fn ticks(step: f64, high: f64, label: fn(f64) -> String) -> Vec<(f64, String)> {
    let values = (0..=1000).map(|n| f64::from(n) * step).take_while(|value| *value <= high * (1.0 + 1e-9));
    values.map(|value| (value, label(value))).collect()
}

fn time(ns: f64) -> String {
    let (scale, unit) = match ns {
        ..1e3 => (1.0, "ns"),
        1e3..1e6 => (1e3, "µs"),
        1e6..1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    // 5e6 / 1e6 may be a hair off 5.
    format!("{} {unit}", (ns / scale * 1000.0).round() / 1000.0)
}

fn count(value: f64) -> String {
    let (scale, unit) = match value {
        1e9.. => (1e9, " G"),
        1e6..1e9 => (1e6, " M"),
        1e4..1e6 => (1e3, " k"),
        _ => (1.0, ""),
    };
    format!("{}{unit}", (value / scale * 1e6).round() / 1e6)
}

fn clock(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{} s", (seconds * 100.0).round() / 100.0),
        60..3600 => format!("{}:{:02}", whole / 60, whole % 60),
        _ => format!("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &AxisScale) -> Vec<&str> {
        scale.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_and_carry_units() {
        assert_eq!(labels(&AxisScale::linear_counts([230.0].into_iter())), ["0", "50", "100", "150", "200"]);
        assert_eq!(labels(&AxisScale::linear_counts([0.12].into_iter())), ["0", "0.05", "0.1"]);
        assert_eq!(labels(&AxisScale::linear_counts([60_000.0].into_iter())), ["0", "20 k", "40 k", "60 k"]);
        assert_eq!(
            labels(&AxisScale::linear_seconds(90.0)),
            ["0 s", "15 s", "30 s", "45 s", "1:00", "1:15", "1:30"]
        );
        assert_eq!(
            labels(&AxisScale::log_nanoseconds([1e6, 2e9].into_iter())),
            ["1 ms", "10 ms", "100 ms", "1 s"]
        );
        assert_eq!(
            labels(&AxisScale::percentile_nines(3.0)),
            ["0 %", "50 %", "75 %", "90 %", "99 %", "99.9 %"]
        );
    }

    #[test]
    fn nothing_and_nonsense_still_make_an_axis() {
        for scale in [
            AxisScale::log_nanoseconds(std::iter::empty()),
            AxisScale::log_nanoseconds([0.0].into_iter()),
            AxisScale::linear_counts(std::iter::empty()),
            AxisScale::linear_seconds(0.0),
            AxisScale::linear_seconds(1e18),
            AxisScale::percentile_nines(0.0),
        ] {
            assert!(scale.relative_position(scale.lower_end()).abs() < 1e-9, "{scale:?}");
            assert!(!scale.ticks.is_empty() && scale.ticks.len() < 20, "{scale:?}");
        }
    }
}
