//! Forecasts of the power of an experiment and of its duration.
//!
//! Before the first request, a forecast uses the noise of typical paths; later it uses the measured noise. Forecasts do not affect
//! verdicts.

use std::time::Duration;

use crate::cell::MIN_TAIL_ANSWERS;
use crate::looks::{InterimLook, NULL_DIFFERENCE, SignificanceLevels, null_difference};
use crate::normal;
use crate::segment::{Segment, SegmentTimes, VariantOrder};

/// The probability with which a real effect should be found.
const WANTED: f64 = 0.9;
/// The efficiency of Wilcoxon's test relative to the best test for normal differences: 3/π (Hodges and Lehmann, 1956).
const EFFICIENCY: f64 = 0.954_929_658_551_372;

/// The standard deviation of single requests, as a logarithm. Measured paths had 0.25 to 0.6.
const REQUEST: f64 = 0.4;
/// The efficiency of the mean of the middle half, relative to the mean of normal numbers (Tukey, 1960; Huber and Ronchetti, "Robust
/// Statistics", exhibit 4.4: 25 % trimmed).
const MIDDLE: f64 = 0.84;
/// The standard deviation between variants in a cell from their connections alone.
const CONNECTIONS: f64 = 0.01;
/// The standard deviation of a 99th percentile, times the root of the number of requests, over the deviation of one request. A normal
/// distribution would have 3.7; a distribution with a heavy tail of a few percent has several times that.
const TAIL: f64 = 12.0;

/// The planned effect on the centre of the times: 5 %.
pub const PLANNED_EFFECT: f64 = 0.05;
/// The planned effect on the 99th percentile: 10 %.
pub const PLANNED_TAIL_EFFECT: f64 = 0.10;

/// The probable time to find an effect.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// The planned effect on the centre of the times: [`PLANNED_EFFECT`], or the margin if that is larger.
    pub effect: f64,
    /// The time to find that effect.
    pub center_duration: Duration,
    /// The time to find [`PLANNED_TAIL_EFFECT`] at the 99th percentile; none if cells have too few responses.
    pub p99_duration: Option<Duration>,
}

impl Forecast {
    /// Returns a forecast before the first request, for a path with average noise. `variants` includes the reference, and `rate`
    /// is the total of all variants.
    #[must_use]
    pub fn a_priori(
        design: VariantOrder,
        variants: usize,
        rate: f64,
        margin: f64,
        times: SegmentTimes,
    ) -> Self {
        let segment = Segment::new(design, (0..variants).collect(), rate, times, 0);
        let share = if design == VariantOrder::Interleaved { variants as f64 } else { 1.0 };
        let answers = segment.measured_time_per_variant.as_secs_f64() * rate / share;
        let each = segment.duration().div_f64(segment.cell_count as f64);
        let family = variants.saturating_sub(1).max(1) as f64;
        let effect = PLANNED_EFFECT.max(margin);
        let needed = |deviation: f64, beyond: f64, levels: SignificanceLevels| {
            let deviation = deviation.hypot(CONNECTIONS) * std::f64::consts::SQRT_2;
            let cells = cells_needed(deviation, beyond, levels.difference / family);
            each.mul_f64(cells.max(InterimLook::FIRST.cells() as f64))
        };
        let deviation = REQUEST / (MIDDLE * answers).sqrt();
        let middle =
            needed(deviation, excess_effect(effect, null_difference(margin)), InterimLook::FIRST.levels());
        let has_tail = answers >= MIN_TAIL_ANSWERS as f64;
        let tail = has_tail.then(|| {
            needed(
                TAIL * REQUEST / answers.sqrt(),
                excess_effect(PLANNED_TAIL_EFFECT, NULL_DIFFERENCE),
                InterimLook::FIRST.p99_levels(),
            )
        });
        Self { effect, center_duration: middle, p99_duration: tail }
    }
}

/// Returns the distance of an effect from the null difference, as a logarithm.
pub(crate) fn excess_effect(effect: f64, null: f64) -> f64 {
    effect.ln_1p() - null.ln_1p()
}

/// Returns the number of cells that the test needs for this deviation and this distance.
pub(crate) fn cells_needed(deviation: f64, beyond: f64, level: f64) -> f64 {
    let quantiles = normal::quantile(WANTED) - normal::quantile(level);
    (quantiles * deviation / beyond).powi(2) / EFFICIENCY
}

/// Returns the deviation of single cells, from the width of an interval and the number of cells.
pub(crate) fn deviation(width: f64, cells: usize, level: f64) -> f64 {
    width / 2.0 * (cells as f64 * EFFICIENCY).sqrt() / -normal::quantile(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(variants: usize, rate: f64) -> (u64, Option<u64>) {
        let told = Forecast::a_priori(
            VariantOrder::Interleaved,
            variants,
            rate,
            0.05,
            SegmentTimes::DEFAULT_DURATIONS,
        );
        (told.center_duration.as_secs(), told.p99_duration.map(|time| time.as_secs()))
    }

    #[test]
    fn fewer_requests_and_more_variants_take_longer_and_tails_longest() {
        let (at_50, no_tail) = seconds(2, 50.0);
        assert!((100..400).contains(&at_50), "{at_50}");
        assert_eq!(no_tail, None);
        let (at_200, tail) = seconds(2, 200.0);
        assert!((25..100).contains(&at_200), "{at_200}");
        assert!(tail.unwrap() > 600, "{tail:?}");
        let (at_1000, tail) = seconds(2, 1000.0);
        assert_eq!(at_1000, 20);
        assert!((120..900).contains(&tail.unwrap()), "{tail:?}");
        assert!(seconds(5, 200.0).0 > 2 * at_200);
    }

    /// Lehr's rule for one sample: one deviation at a one-sided level of 5 % with 90 % power needs (1.645 + 1.282)² = 8.6 normal
    /// differences.
    #[test]
    fn the_number_of_cells_is_that_of_the_normal_test_over_its_efficiency() {
        assert!((cells_needed(1.0, 1.0, 0.05) * EFFICIENCY - 8.564).abs() < 0.01);
        assert!((deviation(2.0 * 1.644_854 / (25.0 * EFFICIENCY).sqrt(), 25, 0.05) - 1.0).abs() < 1e-5);
    }
}
