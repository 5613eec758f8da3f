//! What experiments are carried out on: a server, over sessions of the load engine, or a simulated one.

use std::time::Duration;

use crate::experiment::Experiment;
use crate::watched::ExperimentObservation;

/// Carries out what is asked for, one thing after the other.
pub trait ExperimentTarget {
    /// Carries out this experiment and says what was seen of it.
    fn run_experiment(&mut self, experiment: &Experiment) -> ExperimentObservation;

    /// Sends nothing for that long; `false` if somebody wants everything to end.
    fn pause(&mut self, time: Duration) -> bool;
}
