//! How well experiments did on simulated paths.

use std::time::Duration;

use super::path::{Effect, Noise, SimulatedPath};
use crate::finding::{MeasureVerdict, VariantFinding};
use crate::segment::{Design, SegmentTimes};
use crate::study::{Study, StudyConfig};

/// Experiments of one kind.
#[derive(Debug, Clone)]
pub struct SimulatedStudies {
    /// The path.
    pub noise: Noise,
    /// Of the variants beside the reference.
    pub effects: Vec<Effect>,
    /// How they take turns.
    pub design: Design,
    /// Requests a second, all together.
    pub rate: f64,
    /// Time for one experiment.
    pub budget: Duration,
    /// Go on for the tail.
    pub tail: bool,
}

impl SimulatedStudies {
    /// One variant that is so much slower, interleaved, with a budget of two minutes.
    #[must_use]
    pub fn slower(noise: Noise, rate: f64, share: f64) -> Self {
        let effect = Effect { time: share.ln_1p(), ..Effect::default() };
        let budget = Duration::from_secs(125);
        Self { noise, effects: vec![effect], design: Design::Interleaved, rate, budget, tail: false }
    }

    /// What one experiment says.
    #[must_use]
    pub fn run(&self, seed: u64) -> Study {
        let asked = StudyConfig {
            designs: vec![self.design; self.effects.len()],
            rate: self.rate,
            margin: 0.05,
            tail: self.tail,
            budget: self.budget,
            times: SegmentTimes::USUAL,
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

    /// What so many say, each with a seed of its own.
    #[must_use]
    pub fn score(&self, experiments: u64, seed: u64) -> StudyScore {
        let mut score = StudyScore::default();
        (0..experiments).for_each(|nth| score.add(&self.run(seed.wrapping_add(nth << 20)), self));
        score
    }
}

/// What experiments came to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StudyScore {
    /// How many there were.
    pub experiments: usize,
    /// Of them told a difference at the median, of whichever variant.
    pub differs: usize,
    /// Told that all that differ do, to the right side.
    pub found: usize,
    /// Told a difference in a variant that has none, or to the wrong side.
    pub wrong: usize,
    /// Called some variant equal.
    pub equal: usize,
    /// Told a difference in the tail.
    pub tail_differs: usize,
    /// Told either.
    pub claimed: usize,
    /// Called some tail equal.
    pub tail_equal: usize,
    /// Intervals of the median that held the truth.
    pub held: usize,
    /// Seconds until all was decided, of those in which it was.
    pub seconds: Vec<f64>,
    /// Seconds that undecided ones say it would take, those spent included.
    pub would_take: Vec<f64>,
}

impl StudyScore {
    fn add(&mut self, study: &Study, setting: &SimulatedStudies) {
        let findings = study.findings();
        let any = |of: &dyn Fn(&VariantFinding) -> bool| usize::from(findings.iter().any(of));
        self.experiments += 1;
        self.differs += any(&|finding| finding.middle.verdict == MeasureVerdict::Differs);
        self.equal += any(&|finding| finding.middle.verdict == MeasureVerdict::Equal);
        self.tail_differs += any(&|finding| finding.tail.verdict == MeasureVerdict::Differs);
        self.claimed += any(&|finding| {
            [finding.middle, finding.tail].iter().any(|one| one.verdict == MeasureVerdict::Differs)
        });
        self.tail_equal += any(&|finding| finding.tail.verdict == MeasureVerdict::Equal);
        let pairs = || findings.iter().zip(&setting.effects);
        self.found += usize::from(pairs().all(|(finding, effect)| is_right(finding, effect)));
        self.wrong += usize::from(pairs().any(|(finding, effect)| is_wrong(finding, effect)));
        self.held += usize::from(pairs().all(|(finding, effect)| holds(finding, effect.time.exp())));
        let undecided = findings.iter().find_map(|finding| match finding.middle.verdict {
            MeasureVerdict::Undecided { more } => Some(more),
            _ => None,
        });
        match undecided {
            None => self.seconds.push(study.spent().as_secs_f64()),
            Some(more) => self.would_take.extend(more.map(|more| (study.spent() + more).as_secs_f64())),
        }
    }

    /// Of all experiments, in percent.
    #[must_use]
    pub fn percent(&self, count: usize) -> f64 {
        100.0 * count as f64 / self.experiments.max(1) as f64
    }
}

fn differs(finding: &VariantFinding) -> bool {
    finding.middle.verdict == MeasureVerdict::Differs
}

fn is_right(finding: &VariantFinding, effect: &Effect) -> bool {
    let has_effect = effect.time != 0.0 || effect.failing != 0.0;
    !has_effect || (differs(finding) && !is_wrong(finding, effect))
}

fn is_wrong(finding: &VariantFinding, effect: &Effect) -> bool {
    let point = finding.middle.ratio.map_or(1.0, |ratio| ratio.point);
    let other_side = !finding.differs_in_failing && (point - 1.0) * effect.time <= 0.0;
    differs(finding) && other_side && effect.failing == 0.0
}

fn holds(finding: &VariantFinding, ratio: f64) -> bool {
    finding.middle.ratio.is_some_and(|told| told.lower <= ratio && ratio <= told.upper)
}

/// The value that a share of these are below; none of none.
#[must_use]
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[(share * last as f64).round() as usize])
}
