//! What is said of the cause: data for whoever shows it.

use crate::class::CauseClass;
use crate::experiment::Experiment;
use crate::watched::ExperimentObservation;

/// Everything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DiagnosisReport {
    /// The causes: the likeliest first; two where two hold at once. Never empty at the end: [`CauseClass::Unknown`] is one.
    pub causes: Vec<DiagnosedCause>,
    /// Causes that fit as well, and what would tell.
    pub ties: Vec<CauseTie>,
    /// Causes that do not hold, and why.
    pub excluded: Vec<ExcludedCause>,
    /// Causes of which nothing can be said, and why.
    pub untested: Vec<UndecidedCause>,
    /// The last experiment of which anything was answered, where the target answers nothing any more: what came after it, or at its end, is no
    /// sign of any cause.
    pub down_since: Option<&'static str>,
    /// What was tried, in order.
    pub experiments: Vec<ExperimentRecord>,
}

/// A cause.
#[derive(Debug, Clone, PartialEq)]
pub struct DiagnosedCause {
    /// Which.
    pub class: CauseClass,
    /// Its probability, between 0 and 1.
    pub confidence: f64,
    /// What speaks for it, the strongest first.
    pub evidence: Vec<CauseEvidence>,
    /// What is known of its size: bucket, places, seconds.
    pub figures: Vec<CauseFigure>,
}

/// A sign.
#[derive(Debug, Clone, PartialEq)]
pub struct CauseEvidence {
    /// What was seen, in words with its figures: "the second of two bursts admitted 2 of 18".
    pub observation: String,
    /// By which experiment.
    pub experiment: &'static str,
    /// How much likelier it is under this cause than under the next best.
    pub likelihood_ratio: f64,
}

/// A figure of a cause.
#[derive(Debug, Clone, PartialEq)]
pub struct CauseFigure {
    /// What: "bucket", "fill", "workers", "places", "connections", "gives up after".
    pub name: &'static str,
    /// How much.
    pub value: f64,
    /// In which unit: "requests", "requests/s", "s", "".
    pub unit: &'static str,
}

/// Causes that cannot be told apart from here.
#[derive(Debug, Clone, PartialEq)]
pub struct CauseTie {
    /// They.
    pub between: Vec<CauseClass>,
    /// What would tell: "look at --server-cgroup on the server".
    pub how_to_tell: String,
}

/// A cause that does not hold.
#[derive(Debug, Clone, PartialEq)]
pub struct ExcludedCause {
    /// Which.
    pub class: CauseClass,
    /// How it was excluded, in words.
    pub reason: String,
}

/// A cause of which nothing can be said.
#[derive(Debug, Clone, PartialEq)]
pub struct UndecidedCause {
    /// Which.
    pub class: CauseClass,
    /// Why, in words.
    pub reason: String,
    /// True if `--max-rate` ruled out the experiments that would decide.
    pub needs_higher_max_rate: bool,
}

/// An experiment, and what was seen of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ExperimentRecord {
    /// What was asked for.
    pub experiment: Experiment,
    /// What came of it.
    pub observation: ExperimentObservation,
    /// What it says, in words.
    pub summary: String,
}
