//! Scores of experiments on simulated paths.

use std::time::Duration;

use super::path::{Effect, Noise, SimulatedPath};
use crate::finding::{MeasureVerdict, VariantFinding};
use crate::segment::{SegmentTimes, VariantOrder};
use crate::study::{Study, StudyConfig};

/// A kind of simulated experiment.
#[derive(Debug, Clone)]
pub struct SimulatedStudies {
    /// The noise of the path.
    pub noise: Noise,
    /// The effects of the variants, without the reference.
    pub effects: Vec<Effect>,
    /// The design of the variants.
    pub design: VariantOrder,
    /// The total requests per second.
    pub rate: f64,
    /// The time limit of one experiment.
    pub budget: Duration,
    /// True to continue until the tail is decided.
    pub until_p99: bool,
}

impl SimulatedStudies {
    /// Creates an experiment with one interleaved variant that is slower by this share, with a time limit of two minutes.
    #[must_use]
    pub fn with_slower_variant(noise: Noise, rate: f64, share: f64) -> Self {
        let effect = Effect { log_time_factor: share.ln_1p(), ..Effect::default() };
        let budget = Duration::from_secs(125);
        Self {
            noise,
            effects: vec![effect],
            design: VariantOrder::Interleaved,
            rate,
            budget,
            until_p99: false,
        }
    }

    /// Runs one experiment.
    #[must_use]
    pub fn run_one(&self, seed: u64) -> Study {
        let asked = StudyConfig {
            designs: vec![self.design; self.effects.len()],
            rate: self.rate,
            margin: 0.05,
            until_p99: self.until_p99,
            budget: self.budget,
            times: SegmentTimes::DEFAULT_DURATIONS,
            seed,
        };
        let effects = std::iter::once(Effect::default()).chain(self.effects.iter().copied()).collect();
        let mut path = SimulatedPath::new(self.noise, effects, self.rate, seed ^ 0x7ea1);
        let mut study = Study::new(asked);
        while let Some(segment) = study.next_segment() {
            let cells = path.carry_out(&segment);
            study.record_segment(&segment, cells, segment.duration());
        }
        study
    }

    /// Runs this many experiments, each with its own seed, and returns their score.
    #[must_use]
    pub fn run_and_score(&self, experiments: u64, seed: u64) -> StudyScoreTotals {
        let mut score = StudyScoreTotals::default();
        (0..experiments).for_each(|nth| score.add(&self.run_one(seed.wrapping_add(nth << 20)), self));
        score
    }
}

/// The score of several experiments.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StudyScoreTotals {
    /// The number of experiments.
    pub experiments: usize,
    /// The number that found a difference in the centre for any variant.
    pub experiments_with_difference: usize,
    /// The number that found all real differences, with the right sign.
    pub found_all: usize,
    /// The number that found a false difference, or a wrong sign.
    pub experiments_with_false_difference: usize,
    /// The number that called a variant equal.
    pub experiments_with_equality: usize,
    /// The number that found a difference in a tail.
    pub experiments_with_tail_difference: usize,
    /// The number that found a difference in the centre or a tail.
    pub claimed: usize,
    /// The number that called a tail equal.
    pub experiments_with_tail_equality: usize,
    /// The number of experiments whose intervals of the centre all contain the truth.
    pub experiments_covering_truth: usize,
    /// The seconds until all variants were decided, for the experiments in which they were.
    pub decision_seconds: Vec<f64>,
    /// The forecast seconds of undecided experiments, including the time already spent.
    pub undecided_forecast_seconds: Vec<f64>,
}

impl StudyScoreTotals {
    fn add(&mut self, study: &Study, setting: &SimulatedStudies) {
        let findings = study.findings();
        let any = |of: &dyn Fn(&VariantFinding) -> bool| usize::from(findings.iter().any(of));
        self.experiments += 1;
        self.experiments_with_difference += any(&|finding| finding.middle.verdict == MeasureVerdict::Differs);
        self.experiments_with_equality += any(&|finding| finding.middle.verdict == MeasureVerdict::Equal);
        self.experiments_with_tail_difference +=
            any(&|finding| finding.tail.verdict == MeasureVerdict::Differs);
        self.claimed += any(&|finding| {
            [finding.middle, finding.tail].iter().any(|one| one.verdict == MeasureVerdict::Differs)
        });
        self.experiments_with_tail_equality += any(&|finding| finding.tail.verdict == MeasureVerdict::Equal);
        let pairs = || findings.iter().zip(&setting.effects);
        self.found_all += usize::from(pairs().all(|(finding, effect)| is_right(finding, effect)));
        self.experiments_with_false_difference +=
            usize::from(pairs().any(|(finding, effect)| is_wrong(finding, effect)));
        self.experiments_covering_truth +=
            usize::from(pairs().all(|(finding, effect)| holds(finding, effect.log_time_factor.exp())));
        let undecided = findings.iter().find_map(|finding| match finding.middle.verdict {
            MeasureVerdict::Undecided { more } => Some(more),
            _ => None,
        });
        match undecided {
            None => self.decision_seconds.push(study.spent().as_secs_f64()),
            Some(more) => {
                self.undecided_forecast_seconds.extend(more.map(|more| (study.spent() + more).as_secs_f64()));
            }
        }
    }

    /// Returns the percentage of a count among all experiments.
    #[must_use]
    pub fn percent(&self, count: usize) -> f64 {
        100.0 * count as f64 / self.experiments.max(1) as f64
    }
}

fn differs(finding: &VariantFinding) -> bool {
    finding.middle.verdict == MeasureVerdict::Differs
}

fn is_right(finding: &VariantFinding, effect: &Effect) -> bool {
    let has_effect = effect.log_time_factor != 0.0 || effect.failing != 0.0;
    !has_effect || (differs(finding) && !is_wrong(finding, effect))
}

fn is_wrong(finding: &VariantFinding, effect: &Effect) -> bool {
    let point = finding.middle.ratio.map_or(1.0, |ratio| ratio.point);
    let other_side = !finding.differs_in_failing && (point - 1.0) * effect.log_time_factor <= 0.0;
    differs(finding) && other_side && effect.failing == 0.0
}

fn holds(finding: &VariantFinding, ratio: f64) -> bool {
    finding.middle.ratio.is_some_and(|told| told.lower <= ratio && ratio <= told.upper)
}

/// Returns a quantile of the values; none without values.
#[must_use]
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[(share * last as f64).round() as usize])
}
