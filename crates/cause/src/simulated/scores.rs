//! Scores of inquiries: the planted causes against the named ones.

use super::planted_targets::{PAIRS, PlantedTarget, SINGLE_CAUSES};
use crate::class::CauseClass;
use crate::diagnosis_input::DiagnosisInput;
use crate::experiment_selection::{Inquiry, InquiryStep, load_seconds};
use crate::experiment_target::ExperimentTarget;
use crate::odds::{self, CausePosterior};
use crate::report::DiagnosisReport;

/// The result of one inquiry.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoredInquiry {
    /// The planted causes.
    pub truth: Vec<CauseClass>,
    /// The named causes, the most probable first.
    pub named: Vec<CauseClass>,
    /// The probability of the first cause divided by that of the most probable cause that is not named.
    pub confidence_ratio_to_unnamed: f64,
    /// True if the report has a tie between the planted and the named cause.
    pub is_tied_with_truth: bool,
    /// The seconds of load.
    pub load_seconds: f64,
    /// The report of the inquiry.
    pub report: DiagnosisReport,
}

/// The ratio of probabilities from which a result counts as confident.
const CONFIDENT: f64 = 10.0;

impl ScoredInquiry {
    /// Returns whether the first named cause is planted.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.named.first().is_some_and(|named| self.truth.contains(named))
    }

    /// Returns whether the inquiry named a wrong cause with confidence.
    #[must_use]
    pub fn is_wrong_with_confidence(&self) -> bool {
        !self.is_right() && self.confidence_ratio_to_unnamed >= CONFIDENT
    }

    /// Returns whether the inquiry named all planted causes.
    #[must_use]
    pub fn named_all_causes(&self) -> bool {
        self.truth.iter().all(|class| self.named.contains(class))
    }

    /// Returns whether the inquiry was not confident of its first cause.
    #[must_use]
    pub fn is_unsure(&self) -> bool {
        self.confidence_ratio_to_unnamed < CONFIDENT
    }
}

/// Runs an inquiry on a target.
#[must_use]
pub fn diagnose_and_score_one(mut plant: PlantedTarget) -> ScoredInquiry {
    let mut inquiry = Inquiry::new(plant.search_findings.clone());
    let mut load = 0.0;
    loop {
        match inquiry.next_step() {
            InquiryStep::Finished => break,
            InquiryStep::Pause(time) => {
                let goes_on = plant.simulated_target.pause(time);
                inquiry.record_pause(time, goes_on);
            }
            InquiryStep::RunExperiment(experiment) => {
                let watched = plant.simulated_target.run_experiment(&experiment);
                load += load_seconds(&experiment);
                inquiry.record_experiment(&experiment, watched);
            }
        }
    }
    let case = DiagnosisInput {
        search_findings: &plant.search_findings,
        experiments: &inquiry.report().experiments,
    };
    let odds = CausePosterior::new(&odds::read_signs(&case), 1.0);
    scored(plant.truth, inquiry.report().clone(), &odds, load)
}

fn scored(
    truth: Vec<CauseClass>,
    report: DiagnosisReport,
    odds: &CausePosterior,
    load: f64,
) -> ScoredInquiry {
    let named: Vec<_> = report.causes.iter().map(|cause| cause.class).collect();
    let first = report.causes.first().map_or(0.0, |cause| cause.confidence);
    let next = odds.marginals.iter().find(|(class, _)| !named.contains(class)).map_or(0.0, |(_, p)| *p);
    let ahead = first / next.max(1e-3);
    let tied = report.ties.iter().any(|tie| {
        truth.iter().any(|class| tie.between.contains(class))
            && named.iter().any(|class| tie.between.contains(class))
    });
    ScoredInquiry {
        truth,
        named,
        confidence_ratio_to_unnamed: ahead,
        is_tied_with_truth: tied,
        load_seconds: load,
        report,
    }
}

/// Scores for every single cause, for each seed.
#[must_use]
pub fn score_single_causes(seeds: std::ops::Range<u64>) -> Vec<ScoredInquiry> {
    let plants = SINGLE_CAUSES
        .into_iter()
        .flat_map(|class| seeds.clone().map(move |seed| PlantedTarget::draw(class, seed)));
    plants.map(diagnose_and_score_one).collect()
}

/// Scores for every single cause on local targets, for each seed.
#[must_use]
pub fn score_single_local_causes(seeds: std::ops::Range<u64>) -> Vec<ScoredInquiry> {
    let plants = SINGLE_CAUSES
        .into_iter()
        .flat_map(|class| seeds.clone().map(move |seed| PlantedTarget::draw_local(class, seed)));
    plants.map(diagnose_and_score_one).collect()
}

/// Scores for every pair of causes, for each seed.
#[must_use]
pub fn score_cause_pairs(seeds: std::ops::Range<u64>) -> Vec<ScoredInquiry> {
    let plants = PAIRS
        .into_iter()
        .flat_map(|pair| seeds.clone().map(move |seed| PlantedTarget::draw_pair(pair, seed)));
    plants.map(diagnose_and_score_one).collect()
}

/// Returns the share of scores that match the predicate.
pub fn share(scores: &[ScoredInquiry], holds: impl Fn(&ScoredInquiry) -> bool) -> f64 {
    scores.iter().filter(|score| holds(score)).count() as f64 / scores.len().max(1) as f64
}
