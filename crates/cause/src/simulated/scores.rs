//! How well inquiries did: what was planted against what was named.

use super::plants::{PAIRS, PlantedTarget, SINGLE};
use crate::case::DiagnosisInput;
use crate::class::CauseClass;
use crate::inquiry::{Inquiry, InquiryStep, load_seconds};
use crate::odds::{self, CausePosterior};
use crate::report::DiagnosisReport;
use crate::subject::ExperimentTarget;

/// How an inquiry ended.
#[derive(Debug, Clone, PartialEq)]
pub struct DiagnosisScore {
    /// What was planted.
    pub truth: Vec<CauseClass>,
    /// What was named, the likeliest first.
    pub named: Vec<CauseClass>,
    /// How much likelier the first is than the likeliest that is not named.
    pub ahead: f64,
    /// A tie was told that has both the planted and the named cause.
    pub tied: bool,
    /// Seconds of load.
    pub load: f64,
    /// What it said.
    pub report: DiagnosisReport,
}

/// So many times likelier is confident.
const CONFIDENT: f64 = 10.0;

impl DiagnosisScore {
    /// The first that was named is planted.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.named.first().is_some_and(|named| self.truth.contains(named))
    }

    /// It is not, and no doubt was told.
    #[must_use]
    pub fn is_wrong_with_confidence(&self) -> bool {
        !self.is_right() && self.ahead >= CONFIDENT
    }

    /// Everything planted was named.
    #[must_use]
    pub fn has_all(&self) -> bool {
        self.truth.iter().all(|class| self.named.contains(class))
    }

    /// It was, but without confidence.
    #[must_use]
    pub fn is_unsure(&self) -> bool {
        self.ahead < CONFIDENT
    }
}

/// Carries an inquiry out.
#[must_use]
pub fn score(mut plant: PlantedTarget) -> DiagnosisScore {
    let mut inquiry = Inquiry::new(plant.known.clone());
    let mut load = 0.0;
    loop {
        match inquiry.next_step() {
            InquiryStep::Finished => break,
            InquiryStep::Pause(time) => {
                let goes_on = plant.subject.pause(time);
                inquiry.record_pause(time, goes_on);
            }
            InquiryStep::RunExperiment(experiment) => {
                let watched = plant.subject.run_experiment(&experiment);
                load += load_seconds(&experiment);
                inquiry.record_experiment(&experiment, watched);
            }
        }
    }
    let case = DiagnosisInput { known: &plant.known, tried: &inquiry.report().experiments };
    let odds = CausePosterior::new(&odds::read_signs(&case), 1.0);
    scored(plant.truth, inquiry.report().clone(), &odds, load)
}

fn scored(
    truth: Vec<CauseClass>,
    report: DiagnosisReport,
    odds: &CausePosterior,
    load: f64,
) -> DiagnosisScore {
    let named: Vec<_> = report.causes.iter().map(|cause| cause.class).collect();
    let first = report.causes.first().map_or(0.0, |cause| cause.confidence);
    let next = odds.marginals.iter().find(|(class, _)| !named.contains(class)).map_or(0.0, |(_, p)| *p);
    let ahead = first / next.max(1e-3);
    let tied = report.ties.iter().any(|tie| {
        truth.iter().any(|class| tie.between.contains(class))
            && named.iter().any(|class| tie.between.contains(class))
    });
    DiagnosisScore { truth, named, ahead, tied, load, report }
}

/// Every single cause, from each seed.
#[must_use]
pub fn singles(seeds: std::ops::Range<u64>) -> Vec<DiagnosisScore> {
    let plants =
        SINGLE.into_iter().flat_map(|class| seeds.clone().map(move |seed| PlantedTarget::draw(class, seed)));
    plants.map(score).collect()
}

/// The same of targets on this machine.
#[must_use]
pub fn single_local_faults(seeds: std::ops::Range<u64>) -> Vec<DiagnosisScore> {
    let plants = SINGLE
        .into_iter()
        .flat_map(|class| seeds.clone().map(move |seed| PlantedTarget::draw_local(class, seed)));
    plants.map(score).collect()
}

/// Every pair, from each seed.
#[must_use]
pub fn pairs(seeds: std::ops::Range<u64>) -> Vec<DiagnosisScore> {
    let plants = PAIRS
        .into_iter()
        .flat_map(|pair| seeds.clone().map(move |seed| PlantedTarget::draw_pair(pair, seed)));
    plants.map(score).collect()
}

/// Share of which this holds.
pub fn share(scores: &[DiagnosisScore], holds: impl Fn(&DiagnosisScore) -> bool) -> f64 {
    scores.iter().filter(|score| holds(score)).count() as f64 / scores.len().max(1) as f64
}
