//! What cells come to at a look: p-values of each variant, and its interval. Pure arithmetic; what is decided by it is [`crate::study`]'s.

use crate::center::LocationEstimate;
use crate::finding::MeasureVerdict;
use crate::looks::{InterimLook, NULL_DIFFERENCE, SignificanceLevels, null_difference};
use crate::power;
use crate::segment::Segment;
use crate::slot::{Cell, CellStats};
use crate::wilcoxon::SignedRanks;

/// More failures than the reference, as a share of all requests, which are a difference: the same that two ways may differ by in time.
const FAILING: f64 = NULL_DIFFERENCE;

/// Share of a variant's cells in which the generator was the limit, beyond which nothing is said of it.
const LIMITED: f64 = 0.2;

/// The same of so many cells or more, beyond which nobody waits for better ones: what held the generator up for some seconds may pass.
const HOPELESS: (f64, usize) = (0.5, 20);

/// Share of cells in which one of the two hardly answered, from which on nothing else is looked at: the first may have been sent before a line had grown.
const MOST_OF_THEM: f64 = 0.9;

/// Differences of logarithms, cell by cell.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Differences {
    pub(crate) middle: Vec<f64>,
    pub(crate) tail: Vec<f64>,
    /// Of shares of failed requests, no logarithms.
    pub(crate) failing: Vec<f64>,
    cells: usize,
    limited: usize,
    /// The same of cells in which one of the two answered less often than not.
    hardly_answered: Vec<f64>,
}

impl Differences {
    /// Of a variant from the reference.
    pub(crate) fn of(cells: &[Cell], variant: usize) -> Self {
        let mut all = Self::default();
        for cell in cells {
            let (Some(Some(reference)), Some(Some(slot))) = (cell.first(), cell.get(variant)) else {
                continue;
            };
            all.add(reference, slot);
        }
        all.without_exceptions()
    }

    /// Where one of the two hardly answers, without the few cells in which both did: their times are those of another state.
    fn without_exceptions(self) -> Self {
        if !self.hardly_answers() {
            return self;
        }
        let failing = self.hardly_answered.clone();
        Self { failing, middle: Vec::new(), tail: Vec::new(), ..self }
    }

    fn add(&mut self, reference: &CellStats, slot: &CellStats) {
        self.cells += 1;
        // That all requests fail is no matter of microseconds.
        let fails = slot.failure_share() > HOPELESS.0 || reference.failure_share() > HOPELESS.0;
        if fails {
            let difference = slot.failure_share() - reference.failure_share();
            self.hardly_answered.push(difference);
            return self.failing.push(difference);
        }
        if reference.limited || slot.limited {
            self.limited += 1;
            return;
        }
        let log = |one: Option<f64>, other: Option<f64>| Some((one? / other?).ln());
        self.middle.extend(log(slot.middle, reference.middle));
        self.tail.extend(log(slot.tail, reference.tail));
        self.failing.push(slot.failure_share() - reference.failure_share());
    }

    /// Why nothing can be said, as far as is known.
    pub(crate) fn invalid(&self) -> Option<MeasureVerdict> {
        let limited = self.limited();
        (limited > LIMITED).then_some(MeasureVerdict::Invalid { limited })
    }

    /// Whether more cells are of no use: this machine has been the limit of most of them for two looks and longer.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.limited() > HOPELESS.0 && self.cells >= HOPELESS.1
    }

    fn limited(&self) -> f64 {
        self.limited as f64 / self.cells.max(1) as f64
    }

    /// Whether one of the two hardly ever answered half of its requests. Of these there are no times, and failures differ by the margin or are
    /// equal within it: that 96 of 100 fail in the place of 98 is no cause of anything.
    fn hardly_answers(&self) -> bool {
        self.cells > 0 && self.hardly_answered.len() as f64 >= MOST_OF_THEM * self.cells as f64
    }

    fn has_failed(&self) -> bool {
        self.failing.iter().any(|difference| *difference != 0.0)
    }

    /// Of shares of failures, none where none failed.
    pub(crate) fn failure_difference(&self, look: InterimLook) -> Option<LocationEstimate> {
        if self.has_failed() { LocationEstimate::of(&self.failing, look.levels().difference) } else { None }
    }

    /// p-value of a difference in time or in failures, and whether it is the failures.
    pub(crate) fn p_difference(&self, margin: f64) -> (f64, bool) {
        if self.hardly_answers() {
            return (p_beyond(&self.failing, margin), true);
        }
        let time = p_beyond(&self.middle, null_difference(margin).ln_1p());
        if !self.has_failed() {
            return (time, false);
        }
        let failing = p_beyond(&self.failing, FAILING);
        // Where both are as sure as so few cells can be, a way that fails more is not one that is faster.
        (2.0 * time.min(failing), failing <= time)
    }

    /// p-value of equality: in time, and in failures where there are any.
    pub(crate) fn p_equivalence(&self, margin: f64) -> f64 {
        if self.hardly_answers() {
            return p_within(&self.failing, margin);
        }
        let time = p_within(&self.middle, margin.ln_1p());
        if self.has_failed() { time.max(p_within(&self.failing, FAILING)) } else { time }
    }
}

/// That they lie further from nothing than this, to whichever side.
pub(crate) fn p_beyond(differences: &[f64], null: f64) -> f64 {
    let [above, below] =
        [SignedRanks::of(differences, null).p_above(), SignedRanks::of(differences, -null).p_below()];
    above.min(below)
}

/// That they lie nearer than this: two tests, each to one side (Schuirmann, 1987).
pub(crate) fn p_within(differences: &[f64], margin: f64) -> f64 {
    let [below, above] =
        [SignedRanks::of(differences, margin).p_below(), SignedRanks::of(differences, -margin).p_above()];
    below.max(above)
}

/// Cells until a measure is told most likely, one way or the other, of so many variants: beyond what is no difference, or within the margin.
/// None where its interval, which is one of these levels, says nothing yet.
pub(crate) fn cells_needed(
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

/// Seconds that a cell of a segment takes.
pub(crate) fn seconds_of_cell(segment: &Segment) -> f64 {
    segment.duration().as_secs_f64() / segment.cells as f64
}
