//! Finds the reason why a target breaks at its limit.
//!
//! This crate works with signs and probabilities and has no sockets, threads or clocks. It describes each test as an
//! [`experiment::Experiment`] and reads the result as [`observed_requests::ExperimentObservation`], request by request.
//!
//! - [`experiment_selection::Inquiry`] chooses the experiments of [`experiment_plans`].
//! - [`experiment_stats`] computes statistics of one experiment, and [`signs`] interprets them.
//! - [`odds`] turns signs into probabilities of the causes in [`class`].
//! - [`cause_size_estimates`] estimates how large a cause is, and [`report_text`] writes the texts of the [`report`].
//!
//! The crate `lab` runs the experiments, and the tool shows the report.

pub mod cause_size_estimates;
pub mod class;
pub mod diagnosis_input;
pub mod experiment;
pub mod experiment_plans;
pub mod experiment_selection;
pub mod experiment_stats;
pub mod experiment_target;
pub mod observed_requests;
pub mod odds;
pub mod report;
pub mod report_text;
pub mod signs;
#[cfg(any(test, feature = "simulated"))]
pub mod simulated;
