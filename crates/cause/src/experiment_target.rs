//! The target of experiments: a server behind sessions of the load engine, or a simulated one.

use std::time::Duration;

use crate::experiment::Experiment;
use crate::observed_requests::ExperimentObservation;

/// A target that runs experiments, one at a time.
pub trait ExperimentTarget {
    /// Runs an experiment and returns its observation.
    fn run_experiment(&mut self, experiment: &Experiment) -> ExperimentObservation;

    /// Sends nothing for this time; returns `false` if the user interrupted the pause.
    fn pause(&mut self, time: Duration) -> bool;
}
