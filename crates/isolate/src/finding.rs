//! The findings of an experiment about one variant.

use std::time::Duration;

use crate::center::LocationEstimate;

/// The verdict on one measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MeasureVerdict {
    /// The variant differs from the reference by more than [`crate::looks::NULL_DIFFERENCE`].
    Differs,
    /// The variant equals the reference within the margin.
    Equal,
    /// The measurements show neither.
    Undecided {
        /// The probable additional time for a verdict at this rate; none if unknown.
        more: Option<Duration>,
    },
    /// The generator was the limit in too many cells, so there is no verdict.
    Invalid {
        /// The share of the variant's cells with a limited generator.
        limited: f64,
    },
}

impl MeasureVerdict {
    /// Returns whether the verdict is final.
    #[must_use]
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Undecided { .. })
    }
}

/// One measure of a variant compared with the reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasureResult {
    /// The verdict.
    pub verdict: MeasureVerdict,
    /// The ratio of the variant to the reference, over the cells with both values. Each end errs with the probability of an interim look
    /// ([`crate::looks::SignificanceLevels`]).
    pub ratio: Option<LocationEstimate>,
    /// The number of cells with both values.
    pub cell_count: usize,
    /// The probability of such a large difference if there is none, adjusted for the other variants, as of the last look.
    pub p_difference: f64,
    /// The probability of such a small difference if the true one is as large as the margin, adjusted for the other variants.
    pub p_equivalence: f64,
    /// The time of the decision, since the start of the experiment.
    pub time_to_decision: Option<Duration>,
}

impl MeasureResult {
    /// A result without data.
    pub(crate) const NOTHING: Self = Self {
        verdict: MeasureVerdict::Undecided { more: None },
        ratio: None,
        cell_count: 0,
        p_difference: 1.0,
        p_equivalence: 1.0,
        time_to_decision: None,
    };

    /// Returns the share of the reference's time that the variant saves. Infinite ends of the ratio stay infinite.
    #[must_use]
    pub fn gain(&self) -> Option<LocationEstimate> {
        let ratio = self.ratio?;
        let upper = if ratio.lower > 0.0 { 1.0 - ratio.lower } else { f64::INFINITY };
        Some(LocationEstimate { lower: 1.0 - ratio.upper, point: 1.0 - ratio.point, upper })
    }
}

/// All measures of a variant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VariantFinding {
    /// The centre of the response times ([`crate::cell::CellStats`]). The verdict `Differs` may also come from failures.
    pub middle: MeasureResult,
    /// The 99th percentile of the response times.
    pub tail: MeasureResult,
    /// The variant's share of failed requests minus that of the reference; none without failures.
    pub failing: Option<LocationEstimate>,
    /// True if the failures differ rather than the times.
    pub differs_in_failing: bool,
}

impl VariantFinding {
    pub(crate) const NOTHING: Self = Self {
        middle: MeasureResult::NOTHING,
        tail: MeasureResult::NOTHING,
        failing: None,
        differs_in_failing: false,
    };

    /// Returns the share of the reference's time that the variant saves; negative if it is slower.
    #[must_use]
    pub fn gain(&self) -> Option<LocationEstimate> {
        self.middle.gain()
    }
}
