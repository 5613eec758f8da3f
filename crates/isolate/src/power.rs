//! What so many cells can tell, and how long it takes until they do.
//!
//! Before anything was sent by what paths usually do, later by what this one does. For planning: nothing is decided by it.

use std::time::Duration;

use crate::looks::{InterimLook, NULL_DIFFERENCE, SignificanceLevels, null_difference};
use crate::normal;
use crate::segment::{Design, Segment, SegmentTimes};
use crate::slot::MIN_TAIL_ANSWERS;

/// How often what is there is to be found.
const WANTED: f64 = 0.9;
/// Wilcoxon's test needs so many of the cells that the best test of normal differences needs: 3/π (Hodges and Lehmann, 1956).
const EFFICIENCY: f64 = 0.954_929_658_551_372;

/// What single requests deviate by, as a logarithm: of paths that were measured 0.25 to 0.6.
const REQUEST: f64 = 0.4;
/// Of what the mean of normal numbers makes of them, the mean of their middle half makes so much (Tukey, 1960; Huber and Ronchetti,
/// "Robust Statistics", exhibit 4.4: 25 % trimmed).
const MIDDLE: f64 = 0.84;
/// What variants deviate by in a cell beside their requests' chance: their connections.
const CONNECTIONS: f64 = 0.01;
/// Deviation of a 99th percentile, in deviations of a request over the root of their number: a normal distribution would have 3.7, one
/// with a heavier tail of a few percent has several times that where the tail begins.
const TAIL: f64 = 12.0;

/// The effect in the middle of the times that is planned for: 5 %.
pub const PLANNED_EFFECT: f64 = 0.05;
/// The effect at the 99th percentile that is planned for: 10 %.
pub const PLANNED_TAIL_EFFECT: f64 = 0.10;

/// Time that it takes, most likely, to find an effect.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// The effect in the middle of the times that is planned for: [`PLANNED_EFFECT`], or the margin where that is wider.
    pub effect: f64,
    /// Until it is found.
    pub middle: Duration,
    /// [`PLANNED_TAIL_EFFECT`] at the 99th percentile; none where cells have too few answers for one.
    pub tail: Option<Duration>,
}

impl Forecast {
    /// For so many variants, the reference included, that are equal within the margin, at so many requests a second together, on a path that is neither quiet nor noisy.
    #[must_use]
    pub fn before(design: Design, variants: usize, rate: f64, margin: f64, times: SegmentTimes) -> Self {
        let segment = Segment::new(design, (0..variants).collect(), rate, times, 0);
        let share = if design == Design::Interleaved { variants as f64 } else { 1.0 };
        let answers = segment.each.as_secs_f64() * rate / share;
        let each = segment.duration().div_f64(segment.cells as f64);
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
        Self { effect, middle, tail }
    }
}

/// How far an effect is from what is no difference, as a logarithm.
pub(crate) fn excess_effect(effect: f64, null: f64) -> f64 {
    effect.ln_1p() - null.ln_1p()
}

/// Cells until differences that deviate like this are told from what is so far from their middle.
pub(crate) fn cells_needed(deviation: f64, beyond: f64, level: f64) -> f64 {
    let quantiles = normal::quantile(WANTED) - normal::quantile(level);
    (quantiles * deviation / beyond).powi(2) / EFFICIENCY
}

/// The deviation of single cells that left an interval of this width after so many.
pub(crate) fn deviation(width: f64, cells: usize, level: f64) -> f64 {
    width / 2.0 * (cells as f64 * EFFICIENCY).sqrt() / -normal::quantile(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(variants: usize, rate: f64) -> (u64, Option<u64>) {
        let told = Forecast::before(Design::Interleaved, variants, rate, 0.05, SegmentTimes::USUAL);
        (told.middle.as_secs(), told.tail.map(|time| time.as_secs()))
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

    /// The two-sample table of Lehr's rule turned to one: 1 deviation at 5 % to one side with 90 % takes (1.645 + 1.282)² = 8.6 normal differences.
    #[test]
    fn the_number_of_cells_is_that_of_the_normal_test_over_its_efficiency() {
        assert!((cells_needed(1.0, 1.0, 0.05) * EFFICIENCY - 8.564).abs() < 0.01);
        assert!((deviation(2.0 * 1.644_854 / (25.0 * EFFICIENCY).sqrt(), 25, 0.05) - 1.0).abs() < 1e-5);
    }
}
