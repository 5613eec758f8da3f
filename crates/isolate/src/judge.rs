//! Computes the p-values and the interval of each variant from the cells. [`crate::study`] decides by them.

use crate::cell::{CellStats, CellStatsByVariant};
use crate::center::LocationEstimate;
use crate::finding::MeasureVerdict;
use crate::looks::{InterimLook, NULL_DIFFERENCE, SignificanceLevels, null_difference};
use crate::power;
use crate::segment::Segment;
use crate::wilcoxon::SignedRanks;

/// The additional share of failures that counts as a difference. It equals the null difference of times.
const FAILING: f64 = NULL_DIFFERENCE;

/// The share of a variant's cells with a limited generator above which there is no verdict.
const LIMITED: f64 = 0.2;

/// The share of limited cells, and the least number of cells, above which the experiment gives up. With fewer cells, the generator's
/// problem may pass.
const HOPELESS: (f64, usize) = (0.5, 20);

/// The share of cells with hardly any response above which only failures count. The first cells may have run before a queue grew.
const MOST_OF_THEM: f64 = 0.9;

/// The differences of logarithms between a variant and the reference, cell by cell.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Differences {
    pub(crate) middle: Vec<f64>,
    pub(crate) tail: Vec<f64>,
    /// The differences of the shares of failed requests, without logarithms.
    pub(crate) failing: Vec<f64>,
    cells: usize,
    limited: usize,
    /// The differences of failure shares in cells in which the variant or the reference failed most requests.
    hardly_answered: Vec<f64>,
}

impl Differences {
    /// Collects the differences of a variant from the reference.
    pub(crate) fn of(cells: &[CellStatsByVariant], variant: usize) -> Self {
        let mut all = Self::default();
        for cell in cells {
            let (Some(Some(reference)), Some(Some(slot))) = (cell.first(), cell.get(variant)) else {
                continue;
            };
            all.add(reference, slot);
        }
        all.without_exceptions()
    }

    /// Drops the few normal cells if most cells have hardly any response, because their times are from another state.
    fn without_exceptions(self) -> Self {
        if !self.hardly_answers() {
            return self;
        }
        let failing = self.hardly_answered.clone();
        Self { failing, middle: Vec::new(), tail: Vec::new(), ..self }
    }

    fn add(&mut self, reference: &CellStats, slot: &CellStats) {
        self.cells += 1;
        // If most requests fail, the generator's small delays do not matter.
        let fails = slot.failure_share() > HOPELESS.0 || reference.failure_share() > HOPELESS.0;
        if fails {
            let difference = slot.failure_share() - reference.failure_share();
            self.hardly_answered.push(difference);
            return self.failing.push(difference);
        }
        if reference.is_generator_limited
            || slot.is_generator_limited
            || reference.lateness.differs(&slot.lateness)
        {
            self.limited += 1;
            return;
        }
        let log = |one: Option<f64>, other: Option<f64>| Some((one? / other?).ln());
        self.middle.extend(log(slot.interquartile_geometric_mean, reference.interquartile_geometric_mean));
        self.tail.extend(log(slot.tail, reference.tail));
        self.failing.push(slot.failure_share() - reference.failure_share());
    }

    /// Returns the reason why there is no verdict, if so.
    pub(crate) fn invalid_verdict(&self) -> Option<MeasureVerdict> {
        let limited = self.limited();
        (limited > LIMITED).then_some(MeasureVerdict::Invalid { limited })
    }

    /// Returns whether more cells are useless: this machine limited most cells for at least two looks.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.limited() > HOPELESS.0 && self.cells >= HOPELESS.1
    }

    fn limited(&self) -> f64 {
        self.limited as f64 / self.cells.max(1) as f64
    }

    /// Returns whether the variant or the reference failed most requests in nearly all cells. Then there are no times, and only
    /// failures beyond the margin count: 96 failures of 100 instead of 98 mean nothing.
    fn hardly_answers(&self) -> bool {
        self.cells > 0 && self.hardly_answered.len() as f64 >= MOST_OF_THEM * self.cells as f64
    }

    fn has_failed(&self) -> bool {
        self.failing.iter().any(|difference| *difference != 0.0)
    }

    /// Returns the difference of failure shares; none without failures.
    pub(crate) fn failure_difference(&self, look: InterimLook) -> Option<LocationEstimate> {
        if self.has_failed() { LocationEstimate::of(&self.failing, look.levels().difference) } else { None }
    }

    /// Returns the p-value of a difference in times or failures, and whether the failures differ.
    pub(crate) fn p_difference(&self, margin: f64) -> (f64, bool) {
        if self.hardly_answers() {
            return (p_beyond(&self.failing, margin), true);
        }
        let time = p_beyond(&self.middle, null_difference(margin).ln_1p());
        if !self.has_failed() {
            return (time, false);
        }
        let failing = p_beyond(&self.failing, FAILING);
        // If both are equally significant, the failures win: a variant that fails more is not faster.
        (2.0 * time.min(failing), failing <= time)
    }

    /// Returns the p-value of equality in times, and in failures if there are any.
    pub(crate) fn p_equivalence(&self, margin: f64) -> f64 {
        if self.hardly_answers() {
            return p_within(&self.failing, margin);
        }
        let time = p_within(&self.middle, margin.ln_1p());
        if self.has_failed() { time.max(p_within(&self.failing, FAILING)) } else { time }
    }
}

/// Returns the p-value of a location beyond `null` on either side.
pub(crate) fn p_beyond(differences: &[f64], null: f64) -> f64 {
    let [above, below] =
        [SignedRanks::of(differences, null).p_above(), SignedRanks::of(differences, -null).p_below()];
    above.min(below)
}

/// Returns the p-value of a location within the margin: two one-sided tests (Schuirmann, 1987).
pub(crate) fn p_within(differences: &[f64], margin: f64) -> f64 {
    let [below, above] =
        [SignedRanks::of(differences, margin).p_below(), SignedRanks::of(differences, -margin).p_above()];
    below.max(above)
}

/// Returns the number of cells after which a verdict is likely: a difference beyond the null difference, or equality within the
/// margin. None if the interval is still infinite.
pub(crate) fn total_cells_for_verdict(
    center: Option<LocationEstimate>,
    cells: usize,
    (levels, family): (SignificanceLevels, usize),
    [null, margin]: [f64; 2],
) -> Option<f64> {
    let center = center.filter(LocationEstimate::is_bounded)?;
    let deviation = power::deviation(center.upper - center.lower, cells, levels.difference);
    let (off, family) = (center.point.abs(), family.max(1) as f64);
    let ways =
        [(off - null.ln_1p(), levels.difference / family), (margin.ln_1p() - off, levels.equality / family)];
    let needed = ways.into_iter().filter(|(beyond, _)| *beyond > 0.0);
    let needed = needed.map(|(beyond, level)| power::cells_needed(deviation, beyond, level));
    needed.min_by(f64::total_cmp)
}

/// Returns the duration of one cell of a segment, in seconds.
pub(crate) fn seconds_of_cell(segment: &Segment) -> f64 {
    segment.duration().as_secs_f64() / segment.cell_count as f64
}
