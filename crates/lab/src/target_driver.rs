//! The target of a search for a limit and its cause: a real server behind sessions of the load engine, or a simulated server with
//! a manual clock. Both get the same search.

use std::time::Duration;

use seawall_cause::experiment_target::ExperimentTarget;
use seawall_search::{closed_loop, target::SearchTarget};

/// Runs trials and experiments on a target, and knows the limits of the generator.
pub trait TargetDriver: SearchTarget + closed_loop::ClosedTarget + ExperimentTarget {
    /// Measures the highest rate that this generator can offer, without load on the target.
    fn calibrate(&mut self) -> Calibration;

    /// Closes all connections to the target, so that idle ones do not occupy its places.
    fn close_connections(&mut self);

    /// Returns the most clients that this generator can keep busy. Each client waits for its response.
    fn max_clients(&self) -> u32;
}

/// The generator's capacity.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// The requests per second that the generator can send by itself. `None` if unknown; then each trial is judged by itself.
    pub max_rate: Option<f64>,
    /// The method of the measurement, in words.
    pub explanation: String,
    /// The duration of the measurement.
    pub took: Duration,
    /// True if the run is to stop.
    pub interrupted: bool,
}
