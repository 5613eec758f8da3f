//! The target of a search for a limit and its cause: a server behind sessions of the load engine, or a simulated server on a clock that is moved by
//! hand. Both get the same search.

use std::time::Duration;

use seawall_cause::experiment_target::ExperimentTarget;
use seawall_search::{closed_loop, target::SearchTarget};

/// A target, experiments on it, and what can be offered to it at all.
pub trait TargetDriver: SearchTarget + closed_loop::ClosedTarget + ExperimentTarget {
    /// Finds out the highest rate that this generator can offer, without troubling the target.
    fn calibrate(&mut self) -> Calibration;

    /// Closes all connections to the target, so that those which a search has kept hold no places there.
    fn close_connections(&mut self);

    /// Most clients, each of which waits for its answer, that this generator can keep busy.
    fn max_clients(&self) -> u32;
}

/// The generator's capacity.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// Requests a second that it can send by itself; none: that could not be told, and each trial is judged by itself.
    pub max_rate: Option<f64>,
    /// The method of the measurement, in words.
    pub explanation: String,
    /// The duration of the measurement.
    pub took: Duration,
    /// Somebody wants everything to end.
    pub interrupted: bool,
}
