//! What an experiment says of one variant.

use std::time::Duration;

use crate::center::LocationEstimate;

/// What is said of a measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MeasureVerdict {
    /// It differs by more than [`crate::looks::NULL_DIFFERENCE`].
    Differs,
    /// It is the same within the margin.
    Equal,
    /// Neither can be said.
    Undecided {
        /// How much longer it would most likely take at this rate; none where that cannot be told either.
        more: Option<Duration>,
    },
    /// The generator was the limit in so great a share of the cells that nothing can be said.
    Invalid {
        /// Of the cells in which it had a part.
        limited: f64,
    },
}

impl MeasureVerdict {
    /// Whether more cells could change it.
    #[must_use]
    pub fn is_decided(self) -> bool {
        !matches!(self, Self::Undecided { .. })
    }
}

/// One measure of a variant beside the same of the reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasureResult {
    /// What is said of it.
    pub verdict: MeasureVerdict,
    /// Variant over reference; of the cells that had it. Each end errs as often as a look may ([`crate::looks::SignificanceLevels`]).
    pub ratio: Option<LocationEstimate>,
    /// Cells that had it.
    pub cells: usize,
    /// Probability of cells that differ so much if the two do not, adjusted for the other variants. As of the last look.
    pub p_difference: f64,
    /// The same of cells that differ so little if the two are as far apart as the margin.
    pub p_equivalence: f64,
    /// When it was decided, since the experiment began.
    pub decided_after: Option<Duration>,
}

impl MeasureResult {
    /// Of which nothing is known.
    pub(crate) const NOTHING: Self = Self {
        verdict: MeasureVerdict::Undecided { more: None },
        ratio: None,
        cells: 0,
        p_difference: 1.0,
        p_equivalence: 1.0,
        decided_after: None,
    };

    /// Share of the reference's that the variant saves. Without an end where the ratio has none.
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
    /// Middle of the times ([`crate::slot::CellStats`]); that it differs may also mean that more of its requests, or fewer, fail.
    pub middle: MeasureResult,
    /// 99th percentile of the times.
    pub tail: MeasureResult,
    /// Share of its requests that failed, less that of the reference; none where none of either failed.
    pub failing: Option<LocationEstimate>,
    /// It is the failures that differ.
    pub differs_in_failing: bool,
}

impl VariantFinding {
    pub(crate) const NOTHING: Self = Self {
        middle: MeasureResult::NOTHING,
        tail: MeasureResult::NOTHING,
        failing: None,
        differs_in_failing: false,
    };

    /// Share of the reference's time that going this way saves: below zero it costs.
    #[must_use]
    pub fn gain(&self) -> Option<LocationEstimate> {
        self.middle.gain()
    }
}
