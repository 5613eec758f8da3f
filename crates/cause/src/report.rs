//! The report of a diagnosis, as data for its display.

use crate::class::CauseClass;
use crate::experiment::Experiment;
use crate::observed_requests::ExperimentObservation;

/// The report of a diagnosis.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DiagnosisReport {
    /// The one or two causes, the most probable first. A finished report has at least one cause, which may be [`CauseClass::Unknown`].
    pub causes: Vec<DiagnosedCause>,
    /// Causes that fit equally well, with a way to tell them apart.
    pub ties: Vec<CauseTie>,
    /// The excluded causes with reasons.
    pub excluded: Vec<ExcludedCause>,
    /// The causes without a verdict, with reasons.
    pub undecided_causes: Vec<UndecidedCause>,
    /// The last experiment with a response, if the target has stopped answering. Later observations say nothing about causes.
    pub last_answered_experiment: Option<&'static str>,
    /// The experiments in order.
    pub experiments: Vec<ExperimentRecord>,
}

/// A cause that the diagnosis names.
#[derive(Debug, Clone, PartialEq)]
pub struct DiagnosedCause {
    /// The class of the cause.
    pub class: CauseClass,
    /// The probability, between 0 and 1.
    pub confidence: f64,
    /// The evidence for the cause, the strongest first.
    pub evidence: Vec<CauseEvidence>,
    /// The estimated sizes, such as bucket, places or seconds.
    pub figures: Vec<CauseFigure>,
}

/// A sign that supports a cause.
#[derive(Debug, Clone, PartialEq)]
pub struct CauseEvidence {
    /// The observation with its numbers, such as "at 300/s, the target quickly refused 33 % of the requests".
    pub observation: String,
    /// The name of the experiment.
    pub experiment_name: &'static str,
    /// The likelihood of the sign under this cause, divided by that under the next most probable cause.
    pub likelihood_ratio: f64,
}

/// An estimated size of a cause.
#[derive(Debug, Clone, PartialEq)]
pub struct CauseFigure {
    /// The name, such as "burst allowance", "refill", "workers", "places", "connections" or "gives up after".
    pub name: &'static str,
    /// The value.
    pub value: f64,
    /// The unit, such as "requests", "requests/s", "s" or "".
    pub unit: &'static str,
}

/// Causes that the experiments cannot tell apart.
#[derive(Debug, Clone, PartialEq)]
pub struct CauseTie {
    /// The causes.
    pub between: Vec<CauseClass>,
    /// A way to tell the causes apart, such as "look at the server's CPU under load (--server-cgroup)".
    pub how_to_tell: String,
}

/// An excluded cause.
#[derive(Debug, Clone, PartialEq)]
pub struct ExcludedCause {
    /// The class of the cause.
    pub class: CauseClass,
    /// The observation that excludes the cause.
    pub reason: String,
}

/// A cause without a verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct UndecidedCause {
    /// The class of the cause.
    pub class: CauseClass,
    /// The reason why there is no verdict.
    pub reason: String,
    /// True if `--max-rate` ruled out the experiments that would decide.
    pub needs_higher_max_rate: bool,
}

/// An experiment with its observation.
#[derive(Debug, Clone, PartialEq)]
pub struct ExperimentRecord {
    /// The experiment.
    pub experiment: Experiment,
    /// The observation.
    pub observation: ExperimentObservation,
    /// The summary in one line.
    pub summary: String,
}
